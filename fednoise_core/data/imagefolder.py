"""The user's own images: `train/<class>/…` and `test/<class>/…`, with an optional CSV of given labels and owners."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.images import SUFFIXES, ImageFiles
from fednoise_core.data.locate import user_path
from fednoise_core.data.normal import moments
from fednoise_core.io import ArtifactError, SpecError, sha256_file

__all__ = ["facts", "files", "read", "shape_of"]


def read(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
    """Images below `path`; folders are classes, in alphabetical order of their names over train and test.

    `given`: a CSV with the columns file (below train/), label (a class name), and optionally client (an integer).
    `clean_known: false`: the folders are labels as collected, which may be wrong.
    Raises ArtifactError naming the file or folder that is missing or wrong.
    """
    root = _root(spec, places)
    names = _names(root)
    clean_known = bool(spec.get("clean_known", True))
    parts = {part: _list(root / part, names) for part in ("train", "test")}
    channels, size = int(spec.get("channels", 3)), shape_of(spec)
    train = ImageFiles(root / "train", [name for name, _ in parts["train"]], channels, size)
    test = ImageFiles(root / "test", [name for name, _ in parts["test"]], channels, train.size)
    test.fixed = train.fixed
    given: dict[str, np.ndarray] = {}
    client = None
    hashes: dict[str, str] = {}
    if "given" in spec:
        table = user_path(spec, [root, *places], "given")
        labels, client = _table(table, train.paths, names)
        given, hashes = {"given": labels}, {table.name: sha256_file(table)}
        if not clean_known:
            raise SpecError(f"dataset imagefolder: clean_known: false, but {table} gives labels beside the folders'")
    mean, std = moments(train)
    return Arrays(
        x_train=train,  # type: ignore[arg-type]  # decoded when it is saved
        y_train=np.array([label for _, label in parts["train"]], np.int64),
        x_test=test,  # type: ignore[arg-type]
        y_test=np.array([label for _, label in parts["test"]], np.int64),
        classes=len(names),
        mean=mean,
        std=std,
        given=given,
        client=client,
        names=tuple(names),
        clean_known=clean_known,
        source_sha256=hashes,
    )


def facts(spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
    """(training samples, classes, (H, W)), from the names of files and folders and, without `size`, the first image."""
    root = _root(spec, places)
    names = _names(root)
    train = [name for name, _ in _list(root / "train", names)]
    return len(train), len(names), shape_of(spec) or ImageFiles(root / "train", train[:1]).size


def files(spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
    """What is read: the two folders and, if there is one, the CSV."""
    root = _root(spec, places)
    table = [user_path(spec, [root, *places], "given")] if "given" in spec else []
    return [root / "train", root / "test", *table]


def shape_of(spec: Mapping[str, Any], default: int | None = None) -> tuple[int, int] | None:
    """(H, W) of the setting `size` (a number or a pair), or None: as the files are."""
    size = spec.get("size", default)
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


def _root(spec: Mapping[str, Any], places: Sequence[Path]) -> Path:
    root = user_path(spec, places)
    for part in ("train", "test"):
        if not (root / part).is_dir():
            raise SpecError(f"dataset imagefolder: path: {root} has no folder {part}/")
    return root


def _names(root: Path) -> list[str]:
    found = {entry.name for part in ("train", "test") for entry in os.scandir(root / part) if entry.is_dir()}
    names = sorted(name for name in found if not name.startswith("."))
    if len(names) < 2:
        raise ArtifactError(f"{root}: {len(names)} class folder(s) in train/ and test/; at least 2 are needed")
    return names


def _list(folder: Path, names: Sequence[str]) -> list[tuple[str, int]]:
    """(path below `folder`, class number) of every image, sorted by path."""
    found = []
    for label, name in enumerate(names):
        for base, _, entries in os.walk(folder / name):
            for entry in entries:
                if Path(entry).suffix.lower() in SUFFIXES and not entry.startswith("."):
                    found.append(((Path(base) / entry).relative_to(folder).as_posix(), label))
    if not found:
        raise ArtifactError(f"{folder}: no images in its class folders")
    return sorted(found)


def _table(path: Path, paths: Sequence[str], names: Sequence[str]) -> tuple[np.ndarray, np.ndarray | None]:
    """(given labels int64 [n], owners int64 [n] or None) in the order of `paths`."""
    number = {name: label for label, name in enumerate(names)}
    place = {name: i for i, name in enumerate(paths)}
    labels = np.full(len(paths), -1, np.int64)
    client = np.full(len(paths), -1, np.int64)
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        columns = set(rows.fieldnames or ())
        if not {"file", "label"} <= columns:
            raise ArtifactError(f"{path}: the columns file and label are needed; it has {', '.join(sorted(columns))}")
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            name, label = row["file"], row["label"]
            if name not in place:
                raise ArtifactError(f"{where}: train/{name} does not exist")
            if label not in number:
                raise ArtifactError(f"{where}: {label!r} is no class folder")
            if labels[place[name]] >= 0:
                raise ArtifactError(f"{where}: {name} comes twice")
            labels[place[name]] = number[label]
            if "client" in columns:
                try:
                    client[place[name]] = int(row["client"])
                except (TypeError, ValueError) as error:
                    raise ArtifactError(f"{where}: client {row['client']!r} is not an integer") from error
    if (labels < 0).any():
        raise ArtifactError(f"{path}: no label for train/{paths[int(np.argmax(labels < 0))]}")
    return labels, client if "client" in columns else None
