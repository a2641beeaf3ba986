"""Models of config.yaml, the studies and the catalogue. `fednoise schema` writes config/schema from these classes.

The settings of a kind of noise, partition, method, table or figure are declared with the kind.
"""

from typing import Annotated, Any, Literal

from pydantic import MISSING, ConfigDict, Field

from fednoise_core.settings.declare import CONFIG, Distinct, Settings
from workflow_scripts.report.runs.selection import Ids, RunLists

Title = Annotated[str, Field(min_length=1, max_length=500)]
Definitions = dict[str, dict[str, Any]]
Seeds = Annotated[Distinct[Annotated[int, Field(ge=0)]], Field(min_length=1)]
SweptValues = Annotated[Distinct[bool | int | float | str | None], Field(min_length=1, max_length=50)]


class SweptRange(Settings):
    """Numbers of a random search: whole ones if both ends are, others with three significant digits."""

    low: int | float
    high: int | float
    log: Annotated[bool, Field(description="Equal shares of draws for equal ratios; low is then above 0.")] = False


class MethodEntry(Settings):
    """A method as a file defines it. Which other keys it has depends on its name."""

    model_config = ConfigDict(**{**CONFIG, "extra": "allow"})

    sweep: Annotated[
        dict[str, SweptValues | SweptRange] | MISSING,
        Field(
            min_length=1,
            max_length=6,
            description="field → values: one variant for each, or for each combination, see write_a_study.md. With "
            "`draws` also a range {low, high, log}.",
        ),
    ] = MISSING
    draws: Annotated[
        int | MISSING,
        Field(ge=1, le=500, description="Random search: so many variants with drawn values, in place of all."),
    ] = MISSING


Noises = Annotated[Definitions | MISSING, Field(description="id → noise, see noise.yaml.")]
Partitions = Annotated[Definitions | MISSING, Field(description="id → partition, see partition.yaml.")]
Methods = Annotated[
    dict[str, MethodEntry] | MISSING,
    Field(
        description="id → method, see method.yaml, with `label` (shown), `train` (laid over the study's) and `sweep`."
    ),
]


class CatalogueFile(Settings):
    """Definitions shared by studies; a study's own definition of an id wins."""

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
        Field(
            pattern=r"^https://\S+\Z", max_length=500, description="An address for who wants to read it, or its code."
        ),
    ] = MISSING


class GridBlock(Settings):
    """A part of the grid: every combination of its lists."""

    datasets: Annotated[Ids, Field(description="Ids of the study's `datasets`, or of config/datasets.yaml.")]
    noises: Ids
    partitions: Ids
    methods: Ids
    seeds: Annotated[
        Seeds | MISSING, Field(description="In place of the study's; what a scale says under `seeds` wins.")
    ] = MISSING
    settings: Annotated[
        Definitions | MISSING,
        Field(
            description="Method → settings laid over its own in this block; what a scale says under `settings` wins."
        ),
    ] = MISSING
    train: Annotated[
        dict[str, Any] | MISSING,
        Field(description="Laid over the study's; what a scale says under `train`, and a method's own, wins."),
    ] = MISSING


