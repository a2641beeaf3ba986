"""Models of config.yaml, the studies and the catalogue. `fednoise schema` writes config/schema from these classes.

The settings of a kind of noise, partition, method, table or figure are declared with the kind.
"""

from typing import Annotated, Any, Literal

from pydantic import MISSING, ConfigDict, Field

from fednoise_core.settings.declare import CONFIG, Distinct, Settings
from workflow_scripts.report.runs.selection import Ids, RunLists

Title = Annotated[str, Field(min_length=1, max_length=500)]
Definitions = dict[str, dict[str, Any]]
Seeds = Annotated[Distinct[Annotated[int, Field(ge=0)]], Field(min_length=1, examples=[[0, 1, 2]])]
SweptValues = Annotated[Distinct[bool | int | float | str | None], Field(min_length=1, max_length=50)]


class SweptRange(Settings):
    """Range of a random search: integers if both ends are integers, else numbers with three significant digits."""

    low: int | float
    high: int | float
    log: Annotated[bool, Field(description="Draw on a logarithmic scale. low must then be above 0.")] = False


class MethodEntry(Settings):
    """A method as a file defines it. Which other keys it has depends on its name."""

    model_config = ConfigDict(**{**CONFIG, "extra": "allow"})

    sweep: Annotated[
        dict[str, SweptValues | SweptRange] | MISSING,
        Field(
            min_length=1,
            max_length=6,
            description="field → values: one variant for each combination of values, see write_a_study.md. With "
            "`draws` also a range {low, high, log}.",
        ),
    ] = MISSING
    draws: Annotated[
        int | MISSING,
        Field(ge=1, le=500, description="Random search: number of variants to draw, instead of all combinations."),
    ] = MISSING


Noises = Annotated[Definitions | MISSING, Field(description="id → noise, see noise.yaml.")]
Partitions = Annotated[Definitions | MISSING, Field(description="id → partition, see partition.yaml.")]
Methods = Annotated[
    dict[str, MethodEntry] | MISSING,
    Field(
        description="id → method, see method.yaml, with `label` (shown), `train` (overrides the study's) and `sweep`."
    ),
]


class CatalogueFile(Settings):
    """Definitions shared by studies. A study's own definition of an id overrides the shared one."""

    noises: Noises = MISSING
    partitions: Partitions = MISSING
    methods: Methods = MISSING


class PaperCitation(Settings):
    """A paper as its page names it."""

    title: Title
    authors: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(min_length=1)]
    venue: Annotated[str | MISSING, Field(min_length=1, max_length=200, description="Where it was published.")] = (
        MISSING
    )
    year: Annotated[int | MISSING, Field(ge=1900, le=2100)] = MISSING
    link: Annotated[
        str | MISSING,
        Field(pattern=r"^https://\S+\Z", max_length=500, description="Web address of the paper or its code."),
    ] = MISSING


class GridBlock(Settings):
    """A part of the grid: every combination of its lists."""

    datasets: Annotated[Ids, Field(description="Ids of the study's `datasets`, or of config/datasets.yaml.")]
    noises: Ids
    partitions: Ids
    methods: Ids
    seeds: Annotated[
        Seeds | MISSING, Field(description="Override the study's seeds. `seeds` of a scale overrides both.")
    ] = MISSING
    settings: Annotated[
        Definitions | MISSING,
        Field(
            description="Method → settings that override its own in this block. `settings` of a scale overrides both."
        ),
    ] = MISSING
    train: Annotated[
        dict[str, Any] | MISSING,
        Field(description="Overrides the study's `train`. `train` of a scale or of a method overrides both."),
    ] = MISSING


