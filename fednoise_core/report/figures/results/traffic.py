"""Test accuracy that was reached by the time a budget of traffic was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from fednoise_core.report.figures.kind import AccuracySettings, Drawn, FigureKind
from fednoise_core.report.figures.results.common import (
    finish_figure,
    of_setting,
    rank_methods,
    smooth_accuracies,
    split_clean_settings,
)
from fednoise_core.report.figures.results.rows import Rows
from fednoise_core.report.figures.style import Look
from fednoise_core.report.runs import frames
from fednoise_core.report.runs.names import Names
from fednoise_core.report.runs.ranking import find_baseline
from fednoise_core.report.runs.run import RecordedRun, Setting
from fednoise_core.report.text.cells import count_words

SHARES = {0.5: "half", 1.0: "all"}  # of FedAvg's traffic: the budgets
SLACK = 1.01  # of a budget: some hundred bytes sent once shall not cost a round


class TrafficSettings(AccuracySettings):
    """Test accuracy by the time half and all of FedAvg's traffic (all clients, both ways) is used up, a row a method.

    Without FedAvg the budgets are those of the median method. The accuracy is the trailing mean (`smooth_accuracies`)
    at the last evaluation before a budget is used up. Nothing is picked on test data. A method that never uses a budget
    up stands at its end.
    """

    metric: Annotated[
        Literal["last", "last10_mean"],
        Field(description="What is read at a budget: the last evaluation within it, or the mean of up to ten."),
    ] = "last10_mean"


def _draw_traffic(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: TrafficSettings) -> Drawn:
    shown, _ = split_clean_settings(runs)
    here = [run for run in runs if run.listed.setting in shown]
    (sent, window), base = _cumulate_traffic(here, settings), find_baseline(here)
    words, budgets = _choose_budgets(sent, shown, base)
    table = pd.concat([_within_budget(sent, budgets[word], word) for word in words], ignore_index=True)
    last = table[table["budget"] == words[-1]]
    rows = Rows(here, shown, rank_methods(last), settings)
    span = table.groupby(frames.IDS, sort=False)["mean"]
    cut = rows.set_x_range(table.assign(low=span.transform("min"), high=span.transform("max")), shown)
    for axis, setting in zip(rows.axes, shown, strict=True):
        for method, found in of_setting(table, setting).dropna(subset=["mean"]).groupby("method", sort=False):
            rows.draw_method(axis, setting, str(method), found["mean"].iloc[-1], list(found["mean"]))
    rows.add_legend("test accuracy, %", words[-1], " or ".join(words[:-1]))
    caption = "Test accuracy by the time a budget of traffic (all clients, both ways) is used up: "
    caption += (
        f"{_budget_words(table, words)}; {', '.join(filter(None, (window, count_words(table['n']))))}. A method that "
    )
    caption += f"sends less stands at its end; one that sends more before its first evaluation has no dot.{cut}"
    names = Names.of_runs(here)
    title = "Accuracy within a budget of traffic"
    told: dict[str, Any] = {"shape": "dots, a row a method", "which": f"accuracy with {words[-1]}"}
    return finish_figure(rows.figure, table, settings, title, caption, last, here, names, {}, **told)


def _cumulate_traffic(runs: Sequence[RecordedRun], settings: TrafficSettings) -> tuple[pd.DataFrame, str]:
    """A row a run and evaluation, and over how many evaluations `trailing` is the mean, in words.

    `megabytes` are those of all clients so far. Models that were not trained yet are no result: they are left out.
    """
    step = frames.load_metric(runs, "bytes_*", "").groupby([*frames.IDS, "seed", "round"], sort=False)["value"].sum()
    total = step.groupby(level=[*frames.IDS, "seed"], sort=False).cumsum().div(1e6).rename("megabytes").reset_index()
    each, window = smooth_accuracies(runs, settings)
    found = each.merge(total, on=[*frames.IDS, "seed", "round"], how="left")
    filled = found.groupby([*frames.IDS, "seed"], sort=False)["megabytes"].transform(lambda column: column.ffill())
    found = found.assign(megabytes=filled.fillna(0.0))
    return found[found["round"] > 0], window


def _choose_budgets(
    sent: pd.DataFrame, shown: Sequence[Setting], base: str | None
) -> tuple[list[str], dict[str, dict[Setting, float]]]:
    """The budgets' words, and each one's megabytes in every setting."""
    whole = {}
    for setting in shown:
        ends = of_setting(sent, setting).groupby(["method", "seed"])["megabytes"].max().groupby("method").mean()
        whole[setting] = float(ends[base] if base is not None and base in ends else ends.median())
    of = "FedAvg's traffic" if base else "the median method's traffic"
    words = {f"{name} of {of}": share for share, name in SHARES.items()}
    return list(words), {word: {s: share * whole[s] for s in shown} for word, share in words.items()}


def _within_budget(sent: pd.DataFrame, budget: Mapping[Setting, float], word: str) -> pd.DataFrame:
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


def _budget_words(table: pd.DataFrame, words: Sequence[str]) -> str:
    """The budgets in words and megabytes."""
    told = []
    for word in words:
        sizes = table[table["budget"] == word]["budget_mb"]
        least, most = f"{sizes.min():.3g}", f"{sizes.max():.3g}"
        size = f"{least} MB" if least == most else f"{least} to {most} MB"
        told.append(f"{word} ({size})")
    return ", ".join(told)


KIND = FigureKind(settings=TrafficSettings, draw=_draw_traffic, example={"noises": ["sym40"]})