class StudyFile(Settings):
    """A study, a grid of runs and the tables and figures made of them."""

    title: Annotated[Title, Field(description="Shown above the study's page.")]
    text: Annotated[str, Field(max_length=20000, description="A paragraph that says what the study is for.")] = ""
    scale_text: Annotated[
        Title | MISSING, Field(description="For scales: what the scale keeps and what it cuts, in one sentence.")
    ] = MISSING
    void: Annotated[
        str | MISSING, Field(min_length=1, max_length=300, description="For scales: why the paper's claims are void.")
    ] = MISSING
    page: Annotated[
        str | MISSING, Field(description="For scales: the scale on whose published page the rows of this one stand.")
    ] = MISSING
    paper: Annotated[
        PaperCitation | MISSING, Field(description="The paper that the study repeats, as its page names it.")
    ] = MISSING
    why: Annotated[
        dict[str, dict[str, Annotated[str, Field(min_length=1, max_length=2000)]]] | MISSING,
        Field(
            description="Table → id of a claim → why our numbers disagree with it, as far as a run has shown. Under a "
            "scale it is of that scale."
        ),
    ] = MISSING
    datasets: Annotated[Definitions | MISSING, Field(description="id → data set, see dataset.yaml.")] = MISSING
    noises: Noises = MISSING
    partitions: Partitions = MISSING
    methods: Methods = MISSING
    train: Annotated[dict[str, Any], Field(description="How every client trains, see train.yaml.")]
    seeds: Annotated[Seeds, Field(description="Seeds of every block of the grid that names none.")]
    grid: Annotated[
        list[GridBlock], Field(min_length=1, description="A run belongs to the study if a block contains it.")
    ]
    tables: Annotated[Definitions | MISSING, Field(description="id → table, see table.yaml.")] = MISSING
    figures: Annotated[Definitions | MISSING, Field(description="id → figure, see figure.yaml.")] = MISSING
    labels: Annotated[bool, Field(description="Also make labels.html of every run, see clean_your_labels.md.")] = False
    settings: Annotated[
        Definitions | MISSING,
        Field(description="Method → settings laid over its own in every block, for scales."),
    ] = MISSING
    dataset_substitutes: Annotated[
        dict[str, str] | MISSING,
        Field(
            description="Data set → the one whose runs stand in for it, for scales: the grid, its tables and the "
            "paper's numbers keep their ids."
        ),
    ] = MISSING
    tuned: Annotated[
        str | MISSING,
        Field(
            description="A file in config/tuned, data set → method → settings: the grid's methods run with these, and "
            "for the first seed as <id>-default without them; a method that neither it nor `settings` of the block "
            "names only as the latter."
        ),
    ] = MISSING
    sources: Annotated[
        dict[
            str,
            Annotated[str, Field(pattern=r"^(paper|code|our choice)(, (paper|code|our choice))*(: .+)?\Z")],
        ]
        | MISSING,
        Field(
            description="Keys of a setting, joined by dots → who says so, and more after a colon: shown on a paper's "
            "page."
        ),
    ] = MISSING
    subsets: Annotated[
        dict[str, Annotated[list[RunLists], Field(min_length=1)]] | MISSING,
        Field(
            description="Subset → boxes of ids: `--config subset=…` leaves only the grid's runs that lie in one of "
            "them, in the same folder."
        ),
    ] = MISSING
    scales: Annotated[
        Definitions | MISSING,
        Field(description="scale → what is laid over this study at that scale, after the scale's own overlay."),
    ] = MISSING


class AcceptedVersions(Settings):
    """Versions of the libraries that decide numbers."""

    numpy: str
    torch: str


class ConfigFile(Settings):
    """Studies to build, and the device to use."""

    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Field(
            description="Where training runs. auto is cuda where a GPU is visible. It is no part of a run's settings."
        ),
    ]
    scale: Annotated[
        str,
        Field(description="paper, or the name of an overlay; every scale but paper has its own results folders."),
    ]
    subset: Annotated[
        str | None,
        Field(
            description="Only the runs in this subset of each study that has subsets (its key `subsets`). Tables say "
            "of the others: not run."
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
            description="Folder that is searched for data sets before anything is downloaded; FEDNOISE_DATA is another "
            "way to say it."
        ),
    ] = None
    accept_versions: Annotated[
        list[AcceptedVersions],
        Field(
            description="Finished runs of these versions, besides those of the installed ones, need not be made again: "
            "a list of {numpy, torch}. Tables and the page then say which runs are of which."
        ),
    ] = []  # noqa: RUF012 - a setting
    set: Annotated[
        list[Annotated[str, Field(pattern=r"^[^=\s.][^=\s]*=", examples=["train.lr=0.05"])]],
        Field(
            description="Settings in place of those of every study, such as train.lr=0.05, see write_a_study.md. The "
            "results have folders of their own."
        ),
    ] = []  # noqa: RUF012
    overlay: Annotated[dict[str, Any], Field(description="Laid over every study, key by key; lists are replaced.")] = {}  # noqa: RUF012
