"""A paper's table beside ours: every cell of the paper or the study, with both numbers and the verdict on them.

The frame has one row per cell, with the ids of the paper's scale. `reproduction_layout.py` lays it out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from fednoise_core.io import ArtifactError, read_texts
from fednoise_core.settings.declare import Settings
from workflow_scripts.paths import resolve_user_file
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.runs.selection import Metric, RunSelection
from workflow_scripts.report.runs.statistics import summarize_seeds
from workflow_scripts.report.tables.claims import ClaimSettings, format_by_seed, measure_lead
from workflow_scripts.report.tables.intervals import find_peak, is_collapsed, measure_swing
from workflow_scripts.report.tables.kind import HeadWords, Spec, TableKind
from workflow_scripts.report.tables.reproduction_layout import lay_out_reproduction
from workflow_scripts.report.tables.scorecard import JUDGED, KEYS, compare_numbers
from workflow_scripts.report.text.footnotes import merge_marks

BY_SEED = ("ours_swing_by_seed", "ours_peak_by_seed", "collapsed", "runs_by_seed")


class Reference(Settings):
    """File of the paper's numbers."""

    file: Annotated[
        str,
        Field(
            description="CSV with columns table, dataset, noise, partition, method, member (ids of this study; member: "
            "the number of a client whose own model it is, or empty), mean, std (in %, empty: unreadable), note. A row "
            "without a method has a head that nobody can read, and is passed over."
        ),
    ]
    table: Annotated[str | int | None, Field(description="Only rows whose column `table` says so.")] = None


class ReproductionSettings(RunSelection):
    """A paper's table, cell by cell: its numbers, ours, their difference, a verdict, gains, ranks, and the claims.

    Differences and verdicts are made at scale `paper` only.
    """

    metric: Annotated[
        Metric,
        Field(
            description="The accuracy that the paper reports: best round, last round, or mean of the last ten "
            "evaluations."
        ),
    ] = "best"
    digits: Annotated[int, Field(ge=0, le=4, description="Decimals shown.")] = 2
    reference: Annotated[Reference, Field(description="The paper's numbers.")]
    heads: Annotated[
        HeadWords,
        Field(
            description="Words for ids of data sets, noises and partitions in the table's head; default: made from "
            "their settings."
        ),
    ] = {}  # noqa: RUF012 - a setting
    clients: Annotated[
        int,
        Field(
            ge=0,
            description="So many clients have columns of their own, each with its own model, beside their mean.",
        ),
    ] = 0
    baseline: Annotated[str, Field(description="The method that gains are over.")] = "fedavg"
    claims: Annotated[
        list[ClaimSettings],
        Field(
            description="What the paper says of the table, each {id, says, place, one of best, above, within, costs, "
            "leads, widens, declines, unjudged, and which columns}."
        ),
    ] = []  # noqa: RUF012 - a setting
    readings: Annotated[
        dict[str, dict[str, str]],
        Field(
            description="Reading of the paper, in words → method → the method that stands for it. Claims that name the "
            "first of these methods are judged by it, too."
        ),
    ] = {}  # noqa: RUF012 - a setting


