"""scikit-learn's digits: 1,797 real 8x8 hand-written digits that ship with the library; no download."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.data.settings import Dataset, Public
from fednoise_core.data.splits import split_off

N, TEST = 1797, 360  # a fifth, stratified
PUBLIC = 250  # always set aside, so that methods with and without public images train on the same 1,187 images


class Digits(Dataset):
    """scikit-learn's 1,797 hand-written digits, 8×8, 10 classes; ships with the library, no download."""

    redistributable = True

    test: Annotated[int, Field(ge=1, le=N - 1, description="Test samples, stratified.")] = TEST
    public: Public = PUBLIC

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Images uint8 [n, 8, 8] with a stratified test part.

        Pixels are counts 0..16. They are stored as min(16 * count, 255): one value per count, the full range of a byte.
        """
        from sklearn.datasets import load_digits

        raw = load_digits()
        x = np.minimum(raw.images.astype(np.int64) * 16, 255).astype(np.uint8)
        y = raw.target.astype(np.int64)
        test = int(spec.get("test", TEST))
        train_index, test_index = split_off(y, test, int(spec.get("split_seed", 0)), "heldout")
        mean, std = mean_and_std(x)
        return Arrays(
            x_train=x[train_index],
            y_train=y[train_index],
            x_test=x[test_index],
            y_test=y[test_index],
            classes=10,
            origin=train_index,
            mean=mean,
            std=std,
            names=tuple(str(digit) for digit in range(10)),
        )

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """The published ones, less the test samples."""
        return N - int(spec.get("test", TEST)), 10, (8, 8)

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """They have neither."""
        return {"given", "client_ids"}
