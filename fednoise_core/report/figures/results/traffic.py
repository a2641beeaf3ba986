"""Test accuracy that was reached by the time a budget of traffic was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fednoise_core.report.figures.results.common import drawn, of_setting, ranked, smoothed, split_clean
from fednoise_core.report.figures.results.rows import Rows, baseline_of
from fednoise_core.report.figures.style import Drawn, Look
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.text.cells import count_words

__all__ = ["traffic"]

SHARES = {0.5: "half", 1.0: "all"}  # of FedAvg's traffic: the budgets if none are asked for
SLACK = 1.01  # of a budget: some hundred bytes sent once shall not cost a round


def traffic(runs: Sequence[RecordedRun], looks: Mapping[str, Look], spec: Mapping[str, Any]) -> Drawn:
    """Accuracy within budgets of traffic (all clients, both ways): the trailing mean (`smoothed`) at the last
    evaluation before a budget is used up. Nothing is picked on test data. A method that never uses a budget up stands
    at its end.
    """
    shown, _ = split_clean(runs)
    here = [run for run in runs if run.listed.setting in shown]
    (sent, window), base = _sent(here, spec), baseline_of(here)
    words, budgets = _budgets(sent, shown, spec, base)
    table = pd.concat([_within(sent, budgets[word], word) for word in words], ignore_index=True)
    last = table[table["budget"] == words[-1]]
    rows = Rows(here, shown, ranked(last), spec)
    span = table.groupby(frames.IDS, sort=False)["mean"]
    cut = rows.cut(table.assign(low=span.transform("min"), high=span.transform("max")), shown)
    for axis, setting in zip(rows.axes, shown, strict=True):
        for method, found in of_setting(table, setting).dropna(subset=["mean"]).groupby("method", sort=False):
            rows.draw(axis, setting, str(method), found["mean"].iloc[-1], list(found["mean"]))
    rows.legend("test accuracy, %", words[-1], " or ".join(words[:-1]))
    caption = "Test accuracy by the time a budget of traffic (all clients, both ways) is used up: "
    caption += f"{_said(table, words)}; {', '.join(filter(None, (window, count_words(table['n']))))}. A method that "
    caption += f"sends less stands at its end; one that sends more before its first evaluation has no dot.{cut}"
    names = Names.of_runs(here)
    title = "Accuracy within a budget of traffic"
    told: dict[str, Any] = {"shape": "dots, a row a method", "which": f"accuracy with {words[-1]}"}
    return drawn(rows.figure, table, spec, title, caption, last, here, names, {}, **told)


def _sent(runs: Sequence[RecordedRun], spec: Mapping[str, Any]) -> tuple[pd.DataFrame, str]:
    """A row a run and evaluation: the trailing mean of accuracy, and the `megabytes` of all clients so far; and over
    how many evaluations the mean is, in words. Models that were not trained yet are no result: they are left out.
    """
    step = frames.load_metric(runs, "bytes_*", "").groupby([*frames.IDS, "seed", "round"], sort=False)["value"].sum()
    total = step.groupby(level=[*frames.IDS, "seed"], sort=False).cumsum().div(1e6).rename("megabytes").reset_index()
    each, window = smoothed(runs, spec)
    found = each.merge(total, on=[*frames.IDS, "seed", "round"], how="left")
    filled = found.groupby([*frames.IDS, "seed"], sort=False)["megabytes"].transform(lambda column: column.ffill())
    found = found.assign(megabytes=filled.fillna(0.0))
    return found[found["round"] > 0], window


def _budgets(
    sent: pd.DataFrame, shown: Sequence[Setting], spec: Mapping[str, Any], base: str | None
) -> tuple[list[str], dict[str, dict[Setting, float]]]:
    """The budgets' words, and each one's megabytes in every setting."""
    if spec.get("budgets"):
        asked = {f"{value:g} MB": float(value) for value in sorted(spec["budgets"])}
        return list(asked), {word: dict.fromkeys(shown, value) for word, value in asked.items()}
    whole = {}
    for setting in shown:
        ends = of_setting(sent, setting).groupby(["method", "seed"])["megabytes"].max().groupby("method").mean()
        whole[setting] = float(ends[base] if base is not None and base in ends else ends.median())
    of = "FedAvg's traffic" if base else "the median method's traffic"
    words = {f"{name} of {of}": share for share, name in SHARES.items()}
    return list(words), {word: {s: share * whole[s] for s in shown} for word, share in words.items()}


def _within(sent: pd.DataFrame, budget: Mapping[Setting, float], word: str) -> pd.DataFrame:
    """A row a method and setting: `mean`, `low`, `high` over `n` seeds at the last evaluation within the budget."""
    ids = [*frames.IDS, "method_label"]
    limit = [budget[Setting(*key)] * SLACK for key in sent[frames.IDS[:3]].itertuples(index=False, name=None)]
    sent = sent.assign(budget_mb=limit)
    inside = sent[sent["megabytes"] <= sent["budget_mb"]].groupby([*ids, "seed"], sort=False).tail(1)
    runs = sent[[*ids, "seed", "budget_mb"]].drop_duplicates()
    ends = runs.merge(inside[[*ids, "seed", "megabytes", "trailing"]], how="left")
    table = ends.groupby(ids, sort=False).agg(
        budget_mb=("budget_mb", "first"),
        megabytes=("megabytes", "mean"),
        n=("trailing", "size"),
        mean=("trailing", lambda column: column.mean(skipna=False)),
        low=("trailing", lambda column: column.min(skipna=False)),
        high=("trailing", lambda column: column.max(skipna=False)),
    )
    return table.assign(budget=word).reset_index()


def _said(table: pd.DataFrame, words: Sequence[str]) -> str:
    """The budgets in words and megabytes."""
    told = []
    for word in words:
        sizes = table[table["budget"] == word]["budget_mb"]
        least, most = f"{sizes.min():.3g}", f"{sizes.max():.3g}"
        size = f"{least} MB" if least == most else f"{least} to {most} MB"
        told.append(word if word.endswith("MB") else f"{word} ({size})")
    return ", ".join(told)
