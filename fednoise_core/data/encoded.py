"""Feature vectors of the user's images from a pretrained net, to find wrong labels."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import MISSING, Field

from fednoise_core.data.arrays import Arrays, take_rows
from fednoise_core.data.imagefolder import ImageFolder
from fednoise_core.data.locate import user_path
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.data.settings import Dataset
from fednoise_core.data.user_npz import Npz
from fednoise_core.io import SpecError
from fednoise_core.settings.declare import Settings


class Pretrained(Settings):
    """A pretrained net and its weights."""

    name: Annotated[str, Field(description="Net of torchvision for classification.")]
    weights: Annotated[
        str | MISSING,
        Field(
            description="State dict (.pth, .pt, .safetensors), or folder with torchvision's file; default: torch's "
            "folder for downloads."
        ),
    ] = MISSING


class Encoded(ImageFolder):
    """The user's images, in an npz or a folder, as feature vectors from a net of torchvision, pretrained on ImageNet.

    The settings are those of the source imagefolder, or those of npz if `path` is a file.
    """

    example: ClassVar = {"path": "mine.npz", "encoder": "resnet18", "test": {"holdout": 0.1}}

    encoder: Annotated[
        str | Pretrained,
        Field(
            description="Name of a net such as resnet18, or {name, weights}. Its penultimate layer gives the vectors."
        ),
    ]

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Encode the images in `path`. Labels, owners and names stay as they are.

        Raises:
            ArtifactError: the data, or the net's weights, are missing or damaged.
            SpecError: there is no such net, or `path` has no images.
        """
        from fednoise_core.nets.encoder import encode_images  # imports torch

        source, inner = _find_source(spec, places)
        arrays = source.read_arrays(inner, places, cache)
        vectors: dict[str, Any] = {
            name: encode_images(x, spec["encoder"])[:, None, None]
            for name in ("x_train", "x_test", "x_public")
            if (x := getattr(arrays, name)) is not None
        }
        mean, std = mean_and_std(vectors["x_train"])
        return dataclasses.replace(arrays, **vectors, mean=mean, std=std)

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """Count the samples and classes of the images. The size of a vector is (1, 1)."""
        source, inner = _find_source(spec, places)
        samples, classes, sides = source.read_facts(inner, places)
        if sides == (1, 1):
            raise SpecError(f"dataset encoded: encoder: {spec['path']} has feature vectors already; leave it out")
        return samples, classes, (1, 1)

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """Name what the images lack."""
        source, inner = _find_source(spec, places)
        return source.missing_inputs(inner, places)

    @classmethod
    def list_files(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
        """List what is read: the user's images, and a file of weights."""
        source, inner = _find_source(spec, places)
        weights = spec["encoder"].get("weights") if isinstance(spec["encoder"], Mapping) else None
        return [*source.list_files(inner, places), *([Path(weights)] if weights and Path(weights).is_file() else [])]


def _find_source(spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[type[Dataset], dict[str, Any]]:
    """The data set of the images, and its settings."""
    source = Npz if user_path(spec, places).is_file() else ImageFolder
    return source, {"source": source.__name__.lower(), **{k: spec[k] for k in spec if k in source.model_fields}}


def find_images(arrays: Arrays, places: Sequence[str]) -> Any:
    """Find the images [n, …] from which the vectors of such a data set were made.

    Args:
        arrays: Its arrays.
        places: Folders to search for the user's files.
    """
    folders = [Path(place) for place in places]
    source, inner = _find_source(arrays.spec, folders)
    images = source.read_arrays(inner, folders, Path())
    place = {images.source(row): row for row in range(images.n)}
    return take_rows(images.x_train, np.array([place[arrays.source(row)] for row in range(arrays.n)]))
