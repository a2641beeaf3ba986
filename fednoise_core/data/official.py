"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, SVHN: from `<name>.npz`, torchvision's raw layout or the official address.

torchvision downloads and reads the files. It has their addresses and checksums, and is imported only here, on use.
CIFAR's files are pickles, which torchvision reads only if they have the published MD5. The content of every array is
compared with the published checksum. So all sources give the same artifact.
"""

import dataclasses
import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fednoise_core.data.arrays import Arrays, content_sha256
from fednoise_core.data.facts import CIFAR100_COARSE, CIFAR100_COARSE_NAMES, CIFAR100_NAMES, DIGITS, Facts
from fednoise_core.data.locate import list_folders, list_missing, not_found
from fednoise_core.data.settings import Dataset
from fednoise_core.io import ArtifactError, SpecError, read_npz
from fednoise_core.settings.declare import Shown

SILENCE = 30.0  # timeout in seconds for a silent server; torchvision itself has none

Content = dict[str, np.ndarray]

Human = Annotated[
    bool,
    Shown(display_name={True: "N", False: ""}),
    Field(description="Also read the CIFAR-N labels, for noise kind human."),
]

_IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


class Official(Dataset):
    """A data set of torchvision. It has the same class name there.

    Attributes:
        published: Facts about the data set.
        raw: Files of torchvision's layout, below a folder.
    """

    published: ClassVar[Facts]
    raw: ClassVar[tuple[str, ...]]

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Read the arrays in official order. `human: true` adds CIFAR-N's labels. `labels: coarse` gives 20 classes."""
        source = str(spec["source"])
        facts = cls.published
        content = _read_content(cls, source, places, cache)
        hashes = _check_content(source, facts, content)
        coarse = np.array(CIFAR100_COARSE, np.int64) if source == "cifar100" else None
        arrays = Arrays(
            x_train=content["x_train"],
            y_train=content["y_train"].astype(np.int64),
            x_test=content["x_test"],
            y_test=content["y_test"].astype(np.int64),
            classes=len(facts.names),
            mean=facts.mean,
            std=facts.std,
            coarse=coarse,
            names=facts.names,
            source_sha256=hashes,
        )
        label_sets: dict[str, np.ndarray] = {}
        if spec.get("human"):
            from fednoise_core.data import human

            label_sets, label_hashes = human.read_human_labels(source, arrays.y_train, places, cache)
            hashes |= label_hashes
        if coarse is not None and spec.get("labels") == "coarse":
            y_train, y_test = coarse[arrays.y_train], coarse[arrays.y_test]
            arrays = dataclasses.replace(
                arrays, y_train=y_train, y_test=y_test, classes=20, names=CIFAR100_COARSE_NAMES, coarse=None
            )
        if source == "cifar100" and label_sets:
            key = "noisy_label" if arrays.classes == 100 else "noisy_coarse_label"
            label_sets = {key: label_sets[key]}
        return dataclasses.replace(arrays, given=label_sets)

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """The published ones."""
        published, coarse = cls.published, spec.get("labels") == "coarse"
        names = CIFAR100_COARSE_NAMES if coarse else published.names
        return published.train, len(names), (published.shape[0], published.shape[1])

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """They have no owners, and labels as collected only with `human: true`."""
        return {"client_ids"} if spec.get("human") else {"given", "client_ids"}


