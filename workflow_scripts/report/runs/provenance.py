"""Facts about the runs on a study's page other than their results: number, limits, origin."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workflow_scripts.report.runs import agreement, frames
from workflow_scripts.report.runs.csv_files import csv_text
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.footnotes import ORACLE, explain_true_rates, merge_marks

TYPES = {
    "csv": "text/csv;charset=utf-8",
    "md": "text/markdown;charset=utf-8",
    "tex": "application/x-tex",
    "svg": "image/svg+xml",
    "png": "image/png",
    "pdf": "application/pdf",
}

VIEWS = {
    "personal": "the mean over the clients' own models, not that of one global model",
    "mean": "the mean over its two networks",
    "averaged": "that of the average of its last two global models",
}
FEW_SEEDS = {
    1: "One seed: no spread is known.",
    2: "2 seeds: a standard deviation of so few values is itself rough. A lead is not evidence that a method is "
    "better.",
}


def summary_counts(runs: Sequence[RecordedRun]) -> list[tuple[str, str]]:
    """The few counts at the top of a study's page.

    Args:
        runs: Those of the study.

    Returns:
        (name, number in words) of each.
    """
    seeds = len({run.listed.seed for run in runs})
    rounds = sorted({int(run.summary["rounds"]) for run in runs})
    return [
        ("runs", f"{len(runs):,}"),
        ("methods", str(len({run.listed.method for run in runs}))),
        ("settings", _count_settings(runs)),
        ("seeds", str(seeds)),
        ("rounds", str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"),
        ("data sets", str(len({run.listed.dataset for run in runs}))),
    ]


def _count_settings(runs: Sequence[RecordedRun]) -> str:
    """Count settings, for instance "4 + 3 without noise". Methods are not compared in settings without noise."""
    noisy = {run.listed.setting for run in runs if not is_noiseless(run.spec.get("noise", {}))}
    clean = {run.listed.setting for run in runs} - noisy
    return f"{len(noisy)} + {len(clean)} without noise" if noisy and clean else str(len(noisy or clean))


def list_limits(study: Mapping[str, Any], runs: Sequence[RecordedRun]) -> list[str]:
    """List what a reader must know before quoting a number. Only notes that apply to these runs are listed.

    Args:
        study: As the page gets it, with completed tables (`registry.complete_tables`).
        runs: Those of the study.
    """
    frame, names = frames.tabulate_results(runs), Names.of_runs(runs)
    frame["setting"] = [names.title(run.listed.setting) for run in runs]
    tables = [spec for spec in study["tables"].values() if spec["kind"] == "accuracy"]
    seeds = int(frame.groupby(frames.IDS)["seed"].nunique().max())
    private = frame[frame["epsilon"].notna()]
    epsilons = ", ".join(f"{value:.3g}" for value in sorted(set(private["epsilon"])))
    unknown = sorted(set(frame.loc[~frame["clean_known"], "dataset"]))
    lost = frames.diverged_words(runs)
    dropped = frames.counted_words(frame, frame["dropped_updates"] > 0)
    chance = frames.counted_words(frame, frame["at_chance"])
    below = frames.counted_words(frame, frame["best"] <= frame["round0"])
    left_out = {run.listed.dataset: run.summary["left_out"] for run in runs if "left_out" in run.summary}
    damaged = [f"{count:,} of {dataset}" for dataset, count in sorted(left_out.items())]
    limits: list[tuple[Any, str]] = [
        (
            [spec for spec in tables if spec["metric"] == "best"],
            "The best round is chosen by test accuracy, which flatters every method; the CSV of a table also holds the "
            "last round and the mean of the last ten evaluations.",
        ),
        *((seeds == count, sentence) for count, sentence in FEW_SEEDS.items()),
        (
            ORACLE in merge_marks(frame["marks"]),
            f"{ORACLE} marks a method that was told the true noise rate. It shows what knowing it is worth, not what a "
            "federation can have.",
        ),
        *((True, sentence) for sentence in explain_true_rates(frame)),
        *((True, sentence) for sentence in _explain_views(frame)),
        (
            len(private),
            f"Label differential privacy (ε = {epsilons}; {_join_labels(private)}) covers the released labels only. "
            "Model updates trained on raw labels and the clients' sample counts are not.",
        ),
        (
            unknown,
            f"Nobody knows the clean labels of {', '.join(unknown)}: its noise and the diagnostics read “unknown”.",
        ),
        (
            lost,
            f"Diverged: {'; '.join(lost)}. Their outputs stopped being finite numbers, so they have no accuracy, and "
            "where one of several runs diverged there is no mean.",
        ),
        (dropped, f"Updates of clients that were not finite numbers were left out: {'; '.join(dropped)}."),
        (chance, f"At chance after the last round, as if one class were named every time: {'; '.join(chance)}."),
        (below, f"Not above the accuracy before training: {'; '.join(below)}."),
        (damaged, f"Damaged images were left out: {'; '.join(damaged)}."),
        (agreement.untrusted_datasets(runs), agreement.untrusted_note(agreement.untrusted_datasets(runs))),
        (
            True,
            "Seconds and memory depend on the machine. The other numbers repeat bit by bit on the same kind of "
            "processor. On another kind an accuracy can differ by several points.",
        ),
    ]
    return [sentence for applies, sentence in limits if applies]


def _explain_views(frame: pd.DataFrame) -> list[str]:
    """Explain which models are evaluated, if it is not one global model."""
    groups = frame[frame["view"] != "global"].groupby("view", sort=False)
    fallback = "that of its view “{}”"
    return [
        f"Accuracy of {_join_labels(rows)} is {VIEWS.get(str(view), fallback.format(view))}." for view, rows in groups
    ]


def _join_labels(frame: pd.DataFrame) -> str:
    return "; ".join(frame["method_label"].unique())


def describe_provenance(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """Describe the origin of the numbers for `study.html`.

    Returns:
        `environment` (name, values), `code` (method, hashes, number of runs) and `runs_files` (runs.csv as a data
        address).
    """
    facts = pd.DataFrame(
        {**run.cost.get("versions", {}), **{key: run.cost.get(key) for key in ("device", "executor")}} for run in runs
    )
    frame = frames.tabulate_results(runs).assign(
        spec_digest=[run.summary["spec_digest"] for run in runs], code=[str(run.record.get("code", "")) for run in runs]
    )
    resumed = sum(int(run.cost.get("resumed", 0)) > 0 for run in runs)
    return {
        "environment": [
            *((name, ", ".join(sorted(facts[name].dropna().astype(str).unique()))) for name in sorted(map(str, facts))),
            ("runs resumed after a stop", str(resumed)),
        ],
        "code": [
            (method, ", ".join(sorted(set(codes))), len(codes))
            for method, codes in frame.groupby("method", sort=False)["code"]
        ],
        "runs_files": [{"name": "runs.csv", "uri": file_uri("csv", csv_text(frame).encode())}],
    }


def mixed_versions(runs: Sequence[RecordedRun]) -> list[str]:
    """Describe which methods' runs have which versions, if there are several.

    Versions of numpy or torch differ in the last digits of their numbers.

    Returns:
        One sentence, or none.
    """
    counts: dict[str, Counter[str]] = {}
    for run in runs:
        counts.setdefault(str(run.record.get("versions", "unknown versions")), Counter())[run.label] += 1
    listing = "; ".join(
        f"{version}: {', '.join(f'{label} ({count:,})' for label, count in sorted(of.items()))}"
        for version, of in sorted(counts.items())
    )
    head = "Made with several versions, so numbers may differ (method and number of runs)"
    return [f"{head}: {listing}."] if len(counts) > 1 else []


def file_uri(ending: str, content: bytes) -> str:
    """Encode a file as a data URI for a page. `ending` is one of TYPES."""
    return f"data:{TYPES[ending]};base64,{base64.b64encode(content).decode()}"
