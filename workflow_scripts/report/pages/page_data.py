"""Data for the scripts of a study's page: curves of every run, and the details of a run."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.io import canonical_json
from workflow_scripts.report.figures.axis_minimum import find_axis_minimum
from workflow_scripts.report.figures.style import COLOURS, DARK, DASHES, assign_looks
from workflow_scripts.report.pages.run_details import (
    clients_of,
    confusion_of,
    facts_of,
    files_of,
    noise_of,
    rows_of,
    scores_of,
)
from workflow_scripts.report.runs import agreement, frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.text.footnotes import PERSONAL, append_marks, marks_of

POINTS, NUMBERS = 200, 150_000  # most evaluations in the page, of one run and of all runs together
FEWEST = 30  # but at least so many of each run
SHARED = {"names": "names", "no_confusion": "whys", "no_clients": "whys"}  # part of a run → list that contains it
SPEC_PARTS = {
    "Method": "method",
    "Training": "train",
    "Data set": "dataset",
    "Noise": "noise",
    "Partition": "partition",
}
DETAILS = 1_200_000  # most characters of JSON for confusion matrices and clients; the rest is only named


def series_style() -> str:
    """CSS of the methods' colours, light and dark: lines of class series-0, series-1, …, and dots of class dot-0, …."""
    lines = []
    for place, (light, dark) in enumerate(zip(COLOURS, DARK, strict=True)):
        colour = f"light-dark({light}, {dark})"
        lines.append(f".series-{place} {{ stroke: {colour}; }} .dot-{place} {{ --dot: {colour}; }}\n")
    return "".join(lines)


def page_data(study: Mapping[str, Any], runs: Sequence[RecordedRun], commit: str) -> dict[str, Any]:
    """Collect all data for the page's scripts in one object. Accuracies are in hundredths of a percent.

    Args:
        study: Its resolved settings.
        runs: Its runs.
        commit: Of the software that makes the page.
    """
    settings = list(dict.fromkeys(run.listed.setting for run in runs))
    clean = {run.listed.noise for run in runs if is_noiseless(run.spec.get("noise", {}))}
    methods = list(dict.fromkeys(run.listed.method for run in runs))
    shared = _Shared()
    records = [
        {"s": settings.index(run.listed.setting), "m": methods.index(run.listed.method)}
        | _run_record(study, run, line, shared, commit)
        for run, line in zip(runs, _run_curves(runs), strict=True)
    ]
    noise, starts = _add_details(runs, records, shared), _axis_starts(runs, clean)
    return {
        "last": frames.LAST,
        "settings": _setting_records(runs, settings, clean, starts),
        "methods": _method_records(runs, methods),
        "runs": records,
        "noise": noise,
        **shared.lists,
    }


def _run_record(
    study: Mapping[str, Any], run: RecordedRun, line: Mapping[str, list[Any]], shared: _Shared, commit: str
) -> dict[str, Any]:
    """Make the record of a run for the page's scripts. line: its curve."""
    return {
        "seed": run.listed.seed,
        "x": shared.at("xs", {"round": line["round"], "work": line["work"]}),
        "v": line["value"],
        "t": line["trailing"],
        "personal": PERSONAL in marks_of(run.summary),
        "scores": scores_of(run),
        "facts": facts_of(run, commit),
        "parts": [
            [title, shared.at("parts", rows_of(spec))]
            for title, key in SPEC_PARTS.items()
            if (spec := run.spec.get(key))
        ],
        "folder": run.listed.folder,
        "files": files_of(run.listed.dir),
        "command": _rerun_command(study, run),
    }


def _setting_records(
    runs: Sequence[RecordedRun], settings: Sequence[Setting], clean: Collection[str], starts: Mapping[str, float]
) -> list[dict[str, Any]]:
    """List the settings' records. `ceiling`: places of the settings without noise whose lines are also shown in one."""
    untrusted, names = agreement.untrusted_datasets(runs), Names.of_runs(runs)
    return [
        {
            "title": names.title(setting),
            "whole": " · ".join(names.of(setting)),
            "clean": setting.noise in clean,
            "known": setting.dataset not in untrusted,
            "score": (agreement.WORDS if setting.dataset in untrusted else "accuracy").capitalize(),
            "ceiling": [
                place
                for place, candidate in enumerate(settings)
                if candidate.noise in clean
                and setting.noise not in clean
                and (candidate.dataset, candidate.partition) == (setting.dataset, setting.partition)
            ],
            "start": starts[setting.dataset],
        }
        for setting in settings
    ]