# fmt: off
class MNIST(Official):
    """MNIST, 60,000 + 10,000 hand-written digits, 28×28, 10 classes (LeCun et al. 1998)."""

    display_name = "MNIST"
    example: ClassVar = {"subset": {"train": 2000, "test": 1000}}
    raw = tuple(f"MNIST/raw/{name}" for name in _IDX)
    published = Facts(
        60000, 10000, (28, 28), DIGITS, (0.1307,), (0.3081,),
        {
            "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
            "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        },
    )


class FashionMNIST(Official):
    """Fashion-MNIST, 60,000 + 10,000 articles of clothing, 28×28, 10 classes (Xiao et al. 2017)."""

    display_name = "Fashion-MNIST"
    redistributable = True
    example: ClassVar = {"public": 500}
    raw = tuple(f"FashionMNIST/raw/{name}" for name in _IDX)
    published = Facts(
        60000, 10000, (28, 28),
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        (0.2860,), (0.3530,),
        {
            "x_train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
            "y_train": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
            "x_test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
            "y_test": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
        },
    )


class CIFAR10(Official):
    """CIFAR-10, 50,000 + 10,000 colour images, 32×32, 10 classes (Krizhevsky 2009).

    With human: true it also has the labels of CIFAR-10N (Wei et al. 2022, CC BY-NC 4.0).
    """

    display_name = "CIFAR-10{human}"
    example: ClassVar = {"public": {"dataset": "cifar100", "n": 5000}}
    raw = tuple(
        f"cifar-10-batches-py/{name}"
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
    )
    published = Facts(
        50000, 10000, (32, 32, 3),
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616),
        {
            "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        },
    )

    human: Human = False


class CIFAR100(Official):
    """CIFAR-100, 50,000 + 10,000 colour images, 32×32, 100 classes in 20 superclasses (Krizhevsky 2009).

    With human: true it also has the labels of CIFAR-100N.
    """

    display_name = "CIFAR-100{human}{labels}"
    example: ClassVar = {"human": True, "labels": "coarse"}
    raw = tuple(f"cifar-100-python/{name}" for name in ("train", "test", "meta"))
    published = Facts(
        50000, 10000, (32, 32, 3), CIFAR100_NAMES,
        (0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762),
        {
            "x_train": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            "y_train": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
            "x_test": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            "y_test": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
        },
    )

    human: Human = False
    labels: Annotated[
        Literal["fine", "coarse"],
        Shown(display_name={"fine": "", "coarse": " coarse"}),
        Field(description="100 classes, or the 20 superclasses."),
    ] = "fine"


class SVHN(Official):
    """Street View House Numbers, 73,257 + 26,032 colour images, 32×32, 10 classes (Netzer et al. 2011)."""

    display_name = "SVHN"
    example: ClassVar = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
    raw = ("train_32x32.mat", "test_32x32.mat")
    published = Facts(73257, 26032, (32, 32, 3), DIGITS, (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970))
# fmt: on


def _read_content(kind: type[Official], source: str, places: Sequence[Path], cache: Path) -> Content:
    files = kind.raw
    best = list(files)
    for folder in list_folders(places, cache):
        if (folder / f"{source}.npz").is_file():
            return _from_npz(folder / f"{source}.npz")
        absent = list_missing(folder, files)
        if not absent:
            return _from_raw(kind, source, folder)
        best = min(best, absent, key=len)
    try:
        _download_files(kind, source, cache)
    except (OSError, RuntimeError) as error:  # torchvision's, of several lines
        problem = " ".join(str(error).split())
        raise not_found(source, [f"{source}.npz (or {', '.join(best)})"], places, cache, problem) from error
    return _from_raw(kind, source, cache)


def _from_npz(path: Path) -> Content:
    names = ("x_train", "y_train", "x_test", "y_test")
    content = read_npz(path, names.__contains__)
    absent = [name for name in names if name not in content]
    if absent:
        raise ArtifactError(f"{path}: it has no {', '.join(absent)}")
    return content


def _from_raw(kind: type[Official], source: str, folder: Path) -> Content:
    """Read torchvision's raw layout. Raises ArtifactError naming the folder if torchvision finds a file damaged."""
    content: Content = {}
    try:
        for part, data in zip(("train", "test"), _open_torchvision(kind, source, folder), strict=True):
            x = np.asarray(data.data)
            content[f"x_{part}"] = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if source == "svhn" else x
            content[f"y_{part}"] = np.asarray(data.labels if source == "svhn" else data.targets).astype(np.uint8)
    except SpecError:
        raise
    except Exception as error:  # torchvision raises many kinds for a damaged file
        raise ArtifactError(f"{folder}: {source} cannot be read ({type(error).__name__}: {error})") from error
    return content


def _open_torchvision(kind: type[Official], source: str, folder: Path, download: bool = False) -> list[Any]:
    """Torchvision's data sets of training and test part.

    CIFAR's and SVHN's files are read only if their MD5 is the published one.

    Raises:
        SpecError: torchvision is missing.
    """
    try:
        import torchvision.datasets
    except ImportError as error:
        cure = "pip install 'fednoise[vision]', or name a folder that holds an npz of it"
        raise SpecError(f"dataset {source}: its files are read by torchvision ({error}): {cure}") from error
    opened = getattr(torchvision.datasets, kind.__name__)
    parts = [{"split": "train"}, {"split": "test"}] if source == "svhn" else [{"train": True}, {"train": False}]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy on the age of CIFAR's files; torchvision on read-only buffers
        return [opened(root=str(folder), download=download, **part) for part in parts]


def _check_content(source: str, facts: Facts, content: Content) -> dict[str, str]:
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


def _download_files(kind: type[Official], source: str, cache: Path) -> None:
    """Let torchvision fetch, check and unpack the official files, which then go to `cache`.

    A lock keeps other jobs from doing the same.
    """
    from filelock import FileLock

    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{source}.lock"), tempfile.TemporaryDirectory(dir=cache, prefix=f".{source}-") as scratch:
        for left in cache.glob(f".{source}-*"):  # by downloads that were killed
            if left != Path(scratch):
                shutil.rmtree(left)
        if not list_missing(cache, kind.raw):
            return  # another job was faster
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(SILENCE)
        try:
            _open_torchvision(kind, source, Path(scratch), download=True)
        finally:
            socket.setdefaulttimeout(before)
        for name in kind.raw:
            (cache / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(scratch, name), cache / name)
