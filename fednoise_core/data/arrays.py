"""The array artifact: one data set as it leaves the `download` step. Needs numpy only."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.array_checks import ArraysError, check
from fednoise_core.io import ArtifactError, load_npz, open_atomic, save_npz

SIDE_BYTES = 1 << 30  # images above this go to a memory-mapped .npy beside the npz
IMAGES = ("x_train", "x_test", "x_public")  # arrays of images
VECTORS = ("y_train", "y_test", "client", "coarse", "origin", "first")
FACTS = ("classes", "clean_known", "test_known", "mean", "std", "source_sha256")
BLOCK = 256  # images decoded at a time on their way to a side file


def take_rows(x: Any, index: np.ndarray) -> Any:
    """Images at the positions `index` int [k]; those that are read on demand stay unread."""
    return x.take(index) if hasattr(x, "paths") else x[index]


@dataclass(frozen=True, repr=False)
class Arrays:
    """Images, labels and facts of one data set. Arrays that do not fit together raise ArraysError (a ValueError).

    x_train, x_test: uint8 [n, H, W] or [n, H, W, C], 0..255; memory-mapped (read only) if too big for memory. Feature
    vectors are float32 [n, 1, 1, d].
    y_train: int64 [n], clean labels 0..classes-1; the *given* ones if `clean_known` is False. y_test: int64 [m].
    x_public: uint8 [p, ...] or None: unlabelled images that nobody owns.
    given: key -> int64 [n], labels that people gave to the training images (CIFAR-N, the user's own).
    client: int64 [n] or None: who owns a training image, where the data set says so. sites: what owners 0, 1 … are
    called, or (): their numbers.
    origin: what a training image is called in the user's data, int64 [n] (row of the file) or texts [n] (file below
    train/); None: its number here. test_known: False where held-out given labels stand in for a trusted test set.
    first: int64 [n] or None: labels as first given, if somebody has corrected them since; y_train has them as they are
    now. coarse: int64 [classes] or None: superclass of each class. names: class names, all different, or (). left_out:
    damaged images that were left out.
    mean, std: per channel, of pixels scaled to [0, 1] or of features as they are; the normalisation the networks see.
    spec: the data set's settings. source_sha256: content name -> SHA-256.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    x_public: np.ndarray | None = None
    given: Mapping[str, np.ndarray] = field(default_factory=dict)
    client: np.ndarray | None = None
    coarse: np.ndarray | None = None
    names: tuple[str, ...] = ()
    clean_known: bool = True
    origin: np.ndarray | None = None
    sites: tuple[str, ...] = ()
    test_known: bool = True
    first: np.ndarray | None = None
    left_out: tuple[str, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    source_sha256: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.x_train.shape[1:]))
        owners = "" if self.client is None else f", {len(np.unique(self.client))} owners"
        public = "" if self.x_public is None else f", {len(self.x_public)} public"
        unsure = "" if self.clean_known else ", clean labels unknown"
        name = f"{source} " if (source := self.spec.get("source")) else ""
        parts = f"{self.n} training and {len(self.y_test)} test images {size}{public}, {self.classes} classes"
        return f"<Arrays {name}{parts}{owners}{unsure}>"

    @property
    def n(self) -> int:
        """Number of training samples."""
        return len(self.y_train)

    def source(self, i: int) -> str:
        """Name training sample `i` as the user's data do: by row number or file name."""
        return str(i if self.origin is None else self.origin[i])

    def take(self, index: np.ndarray) -> Arrays:
        """The same data set with only these training samples (positions, int [k]), in this order."""
        return dataclasses.replace(
            self,
            x_train=take_rows(self.x_train, index),
            y_train=self.y_train[index],
            given={key: labels[index] for key, labels in self.given.items()},
            client=None if self.client is None else self.client[index],
            origin=None if self.origin is None else self.origin[index],
            first=None if self.first is None else self.first[index],
        )

    def save(self, path: str | os.PathLike[str], side_bytes: int = SIDE_BYTES) -> None:
        """Write the artifact; equal content gives equal bytes.

        Images of more than `side_bytes` go to `<stem>.<array>.npy` beside `path`, decoded block by block, never whole
        in memory; the npz then names the file, its size and its SHA-256. Written last, it never names half a file.
        """
        path = Path(path)
        arrays = {name: value for name in VECTORS if (value := getattr(self, name)) is not None}
        arrays |= {f"given_{key}": labels for key, labels in self.given.items()}
        arrays |= {name: np.array(texts) for name in ("names", "sites") if (texts := getattr(self, name))}
        side: dict[str, dict[str, Any]] = {}
        for name in IMAGES:
            x = getattr(self, name)
            if x is None:
                continue
            if x.nbytes > side_bytes:
                side[name] = _write_side(path.with_name(f"{path.stem}.{name}.npy"), x)
            else:
                arrays[name] = np.asarray(x[:])
        facts = {name: getattr(self, name) for name in FACTS}
        facts |= {"left_out": list(self.left_out)} if self.left_out else {}
        facts |= {"artifact": "arrays", "dataset": dict(self.spec), "side": side}
        save_npz(path, arrays, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Arrays:
        """Read and check an artifact. Side files are memory-mapped.

        Args:
            path: the npz.

        Raises:
            ArtifactError: something is missing, damaged or does not fit together. The message names the file.
        """
        path = Path(path)
        arrays, facts = load_npz(path, "arrays")
        try:
            for name, entry in facts.get("side", {}).items():
                arrays[name] = _read_side(path.with_name(Path(entry["file"]).name), entry)
            fields: dict[str, Any] = {name: arrays.get(name) for name in (*IMAGES, *VECTORS)}
            return cls(
                **fields,
                names=tuple(str(name) for name in arrays.get("names", ())),
                sites=tuple(str(name) for name in arrays.get("sites", ())),
                given={name[6:]: labels for name, labels in arrays.items() if name.startswith("given_")},
                classes=int(facts["classes"]),
                clean_known=bool(facts["clean_known"]),
                test_known=bool(facts.get("test_known", True)),
                left_out=tuple(facts.get("left_out", ())),
                mean=tuple(facts["mean"]),
                std=tuple(facts["std"]),
                spec=facts["dataset"],
                source_sha256=facts["source_sha256"],
            )
        except ArraysError as error:
            raise ArtifactError(f"{path}: {error}") from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:  # other facts than were written
            raise ArtifactError(f"{path}: damaged arrays artifact ({type(error).__name__}: {error})") from error


def content_sha256(x: Any) -> str:
    """SHA-256 of an array's values, read block by block.

    Args:
        x: an array, or images that are read on demand.

    Returns:
        Hex digits, over the values in C order.
    """
    sha = hashlib.sha256()
    for block in _iter_blocks(x):
        sha.update(block.data)
    return sha.hexdigest()


def _iter_blocks(x: Any) -> Iterator[np.ndarray]:
    for start in range(0, len(x), BLOCK):
        yield np.ascontiguousarray(x[start : start + BLOCK])


def _write_side(path: Path, x: Any) -> dict[str, Any]:
    """Write `x` as an npy file block by block; return the entry that the spec keeps about it."""
    sha = hashlib.sha256()
    with open_atomic(path, "wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(x.dtype), "fortran_order": False, "shape": tuple(x.shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for block in _iter_blocks(x):
            sha.update(block.data)
            file.write(block.data)
        size = file.tell()
    return {"file": path.name, "bytes": size, "sha256": sha.hexdigest()}


def _read_side(path: Path, entry: Mapping[str, Any]) -> np.ndarray:
    size = path.stat().st_size if path.is_file() else 0
    if size != entry["bytes"]:
        remedy = "remove the arrays artifact beside it and make both again"
        raise ArtifactError(f"{path}: missing or damaged: {size} bytes, {entry['bytes']} expected; {remedy}")
    return np.load(path, mmap_mode="r", allow_pickle=False)