class StudyFile(Settings):
    """A study, a grid of runs and the tables and figures made of them."""

    title: Annotated[Title, Field(description="Shown above the study's page.")]
    text: Annotated[str, Field(max_length=20000, description="A paragraph that says what the study is for.")] = ""
    scale_text: Annotated[
        Title | MISSING, Field(description="For scales: one sentence on what the scale keeps and what it leaves out.")
    ] = MISSING
    void: Annotated[
        str | MISSING, Field(min_length=1, max_length=300, description="For scales: why the paper's claims are void.")
    ] = MISSING
    page: Annotated[
        str | MISSING, Field(description="For scales: the scale whose published page also has this scale's rows.")
    ] = MISSING
    paper: Annotated[
        PaperCitation | MISSING, Field(description="The paper that the study repeats, as its page names it.")
    ] = MISSING
    why: Annotated[
        dict[str, dict[str, Annotated[str, Field(min_length=1, max_length=2000)]]] | MISSING,
        Field(
            description="Table → id of a claim → why our numbers disagree with it, as far as runs have shown. Under "
            "`scales` it is about that scale."
        ),
    ] = MISSING
    datasets: Annotated[Definitions | MISSING, Field(description="id → data set, see dataset.yaml.")] = MISSING
    noises: Noises = MISSING
    partitions: Partitions = MISSING
    methods: Methods = MISSING
    train: Annotated[dict[str, Any], Field(description="How every client trains, see train.yaml.")]
    seeds: Annotated[Seeds, Field(description="Seeds of the blocks of the grid without `seeds`.")]
    grid: Annotated[
        list[GridBlock], Field(min_length=1, description="A run belongs to the study if a block contains it.")
    ]
    tables: Annotated[Definitions | MISSING, Field(description="id → table, see table.yaml.")] = MISSING
    figures: Annotated[Definitions | MISSING, Field(description="id → figure, see figure.yaml.")] = MISSING
    labels: Annotated[bool, Field(description="Also make labels.html of every run, see clean_your_labels.md.")] = False
    settings: Annotated[
        Definitions | MISSING,
        Field(description="For scales: method → settings that override its own in every block."),
    ] = MISSING
    dataset_substitutes: Annotated[
        dict[str, str] | MISSING,
        Field(
            description="For scales: data set → the data set that replaces it. The grid, its tables and the paper's "
            "numbers keep their ids."
        ),
    ] = MISSING
    tuned: Annotated[
        str | MISSING,
        Field(
            description="A file in config/tuned: data set → method → settings. The grid's methods run with these "
            "settings. With the first seed they also run without them, as <id>-default. A method that is neither in "
            "the file nor in `settings` of the block runs only as <id>-default."
        ),
    ] = MISSING
    sources: Annotated[
        dict[
            str,
            Annotated[str, Field(pattern=r"^(paper|code|our choice)(, (paper|code|our choice))*(: .+)?\Z")],
        ]
        | MISSING,
        Field(
            description="Keys of a setting, joined by dots → its source, and a note after a colon. A paper's page "
            "shows them."
        ),
    ] = MISSING
    subsets: Annotated[
        dict[str, Annotated[list[RunLists], Field(min_length=1)]] | MISSING,
        Field(
            description="Subset → boxes of ids. `--config subset=…` selects the grid's runs that lie in one of these "
            "boxes. The results folder stays the same."
        ),
    ] = MISSING
    scales: Annotated[
        Definitions | MISSING,
        Field(description="scale → keys of this study that it overrides, after the scale's own overlay."),
    ] = MISSING


class AcceptedVersions(Settings):
    """Versions of the libraries that decide numbers."""

    numpy: str
    torch: str


class ConfigFile(Settings):
    """Studies to build, and the device to use."""

    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Field(description="Device for training. auto is cuda if a GPU is visible. It is not one of a run's settings."),
    ]
    scale: Annotated[
        str,
        Field(description="paper, or the name of an overlay. Each scale except paper has its own results folders."),
    ]
    subset: Annotated[
        str | None,
        Field(
            description="Select only the runs in this subset of each study that has subsets (its key `subsets`). "
            "Tables show the others as not run."
        ),
    ] = None
    studies: Annotated[
        Ids,
        Field(
            description="Studies that plain `snakemake` builds. Their names are the file names in config/studies and "
            "config/papers. The path of a study's file, below the working folder, names one elsewhere."
        ),
    ]
    data_root: Annotated[
        str | None,
        Field(
            description="Folder that is searched for data sets before anything is downloaded. The environment variable "
            "FEDNOISE_DATA can also name it."
        ),
    ] = None
    accept_versions: Annotated[
        list[AcceptedVersions],
        Field(
            description="List of {numpy, torch}. Finished runs of these versions are not made again with the installed "
            "versions. Tables and the page then name the version of each method's runs."
        ),
    ] = []  # noqa: RUF012 - a setting
    set: Annotated[
        list[Annotated[str, Field(pattern=r"^[^=\s.][^=\s]*=", examples=["train.lr=0.05"])]],
        Field(
            description="Settings that override those of every study, such as train.lr=0.05, see write_a_study.md. The "
            "results have their own folders."
        ),
    ] = []  # noqa: RUF012
    overlay: Annotated[
        dict[str, Any], Field(description="Merged into each study, key by key. Lists are replaced.")
    ] = {}  # noqa: RUF012
