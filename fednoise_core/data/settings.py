"""`Dataset`, the base of all data sets, and the settings that all of them have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import MISSING, AfterValidator, Field

from fednoise_core.data import SOURCES
from fednoise_core.data.arrays import Arrays
from fednoise_core.settings.declare import Settings
from fednoise_core.settings.functions import resolve_kind


def load_source(name: Any) -> type[Dataset]:
    """The class that `SOURCES` registers under a name.

    Raises:
        SpecError: there is none. The message names the nearest one.
    """
    return resolve_kind({"source": name}, SOURCES, "dataset", "source")


def _published_sources() -> list[str]:
    """Sources that come without files of the user's."""
    return [name for name in SOURCES if "path" not in load_source(name).model_fields]


def _check_published(name: str) -> str:
    if name not in _published_sources():
        raise ValueError
    return name


@dataclass(frozen=True)
class _PublishedNames:
    """Adds the names to the JSON schema. This is done when the schema is made, because all classes exist then."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"enum": _published_sources(), **handler(core)}


class Foreign(Settings):
    """Images of another published data set."""

    dataset: Annotated[
        str,
        AfterValidator(_check_published),
        _PublishedNames(),
        Field(description="Source of the images."),
    ]
    n: Annotated[int, Field(ge=1, description="Number of images, stratified by that data set's labels.")]


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
        description="Unlabelled images that all clients and the server may use: a number of training samples, which "
        "are set aside, or {dataset, n} for another published data set with images of the same size."
    ),
]
OwnTest = Annotated[
    Holdout | MISSING,
    Field(
        description="{holdout: share}: without a trusted test set, this share of each class's training samples, "
        "rounded down, is held out. If clean labels are unknown, accuracy is then agreement with given labels. "
        "Default: the data comes with a trusted test set."
    ),
]


class Dataset(Settings):
    """Base class of data sets.

    The fields of a class are the settings of its data set. The first paragraph of the class's docstring is its
    description on the reference page.

    Attributes:
        display_name: Name in tables and figures. Default: the id from config/datasets.yaml.
        redistributable: Whether the licence allows redistribution. DVC pushes the arrays only then.
        example: Settings of the example on the reference page.
    """

    display_name: ClassVar[str] = ""
    redistributable: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {}

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Read the whole data set, before `public` and `subset` are applied.

        Args:
            spec: the checked settings without defaults, and `source`.
            places: folders to search before anything is downloaded.
            cache: folder for downloads.

        Raises:
            ArtifactError: a file is missing, damaged, or has unexpected content. The message names it.
            SpecError: a setting does not fit the files.
        """
        raise NotImplementedError

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """Read the facts that settings are checked against before any job starts. It should be cheap.

        Args:
            spec: the settings and `source`.
            places: folders to search.

        Returns:
            Training samples, classes, and (height, width) of the images.
        """
        raise NotImplementedError

    @classmethod
    def list_files(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> list[Path]:
        """List the user's files that `read_arrays` opens. A change in one of them makes the arrays stale.

        Args:
            spec: the settings and `source`.
            places: folders to search.
        """
        return []

    @classmethod
    def missing_inputs(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> set[str]:
        """Name what the data are known to lack: "given" (labels as collected), "client_ids" (owners of the samples).

        Args:
            spec: the settings and `source`.
            places: folders to search.
        """
        return set()

    public: Public = 0
    subset: Annotated[
        Subset | MISSING,
        Field(description="Numbers of private training samples and of test samples, stratified; default: all."),
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
            description="Mean per channel of pixels scaled to 0..1, for normalisation; default: the data set's mean.",
        ),
    ] = MISSING
    std: Annotated[
        Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=3)] | MISSING,
        Field(description="Standard deviation per channel, for normalisation; default: the data set's."),
    ] = MISSING
