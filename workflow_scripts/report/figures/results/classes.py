"""Gain of every method over FedAvg on every class, as a heat map."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage

from fednoise_core.io import SpecError
from workflow_scripts.report.figures.kind import Drawn, FigureKind, FigureSettings
from workflow_scripts.report.figures.results.common import (
    finish_figure,
    legend_labels,
    list_compared,
    not_compared,
    of_setting,
    rank_methods,
    sign_handles,
    split_clean_settings,
)
from workflow_scripts.report.figures.style import (
    DIFFERENCE,
    HEAT,
    Look,
    add_colour_bar,
    add_legend_below,
    draw_heat_map,
    label_outer_axes,
    make_panels,
    set_titles,
    width_inches,
    wrap_to_width,
)
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.ranking import find_baseline
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.cells import count_words, format_signed

LOW, FAR = 30.0, 20.0  # ends of the colour scales: lowest accuracy in %, and largest difference in points
CELL = 13.5  # points: the width of a cell with a number
NAMED = 40  # classes with a tick each
GAP: dict[str, Any] = {"color": "white", "linewidth": 4}


class ClassesSettings(FigureSettings):
    """Gain of every method over FedAvg on every class, mean of the last ten evaluations, as a heat map.

    There is one panel per setting. FedAvg's own accuracies are at the top, without colour. Without FedAvg all numbers
    are accuracies. The first column is the mean over the classes, and the method with the highest mean comes first.
    Methods that no federation can have are below a line.
    """


def _draw_classes(runs: Sequence[RecordedRun], looks: Mapping[str, Look], settings: ClassesSettings) -> Drawn:
    panels, _ = split_clean_settings(runs)
    noisy_runs = [run for run in runs if run.listed.setting in panels]
    each = frames.load_metric(noisy_runs, "accuracy_class_*")
    each = each[each["round"] > 0].sort_values("round", kind="stable")
    if each.empty:
        raise SpecError("none of the runs has an accuracy per class: choose others (`methods`)")
    each["class"] = each["metric"].str.removeprefix("accuracy_class_").astype(int)
    keys = [*frames.IDS, "method_label", "class"]
    ends = each.groupby([*keys, "seed"], sort=False)["value"].apply(lambda c: c.iloc[-frames.LAST :].mean(skipna=False))
    table = ends.groupby(keys, sort=False).agg(n="size", mean=lambda c: c.mean(skipna=False)).reset_index()
    table = table.sort_values("class", kind="stable")
    apart, why = not_compared(noisy_runs)
    base, k = find_baseline(noisy_runs), int(table["class"].max()) + 1
    order = sorted(rank_methods(table, apart), key=lambda method: method != base)
    fair = len(list_compared(table, apart))
    names, labels, width = Names.of_runs(noisy_runs), legend_labels(runs), width_inches(settings)
    shown = f"points above {labels[base]}" if base else "test accuracy, %"
    columns = min(2, len(panels))
    method_labels = [wrap_to_width(labels[method], 1.5 if width > 5 else 1.2) for method in order]
    tall = len(order) * (0.13 * max(word.count("\n") + 1 for word in method_labels) + 0.06)
    share = (width - 1.3) / columns  # inches of a panel
    numbers = share * 72 / (k + 1) >= CELL
    figure, axes = make_panels(
        len(panels), settings, max(tall, 0.8) + (1.0 if share < 1.5 else 0.75), columns, sharey=True
    )
    bracketed, below = False, 0 < fair < len(order)
    for axis, setting in zip(axes, panels, strict=True):
        pivot = of_setting(table, setting).pivot(index="method", columns="class", values="mean")
        values = pivot.reindex(index=order, columns=range(k))
        unfair = [place < fair and (setting, method) in apart for place, method in enumerate(order)]
        image = _draw_panel(axis, values, base, numbers, fair, unfair)
        bracketed |= numbers and any(unfair)
        axis.set_yticks(range(len(order)), method_labels)
        if numbers:
            axis.set_xticks(range(k + 1), values.columns)
        elif k <= NAMED:
            axis.set_xticks(range(0, k, -(-k // (10 if share > 1.5 else 4))))
    set_titles(axes, [names.title(setting) for setting in panels], share if share < 1.5 else None)
    label_outer_axes(axes, f"class ({shown})" if numbers else "class", "")
    where = " or ".join(["below the gap"] * below + ["mean in brackets"] * bracketed)
    add_legend_below(figure, sign_handles(where and f"{where}: {why}", linestyle="none"))
    if not numbers:
        add_colour_bar(axes, image, shown)
    caption = f"Test accuracy per class in %, mean of the last ten evaluations: {count_words(table['n'])}"
    caption += f"; below {labels[base]} what the others have more or less than it." if base else "; darker is higher."
    end = table.groupby([*frames.IDS, "method_label"], sort=False)["mean"].mean().reset_index()
    alt_parts: dict[str, Any] = {
        "shape": "heat maps, one row per method and one column per class",
        "which": "mean over the classes",
    }
    return finish_figure(
        figure, table, settings, "Accuracy per class", caption, end, noisy_runs, names, {}, **alt_parts
    )


def _draw_panel(
    axis: Axes, values: pd.DataFrame, base: str | None, numbers: bool, fair: int, unfair: Sequence[bool]
) -> AxesImage:
    """Draw a setting's heat map. The first column is the mean. The rows below the baseline's row are gains.

    There is a gap below the `fair` rows that are compared. The mean of an `unfair` row above the gap is in brackets.
    """
    if numbers:
        values.insert(0, "mean", values.mean(axis=1))
        axis.axvline(0.5, **GAP)
    if 0 < fair < len(values):
        axis.axhline(fair - 0.5, **GAP)
    if base in values.index:
        gains, accuracies = values - values.loc[base], iter(values.loc[str(base)])
        matrix = gains.round().to_numpy(float)
        image = draw_heat_map(axis, matrix, Normalize(-FAR, FAR), _format_gain if numbers else None, DIFFERENCE)
        row = values.index.get_loc(base)
        for text in [text for text in axis.texts if text.get_position()[1] == row]:
            text.set_text(f"{next(accuracies):.0f}")
    else:
        image = draw_heat_map(
            axis, values.to_numpy(float), Normalize(LOW, 100), "{:.0f}".format if numbers else None, HEAT
        )
    for text in axis.texts:
        if text.get_position()[0] == 0 and unfair[int(text.get_position()[1])]:
            text.set_text(f"({text.get_text()})")
    return image


def _format_gain(points: float) -> str:
    return format_signed(points, 0) if points else "0"


KIND = FigureKind(settings=ClassesSettings, draw=_draw_classes, example={"noises": ["sym40"]})