def reproduction_frame(runs: Sequence[RecordedRun], spec: Spec) -> pd.DataFrame:
    """Every cell of the study (`cells`) or the paper (`reference`): `paper_*`, `ours_*` in %, `difference`, `verdict`.

    `ours_low` and `ours_high` are the ends of the 95 % bootstrap interval of the mean over at least three seeds.
    `ours_by_seed` has the value of each seed.

    `*_gain` has the points above the `baseline` of the same column, over the seeds that both have. `*_rank` is the rank
    among the methods of the column that both we and the paper have. The intervals of claims need values by seed:
    `ours_swing_by_seed` (`measure_swing`), `ours_peak_by_seed` (the highest mean of ten successive evaluations), and
    `runs_by_seed` (the end of a run's folder). `collapsed` has the seeds whose run was at chance.

    At scales other than `paper` there is no difference, and the verdict is `run`. For a cell without a number of the
    paper, `paper` has the reason: `unreadable`, or `absent` (the paper has no such cell).

    Args:
        runs: The runs of the table.
        spec: Its completed settings.

    Raises:
        ArtifactError: For a damaged reference.
    """
    printed, measured = _read_paper_numbers(spec), _own_numbers(runs, spec)
    clients = ["", *map(str, range(spec["clients"]))]  # the mean, and each client that has a column
    cells = {**dict.fromkeys((*cell, client) for cell in spec["cells"] for client in clients), **dict.fromkeys(printed)}
    names, substitutes, parts = _label_cells(spec, cells), spec["dataset_substitutes"], spec["parts"]
    clean = {name for name, noise_spec in parts.get("noise", {}).items() if is_noiseless(noise_spec)}
    method_counts = {name: len({key[3] for key in cells if key[1] == name}) for name in {key[1] for key in cells}}
    noisy = max((count for name, count in method_counts.items() if name not in clean), default=0)
    rows = []
    for key in cells:  # in the order of the table's lists; cells that only the paper has come last
        dataset, noise, method = key[0], key[1], key[3]
        ours = measured.get((substitutes.get(dataset, dataset), *key[1:]), {})
        row = {
            **dict(zip(KEYS, key, strict=True)),
            **dict(zip(("dataset_label", "noise_label", "partition_label"), names(key), strict=True)),
            "method_label": spec["labels"].get(method, method),
            "marks": ours.get("marks", ""),
            "ceiling": int(noise in clean and method_counts[noise] < noisy),
            "metric": spec["metric"],
            "scale": spec["scale"],
            **(printed.get(key) or {"paper_mean": math.nan, "paper_std": math.nan, "paper": "absent", "note": ""}),
            "seeds": ours.get("seeds", 0),
            "ours_mean": ours.get("mean", math.nan),
            "ours_std": ours.get("std", math.nan),
            "ours_low": ours.get("low", math.nan),
            "ours_high": ours.get("high", math.nan),
            "ours_by_seed": ours.get("by_seed", ""),
            **{name: ours.get(name, "") for name in BY_SEED},
            "diverged": ours.get("diverged", 0),
            "epsilon": ours.get("epsilon", math.nan),
        }
        verdict = _judge_cell(row, dataset in spec["absent"])
        difference = row["ours_mean"] - row["paper_mean"] if verdict in JUDGED else math.nan
        rows.append({**row, "difference": difference, "verdict": verdict})
    return _add_comparisons(pd.DataFrame(rows), spec)


def _add_comparisons(frame: pd.DataFrame, spec: Mapping[str, Any]) -> pd.DataFrame:
    """The frame with gains and ranks."""
    main, columns = frame[frame["ceiling"] == 0], [key for key in KEYS if key != "method"]
    in_both = main["ours_mean"].notna() & main["paper_mean"].notna()
    rows = main.to_dict("records")
    bases = {tuple(row[key] for key in columns): row for row in rows if row["method"] == spec["baseline"]}
    none = {"ours_mean": math.nan, "ours_by_seed": "", "paper_mean": math.nan}
    pairs = [(row, bases.get(tuple(row[key] for key in columns), none)) for row in rows]
    gains = {
        "ours": [measure_lead(row, base) for row, base in pairs],
        "paper": [round(row["paper_mean"] - base["paper_mean"], 9) for row, base in pairs],
    }
    for source, values in gains.items():
        gain = pd.Series(values, main.index, dtype=float).mask(main["method"] == spec["baseline"])
        rank = main[in_both].groupby(columns)[f"{source}_mean"].rank(ascending=False, method="min")
        frame = frame.assign(**{f"{source}_gain": gain, f"{source}_rank": rank})
    return frame


def _judge_cell(row: Mapping[str, Any], absent: bool) -> str:
    """The verdict on a cell: one of VERDICTS."""
    if row["seeds"] == 0:
        return "not run (data absent)" if absent else "not run"
    if row["diverged"]:
        return "diverged"
    if math.isnan(row["ours_mean"]):  # there are runs, but without a number of this metric
        return "no number"
    if row["scale"] != "paper":
        return "run"
    if math.isnan(row["paper_mean"]):
        return "not in paper" if row["paper"] == "absent" else "paper unreadable"
    return compare_numbers((row["ours_mean"], row["ours_std"]), (row["paper_mean"], row["paper_std"]))


