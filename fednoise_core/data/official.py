"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, SVHN: from `<name>.npz`, torchvision's raw layout or the official address.

torchvision knows the addresses and checksums, fetches and reads the files; it is imported here only, on use. CIFAR's
files are pickles: torchvision reads them only if their MD5 is the published one. Whichever way an array came, its
content is compared with the published checksum, so all ways give the same artifact.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fednoise_core.data.arrays import Arrays, content_sha256
from fednoise_core.data.facts import CIFAR100_COARSE, CIFAR100_COARSE_NAMES, FACTS, Facts
from fednoise_core.data.locate import candidates, missing, not_found
from fednoise_core.data.npz import members
from fednoise_core.data.settings import Dataset
from fednoise_core.io import ArtifactError, SpecError

__all__ = ["RAW", "SETTINGS", "read"]


Human = Annotated[bool, Field(description="Also read the CIFAR-N labels, for noise kind human.")]


class MNIST(Dataset):
    """MNIST, 60,000 + 10,000 hand-written digits, 28×28, 10 classes (LeCun et al. 1998)."""

    example: ClassVar = {"subset": {"train": 2000, "test": 1000}}


class FashionMNIST(Dataset):
    """Fashion-MNIST, 60,000 + 10,000 articles of clothing, 28×28, 10 classes (Xiao et al. 2017)."""

    example: ClassVar = {"public": 500}


class CIFAR10(Dataset):
    """CIFAR-10, 50,000 + 10,000 colour images, 32×32, 10 classes (Krizhevsky 2009); with human: true also CIFAR-10N's
    labels (Wei et al. 2022, CC BY-NC 4.0).
    """

    example: ClassVar = {"public": {"dataset": "cifar100", "n": 5000}}

    human: Human = False


class CIFAR100(Dataset):
    """CIFAR-100, 50,000 + 10,000 colour images, 32×32, 100 classes in 20 superclasses (Krizhevsky 2009); with human:
    true also CIFAR-100N's labels.
    """

    example: ClassVar = {"human": True, "labels": "coarse"}

    human: Human = False
    labels: Annotated[Literal["fine", "coarse"], Field(description="100 classes, or the 20 superclasses.")] = "fine"


class SVHN(Dataset):
    """Street View House Numbers, 73,257 + 26,032 colour images, 32×32, 10 classes (Netzer et al. 2011)."""

    example: ClassVar = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}


SETTINGS = {"mnist": MNIST, "fashion_mnist": FashionMNIST, "cifar10": CIFAR10, "cifar100": CIFAR100, "svhn": SVHN}

_IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))

RAW: dict[str, tuple[str, ...]] = {  # torchvision's layout below a folder
    "mnist": tuple(f"MNIST/raw/{name}" for name in _IDX),
    "fashion_mnist": tuple(f"FashionMNIST/raw/{name}" for name in _IDX),
    "cifar10": tuple(
        f"cifar-10-batches-py/{name}"
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
    ),
    "cifar100": tuple(f"cifar-100-python/{name}" for name in ("train", "test", "meta")),
    "svhn": ("train_32x32.mat", "test_32x32.mat"),
}
_TORCHVISION = {
    "mnist": "MNIST", "fashion_mnist": "FashionMNIST", "cifar10": "CIFAR10", "cifar100": "CIFAR100", "svhn": "SVHN"
}  # fmt: skip

SILENCE = 30.0  # seconds that a server may say nothing; torchvision itself would wait for ever

Content = dict[str, np.ndarray]


