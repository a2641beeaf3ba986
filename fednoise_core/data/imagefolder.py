"""The user's own images: `train/<class>/…` and `test/<class>/…`, with an optional CSV of given labels and owners."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import MISSING, Field

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.from_user import from_user
from fednoise_core.data.images import SUFFIXES, ImageFiles
from fednoise_core.data.label_table import Table, columns_of, read_table
from fednoise_core.data.locate import user_path
from fednoise_core.data.owners import owners_named
from fednoise_core.data.settings import Dataset, OwnTest
from fednoise_core.data.splits import held_out, holdout_share
from fednoise_core.io import ArtifactError, SpecError, sha256_file
from fednoise_core.settings import NoBool

__all__ = ["SETTINGS", "classes_of_files", "facts", "files", "read", "shape_of"]

Side = Annotated[int, Field(ge=1)]


class ImageFolder(Dataset):
    """The user's images: train/<class>/… and test/<class>/…, with an optional CSV (file, label, client) of given labels
    and owners; every class needs a training image, links must lead to images below path. With clean_known: false and
    labels in the CSV, the folders in train/ may be any.
    """

    example: ClassVar = {"path": "photos", "size": 32, "given": "labels.csv"}

    path: Annotated[
        str,
        Field(min_length=1, description="Folder with train/ and test/, in the working folder or below data_root."),
    ]
    size: Annotated[
        Side | Annotated[list[Side], Field(min_length=2, max_length=2)] | MISSING,
        Field(
            description="Side, or [height, width], that images are scaled and cut to; default: as they are, which must "
            "be the same for all."
        ),
    ] = MISSING
    channels: Annotated[Literal[1, 3], NoBool, Field(description="1: grey, 3: colour.")] = 3
    given: Annotated[
        str | MISSING,
        Field(
            min_length=1,
            description="CSV below path with the columns file (below train/), label (a class name), client (the owner, "
            "any text) and drop (yes leaves the image out); label or client, and drop may be missing.",
        ),
    ] = MISSING
    clean_known: Annotated[
        bool,
        Field(
            description="false: the labels, of the CSV if it has any, else of the folders, are as collected and may be "
            "wrong."
        ),
    ] = True
    test: OwnTest = MISSING


SETTINGS = {"imagefolder": ImageFolder}


def read(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
    """Images below `path`; folders are classes, in alphabetical order of their names over train and test.

    `given`: a CSV below `path` with the columns file (below train/), label (a class name), client (the owner, any
    text), drop (yes leaves the image out); label or client, and drop may be missing. `clean_known: false`: the folders
    are labels as collected, which may be wrong; if the CSV has labels, they are, and folders of train/ mean nothing.
    `test: {holdout: share}`: there is no test/. Folders are searched with the folders in them; names that begin with a
    dot are passed over. A link is followed if it leads to an image below `path`.

    Raises ArtifactError naming the file or folder that is missing or wrong: a link that leads out of `path`, an image
    beside the class folders, a class without a training image, a line of the CSV.
    """
    root = _root(spec, places)
    clean_known, channels = bool(spec.get("clean_known", True)), int(spec.get("channels", 3))
    table, names, paths, folders = _listed(spec, root, places)
    train = ImageFiles(root / "train", paths, channels, shape_of(spec))
    y_train, given = folders, {}
    if table is not None and table.labels is not None:
        if clean_known:
            given = {"given": _numbers(table, names)}
        else:
            y_train = _numbers(table, names)
    test = None
    if "test" not in spec:
        images = _list(root / "test", names)
        tests = ImageFiles(root / "test", [name for name, _ in images], channels, train.size)
        tests.fixed = train.fixed
        test = tests, np.array([label for _, label in images], np.int64)
    return from_user(
        spec,
        str(root / "train"),
        train,  # decoded when it is saved
        y_train,
        test,
        classes=len(names),
        owners=(None, ()) if table is None or table.owners is None else owners_named(table.owners),
        names=tuple(names),
        given=given,
        clean_known=clean_known,
        origin=np.array(paths),
        source_sha256={} if table is None else {table.path.name: sha256_file(table.path)},
    )


def facts(spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
    """(training samples, classes, (H, W)), from the names of files and folders, the CSV, and, without `size`, the first
    image.
    """
    root = _root(spec, places)
    table, names, paths, labels = _listed(spec, root, places)
    if table is not None and table.labels is not None and not spec.get("clean_known", True):
        labels = _numbers(table, names)
    share = holdout_share(spec)
    held = 0 if share is None else held_out(labels, share)
    return len(paths) - held, len(names), shape_of(spec) or ImageFiles(root / "train", paths[:1]).size


def _listed(
    spec: Mapping[str, Any], root: Path, places: Sequence[Path]
) -> tuple[Table | None, list[str], list[str], np.ndarray]:
    """(the CSV or None, class names, training images, the number of each one's class folder int64 [n]).

    Where the CSV's labels are the only ones, the classes are what it names, with the folders of test/.
    """
    parts = ("train", "test") if "test" not in spec else ("train",)
    path = _table_path(spec, root, places) if "given" in spec else None
    if path is None or spec.get("clean_known", True) or "label" not in columns_of(path):
        names = _names(root, parts)
        images = _list(root / "train", names)
        paths = [name for name, _ in images]
        labels = np.array([label for _, label in images], np.int64)
        if path is None:
            return None, names, paths, labels
        table = read_table(path, paths, names)
        at = [i for i, gone in enumerate(table.dropped) if not gone]
        return table.kept(), names, [paths[i] for i in at], labels[at]
    paths = [name for name, _ in _list(root / "train", [""])]
    table = read_table(path, paths)
    paths = [name for name, gone in zip(paths, table.dropped, strict=True) if not gone]
    table = table.kept()
    assert table.labels is not None
    names = sorted({*table.labels, *(_folders(root, parts[1:]))})
    if len(names) < 2:
        raise ArtifactError(f"{path}: the column label names {len(names)} class; at least 2 are needed")
    return table, names, paths, np.zeros(len(paths), np.int64)


def _numbers(table: Table, names: Sequence[str]) -> np.ndarray:
    """Class numbers int64 [n] of the CSV's labels."""
    number = {name: label for label, name in enumerate(names)}
    assert table.labels is not None
    return np.array([number[label] for label in table.labels], np.int64)


def files(spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
    """What is read: the folders and, if there is one, the CSV."""
    root = _root(spec, places)
    table = [_table_path(spec, root, places)] if "given" in spec else []
    return [root / "train", *([root / "test"] if "test" not in spec else []), *table]


def classes_of_files(root: Path) -> dict[str, str]:
    """File below train/ -> its class folder, for every training image below `root`, sorted by file."""
    names = _names(root, ("train",))
    return {name: names[label] for name, label in sorted(_list(root / "train", names))}


def shape_of(spec: Mapping[str, Any], default: int | None = None) -> tuple[int, int] | None:
    """(H, W) of the setting `size` (a number or a pair), or None: as the files are."""
    side = spec.get("size", default)
    if side is None:
        return None
    height, width = (side, side) if isinstance(side, int) else side
    return int(height), int(width)


def _root(spec: Mapping[str, Any], places: Sequence[Path]) -> Path:
    """The folder, in which there is train/ and exactly one test set: test/, or the setting `test`."""
    root = user_path(spec, places)
    if not (root / "train").is_dir():
        raise SpecError(f"dataset imagefolder: path: {root} has no folder train/")
    there = (root / "test").is_dir()
    if "test" in spec and there:
        raise SpecError(f"dataset imagefolder: test: {root} has a folder test/; remove the setting `test` to use that")
    if "test" not in spec and not there:
        cure = "add trusted images there, or let a share of the given data stand in: test: {holdout: 0.2}"
        raise SpecError(f"dataset imagefolder: path: {root} has no folder test/; {cure}")
    return root


def _table_path(spec: Mapping[str, Any], root: Path, places: Sequence[Path]) -> Path:
    """The CSV of `given`: below `path`, else below the working folder or one of `places`; never outside of these."""
    name = PurePath(str(spec["given"]))
    if name.is_absolute() or ".." in name.parts:
        raise SpecError(f"dataset imagefolder: given: {name} leads out of {root}; name a file below it")
    return user_path({**spec, "given": root / name} if (root / name).exists() else spec, places, "given")


def _folders(root: Path, parts: Sequence[str]) -> set[str]:
    found = set()
    for part in parts:
        for entry in sorted((root / part).iterdir()):
            if entry.name.startswith("."):
                continue
            if _is_image(entry.name):
                raise ArtifactError(f"{entry}: an image beside the class folders; its folder says its class")
            if entry.is_dir():
                found.add(entry.name)
    return found


def _names(root: Path, parts: Sequence[str]) -> list[str]:
    names = sorted(_folders(root, parts))
    if len(names) < 2:
        where = " and ".join(f"{part}/" for part in parts)
        raise ArtifactError(f"{root}: {len(names)} class folder(s) in {where}; at least 2 are needed")
    return names


def _is_image(name: str) -> bool:
    return PurePath(name).suffix.lower() in SUFFIXES and not name.startswith(".")


def _list(folder: Path, names: Sequence[str]) -> list[tuple[str, int]]:
    """(path below `folder`, class number) of every image, sorted by path."""
    inside = folder.parent.resolve()
    found = []
    for label, name in enumerate(names):
        if (folder / name).is_symlink():
            raise _link(folder / name, inside)
        for base, folders, entries in os.walk(folder / name):
            for entry in folders:
                if Path(base, entry).is_symlink():  # os.walk does not follow it, so its images would be missing
                    raise _link(Path(base, entry), inside)
            for entry in filter(_is_image, entries):
                path = Path(base, entry)
                if path.is_symlink() and not path.resolve().is_relative_to(inside):
                    raise _link(path, inside)
                name_below = path.relative_to(folder).as_posix()
                if not _encodes(name_below):
                    raise ArtifactError(f"{folder}: {name_below!r}: its name is not UTF-8; rename it")
                found.append((name_below, label))
    if not found:
        raise ArtifactError(f"{folder}: no images in its class folders")
    return sorted(found)


def _encodes(name: str) -> bool:
    """Whether a file's name can be written into a table."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _link(path: Path, inside: Path) -> ArtifactError:
    """Files that lie elsewhere can change without anything made from them becoming stale."""
    cure = "links are followed only to images in it: copy what it leads to, or set path to the folder that holds all"
    return ArtifactError(f"{path}: a link to {path.resolve()}, read below {inside}; {cure}")