def _method_records(runs: Sequence[RecordedRun], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Names, places in COLOURS and dashes."""
    first, looks = {run.listed.method: run for run in reversed(runs)}, assign_looks(run.listed for run in runs)
    return [
        {
            "name": append_marks(first[method].label, marks_of(first[method].summary)),
            "colour": looks[method].place,
            "dash": _svg_dash(looks[method].dash),
        }
        for method in methods
    ]


class _Shared:
    """Values that many runs share. Each value is stored once, and runs refer to its place."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {"xs": [], "parts": [], "names": [], "whys": []}
        self._places: dict[str, int] = {}

    def at(self, kind: str, value: Any) -> int:
        key = kind + canonical_json(value)
        if key not in self._places:
            self._places[key] = len(self.lists[kind])
            self.lists[kind].append(value)
        return self._places[key]


def _run_curves(runs: Sequence[RecordedRun]) -> list[dict[str, list[Any]]]:
    """Return the curve of each run: round, work, value and trailing mean. Long curves are thinned out."""
    most = max(FEWEST, min(POINTS, NUMBERS // max(len(runs), 1)))
    table = frames.by_round(runs, of=frames.RUN)  # each run up to its own end; the page cuts the means
    groups = dict(iter(table.groupby(frames.RUN, sort=False)))
    curves: list[dict[str, list[Any]]] = []
    for run in runs:
        line = groups[(*run.listed.setting, run.listed.method, run.listed.seed)].sort_values("round", kind="stable")
        places = np.linspace(0, len(line) - 1, min(len(line), most)).round().astype(int)
        line = line.iloc[places]
        curves.append(
            {
                "round": [int(value) for value in line["round"]],
                "work": [round(float(value), 2) for value in line["work"]],
                "value": _to_hundredths(line["value"]),
                "trailing": _to_hundredths(line["trailing"]),
            }
        )
    return curves


def _to_hundredths(column: pd.Series) -> list[int | None]:
    return [None if math.isnan(value) else round(100 * float(value)) for value in column]


def _axis_starts(runs: Sequence[RecordedRun], clean: Collection[str]) -> dict[str, float]:
    """Choose the start of the axes of each data set's settings, in %, so that most lines' ends can be distinguished.

    It is the same start as in the figure. clean: ids of noises that change no label. Their lines are shown in the other
    settings.
    """
    means = frames.tabulate_results(runs).groupby(frames.IDS, sort=False)["last10_mean"].mean().dropna().reset_index()
    free = means["noise"].isin(clean)
    panels: dict[str, list[list[float]]] = {run.listed.dataset: [] for run in runs}
    for (dataset, noise, partition), ends in (means if free.all() else means[~free]).groupby(
        frames.IDS[:3], sort=False
    ):
        same = (means["dataset"] == dataset) & (means["partition"] == partition) & (means["noise"] != noise)
        dotted = means[free & same]
        panels[str(dataset)].append([*ends["last10_mean"], *dotted["last10_mean"]])
    return {dataset: find_axis_minimum(*lines) or 0.0 for dataset, lines in panels.items()}


def _add_details(
    runs: Sequence[RecordedRun], records: list[dict[str, Any]], shared: _Shared
) -> dict[str, list[float | None]]:
    """Put confusion matrix and clients into each run's record, while there is room.

    Returns:
        The noise of the clients that each setting and seed has, by "setting place/seed".
    """
    noise: dict[str, list[float | None]] = {}
    left = DETAILS
    for run, record in zip(runs, records, strict=True):
        parts = confusion_of(run) | clients_of(run)
        size = len(str(parts))
        if left < size:
            full = "Not inside this page, which would grow too large: see {} in the run’s folder."
            parts = {
                "no_confusion": parts.get("no_confusion", full.format("confusion.csv")),
                "no_clients": parts.get("no_clients", full.format("sites.csv")),
            }
        else:
            left -= size
        for key, kind in SHARED.items():
            if key in parts:
                parts[key] = shared.at(kind, parts[key])
        record.update(parts)
        place = f"{record['s']}/{run.listed.seed}"
        if "clients" in parts and place not in noise:
            noise[place] = noise_of(run)
    return noise


def _svg_dash(dash: Any) -> str:
    """Convert matplotlib's dashes, in widths of the line, to SVG's for a line two pixels wide."""
    return "" if dash == DASHES[0] else " ".join(f"{2 * length:g}" for length in dash[1])


def _rerun_command(study: Mapping[str, Any], run: RecordedRun) -> str:
    scale = study.get("scale") or "paper"
    config = [f"scale={scale}"] if scale != "paper" else []
    config += [f"set={json.dumps(study['set'])}"] if study.get("set") else []
    command = ["snakemake", "--cores", "1", "--force", f"{run.listed.folder}/SHA256SUMS"]
    return shlex.join([*command, *(["--config", *config] if config else [])])
