"""The closing lines of a workflow: what won in each setting of a study, by how much, and where its page is."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflow_scripts.runs import PlannedRun

__all__ = ["closing", "winner"]

MOST = 12
DIGITS = 1  # as the tables
TIED = "(tie)"
Seeds = tuple[str, list[float]]  # label, one value a seed, in %


def winner(scores: list[Seeds]) -> str:
    """ "FedELR 76.6 ± 1.2 % wins; next SCE 70.2 ± 0.9 %; n = 3" of two or more (label, values by seed), by the rule of
    the tables (`best.level`). The deviation is the sample's; with one seed there is none, and the line says n = 1.
    """
    from fednoise_core.report.best import leads, level

    found = dict(enumerate(scores))
    order = level({str(at): (statistics.fmean(values), _spread(values)) for at, (_, values) in found.items()}, DIGITS)
    near = [found[int(at)] for at in order]
    rest = sorted((one for one in scores if one not in near), key=lambda one: -statistics.fmean(one[1]))
    words = " = ".join(_words(score) for score in near[:3]) + (f" = {len(near) - 3} more" if len(near) > 3 else "")
    seeds = min(len(values) for _, values in scores)
    verb = f" {TIED}" if len(near) > 1 else f" {leads(seeds)}"
    after = f"; next {_words(rest[0])}" if rest else ""
    return f"{words}{verb}{after}; n = {seeds}"


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else math.nan


def _words(score: Seeds) -> str:
    label, values = score
    spread = f" ± {_spread(values):.{DIGITS}f}" if len(values) > 1 else ""
    return f"{label} {statistics.fmean(values):.{DIGITS}f}{spread} %"


@dataclass
class _Place:
    """What the runs of a setting say: values by method, methods of which a seed diverged, those that are as if told,
    each ε.
    """

    values: dict[str, list[float]] = field(default_factory=dict)
    diverged: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    epsilons: set[float] = field(default_factory=set)

    def line(self, labels: Mapping[str, str], ceiling: bool) -> str:
        """The setting's line. Without noise, and where one method alone ran, nobody is called the best."""
        whole = {name: (labels[name], values) for name, values in self.values.items() if name not in self.diverged}
        members = [score for name, score in whole.items() if name not in self.told]
        said = []
        if len(members) > 1 and not ceiling:
            said = [winner(members)]
        elif whole:
            seeds = min(len(values) for _, values in whole.values())
            why = "the ceiling" if ceiling else "nothing to compare"
            said = [f"{', '.join(map(_words, whole.values()))}: {why}; n = {seeds}"]
        told, lost = (", ".join(sorted(labels[name] for name in names)) for names in (self.told, self.diverged))
        said += [f"not compared, as its own rate is the setting's: {told}"] if told and not ceiling else []
        return "; ".join([*said, *([f"diverged in a seed: {lost}"] if lost else [])])


def closing(root: str, runs: Iterable[PlannedRun], suspects: Sequence[str] = ()) -> list[str]:
    """A line a setting, in the tables' words: accuracy, mean of the last ten evaluations, of the methods that a
    federation can have (none that was told the noise rate or goes by it by chance, none trained on pooled data), with
    their marks; then what these mean, the page, and the pages of suspect labels. A method of which a seed diverged has
    no mean, as in the tables, and is only named.
    """
    from fednoise_core.report.best import TIE  # pandas: not before the work is done
    from fednoise_core.report.marks import marked, marks_of, meaning, together
    from fednoise_core.report.names import Names
    from fednoise_core.report.rates import as_told, noiseless
    from fednoise_core.report.runs import Setting

    runs = list(runs)
    names = Names((Setting(run.dataset, run.noise, run.partition), run.spec) for run in runs)
    clean = {run.noise for run in runs if noiseless(run.spec.get("noise", {}))}
    clean = clean if clean != {run.noise for run in runs} else set()
    places: dict[Setting, _Place] = {}
    labels: dict[str, str] = {}  # method id → its words; two methods may have the same
    given: set[Setting] = set()  # settings without a trusted test set
    for run in runs:
        if run.oracle_rate or run.pooled:
            continue
        summary: dict[str, Any] = json.loads(Path(run.folder, "summary.json").read_text(encoding="utf-8"))
        setting, name = Setting(run.dataset, run.noise, run.partition), run.method
        labels[name] = marked(run.label or name, marks_of(summary))
        if not summary.get("test_known", True):
            given.add(setting)
        value, place = summary["accuracy"]["last10_mean"], places.setdefault(setting, _Place())
        if summary.get("epsilon") is not None:
            place.epsilons.add(summary["epsilon"])
        if as_told(run.spec, int(summary.get("classes", 2))):
            place.told.add(name)
        if value is None or summary.get("diverged"):
            place.diverged.add(name)
        else:
            place.values.setdefault(name, []).append(100 * value)
    what = "agreement with given labels" if given and given >= places.keys() else "accuracy"
    common = names.common(next(iter(places))) if places else ""
    head = f"{root.removeprefix('results/')}: {what}, mean of the last ten evaluations"
    lines = [f"{head}, all on {common}" if common else head]
    lines += [
        f"  {names.title(setting)}: {place.line(labels, setting.noise in clean)}"
        for setting, place in list(places.items())[:MOST]
    ]
    if given and what == "accuracy":
        unknown = sorted({setting.dataset for setting in given})
        lines += [f"  no trusted test labels of {', '.join(unknown)}: agreement with given labels there"]
    lines += [f"  and {len(places) - MOST} more settings"] if len(places) > MOST else []
    lines += [f"  {TIED} {TIE}"] if any(f" {TIED}" in line for line in lines) else []
    epsilons: set[float] = set().union(*(place.epsilons for place in list(places.values())[:MOST]))
    lines += [f"  {mark} {meaning(mark, epsilons)}" for mark in together(lines)]
    lines += [f"  page: {root}/report.html"]
    lines += [f"  suspect labels: {page}" for page in suspects[:MOST]]
    return lines + ([f"  and {len(suspects) - MOST} more pages of suspects"] if len(suspects) > MOST else [])
