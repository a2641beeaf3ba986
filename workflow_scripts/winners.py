"""The closing lines of a workflow: what won in each setting of a study, by how much, and where its page is."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from workflow_scripts.runs import PlannedRun

__all__ = ["closing", "winner"]

MOST = 12
Seeds = tuple[str, list[float]]  # label, one value a seed, in %


def winner(scores: list[Seeds]) -> str:
    """ "FedELR 76.6 ± 1.2 %, n = 2" of (label, values by seed); within one standard deviation of the best is a tie.

    The deviation is the sample's, of the best method's seeds; with one seed there is none, and the line says n = 1.
    """
    ranked = sorted(scores, key=lambda score: -statistics.fmean(score[1]))
    best, spread = statistics.fmean(ranked[0][1]), _spread(ranked[0][1])
    near = [score for score in ranked if best - statistics.fmean(score[1]) <= spread]
    words = " = ".join(_words(score) for score in near[:3]) + (f" = {len(near) - 3} more" if len(near) > 3 else "")
    tie = " (within one standard deviation)" if len(near) > 1 else ""
    rest = ranked[len(near) : len(near) + 1]
    after = f"; next {_words(rest[0])}" if rest else ""
    return f"{words}{tie}{after}; n = {min(len(values) for _, values in ranked)}"


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _words(score: Seeds) -> str:
    label, values = score
    spread = f" ± {_spread(values):.1f}" if len(values) > 1 else ""
    return f"{label} {statistics.fmean(values):.1f}{spread} %"


def closing(root: str, runs: Iterable[PlannedRun], suspects: Sequence[str] = ()) -> list[str]:
    """A line a setting: accuracy, mean of the last ten evaluations, of the methods that a federation can have (none
    that was told the noise rate, none trained on pooled data), with their marks; then what these mean, the page, and
    the pages of suspect labels. A method of which a seed diverged has no mean, as in the tables, and is only named.
    """
    from fednoise_core.report.marks import MARKS, marked, marks_of, together  # pandas: not before the work is done

    settings: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    diverged: dict[tuple[str, str, str], set[str]] = {}
    labels: dict[str, str] = {}  # method id → its words; two methods may have the same
    given: set[tuple[str, str, str]] = set()  # settings without a trusted test set
    for run in runs:
        if run.oracle_rate or run.pooled:
            continue
        summary = json.loads(Path(run.folder, "summary.json").read_text(encoding="utf-8"))
        place, name = (run.dataset, run.noise, run.partition), run.method
        labels[name] = marked(run.label or name, marks_of(summary))
        if not summary.get("test_known", True):
            given.add(place)
        value = summary["accuracy"]["last10_mean"]
        at, failed = settings.setdefault(place, {}), diverged.setdefault(place, set())
        if value is None or summary.get("diverged"):
            failed.add(name)
        else:
            at.setdefault(name, []).append(100 * value)
    what = "agreement with given labels" if given and given >= settings.keys() else "accuracy"
    lines = [f"{root.removeprefix('results/')}: {what}, mean of the last ten evaluations"]
    for place, at in list(settings.items())[:MOST]:
        whole = [(labels[name], values) for name, values in at.items() if name not in diverged[place]]
        said = [winner(whole)] if whole else []
        said += (
            [f"diverged in a seed: {', '.join(sorted(labels[name] for name in diverged[place]))}"]
            if diverged[place]
            else []
        )
        lines.append(f"  {', '.join(place)}: {'; '.join(said)}")
    if given and what == "accuracy":
        names = sorted({dataset for dataset, _, _ in given})
        lines += [f"  no trusted test labels of {', '.join(names)}: agreement with given labels there"]
    lines += [f"  and {len(settings) - MOST} more settings"] if len(settings) > MOST else []
    lines += [f"  {mark} {MARKS[mark]}" for mark in together(lines)]
    lines += [f"  page: {root}/report.html"]
    lines += [f"  suspect labels: {page}" for page in suspects[:MOST]]
    return lines + ([f"  and {len(suspects) - MOST} more pages of suspects"] if len(suspects) > MOST else [])