def read(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
    """The whole data set in official order. `human: true` adds CIFAR-N's labels; `labels: coarse`: 20 classes.

    Raises ArtifactError for files that are missing (and cannot be fetched), damaged, or not what they are called.
    """
    source = str(spec["source"])
    facts = FACTS[source]
    content = _content(source, places, cache)
    hashes = _check(source, facts, content)
    coarse = np.array(CIFAR100_COARSE, np.int64) if source == "cifar100" else None
    arrays = Arrays(
        x_train=content["x_train"],
        y_train=content["y_train"].astype(np.int64),
        x_test=content["x_test"],
        y_test=content["y_test"].astype(np.int64),
        classes=facts.classes,
        mean=facts.mean,
        std=facts.std,
        coarse=coarse,
        names=facts.names,
        source_sha256=hashes,
    )
    given: dict[str, np.ndarray] = {}
    if spec.get("human"):
        from fednoise_core.data import human

        given, more = human.labels(source, arrays.y_train, places, cache)
        hashes |= more
    if coarse is not None and spec.get("labels") == "coarse":
        y_train, y_test = coarse[arrays.y_train], coarse[arrays.y_test]
        arrays = dataclasses.replace(
            arrays, y_train=y_train, y_test=y_test, classes=20, names=CIFAR100_COARSE_NAMES, coarse=None
        )
    if source == "cifar100" and given:
        key = "noisy_label" if arrays.classes == 100 else "noisy_coarse_label"
        given = {key: given[key]}
    return dataclasses.replace(arrays, given=given)


def _content(source: str, places: Sequence[Path], cache: Path) -> Content:
    files = RAW[source]
    best = list(files)
    for folder in candidates(places, cache):
        if (folder / f"{source}.npz").is_file():
            return _from_npz(folder / f"{source}.npz")
        absent = missing(folder, files)
        if not absent:
            return _from_raw(source, folder)
        best = min(best, absent, key=len)
    try:
        _download(source, cache)
    except (OSError, RuntimeError) as error:  # torchvision's, of several lines
        problem = " ".join(str(error).split())
        raise not_found(source, [f"{source}.npz (or {', '.join(best)})"], places, cache, problem) from error
    return _from_raw(source, cache)


def _from_npz(path: Path) -> Content:
    names = ("x_train", "y_train", "x_test", "y_test")
    content = members(path, names.__contains__)
    absent = [name for name in names if name not in content]
    if absent:
        raise ArtifactError(f"{path}: it has no {', '.join(absent)}")
    return content


def _from_raw(source: str, folder: Path) -> Content:
    """Read torchvision's raw layout. Raises ArtifactError naming the folder if torchvision finds a file damaged."""
    content: Content = {}
    try:
        for part, data in zip(("train", "test"), _opened(source, folder), strict=True):
            x = np.asarray(data.data)
            content[f"x_{part}"] = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if source == "svhn" else x
            content[f"y_{part}"] = np.asarray(data.labels if source == "svhn" else data.targets).astype(np.uint8)
    except SpecError:
        raise
    except Exception as error:  # torchvision reports a damaged file by whatever breaks first
        raise ArtifactError(f"{folder}: {source} cannot be read ({type(error).__name__}: {error})") from error
    return content


def _opened(source: str, folder: Path, download: bool = False) -> list[Any]:
    """torchvision's data sets of training and test part. CIFAR's and SVHN's files are read only if their MD5 is the
    published one. Raises SpecError if torchvision is missing.
    """
    try:
        import torchvision.datasets
    except ImportError as error:
        cure = "pip install 'fednoise_core[vision]', or name a folder that holds an npz of it"
        raise SpecError(f"dataset {source}: its files are read by torchvision ({error}): {cure}") from error
    kind = getattr(torchvision.datasets, _TORCHVISION[source])
    parts = [{"split": "train"}, {"split": "test"}] if source == "svhn" else [{"train": True}, {"train": False}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy on the age of CIFAR's files; torchvision on read-only buffers
        return [kind(root=str(folder), download=download, **part) for part in parts]


def _check(source: str, facts: Facts, content: Content) -> dict[str, str]:
    """SHA-256 of every array. Raises ArtifactError if one is not the published one."""
    hashes = {}
    for name, array in content.items():
        n = facts.train if name.endswith("train") else facts.test
        shape = (n, *facts.shape) if name.startswith("x") else (n,)
        if array.shape != shape:
            raise ArtifactError(f"{source}: {name} has shape {array.shape}, not {shape}")
        if array.min() < 0 or array.max() > 255:
            raise ArtifactError(f"{source}: {name} holds values outside 0..255")
        content[name] = np.ascontiguousarray(array, np.uint8)
        hashes[name] = content_sha256(content[name])
        if facts.sha256 and hashes[name] != facts.sha256[name]:
            raise ArtifactError(
                f"{source}: {name} is not the published one (SHA-256 {hashes[name]}, {facts.sha256[name]} expected)"
            )
    return hashes


def _download(source: str, cache: Path) -> None:
    """Let torchvision fetch, check and unpack the official files, which then go to `cache`; under a lock against other
    jobs.
    """
    from filelock import FileLock

    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{source}.lock"), tempfile.TemporaryDirectory(dir=cache, prefix=".") as scratch:
        if not missing(cache, RAW[source]):
            return  # another job was faster
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SILENCE)
        try:
            _opened(source, Path(scratch), download=True)
        finally:
            socket.setdefaulttimeout(before)
        for name in RAW[source]:
            (cache / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch, name), cache / name)
