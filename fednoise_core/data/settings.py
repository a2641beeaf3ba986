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
    """Puts the names into the JSON schema, when it is asked for: all classes exist by then."""

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
    """A data set: all that the library and the workflow know about one.

    The fields of a class are the settings of its data set. The first paragraph of the class's docstring says what it is
    on the reference page.

    Attributes:
        display_name: the name in tables and figures. Where there is none, they show the id from config/datasets.yaml.
        redistributable: whether its licence lets anybody pass its arrays on. DVC pushes them only then.
        example: settings of the example on the reference page.
    """

    display_name: ClassVar[str] = ""
    redistributable: ClassVar[bool] = False
    example: ClassVar[dict[str, Any]] = {}

    @classmethod
    def read_arrays(cls, spec: Mapping[str, Any], places: Sequence[Path], cache: Path) -> Arrays:
        """Read the whole data set, before `public` and `subset` are applied.

        Args:
            spec: the checked settings that were given, and `source`.
            places: folders to search before anything is downloaded.
            cache: folder for downloads.

        Raises:
            ArtifactError: a file is missing, damaged, or not what it is called. The message names it.
            SpecError: a setting does not fit the files.
        """
        raise NotImplementedError

    @classmethod
    def read_facts(cls, spec: Mapping[str, Any], places: Sequence[Path]) -> tuple[int, int, tuple[int, int]]:
        """Read what settings are checked against before any job starts. It should be cheap.

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
