"""The user's own images as a data set: the common part for arrays in memory, an npz file, and a folder."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fednoise_core.data.array_checks import ArraysError
from fednoise_core.data.arrays import Arrays, take_rows
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.data.splits import all_classes_occur, hold_out


def from_user(
    settings: Mapping[str, Any],
    where: str,
    x_train: Any,
    y_train: np.ndarray,
    test: tuple[Any, np.ndarray] | None,
    *,
    classes: int,
    owners: tuple[np.ndarray | None, tuple[str, ...]],
    names: tuple[str, ...] = (),
    given: Mapping[str, np.ndarray] | None = None,
    **facts: Any,
) -> Arrays:
    """Make `Arrays` of images and labels. Compute mean and std, and hold out the test set if there is none.

    settings: have `test: {holdout: share}` if `test` is None. test: (images, labels int64 [m]) or None. where: name of
    the data in messages. x_train: uint8 images, or ImageFiles. owners: (owner of each image int64 [n] or None, names of
    the owners), see `owners_of`. facts: other fields of `Arrays`.

    Raises ArraysError if a class has no training image or the arrays do not fit together. Raises SpecError if too few
    samples can be held out.
    """
    given = given or {}
    if test is None:  # one image is a placeholder until `hold_out` has chosen the test set
        test = take_rows(x_train, np.arange(1)), y_train[:1]
    mean, std = mean_and_std(x_train)
    arrays = Arrays(
        x_train=x_train,
        y_train=y_train,
        x_test=test[0],
        y_test=test[1],
        classes=classes,
        mean=mean,
        std=std,
        given=given,
        client=owners[0],
        sites=owners[1],
        names=names,
        **facts,
    )
    if isinstance(x_train, np.ndarray) and (x_train == x_train[:1]).all():
        raise ArraysError("x_train holds the same image everywhere; nothing can be learned from it")
    all_classes_occur([y_train, *given.values()], classes, names, where)
    return hold_out(arrays, settings)
