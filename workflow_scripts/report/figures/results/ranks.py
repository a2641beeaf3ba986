"""Mean rank of every method of a leaderboard, with its interval."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from matplotlib.lines import Line2D
from pydantic import Field

from fednoise_core.io import SpecError
from workflow_scripts.report.figures.kind import AccuracySettings, Drawn, FigureKind
from workflow_scripts.report.figures.results.common import name_rows
from workflow_scripts.report.figures.style import (
    BASELINE,
    DOT,
    FAMILY_COLOURS,
    HOLLOW,
    PLAIN,
    QUIET,
    SIZE,
    Look,
    add_legend_below,
    make_panels,
)
from workflow_scripts.report.runs.leaderboard import LEAST, judge_methods
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import METRIC_WORDS, count_words, format_number
from workflow_scripts.report.text.escape import wrap_text

FAMILY_WORDS = ("server", "loss", "selected samples", "corrected labels", "transition matrix", "personal models")


class RanksSettings(AccuracySettings):
    """Mean rank of every method of a leaderboard with a bootstrap interval over settings and seeds; the best on top.

    A hollow dot shows that the table's tests find no difference from the baseline. The vertical line is at the
    baseline's rank.
    """

    baseline: Annotated[str, Field(description="The method that has a run in every block of runs that are ranked.")] = (
        "fedavg"
    )


def _draw_ranks(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: RanksSettings) -> Drawn:
    table = judge_methods(runs, settings.metric, settings.baseline)
    ranks = table.dropna(subset=["rank"]).drop_duplicates("method").reset_index(drop=True)
    if len(ranks) < 2:
        raise SpecError("ranks: fewer than two methods have a run in every setting and seed of the baseline")
    labels = [wrap_text(label, 26) for label in ranks["method_label"]]
    figure, (axis,) = make_panels(
        1, settings, sum(0.05 + (1 + label.count("\n")) * SIZE * 1.3 / 72 for label in labels) + 0.6
    )
    axis.axvline(ranks.loc[ranks["method"] == settings.baseline, "rank"].iloc[0], **BASELINE)
    is_tested = ranks["of_settings"].iloc[0] >= LEAST
    colours = [shades[0][0] for shades in FAMILY_COLOURS.values()]  # one shade each, as rows have names
    for place, (_, row) in enumerate(ranks.iterrows()):
        look = looks[row["method"]]
        colour = PLAIN[0] if look.colour == PLAIN[0] else colours[look.family]
        axis.plot([row["rank_low"], row["rank_high"]], [place, place], color=colour, linewidth=1.4, zorder=2)
        is_open = is_tested and not row["rank_ahead"] and row["method"] != settings.baseline
        face = "white" if is_open else colour
        axis.plot([row["rank"]], [place], color=colour, markerfacecolor=face, zorder=3, **DOT)
    name_rows(axis, labels, list(ranks["method"]), runs)
    axis.set_ylim(len(ranks) - 0.5, -0.5)
    axis.set_xlabel("mean rank (1: the best)")
    drawn = {looks[method].family for method in ranks["method"]}
    legend = [
        Line2D([], [], color=colour, label=words, linewidth=1.4)
        for family, (colour, words) in enumerate(zip(colours, FAMILY_WORDS, strict=True))
        if family in drawn
    ]
    if is_tested:
        label = ranks.loc[ranks["method"] == settings.baseline, "method_label"].iloc[0]
        legend.append(Line2D([], [], color=QUIET, label=f"better or worse than {label}", **DOT))
        legend.append(Line2D([], [], label=f"not told apart from {label}", **HOLLOW))
    add_legend_below(figure, legend)
    count = int(ranks["of_settings"].iloc[0])
    names = Names.of_runs(runs)
    datasets = list(dict.fromkeys(names.of(run.listed.setting)[0] for run in runs))
    caption = (
        f"Mean rank by test accuracy ({METRIC_WORDS[settings.metric]}) in {count} setting{'s' * (count > 1)} of "
        f"{'; '.join(datasets)}; {count_words(table['seeds'])}."
    )
    if ranks["rank_low"].notna().any():
        caption += " Lines: 95 % bootstrap intervals over settings and seeds."
    each = [f"{row['method_label']} {format_number(row['rank'], 1)}" for _, row in ranks.iterrows()]
    shown = ["method", "method_label", "rank", "rank_low", "rank_high", "place_low", "place_high", "rank_ahead"]
    return Drawn(figure, ranks[[*shown, "of_settings"]], settings, "Ranks", caption, f"mean ranks: {', '.join(each)}.")


KIND = FigureKind(settings=RanksSettings, draw=_draw_ranks, example={"metric": "last"}, at_top=True)
