"""The part of a data set that noise and partitions read. Labels are loaded at once, images only on demand."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.io import ArtifactError, SpecError, load_npz
from fednoise_core.settings.functions import expect_type


def labels_digest(y: np.ndarray, classes: int) -> str:
    """Compute a digest (16 hex digits) of the training labels `y` int64 [n] and the number of classes.

    A labels artifact stores it, so that labels for another split of the same size are detected. Images are not
    included. So labels stay valid for the same photos at another size, and no images need to be read.
    """
    sha = hashlib.sha256(f"{classes} {len(y)} ".encode())
    sha.update(np.ascontiguousarray(y, dtype="<i8").data)
    return sha.hexdigest()[:16]


def plain_labels(y: np.ndarray, n: int, classes: int) -> np.ndarray:
    """Check labels that are given as a plain array.

    Args:
        y: integers 0..classes-1, [n].
        n: required number of labels.
        classes: number of classes.

    Returns:
        int64 [n].

    Raises:
        SpecError: they are not such integers.
    """
    if y.dtype.kind not in "iu" or y.shape != (n,):
        raise SpecError(f"labels: got an array {y.dtype} {list(y.shape)}; integers [{n}], one per image, are needed")
    if y.min() < 0 or y.max() >= classes:
        raise SpecError(f"labels: they are {y.min()}..{y.max()}; this data set's classes are 0..{classes - 1}")
    return y.astype(np.int64)


def read_only(array: np.ndarray) -> np.ndarray:
    """View an array such that writing into it is an error."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class LabelledData:
    """Labels of a data set's n training samples.

    y: int64 [n], clean labels 0..classes-1, or the given labels if `clean_known` is false. given: name → int64 [n].
    coarse: superclass of each class, int64 [classes] or None. client: owner of each sample, int64 [n] or None. sites:
    names of the owners, or ().
    arrays: source of the images: an `Arrays`, the path of an arrays artifact, or None.
    """

    y: np.ndarray
    classes: int
    clean_known: bool = True
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    coarse: np.ndarray | None = None
    client: np.ndarray | None = None
    sites: tuple[str, ...] = ()
    arrays: Any = None

    def read_images(self, name: str = "x_train") -> np.ndarray:
        """Training images, or with "x_public" the public ones, uint8 [n, H, W] or [n, H, W, C].

        Raises:
            ArtifactError: There are none.
        """
        arrays = self.arrays
        if isinstance(arrays, Path):
            from fednoise_core.data.arrays import Arrays

            arrays = Arrays.load(arrays)
        value = getattr(arrays, name, None)
        if value is None:
            raise ArtifactError(f"the data set has no {name}")
        return value

    @classmethod
    def of(cls, data: Any, name: str = "data") -> LabelledData:
        """The labels of a data set.

        Args:
            data: an `Arrays`, the path of an arrays artifact, or a LabelledData, which is returned.

        Raises:
            TypeError: it is of another type. The message names the argument.
            ArtifactError: the file is damaged. The message names it.
        """
        from fednoise_core.data.arrays import Arrays

        if isinstance(data, LabelledData):
            return data
        if isinstance(data, (str, os.PathLike)):
            return cls._open_artifact(Path(data))
        expect_type(data, Arrays, name, "pass the arrays that fn.dataset(…) gives, or the path of an arrays artifact")
        return cls(data.y_train, data.classes, data.clean_known, data.given, data.coarse, data.client, data.sites, data)

    @classmethod
    def _open_artifact(cls, path: Path) -> LabelledData:
        """Read the labels of an arrays artifact, but not its images."""
        arrays, spec = load_npz(path, "arrays", lambda name: not name.startswith("x_") and name != "origin")
        try:
            return cls(
                y=arrays["y_train"],
                classes=int(spec["classes"]),
                clean_known=bool(spec["clean_known"]),
                given={key[6:]: value for key, value in arrays.items() if key.startswith("given_")},
                coarse=arrays.get("coarse"),
                client=arrays.get("client"),
                sites=tuple(str(name) for name in arrays.get("sites", ())),
                arrays=path,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path}: damaged arrays artifact ({type(error).__name__}: {error})") from error
