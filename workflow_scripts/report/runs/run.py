"""Run folders -> checked runs. A damaged or mixed-up file raises ArtifactError with its name."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fednoise_core.index import FILES, FLAGS, SHOWN, read_json, read_runs
from fednoise_core.io import ArtifactError, SpecError, check_address, json_digest
from fednoise_core.settings.variants import index_of
from workflow_scripts.provenance.checksums import check_sums
from workflow_scripts.report.text.escape import one_line

METRICS = ("best", "last", "last10_mean")
"""The three numbers a run is judged by; `round0` (before training) is kept beside them."""

SELECTORS = {"datasets": "dataset", "noises": "noise", "partitions": "partition", "methods": "method", "seeds": "seed"}


class Setting(NamedTuple):
    """A combination of data set, noise and partition, by their ids. Methods are compared within a setting."""

    dataset: str
    noise: str
    partition: str


@dataclass(frozen=True)
class ListedRun:
    """One row of the list of runs: ids, paths of files, and facts for display (None if the list lacks them).

    label: the method's name as shown. name: its registered name, or "module:Class". family: how it handles noise.
    oracle_rate: whether the method got the noise's nominal rate. as_told: whether its own rate happens to equal it.
    pooled: whether it trained on all samples in one place. own: whether it is the study's own method. These facts
    affect no number, so they are in the list and not in the run's files, and a changed label causes no training.
    local: the folder of the same run made here, if `dir` has a published run.
    """

    dataset: str
    noise: str
    partition: str
    method: str
    seed: int
    dir: Path
    labels: Path | None = None
    partition_file: Path | None = None
    arrays: Path | None = None
    donor: Path | None = None
    label: str | None = None
    name: str | None = None
    family: str | None = None
    oracle_rate: bool | None = None
    as_told: bool | None = None
    pooled: bool | None = None
    own: bool | None = None
    local: Path | None = None

    @property
    def folder(self) -> str:
        """The run's folder in the store, also of a run that was unpacked elsewhere."""
        return re.sub(r"^.*/(?=store/runs/)", "", self.dir.as_posix())

    @property
    def is_published(self) -> bool:
        """True if `dir` has an unpacked published run and not a run of this store."""
        return self.dir.as_posix() != self.folder

    @property
    def setting(self) -> Setting:
        """The run's data set, noise and partition."""
        return Setting(self.dataset, self.noise, self.partition)


@dataclass(frozen=True)
class RecordedRun:
    """A run whose spec.json and summary.json were read and checked. The other files are read on demand."""

    listed: ListedRun
    record: dict[str, Any]  # spec.json
    summary: dict[str, Any]

    @property
    def diverged(self) -> bool:
        """True if outputs of the headline view's models stopped being finite numbers. Such a run has no accuracy."""
        return bool(self.summary.get("diverged"))

    @property
    def spec(self) -> dict[str, Any]:
        """The resolved run spec: study, dataset, noise, partition, method, train, seed."""
        return self.record["spec"]

    @property
    def label(self) -> str:
        """The method's name as shown, without its marks."""
        return one_line(str(self.summary.get("method_label") or self.listed.method))

    @property
    def metrics(self) -> pd.DataFrame:
        """metrics.parquet, with accuracies in percent. Read at each use, as all files of a study would fill memory."""
        frame = _read_parquet(self.listed.dir / "metrics.parquet")
        is_accuracy = frame["metric"].str.startswith("accuracy")
        return frame.assign(value=frame["value"].where(~is_accuracy, frame["value"] * 100))

    @property
    def diagnostics(self) -> pd.DataFrame:
        """diagnostics.parquet: round, client (-1: all together), metric, value."""
        return _read_parquet(self.listed.dir / "diagnostics.parquet")

    @cached_property
    def cost(self) -> dict[str, Any]:
        """cost.json: seconds, memory, device, versions. CPU seconds that leave out worker processes are None."""
        cost = read_json(self.listed.dir / "cost.json", ("seconds",))
        return cost | {"cpu_seconds": None} if cost.get("executor") == "workers" else cost

    @property
    def on_cpu(self) -> bool:
        """True if the run was trained on a CPU, which is assumed if cost.json names no device."""
        return str(self.cost.get("device", "cpu")).startswith("cpu")