def _read_paper_numbers(spec: Mapping[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read the paper's numbers by cell. Rows without a method are left out, and the layout has a note on them."""
    path, table = spec["reference"]["file"], spec["reference"].get("table")
    rows = read_texts(resolve_user_file(path))
    missing = [name for name in ("table", *KEYS, "mean", "std", "note") if name not in rows.columns]
    if missing:
        raise ArtifactError(f"{path}: has no column {', '.join(missing)}")
    rows = rows[(rows["method"] != "") & ((table is None) | (rows["table"] == str(table)))]
    numbers: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows.to_dict("records"):
        key = tuple(row[name] for name in KEYS)
        if key in numbers:
            raise ArtifactError(f"{path}: two rows for {' / '.join(filter(None, key))} in table {row['table']}")
        try:
            mean, std = (float(row[name]) if row[name] else math.nan for name in ("mean", "std"))
        except ValueError as error:
            raise ArtifactError(f"{path}: {' / '.join(filter(None, key))}: {error}") from error
        state = "unreadable" if math.isnan(mean) else "printed"
        numbers[key] = {"paper_mean": mean, "paper_std": std, "paper": state, "note": row["note"]}
    return numbers


def _own_numbers(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Collect our numbers by cell, with the ids of the runs."""
    if not runs:
        return {}
    metric = spec["metric"]
    frame = frames.tabulate_results(runs).assign(value=lambda table: table[metric], member="")
    parts = [frame, *([_by_client(runs, metric, frame)] if spec["clients"] else [])]
    accuracies = frames.load_metric(runs)
    accuracies = accuracies[accuracies["round"] > 0].sort_values("round", kind="stable")
    series = {ids: list(part) for ids, part in accuracies.groupby(frames.RUN, sort=False)["value"]}
    addresses = {tuple(getattr(run.listed, key) for key in frames.RUN): run.listed.folder for run in runs}
    numbers = {}
    for ids, group in pd.concat(parts).groupby(KEYS, sort=False):
        lost, values = int(group["diverged"].sum()), group["value"].astype(float)
        numbers[tuple(map(str, ids))] = {
            "seeds": len(group),
            **summarize_seeds([math.nan] if lost else values.tolist()),
            "by_seed": format_by_seed(dict(zip(group["seed"], values, strict=True))),
            **_describe_series(
                {seed: series.get((*ids[:4], seed), []) for seed in group["seed"]}, metric, group["classes"]
            ),
            "runs_by_seed": " ".join(f"{n}={addresses[*ids[:4], n].rpartition('/')[2]}" for n in sorted(group["seed"])),
            "diverged": lost,
            "marks": merge_marks(group["marks"]),
            "epsilon": group["epsilon"].iloc[0],
        }
    return numbers


def _describe_series(series: Mapping[int, Sequence[float]], metric: str, classes: pd.Series) -> dict[str, str]:
    """Describe a cell's evaluations (in %, by seed), for the intervals of claims."""
    known = {seed: values for seed, values in sorted(series.items()) if len(values) and not np.isnan(values).any()}
    chance = 100 / float(classes.iloc[0])
    return {
        "ours_swing_by_seed": format_by_seed({seed: measure_swing(v, metric) for seed, v in known.items()}),
        "ours_peak_by_seed": format_by_seed({seed: find_peak(v) for seed, v in known.items()}),
        "collapsed": " ".join(str(seed) for seed, values in known.items() if is_collapsed(values, chance)),
    }


def _by_client(runs: Sequence[RecordedRun], metric: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Make the same columns with one row for each client's own model."""
    accuracies = frames.load_metric(runs, client=None)
    accuracies = accuracies[(accuracies["client"] >= 0) & (accuracies["round"] > 0)].sort_values("round", kind="stable")
    groups = accuracies.groupby([*frames.IDS, "seed", "client"], sort=False)["value"]
    reductions = {
        "last": groups.last,
        "best": groups.max,
        "last10_mean": lambda: groups.apply(lambda v: v.iloc[-10:].mean()),
    }
    values = reductions[metric]().reset_index()
    shared = frame[[*frames.IDS, "seed", "diverged", "marks", "epsilon", "classes"]]
    return values.assign(member=values["client"].astype(str)).merge(shared, on=[*frames.IDS, "seed"])


def _label_cells(spec: Mapping[str, Any], cells: Iterable[tuple[str, ...]]) -> Any:
    """Cell → the words of its data set, noise and partition."""
    parts, heads = spec["parts"], spec["heads"]
    settings = dict.fromkeys(Setting(*key[:3]) for key in cells)
    chosen = {
        setting: {
            kind: parts.get(kind, {}).get(name, {})
            for kind, name in zip(("dataset", "noise", "partition"), setting, strict=True)
        }
        for setting in settings
    }
    names = Names(chosen.items())
    return lambda key: [heads.get(name, word) for name, word in zip(key[:3], names.of(Setting(*key[:3])), strict=True)]


KIND = TableKind(
    settings=ReproductionSettings,
    frame=reproduction_frame,
    layout=lay_out_reproduction,
    example={
        "reference": {"file": "config/papers/tables/fedefc.csv", "table": 2},
        "metric": "last10_mean",
        "claims": [
            {"id": "above", "says": "FedEFC is above FedAvg", "place": "table 2", "above": ["fedefc", "fedavg"]}
        ],
    },
    texts=["member", "scale", "paper", "note", "verdict", "ours_by_seed", *BY_SEED],
    context={
        "cells": (),
        "labels": {},
        "parts": {},
        "scale": "paper",
        "dataset_substitutes": {},
        "absent": (),
        "void": "",
    },
    of_a_paper=True,
)
