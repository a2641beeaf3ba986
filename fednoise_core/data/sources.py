"""The data sets: which reader makes them, and the cheap facts (samples, classes, size of the images) that a config is
checked against.

Only numpy is imported here. Readers are named by strings and imported on use, so that no step depends on all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.arrays import SIDE_BYTES, Arrays, ArraysError, take
from fednoise_core.data.facts import FACTS
from fednoise_core.data.images import ImageFiles
from fednoise_core.data.splits import public_count, split_off, trim
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.settings.declare import check, nearest
from fednoise_core.settings.functions import expect, spec_of

__all__ = ["READERS", "classes", "files", "n_train", "read", "reader", "sides"]

# source -> module below fednoise_core.data. It has read(spec, places, cache) -> Arrays and SETTINGS, source -> model of
# its settings; if FACTS does not know the source, also facts(spec, places) -> (training samples, classes, (H, W)) and
# files(spec, places) -> [path of what it reads].
READERS: dict[str, str] = {
    "digits": "digits",
    "mnist": "official",
    "fashion_mnist": "official",
    "cifar10": "official",
    "cifar100": "official",
    "svhn": "official",
    "npz": "user_npz",
    "imagefolder": "imagefolder",
    "clothing1m": "clothing1m",
}

Places = Sequence[str | Path]


def reader(source: str) -> str:
    """Full name of the module that reads `source`: the import that a code hash cannot see."""
    if source not in READERS:
        raise SpecError(f"dataset.source: {source!r} is unknown{nearest(source, READERS)}")
    return f"fednoise_core.data.{READERS[source]}"


def read(spec: Mapping[str, Any] | str, places: Places | None = None, cache: str | Path = "data/downloads") -> Arrays:
    """The data set of `spec`, public part set aside, subset taken.

    spec: `{"source": …, settings…}` as in docs/reference.md, or the source's name alone ("digits", "cifar10").
    places: folders that are searched for its files before anything is downloaded; by default the one that the
    environment variable FEDNOISE_DATA names. cache: folder for downloads.
    Image files are decoded at once if they fit in memory, else when `Arrays.save` writes them.

    Raises SpecError for a setting that cannot be, ArtifactError for data that is missing, damaged or does not fit
    together, TypeError for arguments of another type.
    """
    if places is None:
        places = [folder for folder in (os.environ.get("FEDNOISE_DATA"),) if folder]
    spec, folders = spec_of(spec, "source", "dataset"), _paths(places)
    expect(cache, (str, os.PathLike), "cache", "pass the folder for downloads")
    module = _module(spec)
    given = {key: value for key, value in spec.items() if key != "source"}
    checked = check(module.SETTINGS[spec["source"]], given, "dataset")
    spec = {"source": spec["source"], **checked.model_dump(exclude_unset=True)}
    with _named(spec):
        found = module.read(spec, folders, Path(cache))
        if found.origin is None:
            found = dataclasses.replace(found, origin=np.arange(found.n))
        arrays: Arrays = trim(found, spec)
        if isinstance(spec.get("public"), Mapping):
            arrays = dataclasses.replace(arrays, x_public=_foreign(spec, folders, Path(cache)))
        x_train, x_test = (
            np.asarray(x) if isinstance(x, ImageFiles) and x.nbytes <= SIDE_BYTES else x
            for x in (arrays.x_train, arrays.x_test)
        )
        mean = tuple(float(value) for value in spec.get("mean", arrays.mean))
        std = tuple(float(value) for value in spec.get("std", arrays.std))
        return dataclasses.replace(arrays, x_train=x_train, x_test=x_test, mean=mean, std=std, spec=spec)


def n_train(spec: Mapping[str, Any], places: Places = ()) -> int | None:
    """Private training samples that `spec` gives. Opens no image; raises SpecError if the user's data is not there."""
    subset = spec.get("subset", {})
    if "train" in subset:
        return int(subset["train"])
    return _facts(spec, places)[0] - public_count(spec)


def classes(spec: Mapping[str, Any], places: Places = ()) -> int | None:
    """Number of classes of `spec`. Opens no image; raises SpecError if the user's data is not there."""
    return 20 if spec.get("labels") == "coarse" else _facts(spec, places)[1]


def sides(spec: Mapping[str, Any], places: Places = ()) -> tuple[int, int]:
    """(height, width) of the images of `spec`. Opens one at most; raises SpecError if the user's data is not there."""
    return _facts(spec, places)[2]


def files(spec: Mapping[str, Any], places: Places = ()) -> list[Path]:
    """The user's own files that `spec` reads: inputs of its rule. None for published data sets, which are fixed."""
    module = _module(spec)
    return list(module.files(spec, _paths(places))) if hasattr(module, "files") else []


def _foreign(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> np.ndarray:
    """Unlabelled images of another published data set: a stratified choice of its training part."""
    public = spec["public"]
    other = {"source": public["dataset"], "public": 0}
    arrays: Arrays = _module(other).read(other, places, cache)
    n = int(public["n"])
    if not 0 < n <= arrays.n:
        raise SpecError(f"dataset: public: n: {n}, but {public['dataset']} has {arrays.n} training samples")
    index = split_off(arrays.y_train, n, int(spec.get("split_seed", 0)), "public")[1]
    return np.asarray(take(arrays.x_train, index))


def _facts(spec: Mapping[str, Any], places: Places) -> tuple[int, int, tuple[int, int]]:
    source = str(spec.get("source"))
    if source in FACTS:
        known = FACTS[source]
        held_out = int(spec.get("test", known.test)) - known.test if source == "digits" else 0
        return known.train - held_out, known.classes, (known.shape[0], known.shape[1])
    with _named(spec):
        total, k, size = _module(spec).facts(spec, _paths(places))
    return total, k, size


@contextlib.contextmanager
def _named(spec: Mapping[str, Any]) -> Iterator[None]:
    """What is wrong with arrays is said with the name of the data set."""
    try:
        yield
    except ArraysError as error:
        path = f" ({spec['path']})" if "path" in spec else ""
        raise ArtifactError(f"dataset {spec['source']}{path}: {error}") from error


def _module(spec: Mapping[str, Any]) -> Any:
    return importlib.import_module(reader(str(spec.get("source"))))


def _paths(places: Places) -> list[Path]:
    expect(places, (list, tuple), "places", "pass a list of folders")
    for place in places:
        expect(place, (str, os.PathLike), "places", "each of them is a path")
    return [Path(place) for place in places]
