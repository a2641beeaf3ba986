"""Functions that read a data set, or the facts about it that a config is checked against.

Facts are the numbers of samples and classes and the size of the images. The class of the data set
(`fednoise_core.data.SOURCES`) provides them.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.array_checks import ArraysError
from fednoise_core.data.arrays import SIDE_BYTES, Arrays, take_rows
from fednoise_core.data.images import ImageFiles
from fednoise_core.data.settings import load_source
from fednoise_core.data.splits import apply_split, public_count, split_off
from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.settings.declare import check_value
from fednoise_core.settings.functions import expect_type, spec_of

Places = Sequence[str | Path]


def read(spec: Mapping[str, Any] | str, places: Places | None = None, cache: str | Path = "data/downloads") -> Arrays:
    """Read a data set. The settings `public` and `subset` are applied.

    Image files are decoded at once if they fit into memory, else when `Arrays.save` writes them.

    Args:
        spec: `{"source": …, settings…}` as in docs/reference.md, or only the source's name ("digits", "cifar10").
        places: Folders that are searched for its files before a download. Default: the folder in the environment
            variable FEDNOISE_DATA.
        cache: Folder for downloads.

    Raises:
        SpecError: A setting is wrong.
        ArtifactError: Data is missing or damaged, or does not fit together.
        TypeError: An argument has another type.
    """
    if places is None:
        places = [folder for folder in (os.environ.get("FEDNOISE_DATA"),) if folder]
    spec, folders = spec_of(spec, "source", "dataset"), _check_places(places)
    expect_type(cache, (str, os.PathLike), "cache", "pass the folder for downloads")
    source = load_source(spec.get("source"))
    checked = check_value(source, {key: value for key, value in spec.items() if key != "source"}, "dataset")
    spec = {"source": spec["source"], **checked.model_dump(exclude_unset=True)}
    with _naming_source(spec):
        whole_set = source.read_arrays(spec, folders, Path(cache))
        if spec.get("public") and whole_set.x_public is not None:
            raise SpecError("public: the data set has public images of its own, x_public; leave one of them out")
        if whole_set.origin is None:
            whole_set = dataclasses.replace(whole_set, origin=np.arange(whole_set.n))
        arrays = apply_split(whole_set, {"public": checked.public, **spec})
        if isinstance(spec.get("public"), Mapping):
            arrays = dataclasses.replace(arrays, x_public=_read_foreign(spec, folders, Path(cache)))
        x_train, x_test = (
            np.asarray(x) if isinstance(x, ImageFiles) and x.nbytes <= SIDE_BYTES else x
            for x in (arrays.x_train, arrays.x_test)
        )
        mean = tuple(float(value) for value in spec.get("mean", arrays.mean))
        std = tuple(float(value) for value in spec.get("std", arrays.std))
        return dataclasses.replace(arrays, x_train=x_train, x_test=x_test, mean=mean, std=std, spec=spec)


def read_facts(spec: Mapping[str, Any], places: Places = ()) -> tuple[int, int, tuple[int, int]]:
    """Read the facts that settings are checked against. At most one image is opened.

    Args:
        spec: Settings of the data set.
        places: Folders that hold the user's data.

    Returns:
        Private training samples, classes, and height and width of the images.

    Raises:
        SpecError: The source is unknown, or the user's path does not exist.
        ArtifactError: The user's data cannot be read.
    """
    source = load_source(spec.get("source"))
    with _naming_source(spec):
        samples, classes, sides = source.read_facts(spec, _check_places(places))
    public = public_count({"public": source.model_fields["public"].default, **spec})
    return int(spec.get("subset", {}).get("train", samples - public)), classes, sides


def missing_inputs(spec: Mapping[str, Any], places: Places = ()) -> set[str]:
    """Name what a data set is known to lack: "given" (labels as collected), "client_ids" (owners of the samples).

    Args:
        spec: its settings.
        places: folders to search.
    """
    return load_source(spec.get("source")).missing_inputs(spec, _check_places(places))


def list_files(spec: Mapping[str, Any], places: Places = ()) -> list[Path]:
    """List the user's own files that a data set reads. They are inputs of its rule. Published data sets have none.

    Args:
        spec: its settings.
        places: folders to search.
    """
    return load_source(spec.get("source")).list_files(spec, _check_places(places))


def _read_foreign(spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> np.ndarray:
    """Unlabelled images of another published data set: a stratified choice of its training part."""
    public = spec["public"]
    foreign = {"source": public["dataset"], "public": 0}
    arrays = load_source(public["dataset"]).read_arrays(foreign, places, cache)
    n = int(public["n"])
    if not 0 < n <= arrays.n:
        raise SpecError(f"dataset: public: n: {n}, but {public['dataset']} has {arrays.n} training samples")
    index = split_off(arrays.y_train, n, int(spec.get("split_seed", 0)), "public")[1]
    return np.asarray(take_rows(arrays.x_train, index))


@contextlib.contextmanager
def _naming_source(spec: Mapping[str, Any]) -> Iterator[None]:
    """Add the name of the data set to an error about its arrays."""
    try:
        yield
    except ArraysError as error:
        path = f" ({spec['path']})" if "path" in spec else ""
        raise ArtifactError(f"dataset {spec['source']}{path}: {error}") from error


def _check_places(places: Places) -> list[Path]:
    expect_type(places, (list, tuple), "places", "pass a list of folders")
    for place in places:
        expect_type(place, (str, os.PathLike), "places", "each of them is a path")
    return [Path(place) for place in places]