def listed_runs(runs_list: str | Path | list[dict[str, Any]]) -> list[ListedRun]:
    """List the runs of a study, from its results folder, its index.csv, or a JSON list (objects or a file).

    Raises ArtifactError for a list that is missing or damaged. The run folders are not checked.
    """
    rows: list[Any] = runs_list if isinstance(runs_list, list) else read_runs(runs_list)
    runs = []
    for number, row in enumerate(rows):
        try:
            ids: dict[str, Any] = {key: str(row[key]) for key in ("dataset", "noise", "partition", "method")}
            files: dict[str, Any] = {key: Path(row[key]) for key in FILES if key == "dir" or row.get(key)}
            labels = {key: row.get(key) for key in SHOWN}
            runs.append(ListedRun(**ids, seed=int(row["seed"]), **files, **labels, local=row.get("local")))
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{runs_list}: run {number}: {type(error).__name__}: {error}") from error
    return runs


def select(runs: Iterable[ListedRun], spec: Mapping[str, Any], *, none: bool = False) -> list[ListedRun]:
    """Select the runs in the spec's lists `datasets`, `noises`, `partitions`, `methods`, `seeds` (no list: all).

    The runs keep their order, except that a list in the spec sets the order of its ids. An id without runs is skipped,
    since a scale may leave it out. A list that leaves no run raises SpecError, unless `none` is true. The id of a
    method with a `sweep` stands for all of its variants.
    """
    selected = list(runs)
    for key, field in SELECTORS.items():
        names = spec.get(key)
        if names is None:
            continue
        present = {getattr(listed, field) for listed in selected}
        selected = [listed for listed in selected if index_of(names, getattr(listed, field)) is not None]
        if not selected and none:
            return []
        if not selected:
            raise SpecError(f"{key}: {names} matches no run; there are {', '.join(map(str, sorted(present)))}")
    for key in ("seeds", "methods", "partitions", "noises", "datasets"):  # stable sorts, the outermost last
        if spec.get(key) is not None:
            rank = {listed: index_of(spec[key], getattr(listed, SELECTORS[key])) or 0 for listed in selected}
            selected.sort(key=rank.__getitem__)
    return selected


def load(listed_runs: Iterable[ListedRun]) -> list[RecordedRun]:
    """Read spec and summary of the runs, and check that they belong to these runs and to each other.

    Args:
        listed_runs: Rows of a list of runs.

    Raises:
        ArtifactError: For a file that is missing, damaged, or of another run.
    """
    runs = []
    for listed in listed_runs:
        check_address(listed.dir)
        check_sums(listed.dir)
        record = read_json(listed.dir / "spec.json", ("spec",))
        summary = read_json(
            listed.dir / "summary.json", ("run", "accuracy", "headline_view", "spec_digest", "rounds", "classes")
        )
        if summary["run"].get("seed") != listed.seed:
            raise ArtifactError(
                f"{listed.dir / 'summary.json'}: is of seed {summary['run'].get('seed')!r}, expected {listed.seed!r}"
            )
        if summary["spec_digest"] != json_digest(record["spec"]):
            raise ArtifactError(
                f"{listed.dir / 'summary.json'}: spec digest {summary['spec_digest']} is not that of spec.json, "
                f"{json_digest(record['spec'])}: one of the two files was changed"
            )
        labels = {"method_label": listed.label, **{key: getattr(listed, key) for key in FLAGS}}
        summary |= {key: value for key, value in labels.items() if value is not None}
        runs.append(RecordedRun(listed, record, summary))
    return runs


def list_timed(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """List the runs whose time and memory are compared: those on CPUs or those on GPUs, whichever are more.

    Seconds on CPUs and GPUs cannot be compared. The time of a run that shares a GPU cannot be measured.
    """
    groups = [run for run in runs if run.on_cpu], [run for run in runs if not run.on_cpu]
    return max(groups, key=len)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
    except Exception as error:  # pyarrow raises OSError and ArrowInvalid, both for damage
        raise ArtifactError(f"{path}: damaged parquet file ({type(error).__name__}: {error})") from error
