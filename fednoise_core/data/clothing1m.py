"""Clothing1M (Xiao et al. 2015) from the user's copy in its official layout: a million web images with web labels.

The authors provide the data on request, so nothing is downloaded. Images are decoded block by block into a
memory-mapped file beside the artifact (`Arrays.save`), so they need not fit into memory.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.images import ImageFiles
from fednoise_core.data.locate import user_path
from fednoise_core.data.settings import Dataset
from fednoise_core.data.splits import all_classes_occur
from fednoise_core.io import ArtifactError, SpecError, sha256_file


class Clothing1M(Dataset):
    """Clothing1M, a million web images of 14 kinds of clothing with the web's labels (Xiao et al. 2015).

    It is read from the user's copy. The clean labels are unknown.
    """

    display_name = "Clothing1M"
    example: ClassVar = {"path": "clothing1m", "size": 224}

    path: Annotated[
        str,
        Field(
            min_length=1,
            description="Folder with images/ and the lists (or annotations/ with the lists), in the working folder or "
            "below data_root.",
        ),
    ] = "clothing1m"
    size: Annotated[
        int, Field(ge=8, description="Side of the stored images: shorter side to size·256/224, then the middle.")
    ] = 224
    eval: Annotated[Literal["test", "val"], Field(description="Clean list that is the test set.")] = "test"

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Training images with their web labels, and the clean images of `eval`.

        The shorter side is scaled to size * 256 / 224, and the centre size x size is cropped, as usual for ImageNet.
        Raises SpecError if the folder or a list is missing. Raises ArtifactError for a wrong line, with file and line.
        """
        root, lists = _find_lists(spec, places)
        names = _read_lines(lists / NAMES)
        side = int(spec.get("size", 224))
        sides, resize = (side, side), round(side * 256 / 224)
        part = _clean_list(spec)
        train, y_train = _read_part(lists / TRAIN[0], lists / TRAIN[1], len(names))
        test, y_test = _read_part(lists / part, lists / CLEAN, len(names))
        all_classes_occur([y_train], len(names), names, str(lists / TRAIN[1]))
        return Arrays(
            x_train=ImageFiles(root, train, 3, sides, resize),  # type: ignore[arg-type]  # decoded when it is saved
            y_train=y_train,
            x_test=ImageFiles(root, test, 3, sides, resize),  # type: ignore[arg-type]
            y_test=y_test,
            classes=len(names),
            mean=IMAGENET[0],
            std=IMAGENET[1],
            names=tuple(names),
            clean_known=False,
            source_sha256={path.name: sha256_file(path) for path in cls.list_files(spec, places)},
        )

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """(training samples, classes, (H, W)), from the lists."""
        lists = _find_lists(spec, places)[1]
        side = int(spec.get("size", 224))
        return len(_read_lines(lists / TRAIN[0])), len(_read_lines(lists / NAMES)), (side, side)

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """It has no owners."""
        return {"client_ids"}

    @classmethod
    def list_files(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
        """List the lists of images and labels, but not the images themselves."""
        lists = _find_lists(spec, places)[1]
        return [lists / name for name in (NAMES, *TRAIN, _clean_list(spec), CLEAN)]


NAMES = "category_names_eng.txt"
TRAIN = ("noisy_train_key_list.txt", "noisy_label_kv.txt")
CLEAN = "clean_label_kv.txt"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # the statistics of the weights it is trained from


def _clean_list(spec: Mapping[str, Any]) -> str:
    return f"clean_{spec.get('eval', 'test')}_key_list.txt"


def _find_lists(spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[Path, Path]:
    """Return the folder with images/, and the folder with the lists, which is the same or its annotations/."""
    root = user_path(spec, places, default="clothing1m")
    lists = root if (root / NAMES).is_file() else root / "annotations"
    for name in (NAMES, *TRAIN, _clean_list(spec), CLEAN):
        if not (lists / name).is_file():
            raise SpecError(f"dataset clothing1m: path: {root} has no {name} (nor has {root / 'annotations'})")
    return root, lists


def _read_lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not UTF-8 at byte {error.start}") from error


def _read_part(keys: Path, labels: Path, classes: int) -> tuple[list[str], np.ndarray]:
    """Image paths in the order of the list `keys`, and their labels int64 [n] from the table `labels`."""
    table: dict[str, int] = {}
    for number, line in enumerate(_read_lines(labels), 1):
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdecimal() or len(label) > 9 or int(label) >= classes:
            raise ArtifactError(f"{labels}, line {number}: {line!r} is not a path and a class 0..{classes - 1}")
        table[name] = int(label)
    paths = [line.strip() for line in _read_lines(keys)]
    for number, name in enumerate(paths, 1):
        if name not in table:
            raise ArtifactError(f"{keys}, line {number}: {name} has no label in {labels.name}")
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ArtifactError(f"{keys}, line {number}: {name} leads out of the folder")
    if not paths:
        raise ArtifactError(f"{keys}: it names no image")
    return paths, np.array([table[name] for name in paths], np.int64)
