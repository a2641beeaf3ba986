"""What a study's page says of its runs besides their results: how many, their limits, where they come from."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from fednoise_core.report import agreement, frames
from fednoise_core.report.csv_files import csv_text
from fednoise_core.report.marks import ORACLE, as_told_notes, together
from fednoise_core.report.names import Names
from fednoise_core.report.rates import noiseless
from fednoise_core.report.runs import RecordedRun

__all__ = ["file_uri", "limits", "mixed_versions", "provenance", "tiles"]

TYPES = {
    "csv": "text/csv;charset=utf-8",
    "md": "text/markdown;charset=utf-8",
    "tex": "application/x-tex",
    "svg": "image/svg+xml",
    "png": "image/png",
}


def tiles(runs: Sequence[RecordedRun]) -> list[tuple[str, str]]:
    """The few counts at the top of a study's page: (name, number in words)."""
    seeds = len({run.listed.seed for run in runs})
    rounds = sorted({int(run.summary["rounds"]) for run in runs})
    return [
        ("runs", f"{len(runs):,}"),
        ("methods", str(len({run.listed.method for run in runs}))),
        ("settings", settings_words(runs)),
        ("seeds", str(seeds)),
        ("rounds", str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"),
        ("data sets", str(len({run.listed.dataset for run in runs}))),
    ]


def settings_words(runs: Sequence[RecordedRun]) -> str:
    """ "4 + 3 without noise": those on clean labels are ceilings of the others; methods are not compared there."""
    noisy = {run.listed.setting for run in runs if not noiseless(run.spec.get("noise", {}))}
    clean = {run.listed.setting for run in runs} - noisy
    return f"{len(noisy)} + {len(clean)} without noise" if noisy and clean else str(len(noisy or clean))


def limits(study: Mapping[str, Any], runs: Sequence[RecordedRun]) -> list[str]:
    """What a reader must know before quoting a number; only what applies to these runs."""
    said, frame = [], frames.results(runs)
    metrics = {
        spec.get("metric", "best") for spec in study.get("tables", {}).values() if spec.get("kind") == "accuracy"
    }
    if "best" in metrics:
        said.append(
            "The best round is chosen by test accuracy, which flatters every method; the CSV of a table also holds the "
            "last round and the mean of the last ten evaluations."
        )
    seeds = int(frame.groupby(["dataset", "noise", "partition", "method"])["seed"].nunique().max())
    if seeds < 3:
        said.append(
            "One seed: no spread is known."
            if seeds == 1
            else f"{seeds} seeds: a standard deviation of so few values is itself rough. A method alone at the top "
            "leads in the mean; that it is better is not shown."
        )
    if ORACLE in together(frame["marks"]):
        said.append(
            f"{ORACLE} marks a method that was told the true noise rate. It shows what knowing it is worth, not what a "
            "federation can have."
        )
    words = Names.of_runs(runs)
    frame["setting"] = [words.title(run.listed.setting) for run in runs]
    said += as_told_notes(frame)
    personal = frame[~frame["view"].isin(["global"])].groupby("view", sort=False)["method_label"].unique()
    for view, labels in personal.items():
        said.append(
            f"Accuracy of {'; '.join(labels)} is of the view “{view}”: the mean over its models, not one global model."
        )
    private = frame[frame["epsilon"].notna()]
    if len(private):
        values = ", ".join(f"{value:.3g}" for value in sorted(set(private["epsilon"])))
        said.append(
            f"Label differential privacy (ε = {values}; {'; '.join(private['method_label'].unique())}) covers the "
            "released labels only. Model updates trained on raw labels and the clients' sample counts are not."
        )
    if not frame["clean_known"].all():
        names = sorted(set(frame.loc[~frame["clean_known"], "dataset"]))
        said.append(
            f"Nobody knows the clean labels of {', '.join(names)}: its noise and the diagnostics read “unknown”."
        )
    if lost := frames.diverged_words(runs):
        said.append(
            f"Diverged: {'; '.join(lost)}. Their outputs stopped being finite numbers, so they have no accuracy, and "
            "where one of several runs diverged there is no mean."
        )
    held = agreement.datasets(runs)
    for label, group in frame[frame["dropped_updates"] > 0].groupby("method_label", sort=False):
        said.append(
            f"{label}: {group['dropped_updates'].sum():,} updates of clients were not finite numbers and were left "
            f"out, in {len(group)} of {int((frame['method_label'] == label).sum())} runs."
        )
    below = frame[frame["best"] <= frame["round0"]]
    for label, group in below.groupby("method_label", sort=False):
        said.append(
            f"{label} does not beat its own accuracy before training in {len(group)} of "
            f"{int((frame['method_label'] == label).sum())} runs."
        )
    if set(held) == {run.listed.dataset for run in runs}:
        said = [agreement.renamed(sentence) for sentence in said]
    said += [agreement.note(held)] if held else []
    said.append("Seconds and memory depend on the machine; every other number follows from the settings and the code.")
    return said


def provenance(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """What `study.html` says of where its numbers come from: `environment` (name, values), `code` (method, hashes,
    number of runs), `runs_files` (runs.csv as a data address).
    """
    versions: dict[str, set[str]] = {}
    for run in runs:
        for name, version in {
            **run.cost.get("versions", {}),
            "device": run.cost.get("device", "unknown"),
            "executor": run.cost.get("executor", "unknown"),
        }.items():
            versions.setdefault(name, set()).add(str(version))
    code: dict[str, list[str]] = {}
    for run in runs:
        code.setdefault(run.listed.method, []).append(str(run.record.get("code", "unknown")))
    frame = frames.results(runs).assign(
        spec_digest=[run.summary["spec_digest"] for run in runs], code=[str(run.record.get("code", "")) for run in runs]
    )
    text = csv_text(frame)
    resumed = sum(int(run.cost.get("resumed", 0)) > 0 for run in runs)
    return {
        "environment": [(name, ", ".join(sorted(values))) for name, values in sorted(versions.items())]
        + [("runs resumed after a stop", str(resumed))],
        "code": [(method, ", ".join(sorted(set(codes))), len(codes)) for method, codes in code.items()],
        "runs_files": [{"name": "runs.csv", "uri": file_uri("csv", text.encode())}],
    }


def mixed_versions(runs: Sequence[RecordedRun]) -> list[str]:
    """One sentence if the runs were made with several versions of torch, whose numbers differ in their last digits."""
    counts: dict[str, int] = {}
    for run in runs:
        version = str(run.cost.get("versions", {}).get("torch", "unknown"))
        counts[version] = counts.get(version, 0) + 1
    words = ", ".join(f"{version} ({count:,} run{'s' * (count > 1)})" for version, count in sorted(counts.items()))
    return [f"Made with several versions of torch, whose numbers may differ: {words}."] if len(counts) > 1 else []


def file_uri(ending: str, content: bytes) -> str:
    """A file inside a page, as a data address; `ending` one of TYPES."""
    return f"data:{TYPES[ending]};base64,{base64.b64encode(content).decode()}"
