"""The user's own arrays: an npz file with x_train, y_train, x_test, y_test, and optional given labels and owners."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import MISSING, Field

from fednoise_core.data.array_checks import as_images, as_labels, owners_of
from fednoise_core.data.arrays import Arrays, content_sha256
from fednoise_core.data.from_user import from_user
from fednoise_core.data.locate import user_path
from fednoise_core.data.settings import Dataset, OwnTest
from fednoise_core.data.splits import held_out, holdout_share
from fednoise_core.io import ArtifactError, SpecError, read_headers, read_npz


class Npz(Dataset):
    """The user's arrays x_train, x_test, y_train, y_test in an npz file.

    Images are uint8 [n,H,W] or [n,H,W,C] (channels last), or feature vectors float32 [n,d]. Labels count from 0, with
    every class in training. Optional arrays are given or given_<name> (labels as collected), client (owners: integers
    or texts), x_public, names and first_given (labels as collected, where given has been corrected since).
    """

    example: ClassVar = {"path": "mine.npz", "clean_known": False}

    path: Annotated[str, Field(min_length=1, description="The npz file, in the working folder or below data_root.")]
    clean_known: Annotated[
        bool | MISSING,
        Field(
            description="false: the training labels are as collected and may be wrong. The default is true if the file "
            "has y_train."
        ),
    ] = MISSING
    classes: Annotated[
        int | MISSING,
        Field(ge=2, description="Number of classes; default: the number of names, or the largest label + 1."),
    ] = MISSING
    test: OwnTest = MISSING

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Read `path`. Without y_train, or with `clean_known: false`, the training labels are the labels as collected.

        Raises:
            ArtifactError: an array is missing or wrong. The message names it and the file.
            SpecError: `clean_known: false`, and the file has both y_train and given labels.
        """
        path = user_path(spec, places)
        _check_shapes(path, read_headers(path))
        members = read_npz(path, lambda name: name in KNOWN or is_given(name))
        _check_test(path, spec, members)
        labels = _label_sets(members)
        label_sets = {name.removeprefix("given_"): y for name, y in labels.items() if is_given(name)}
        clean_known = bool(spec.get("clean_known", "y_train" in members))
        if "y_train" in members and label_sets and not clean_known:
            conflict = f"y_train and given labels ({', '.join(label_sets)})"
            raise SpecError(f"dataset npz: clean_known: false, but {path} has {conflict}: keep one")
        if "y_train" in members:
            y_train = labels["y_train"]
        elif len(label_sets) == 1 and not clean_known:
            y_train, label_sets = next(iter(label_sets.values())), {}
        else:
            raise ArtifactError(f"{path}: it needs y_train, or clean_known: false and exactly one set of given labels")
        collected = not clean_known and "first_given" in members
        images = {name: as_images(name, members[name]) for name in ("x_train", "x_test", "x_public") if name in members}
        names = _read_names(path, members)
        return from_user(
            spec,
            str(path),
            images["x_train"],
            y_train,
            None if "test" in spec else (images["x_test"], labels["y_test"]),
            classes=_count_classes(path, spec, len(images["x_train"]), names, labels),
            owners=owners_of(members["client"], "client") if "client" in members else (None, ()),
            names=names,
            given=label_sets,
            x_public=images.get("x_public"),
            clean_known=clean_known,
            first=as_labels("first_given", members["first_given"]) if collected else None,
            origin=np.arange(len(images["x_train"])),
            source_sha256=hash_content(members),
        )

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """Read the facts from the headers and the labels."""
        path = user_path(spec, places)
        headers = read_headers(path)
        _check_shapes(path, headers)
        images = headers["x_train"][0]
        if len(images) == 2:  # feature vectors
            images = (*images[:1], 1, 1)
        if len(images) not in (3, 4):
            raise ArtifactError(f"{path}: x_train has shape {images}, not [n, H, W] or [n, H, W, C]")
        n, sides = images[0], (images[1], images[2])
        _check_test(path, spec, headers)
        members = read_npz(path, lambda name: name in ("y_train", "y_test", "names") or is_given(name))
        labels = _label_sets(members)
        share = holdout_share(spec)
        test_count = 0 if share is None else held_out(labels[max(labels)], share)  # y_train, else the given ones
        return n - test_count, _count_classes(path, spec, n, _read_names(path, members), labels), sides

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """Read the names of the arrays."""
        names = arrays_in(user_path(spec, places))
        collected = any(map(is_given, names)) or not spec.get("clean_known", "y_train" in names)
        return {name for name, there in (("given", collected), ("client_ids", "client" in names)) if not there}

    @classmethod
    def list_files(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
        """List the npz file."""
        return [user_path(spec, places)]


# others are left alone
KNOWN = ("x_train", "y_train", "x_test", "y_test", "x_public", "client", "names", "first_given")


def hash_content(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Compute checksums of the numeric arrays that the library reads.

    Args:
        arrays: arrays by name. Other arrays are ignored.

    Returns:
        Name -> SHA-256.
    """
    names = [name for name in sorted(arrays) if name in KNOWN or is_given(name)]
    return {name: content_sha256(arrays[name]) for name in names if arrays[name].dtype.kind in "uif"}


def _check_test(path: Path, spec: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise SpecError or ArtifactError unless there is exactly one test set, in the file or by the setting `test`."""
    there = [name for name in ("x_test", "y_test") if name in names]
    if "test" in spec and there:
        raise SpecError(f"dataset npz: test: {path} has {' and '.join(there)}; remove the setting `test` to use that")
    if "test" not in spec and len(there) < 2:
        missing = "y_test" if there == ["x_test"] else "x_test"
        cure = "add trusted test images and labels, or let a share of the given data stand in: test: {holdout: 0.2}"
        raise ArtifactError(f"{path}: it has no {missing}; {cure}")


def is_given(name: str) -> bool:
    """Return True if an array of this name holds labels as collected."""
    return name == "given" or name.startswith("given_")


def arrays_in(path: Path) -> list[str]:
    """Names of the arrays in an npz.

    Raises:
        ArtifactError: the file is damaged. The message names it.
    """
    return list(read_headers(path))


def _check_shapes(path: Path, headers: Mapping[str, tuple[tuple[int, ...], Any]]) -> None:
    """Raise ArtifactError if images or labels are missing or differ in number, before anything is unpacked."""
    labelled = "y_train" in headers or any(map(is_given, headers))
    for name, there in {"x_train": "x_train" in headers, "labels (given or y_train)": labelled}.items():
        if not there:
            raise ArtifactError(f"{path}: it has no {name}, but {', '.join(headers) or 'no array'}")
    for name, (shape, _) in headers.items():
        images = "x_test" if name == "y_test" else "x_train"
        is_label = name in ("y_train", "y_test", "first_given", "client") or is_given(name)
        if is_label and images in headers and headers[images][0] and shape != headers[images][0][:1]:
            raise ArtifactError(f"{path}: {name} has shape {shape}, and {images} has {headers[images][0][0]} images")


def _label_sets(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sets of labels among these arrays, int64 [n]."""
    return {name: as_labels(name, y) for name, y in arrays.items() if name in ("y_train", "y_test") or is_given(name)}


def _count_classes(
    path: Path, spec: Mapping[str, Any], n: int, names: tuple[str, ...], labels: Mapping[str, np.ndarray]
) -> int:
    """Number of classes: as the settings say, as many as there are names, or the greatest label + 1."""
    if "classes" in spec:
        k, why = int(spec["classes"]), "by the setting `classes`"
    elif names:
        k, why = len(names), "by `names`"
    else:
        most = max(labels, key=lambda name: int(labels[name].max(initial=-1)))
        k, why = int(labels[most].max(initial=-1)) + 1, f"by the greatest label in {most}"
    for name, y in labels.items():
        if y.max(initial=-1) >= k:
            hint = "; if they begin at 1, subtract 1" if y.min() == 1 else ""
            raise ArtifactError(
                f"{path}: {name} holds {y.min()}..{y.max()}, but {k} classes {why} are 0..{k - 1}{hint}"
            )
    if k > n:  # before anything is made that has a row per class
        raise ArtifactError(f"{path}: {k} classes {why}, but {n} training images; every class needs one")
    return k


def _read_names(path: Path, arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    if "names" not in arrays:
        return ()
    names = arrays["names"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise ArtifactError(f"{path}: names is {names.dtype} {list(names.shape)}; a vector of texts is needed")
    return tuple(str(name) for name in names)
