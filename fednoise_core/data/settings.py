"""Settings that all data sets have. A reader adds those of its own, and names its models in `SETTINGS`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import MISSING, Field

from fednoise_core.settings.declare import Settings

__all__ = ["Dataset", "Holdout", "OwnTest", "Public"]


class Foreign(Settings):
    """Images of another published data set."""

    dataset: Annotated[
        Literal["digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn"],
        Field(description="Source of the images."),
    ]
    n: Annotated[int, Field(ge=1, description="How many, stratified by that data set's labels.")]


class Subset(Settings):
    """So many samples only."""

    train: Annotated[int | MISSING, Field(ge=1, description="Private training samples.")] = MISSING
    test: Annotated[int | MISSING, Field(ge=1, description="Test samples.")] = MISSING


class Holdout(Settings):
    """A share of the training samples instead of a test set."""

    holdout: Annotated[float, Field(gt=0, lt=1, description="Share of the training samples.")]


Public = Annotated[
    Annotated[int, Field(ge=0)] | Foreign,
    Field(
        description="Unlabelled images that all clients and the server may use: a number of the own training samples "
        "(set aside), or {dataset, n} of another published data set with images of the same size."
    ),
]
OwnTest = Annotated[
    Holdout | MISSING,
    Field(
        description="{holdout: share}: no trusted test set; this share of each class's training samples, rounded down, "
        "stands in. Where the clean labels are unknown, accuracy is then agreement with given labels; default: the "
        "data comes with a trusted test set."
    ),
]


class Dataset(Settings):
    """Settings of every data set. example: those of the reference page's example."""

    example: ClassVar[dict[str, Any]] = {}

    public: Public = 0
    subset: Annotated[
        Subset | MISSING,
        Field(description="Only so many private training samples and test samples, stratified; default: all."),
    ] = MISSING
    split_seed: Annotated[
        int,
        Field(ge=0, description="Seed of the choice of test, public and subset samples; not the run's seed."),
    ] = 0
    mean: Annotated[
        list[float] | MISSING,
        Field(
            min_length=1,
            max_length=3,
            description="Per channel, of pixels scaled to 0..1, subtracted before training; default: the data set's.",
        ),
    ] = MISSING
    std: Annotated[
        Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=3)] | MISSING,
        Field(description="Per channel, divided by before training; default: the data set's."),
    ] = MISSING
