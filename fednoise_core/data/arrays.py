"""The arrays artifact, which has the arrays of one data set after the `download` step. Needs only numpy."""

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
    """Select images at the positions `index` int [k]. Images that are read on demand are not read."""
    return x.take(index) if hasattr(x, "paths") else x[index]


@dataclass(frozen=True, repr=False)
class Arrays:
    """Images, labels and facts of one data set. Arrays that do not fit together raise ArraysError (a ValueError).

    x_train, x_test: uint8 [n, H, W] or [n, H, W, C], 0..255. They are memory-mapped (read only) if they are too large
    for memory. Feature vectors are float32 [n, 1, 1, d].
    y_train: int64 [n], clean labels 0..classes-1, or the given labels if `clean_known` is False. y_test: int64 [m].
    x_public: uint8 [p, ...] or None, unlabelled images without an owner.
    given: key -> int64 [n], sets of given labels of the training images (CIFAR-N, the user's own).
    client: owner of each training image, int64 [n], or None if unknown. sites: names of the owners 0, 1 …, or () if
    they have only numbers.
    origin: name of each training image in the user's data, int64 [n] (row of the file) or texts [n] (file below
    train/). None: its number in this object. test_known: False if the test set has held-out given labels.
    first: labels as first given, int64 [n], if they were corrected later, else None. y_train has the corrected labels.
    coarse: superclass of each class, int64 [classes] or None. names: class names, all different, or (). left_out:
    damaged images that were left out.
    mean, std: normalisation per channel, of pixels scaled to [0, 1], or of unscaled features.
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
        """Return the name of training sample `i` in the user's data, which is a row number or file name."""
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
        """Write the artifact. Equal content gives equal bytes.

        Images of more than `side_bytes` are decoded block by block and written to `<stem>.<array>.npy` beside `path`.
        The npz then has the name, size and SHA-256 of this file. It is written last, so the file it names is complete.
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
        except (KeyError, TypeError, AttributeError, ValueError) as error:  # the facts have an unexpected form
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
