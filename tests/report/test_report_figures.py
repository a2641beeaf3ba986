"""Figures: readable texts, the right numbers, the same bytes every time, for small and for large federations."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_runs import (
    METHODS,
    NOISES,
    PARTITIONS,
    STOPPED,
    SWEPT,
    confusion,
    diverge,
    write_arrays,
    write_labels,
    write_partition,
    write_study,
)
from layout_check import problems
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import fednoise_core as fn
from fednoise_core.io import ArtifactError, SpecError, load_npz, save_npz
from fednoise_core.methods import METHODS as REGISTERED
from fednoise_core.methods import method_class
from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.figures.axis_minimum import find_axis_minimum
from workflow_scripts.report.figures.results.common import spread_x_axis
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.figures.style import WRONG
from workflow_scripts.report.pages.run_details import read_confusion
from workflow_scripts.report.runs.frames import tabulate_results
from workflow_scripts.report.runs.ranking import leading_methods
from workflow_scripts.report.runs.run import SELECTORS, ListedRun, Setting, listed_runs, load
from workflow_scripts.report.runs.run import select as select_runs
from workflow_scripts.report.runs.settings import SettingArtifacts
from workflow_scripts.report.tables import registry
from workflow_scripts.report.text.footnotes import append_words
from workflow_scripts.steps import figure

GRID = [
    {"noises": ["sym40"], "partitions": ["openset-uniform", "iid"], "methods": [*METHODS, *SWEPT, *STOPPED]},
    {"noises": ["random20", "random40"], "partitions": ["openset-nonuniform"], "methods": list(METHODS)},
    {"noises": ["clean"], "partitions": list(PARTITIONS), "methods": ["fedavg"]},
]
MANY_METHODS = {f"m{number}": f"Robust method number {number} with a long name" for number in range(11)}
EXAMPLES = {kind: draw.find_figure_kind({"kind": kind}).example for kind in draw.FIGURES}
KINDS = [kind for kind in draw.FIGURES if not draw.find_figure_kind({"kind": kind}).of_a_paper]
SETTING = Setting("d", "n", "p")
ONE_SETTING: dict[str, Any] = {"noises": ["sym40"], "partitions": ["iid"]}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_study(path, grid=GRID, rounds=12)
    return path


@pytest.fixture(scope="module")
def studies(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Studies that are hard to draw, by name."""
    roots = {"plain": root} | {name: tmp_path_factory.mktemp(name) for name in ("many", "diverged", "unknown")}
    block: dict[str, Any] = {**ONE_SETTING, "methods": ["fedavg", "sce", "local", *SWEPT]}
    with pytest.MonkeyPatch.context() as patch:
        for name, label in MANY_METHODS.items():
            patch.setitem(METHODS, name, {"name": name, "label": label})
        methods = ["fedavg", *MANY_METHODS, *SWEPT]
        write_study(roots["many"], grid=[{**ONE_SETTING, "methods": methods}], rounds=3, seeds=(0,))
    write_study(roots["diverged"], grid=[block], rounds=3)
    for folder in roots["diverged"].glob("runs/*/*/*/*/*"):
        diverge(folder, 0)
    write_study(roots["unknown"], grid=[block], rounds=3, clean_known=False, test_known=False)
    return roots


def draw_study(root: Path, **spec: Any) -> style.Drawn:
    with style.use_house_style():
        drawing = draw.draw_figure(listed_runs(root / "runs.json"), spec)
        drawing.figure.draw_without_rendering()
    return drawing


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("study", ["plain", "column", "many", "diverged", "unknown"])
def test_every_kind_is_readable(studies: dict[str, Path], kind: str, study: str) -> None:
    spec = {"kind": kind} | {key: value for key, value in EXAMPLES[kind].items() if key not in SELECTORS}
    spec |= {**ONE_SETTING, "width": "column"} if study == "column" else {}
    with style.use_house_style():
        drawing = draw.draw_figure(listed_runs(studies["plain" if study == "column" else study] / "runs.json"), spec)
        assert problems(drawing.figure) == []
    assert drawing.figure.get_size_inches()[0] <= (3.4 if study == "column" else 7.0)
    assert "n = " in drawing.caption or "one seed" in drawing.caption
    assert drawing.caption.endswith(".")
    assert drawing.title in drawing.alt
    assert len(drawing.frame) > 0
    if "mean" in drawing.frame and drawing.frame["mean"].isna().all():
        assert "None has an accuracy at the end." in drawing.alt


def test_the_check_sees_an_overlap_and_a_tiny_text() -> None:
    figure = style.make_canvas(2, 2)
    figure.text(0.3, 0.5, "one text")
    figure.text(0.35, 0.5, "another", fontsize=5)
    figure.text(0.95, 0.9, "cut off")
    message = " ".join(problems(figure))
    assert "overlap" in message
    assert "is 5.0 pt" in message
    assert "leaves the figure" in message


def stored_curves(root: Path, place: str) -> list[np.ndarray]:
    curves = []
    for seed in (0, 1):
        frame = pd.read_parquet(root / "runs/digits" / place / f"seed{seed}" / "metrics.parquet")
        curves.append(100 * frame.query("metric == 'accuracy' and client == -1")["value"].to_numpy())
    return curves


def test_curves_show_the_mean_of_the_seeds_over_work(root: Path) -> None:
    chosen: dict[str, Any] = {"methods": ["fedcorr"], "noises": ["sym40"], "partitions": ["iid"]}
    drawing = draw_study(root, kind="curves", **chosen, metric="last", x="work")
    stored = stored_curves(root, "sym40/iid/fedcorr")
    line = drawing.figure.axes[0].get_lines()[0]
    assert line.get_ydata() == pytest.approx(np.mean(stored, 0))
    assert line.get_xdata() == pytest.approx(1.4 * np.arange(13))  # the fake's FedCorr works more a round
    assert drawing.frame["std"].to_numpy() == pytest.approx(np.std(stored, 0, ddof=1))
    assert "the mean of the last 3" not in drawing.caption


def names_beside(axis: Any) -> list[str]:
    """The names beside a panel, from top to bottom."""
    return [" ".join(text.get_text().split()) for text in axis.get_legend().get_texts()]


@pytest.mark.parametrize(("metric", "window"), [("last10_mean", 3), ("last", 1)])
def test_the_number_beside_a_line_is_that_of_the_table(root: Path, metric: str, window: int) -> None:
    drawing = draw_study(root, kind="curves", **ONE_SETTING, methods=["fedavg", "sce"], metric=metric)
    line = next(line for line in drawing.figure.axes[0].get_lines() if line.get_label() == "FedAvg")
    mean = np.mean(stored_curves(root, "sym40/iid/fedavg"), 0)
    expected = [mean[0], *(mean[max(1, n + 1 - window) : n + 1].mean() for n in range(1, 13))]
    assert line.get_ydata() == pytest.approx(expected)
    table = registry.build_table(listed_runs(root / "runs.json"), {"kind": "accuracy", "metric": metric})
    row = table.query("noise == 'sym40' and partition == 'iid' and method == 'fedavg'").iloc[0]
    assert f"{row[f'{metric}_mean']:.1f} FedAvg" in names_beside(drawing.figure.axes[0])
    assert f"FedAvg {row[f'{metric}_mean']:.1f} %" in drawing.alt
    assert ("mean of the last 3 evaluations" in drawing.caption) == (window == 3)
    assert len(drawing.figure.axes[0].collections) == 2  # bands of few methods


def test_names_stand_beside_the_axes_in_order_and_poor_ones_are_marked(root: Path) -> None:
    methods = ["fedavg", "sce", "scaffold", "coteaching-oracle", "local"]  # few enough to name all
    drawing = draw_study(root, kind="curves", **ONE_SETTING, methods=methods, metric="last")
    (axis,) = drawing.figure.axes
    ends = drawing.frame.groupby("method", sort=False)["drawn"].last()
    (low, high), names = axis.get_ylim(), names_beside(axis)
    assert [name.startswith("▾") for name in names].count(True) == (ends < low).sum()
    table = registry.build_table(
        listed_runs(root / "runs.json"), {"kind": "accuracy", "metric": "last", **ONE_SETTING, "methods": methods}
    )
    means = table.set_index("method")["last_mean"].sort_values(ascending=False)
    oracle_mean = means.pop("coteaching-oracle")  # not compared: at the end, in italics
    means = [*means, oracle_mean]
    assert [float(name.removeprefix("▾ ").split()[0]) for name in names] == pytest.approx(means, abs=0.051)
    first, *_, last = axis.get_legend().get_texts()
    assert (first.get_fontweight(), last.get_fontstyle()) == ("bold", "italic")
    assert names[-1].endswith("(told the noise rate)")
    assert axis.get_legend().get_window_extent().x0 >= axis.get_window_extent().x1 - 1e-6
    assert "The axis starts at" in drawing.caption
    assert "▾" in drawing.caption
    assert ends["local"] < low
    assert np.ptp(ends.drop("local")) > 0.4 * (high - low)


def test_of_many_methods_the_best_are_in_colour_and_named(studies: dict[str, Path]) -> None:
    drawing = draw_study(studies["many"], kind="curves")
    grey = [line for line in drawing.figure.axes[0].get_lines() if line.get_color() == "#949494"]
    assert len(grey) == len(drawing.frame["method"].unique()) - 3  # FedAvg is one of the three
    for line in grey:
        assert not any(name.endswith(line.get_label()) for name in names_beside(drawing.figure.axes[0]))
    assert "FedAvg" not in [line.get_label() for line in grey]  # the baseline
    assert len(names_beside(drawing.figure.axes[0])) == 3
    assert f"Grey: {len(grey)} others." in drawing.caption


def test_the_axis_excludes_only_lines_far_below() -> None:
    assert find_axis_minimum([95, 91, 90, 89, 87, 85, 84, 79, 57, 42]) == 70
    assert find_axis_minimum([90, 80, 70, 60, 50, 40]) == 25  # no gap
    assert find_axis_minimum([90, 89, 30, 29]) == 10  # half of the lines are no exception
    assert find_axis_minimum([82, 80, 75, 74, 64]) == 55  # without the last the axis would be little shorter
    assert find_axis_minimum([53, 36, 10]) is None  # one of three is no exception either
    assert find_axis_minimum([90.0]) is None
    assert find_axis_minimum([]) is None
    assert find_axis_minimum([np.nan, 90, 80]) == 75


def test_dots_show_every_seed_the_baseline_and_the_ceiling(root: Path) -> None:
    chosen: dict[str, Any] = {"methods": list(METHODS), "metric": "last"}
    drawing = draw_study(root, kind="dots", noises=["sym40", "clean"], partitions=["iid"], **chosen)
    axis = drawing.figure.axes[0]
    last = {m: [c[-1] for c in stored_curves(root, f"sym40/iid/{m}")] for m in METHODS}
    means = {method: float(np.mean(values)) for method, values in last.items()}
    names = [text.get_text() for text in axis.get_yticklabels()]
    order = sorted(METHODS, key=lambda method: -means[method])
    assert [name.partition("(")[0].strip() for name in names] == [METHODS[m]["label"] for m in order]
    ticks = sorted(x for line in axis.get_lines() if line.get_marker() == "|" for x in line.get_xdata())
    low = axis.get_xlim()[0]
    assert ticks == pytest.approx(sorted(x for m, xs in last.items() for x in xs if means[m] >= low))
    assert min(ticks) >= low  # no seed is cut off
    upright = [line.get_xdata()[0] for line in axis.get_lines() if list(line.get_ydata()) == [0, 1]]
    clean = float(np.mean([curve[-1] for curve in stored_curves(root, "clean/iid/fedavg")]))
    assert sorted(upright) == pytest.approx(sorted([means["fedavg"], clean]))
    best = max(mean for method, mean in means.items() if method != "coteaching-oracle")
    assert {f"{best:.1f}", f"◂\u202f{means['local']:.0f}"} == {text.get_text() for text in axis.texts}
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend[-1] == "not a fair comparison"
    hollow = [line for line in axis.get_lines() if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata()[0] for line in hollow] == [pytest.approx(means["coteaching-oracle"])]
    assert "not compared: Co-teaching (told the noise rate)" in drawing.alt
    poor = draw_study(
        root, kind="dots", noises=["sym40", "clean"], partitions=["iid"], methods=["fedavg"], metric="last"
    )
    assert poor.figure.axes[0].get_xlim()[1] > clean


def test_the_alternative_text_names_the_leading_methods_and_their_accuracy(root: Path) -> None:
    chosen = {**ONE_SETTING, "methods": list(METHODS), "metric": "last"}
    frame = registry.build_table(listed_runs(root / "runs.json"), {"kind": "accuracy", **chosen}).set_index("method")
    leaders = leading_methods(tabulate_results(load(select_runs(listed_runs(root / "runs.json"), chosen))), "last")
    first, *others = [
        f"{append_words(*frame.loc[method, ['method_label', 'marks']])} {frame.loc[method, 'last_mean']:.1f} %"
        for method in leaders
    ]
    assert others
    assert f": {first} (not told apart from it: {'; '.join(others)})" in draw_study(root, kind="dots", **chosen).alt


def test_each_dot_shows_the_gain_of_a_pair(root: Path) -> None:
    chosen = {"noises": ["sym40", "random40"], "methods": ["fedavg", "sce", "local", "coteaching-oracle"]}
    drawing = draw_study(root, kind="paired_gains", metric="last", **chosen)
    (axis,) = drawing.figure.axes
    labels = [" ".join(label.get_text().split()) for label in axis.get_yticklabels()]
    assert labels == [
        "SCE",
        "Local only (personal models)",
        "Co-teaching (told the noise rate)",
    ]  # methods that are not compared come last
    places = ("sym40/openset-uniform", "sym40/iid", "random40/openset-nonuniform")
    gains = [
        ours[-1] - base[-1]
        for place in places
        for ours, base in zip(*(stored_curves(root, f"{place}/{m}") for m in ("sce", "fedavg")), strict=True)
    ]
    dots = [x for line in axis.get_lines() if line.get_marker() in "os^" for x in np.atleast_1d(line.get_xdata())]
    assert sorted(dots)[0] >= axis.get_xlim()[0]
    assert all(any(dot == pytest.approx(gain) for dot in dots) for gain in gains)
    texts = [text.get_text() for text in axis.texts]
    assert f"{sum(gain > 0 for gain in gains)} of 6" in texts
    wins = (drawing.frame.query("method == 'coteaching-oracle'")["gain"] > 0).sum()
    assert f"({wins} of 6)" in texts  # not compared
    edge = [line.get_marker() for line in axis.get_lines() if axis.get_xlim()[0] in line.get_xdata()]
    assert {"o", "s", "^"} <= set(edge)  # of each setting in which local training is worse than the axis shows
    worst = drawing.frame.query("method == 'local'")["gain"]
    assert f"◂ −{-worst.min():.0f} to −{-worst.max():.0f}" in texts
    hollow = [line for line in axis.get_lines() if line.get_markerfacecolor() == "white"]
    assert sum(len(line.get_xdata()) for line in hollow) == 6
    leaders = drawing.alt.split("Highest gain over FedAvg: ")[1]
    assert leaders.count("%") == leaders.count("% of labels")
    assert "-" not in "".join(texts)


def test_a_method_with_the_true_rate_of_a_setting_is_not_compared_in_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "guess", {"name": "coteaching", "label": "Guess", "forget_rate": 0.4})
    grid = [{"noises": ["sym40", "random20"], "partitions": ["iid"], "methods": ["guess", "fedavg"]}]
    write_study(tmp_path, grid=grid, rounds=3, seeds=(0,))
    drawing = draw_study(tmp_path, kind="dots", metric="last")
    hollow = [sum(line.get_markerfacecolor() == "white" for line in axis.get_lines()) for axis in drawing.figure.axes]
    assert hollow == [1, 0]
    note = "assumes is the true one in “40 % of labels wrong”. So results there are not compared."
    assert note in drawing.notes[-1]
    assert drawing.figure.legends[0].get_texts()[-1].get_text() == "not a fair comparison: assumes the true noise rate"
    classes = draw_study(tmp_path, kind="classes").figure
    bracketed = [[text.get_text() for text in axis.texts if text.get_text().startswith("(")] for axis in classes.axes]
    assert [len(texts) for texts in bracketed] == [1, 0]
    assert classes.legends[0].get_texts()[-1].get_text().startswith("mean in brackets: not a fair comparison")
    cost = draw_study(tmp_path, kind="cost", metric="last").figure
    assert cost.axes[0].get_yticklabels()[-1].get_text() == "Guess"  # its mean holds a setting that is not compared


def test_the_caption_says_which_rounds_were_evaluated(root: Path, tmp_path: Path) -> None:
    drawing = draw_study(root, kind="curves")
    assert "Test accuracy after every round, the mean of the last 3 evaluations" in drawing.caption
    assert drawing.figure.axes[0].get_ylabel() == "test accuracy, %,\nmean of 3 evaluations"
    write_study(tmp_path, grid=[{**GRID[0], "methods": ["fedavg"]}], rounds=6, eval_every=3)
    assert "Test accuracy after every 3 rounds, n = 2" in draw_study(tmp_path, kind="curves").caption


def test_a_method_has_one_colour_in_every_figure_and_study(root: Path, tmp_path: Path) -> None:
    def colour(place: Path, **spec: Any) -> Any:
        drawing = draw_study(place, noises=["sym40"], partitions=["iid"], **spec)
        return next(line for line in drawing.figure.axes[0].get_lines() if line.get_label() == "FedCorr").get_color()

    write_study(tmp_path, grid=[{**ONE_SETTING, "methods": ["fedcorr", "local", "fedavg"]}], rounds=3)
    expected = style.FAMILY_COLOURS["correction"][0][0]
    assert colour(root, kind="curves") == expected
    assert colour(root, kind="metric", metric="accuracy", methods=["fedcorr", "fedavg"]) == expected
    assert colour(tmp_path, kind="curves") == expected
    looks = style.assign_looks(listed_runs(tmp_path / "runs.json"))
    assert (looks["fedavg"].colour, looks["fedavg"].dash) == ("#000000", "-")  # wherever the study has it


def test_lines_of_one_family_have_markers_and_it_has_shades(root: Path) -> None:
    looks = style.assign_looks(runs_of_methods(["sce", "fedlsr", "fedmixcon"]))
    assert len({look.colour for look in looks.values()}) == 3  # of figure 6 of FedMixCon
    assert {look.colour for look in looks.values()} == {light for light, _ in style.FAMILY_COLOURS["loss"]}
    assert len({line["marker"] for line in style.style_dense_lines(looks, looks).values()} - {""}) == 3
    drawing = draw_study(
        root, kind="curves", **ONE_SETTING, methods=["fedavg", "sce", "coteaching-oracle", "coteaching-20"]
    )
    lines = [line for line in drawing.figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    marked = {line.get_label(): line.get_marker() for line in lines if line.get_marker()}
    assert set(marked) == {"Co-teaching (told the noise rate)", "Co-teaching, rate 0.2"}
    assert len({*marked.values()}) == 2
    thin = {line.get_label(): line.get_linewidth() < 1 for line in lines}
    assert ": SCE 8" in drawing.alt  # the best of the compared methods
    assert {name for name, is_thin in thin.items() if not is_thin} == {"FedAvg", "SCE"}
    (oracle_line,) = [line for line in lines if line.get_markerfacecolor() == "white"]
    assert oracle_line.get_label() == "Co-teaching (told the noise rate)"  # not compared


def test_an_entry_is_thick_bold_and_never_grey(studies: dict[str, Path]) -> None:
    listed = listed_runs(studies["many"] / "runs.json")
    grey = [
        line.get_label()
        for line in draw_study(studies["many"], kind="curves").figure.axes[0].get_lines()
        if line.get_color() == "#949494"
    ]
    entry = next(name for name, label in MANY_METHODS.items() if label in grey)
    listed = [dataclasses.replace(run, own=run.method == entry) for run in listed]
    with style.use_house_style():
        curves = draw.draw_figure(listed, {"kind": "curves"})
        dots = draw.draw_figure(listed, {"kind": "dots"})
    (line,) = [line for line in curves.figure.axes[0].get_lines() if line.get_linewidth() > 2]
    assert (line.get_label(), line.get_color()) == (MANY_METHODS[entry], "#008BA3")  # of its family, not grey
    bold = [text.get_text() for text in dots.figure.axes[0].get_yticklabels() if text.get_fontweight() == "bold"]
    assert [" ".join(text.split()) for text in bold] == [MANY_METHODS[entry]]


def runs_of_methods(names: Sequence[str]) -> list[ListedRun]:
    return [ListedRun("d", "n", "p", name, 0, Path(), name=name, family=method_class(name).family) for name in names]


def test_looks_stay_apart_without_colour() -> None:
    looks = style.assign_looks(runs_of_methods(list(REGISTERED)))
    assert len({(look.marker, str(look.dash)) for look in looks.values()}) == len(REGISTERED)
    assert len({str(look.dash) for look in list(looks.values())[:7]}) == 7
    assert WRONG not in [look.colour for look in looks.values()]  # orange marks wrong labels
    assert {"server-side", "loss", "selection", "correction", "transition", "personal"} == set(style.FAMILY_COLOURS)


def luminance(colour: str) -> float:
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))


def test_colours_are_dark_enough_on_white_and_light_enough_on_dark() -> None:
    assert min(1.05 / (luminance(colour) + 0.05) for colour in style.COLOURS) >= 3
    assert min((luminance(colour) + 0.05) / (luminance("#15181c") + 0.05) for colour in style.DARK) >= 3
    assert len({*style.COLOURS}) == len({*style.DARK}) == len(style.COLOURS)
    for ground in ("#ffffff", "#1b6ab0", "#7a7a7a", "#ffb050", "#000000"):
        contrast = sorted([luminance(ground) + 0.05, luminance(style.choose_ink(ground)) + 0.05])
        assert contrast[1] / contrast[0] >= 4.5


def test_cost_is_cpu_seconds_and_traffic_where_it_differs(tmp_path: Path) -> None:
    methods = ["fedavg", "sce", "scaffold", "coteaching-oracle"]
    write_study(tmp_path, grid=[{**ONE_SETTING, "methods": methods}], rounds=2, seeds=[0])
    drawing = draw_study(tmp_path, kind="cost")
    heads = ["test accuracy, %\nbetter ▸", "CPU seconds a run\n◂ cheaper", "MB a run, both ways\n◂ cheaper"]
    assert [axis.get_title(loc="left") for axis in drawing.figure.axes] == heads
    rows = drawing.frame.set_index("method")
    stored = json.loads((tmp_path / "runs/digits/sym40/iid/sce/seed0/cost.json").read_text())
    assert rows.loc["sce", "cpu_seconds"] == pytest.approx(stored["cpu_seconds"])
    order = rows["mean"].drop("coteaching-oracle").sort_values(ascending=False)
    order["coteaching-oracle"] = rows.loc["coteaching-oracle", "mean"]  # not compared: last and hollow
    hollow = [bar.get_facecolor() == (1, 1, 1, 1) for bar in drawing.figure.axes[0].patches]
    assert hollow == [False, False, False, True]
    assert drawing.figure.legends[0].get_texts()[0].get_text() == "FedAvg"
    for axis, key in zip(drawing.figure.axes, ("mean", "cpu_seconds", "megabytes"), strict=True):
        assert [bar.get_width() for bar in axis.patches] == pytest.approx(list(rows.loc[order.index, key]))
        assert [text.get_text() for text in axis.texts] == [f"{value:.1f}" for value in rows.loc[order.index, key]]
    alike = draw_study(tmp_path, kind="cost", methods=["fedavg", "sce"])
    assert [axis.get_title(loc="left") for axis in alike.figure.axes] == heads[:2]
    assert "All send about the same, 1.6 MB a run." in alike.caption
    path = tmp_path / "runs/digits/sym40/iid/sce/seed0/cost.json"
    for unknown in ({"cpu_seconds": None}, {"executor": "workers"}):  # workers are separate processes
        path.write_text(json.dumps(stored | unknown))
        head = draw_study(tmp_path, kind="cost").figure.axes[1].get_title(loc="left")
        assert head == "seconds a run (wall time)\n◂ cheaper"
    path.write_text(json.dumps(stored | {"device": "NVIDIA H100"}))
    mixed = draw_study(tmp_path, kind="cost")
    unknown = mixed.frame.set_index("method")["cpu_seconds"].isna()
    assert list(unknown[unknown].index) == ["sce"]
    assert "NVIDIA" not in mixed.caption
    assert mixed.caption.endswith(" Times are without runs on another kind of device.")


def test_cost_averages_the_same_settings_for_every_method(tmp_path: Path) -> None:
    grid = [
        {**ONE_SETTING, "methods": ["fedavg", "sce"]},
        {**ONE_SETTING, "noises": ["random20"], "methods": ["fedavg"]},
    ]
    write_study(tmp_path, grid=grid, rounds=2, seeds=(0,))
    drawing = draw_study(tmp_path, kind="cost")
    assert list(drawing.frame[["noise", "method"]].itertuples(index=False, name=None)) == [
        ("sym40", "fedavg"),
        ("sym40", "sce"),
    ]
    assert "means over" not in drawing.caption


@pytest.mark.parametrize(("values", "scale"), [((1, 5), "linear"), ((0.1, 5), "log"), ((0, 0.1, 38), "symlog")])
def test_costs_far_apart_have_a_logarithmic_axis_with_a_place_for_none(values: tuple[float, ...], scale: str) -> None:
    axis = style.make_canvas(3, 2).subplots()
    axis.plot(values, values, "o")
    spread_x_axis([axis], values)
    assert axis.get_xscale() == scale


def test_classes_are_means_of_the_last_ten_evaluations(root: Path) -> None:
    drawing = draw_study(root, kind="classes", noises=["sym40"], partitions=["iid"])
    cell = drawing.frame[(drawing.frame["method"] == "sce") & (drawing.frame["class"] == 3)]["mean"].item()
    stored = [pd.read_parquet(root / f"runs/digits/sym40/iid/sce/seed{s}/metrics.parquet") for s in (0, 1)]
    values = [frame[frame["metric"] == "accuracy_class_3"]["value"].iloc[-10:].mean() for frame in stored]
    assert cell == pytest.approx(100 * np.mean(values))
    names = [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()]
    row = names.index("SCE")
    numbers = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in drawing.figure.axes[0].texts}
    base = drawing.frame[drawing.frame["method"] == "fedavg"].set_index("class")["mean"]
    mean = drawing.frame[drawing.frame["method"] == "sce"]["mean"].mean()
    assert names[0] == "FedAvg"
    assert [numbers[0, 0], numbers[0, 4]] == [f"{base.mean():.0f}", f"{base[3]:.0f}"]  # the mean stands first
    assert [numbers[row, 0], numbers[row, 4]] == [f"{mean - base.mean():+.0f}", f"{cell - base[3]:+.0f}"]
    assert names[-1].split() == ["Co-teaching", "(told", "the", "noise", "rate)"]  # not compared, so last


def test_a_damaged_confusion_matrix_is_named(tmp_path: Path) -> None:
    text, path = confusion(0.6, 10, np.random.default_rng(0)), tmp_path / "confusion.csv"
    for damaged in (text.replace(",class 3,", ",class 3,1.5"), text[: text.index("4,class")]):
        path.write_text(damaged)
        with pytest.raises(ArtifactError, match=r"confusion\.csv: damaged"):
            read_confusion(path)
    path.write_text(text.splitlines()[0] + "\n")  # a run that diverged
    assert read_confusion(path)[1] is None


def test_any_metric_is_drawn_with_the_phases(tmp_path: Path) -> None:
    grid = [{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg", "sce"]}]
    write_study(tmp_path, grid=grid, rounds=6)
    watched = np.linspace(0.1, 0.7, 6)
    for seed in (0, 1):
        folder = tmp_path / f"runs/digits/sym40/iid/sce/seed{seed}"
        frame = pd.read_parquet(folder / "metrics.parquet")
        frame["phase"] = np.where(frame["round"] > 4 + seed, "correct", "watch")
        row = {"work": 1.0, "phase": "watch", "view": "", "client": -1, "metric": "watched_accuracy"}
        extra_rows = pd.DataFrame(
            [{**row, "round": n + 1, "value": value + seed / 10} for n, value in enumerate(watched)]
        )
        frame = pd.concat([frame, extra_rows]).astype({"round": "int32", "client": "int32"})
        frame.to_parquet(folder / "metrics.parquet")
    drawing = draw_study(tmp_path, kind="metric", metric="watched_accuracy")
    assert set(drawing.frame["method"]) == {"sce"}
    assert drawing.frame["mean"].to_numpy() == pytest.approx(watched + 0.05)
    (axis,) = drawing.figure.axes
    assert axis.get_lines()[0].get_ydata() == pytest.approx(100 * (watched + 0.05))
    assert [5.5, 5.5] in [list(line.get_xdata()) for line in axis.get_lines()]
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["first phase stops"]
    assert " ".join(axis.get_ylabel().split()) == "accuracy that the stopping rule watches, %"
    assert "SCE: correct from rounds 5 to 6" in drawing.caption
    for path in (tmp_path / "runs/digits/sym40/iid/sce").glob("*/metrics.parquet"):
        shutil.copy(path, tmp_path / "runs/digits/sym40/iid/fedavg" / path.parent.name / path.name)
    shared_axis = draw_study(tmp_path, kind="metric", metric="watched_accuracy").figure.axes[0]
    assert names_beside(shared_axis) == ["75 FedAvg", "75 SCE"]  # both have the same line
    with pytest.raises(SpecError, match=r"none of the runs reports 'q' by round; they report .*watched_accuracy"):
        draw_study(tmp_path, kind="metric", metric="q")


def test_a_sweep_of_the_noise_rate_begins_with_clean_runs_and_refuses_unknown_rates(root: Path, tmp_path: Path) -> None:
    rate: dict[str, Any] = {"kind": "sweep", "field": "noise.rate"}
    frame = draw_study(root, **rate, methods=["fedavg"]).frame
    line = frame[
        (frame["panel"] == "labels wrong, mix-ups vary by class") & (frame["partition"] == "openset-nonuniform")
    ]
    assert sorted(line["x"]) == [0, 20, 40]
    panel = draw_study(root, **rate, methods=["fedavg", "sce", "coteaching-oracle"]).figure.axes[-1]
    styles = [text.get_fontstyle() for text in panel.get_legend().get_texts()]
    assert styles == ["normal", "normal", "italic"]  # not compared
    hollow = [line for line in panel.get_lines() if line.get_markerfacecolor() == "white" and any(line.get_markevery())]
    assert [list(line.get_xdata()) for line in hollow] == [[20, 40]]
    grid = [{"noises": ["human"], "partitions": ["iid"], "methods": ["fedavg"]}]
    NOISES["human"] = {"kind": "human", "key": "worst"}
    try:
        write_study(tmp_path, grid=grid, rounds=3, clean_known=False)
    finally:
        del NOISES["human"]
    with pytest.raises(SpecError, match="noise human has no known rate"):
        draw_study(tmp_path, **rate)


def test_the_histogram_counts_every_sample_of_every_client(root: Path) -> None:
    show = ["clean", "given"]
    frame = draw_study(root, kind="histogram", noises=["sym40"], partitions=["openset-uniform"], show=show).frame
    split, _ = load_npz(root / "partitions/digits/sym40/openset-uniform/seed0.npz", "partition")
    labels, _ = load_npz(root / "labels/digits/sym40/any/seed0.npz", "labels")
    for kind, y in (("clean", labels["clean"]), ("given", labels["noisy"])):
        counts = frame[frame["labels"] == kind].set_index(["client", "class"])["samples"]
        assert counts.sum() == len(split["index"])
        client_labels = y[split["index"][split["offsets"][3] : split["offsets"][4]]]
        bad = frame[frame["labels"] == kind].set_index(["client", "class"])["mislabelled"]
        assert bad.sum() == (labels["clean"] != labels["noisy"])[split["index"]].sum()
        third = split["index"][split["offsets"][3] : split["offsets"][4]]
        wrong = third[(labels["clean"] != labels["noisy"])[third]]
        assert {k: n for k, n in bad[3].items() if n} == {k: n for k, n in enumerate(np.bincount(y[wrong])) if n}
        assert counts[3].to_dict() == {k: n for k, n in enumerate(np.bincount(client_labels)) if n}


def test_transition_shows_both_matrices_once_per_noise(root: Path) -> None:
    drawing = draw_study(root, kind="transition", noises=["sym40"])  # two partitions, one labels artifact
    labels, _ = load_npz(root / "labels/digits/sym40/any/seed0.npz", "labels")
    assert len(drawing.frame) == 200
    minus = drawing.frame[drawing.frame["matrix"] == "realised minus nominal"]["probability"].to_numpy().reshape(10, 10)
    assert minus == pytest.approx(labels["T_realised"] - labels["T_nominal"])
    numbers = {text.get_text() for text in drawing.figure.axes[0].texts}
    assert numbers == {".60", ".04"}


def small_setting(folder: Path, partition: dict[str, Any], classes: int, n: int, name: str) -> SettingArtifacts:
    """Write a setting with n samples, 40 % of them labelled wrong. name: how names of classes begin."""
    y = write_arrays(folder / "arrays.npz", classes=classes, n=n, names=[f"{name}{k}" for k in range(classes)])
    noisy = write_labels(folder / "labels.npz", y, NOISES["sym40"], classes=classes)
    write_partition(folder / "partition.npz", noisy, partition)
    return SettingArtifacts(SETTING, 0, {part: folder / f"{part}.npz" for part in ("arrays", "labels", "partition")})


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> SettingArtifacts:
    """100 classes with long names over 300 clients."""
    split = {"kind": "openset", "mode": "uniform", "clients": 300}
    return small_setting(tmp_path_factory.mktemp("wide"), split, 100, 6000, "rather_long_class_")


@pytest.mark.parametrize("kind", SETTING_FIGURES)
def test_a_hundred_classes_and_three_hundred_clients_are_readable(wide: SettingArtifacts, kind: str) -> None:
    with style.use_house_style():
        drawing = draw.draw_setting_figure([wide], {"kind": kind})
        assert problems(drawing.figure) == []


def test_a_histogram_says_that_clients_are_left_out(wide: SettingArtifacts) -> None:
    with style.use_house_style():
        drawing = draw.draw_setting_figure([wide], {"kind": "histogram"})
    assert "Evenly chosen clients" in drawing.caption
    assert "orange area: those labelled wrong" in legend_texts(drawing.figure)


@pytest.mark.parametrize("classes", [2, 12, 20])
def test_heat_maps_with_numbers_fit(tmp_path: Path, classes: int) -> None:
    setting = small_setting(tmp_path, PARTITIONS["iid"], classes, 600, "class number ")
    with style.use_house_style():
        drawing = draw.draw_setting_figure([setting], {"kind": "transition"})
        assert problems(drawing.figure) == []
    assert len(drawing.frame) == 2 * classes**2


def test_figures_without_clean_labels_show_given_labels(studies: dict[str, Path]) -> None:
    root = studies["unknown"]
    assert set(draw_study(root, kind="histogram").frame["labels"]) == {"given"}
    assert draw_study(root, kind="clients").frame["noise_rate"].isna().all()
    assert list(draw_study(root, kind="transition").frame["note"]) == ["unknown"]
    assert "the true class is unknown: 16." in draw_study(root, kind="samples").alt
    with pytest.raises(SpecError, match="clean labels are unknown"):
        draw_study(root, kind="histogram", show=["clean"])


def test_a_page_of_feature_vectors_shows_every_figure_but_their_pictures(tmp_path: Path) -> None:
    y = np.arange(120) % 4
    arrays = fn.arrays(y[:, None] + np.arange(3.0), y, test={"holdout": 0.1})
    arrays.save(tmp_path / "arrays.npz")
    noisy = write_labels(tmp_path / "labels.npz", arrays.y_train, NOISES["sym40"], classes=4)
    write_partition(tmp_path / "partition.npz", noisy, PARTITIONS["iid"])
    files = {name: tmp_path / f"{name}.npz" for name in ("arrays", "labels", "partition")}
    setting = SettingArtifacts(Setting("d", "sym40", "iid"), 0, files)
    kinds = [kind for kind in SETTING_FIGURES if draw.find_figure_kind({"kind": kind}).applies(setting)]
    assert set(SETTING_FIGURES) - set(kinds) == {"samples"}
    with style.use_house_style():
        assert all(problems(draw.draw_setting_figure([setting], {"kind": kind}).figure) == [] for kind in kinds)


def test_client_level_noise_is_averaged_by_samples(tmp_path: Path) -> None:
    clean = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    split = {"index": np.arange(8), "offsets": np.array([0, 6, 8]), "valid": np.zeros(8, bool)}
    spec = {"artifact": "partition", "partition": {"kind": "iid"}, "seed": 0, "clients": 2, "labels": "clean"}
    save_npz(tmp_path / "p.npz", split, {**spec, "notes": {"samples": 8, "overlap": False}})
    T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.8], [0.5, 0.5]]])
    arrays = {"clean": clean, "noisy": clean, "rate": np.array(0.0), "T_nominal": T, "T_realised": np.eye(2)}
    noise = {"artifact": "labels", "noise": {"kind": "fedcorr"}, "seed": 0, "nominal_rate": None, "classes": 2}
    save_npz(tmp_path / "l.npz", arrays, noise)
    setting = SettingArtifacts(SETTING, 0, {"labels": tmp_path / "l.npz", "partition": tmp_path / "p.npz"})
    with style.use_house_style():
        frame = draw.draw_setting_figure([setting], {"kind": "transition"}).frame
        clients = draw.draw_setting_figure([setting], {"kind": "clients"}).figure
    assert [tuple(face) for face in clients.axes[1].collections[0].get_facecolors()] == [
        to_rgba(WRONG),
        to_rgba("white"),
    ]
    assert "the same, of fewer than 5" in legend_texts(clients)  # the second client has two samples
    nominal = frame[frame["matrix"] == "nominal"]["probability"].to_numpy()
    assert nominal == pytest.approx([(3 * 1 + 0.2) / 4, 0.8 / 4, 0.5 / 4, (3 * 1 + 0.5) / 4])  # 3 and 1 samples of each


def test_open_set_noise_shows_the_foreign_image(tmp_path: Path) -> None:
    y = write_arrays(tmp_path / "a.npz", n=40)
    write_arrays(tmp_path / "donor.npz", n=60)
    noise = {"kind": "open_set", "rate": 0.05, "donor": "other"}
    labels = {
        "clean": y,
        "noisy": y,
        "rate": np.array(2 / 40),
        "replaced": np.array([3, 7]),
        "donor": np.array([11, 5]),
    }
    spec = {"artifact": "labels", "noise": noise, "seed": 0, "nominal_rate": 0.05, "classes": 10}
    save_npz(tmp_path / "l.npz", labels, spec)
    files = {"labels": tmp_path / "l.npz", "arrays": tmp_path / "a.npz"}
    setting = SettingArtifacts(SETTING, 0, {**files, "donor": tmp_path / "donor.npz"})
    donors, _ = load_npz(tmp_path / "donor.npz", "arrays")
    arrays, _ = load_npz(tmp_path / "a.npz", "arrays")
    assert (setting.image(7) == donors["x_train"][5]).all()
    assert (setting.image(8) == arrays["x_train"][8]).all()
    alone = SettingArtifacts(SETTING, 0, files)
    assert (alone.image(7) == 128).all()
    write_partition(tmp_path / "p.npz", y, PARTITIONS["iid"])
    complete = dataclasses.replace(setting, files={**setting.files, "partition": tmp_path / "p.npz"})
    with style.use_house_style():
        drawing = draw.draw_setting_figure([complete], {"kind": "samples"})
    assert drawing.alt.endswith("Given label wrong, image replaced by a foreign one: 2. Given label right: 14.")
    assert drawing.figure.get_suptitle() == complete.words[1]
    below = [text.get_text() for axis in drawing.figure.axes for text in axis.texts if text.get_color() == WRONG]
    assert below == ["replaced", "replaced"]


def test_artifacts_that_do_not_belong_together_are_named(root: Path, tmp_path: Path) -> None:
    y = write_arrays(tmp_path / "a.npz", n=50)
    write_labels(tmp_path / "l.npz", y, NOISES["sym40"])
    big = root / "partitions/digits/sym40/iid/seed0.npz"
    setting = SettingArtifacts(
        SETTING, 0, {"labels": tmp_path / "l.npz", "partition": big, "arrays": root / "raw/digits.npz"}
    )
    with pytest.raises(ArtifactError, match=r"seed0\.npz: names sample \d+, but .*l\.npz has 50"):
        _ = setting.split
    with pytest.raises(ArtifactError, match=r"l\.npz: 50 labels for 1200 samples"):
        _ = setting.arrays
    with pytest.raises(ArtifactError, match="the runs list names no labels file"):
        _ = SettingArtifacts(SETTING, 0, {}).labels


def test_the_command_writes_the_same_bytes_again(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["--runs-list", str(root / "runs.json")]
    for kind in ("curves", "histogram"):
        for place in ("a", "b"):
            spec = tmp_path / f"{kind}.json"
            spec.write_text(json.dumps({"kind": kind, "noises": ["sym40"]}))
            prefix = tmp_path / place / kind
            assert figure.main(["--spec", str(spec), *shared, "--out-prefix", str(prefix)]) == 0
        for ending in ("svg", "png", "pdf", "csv"):
            first, second = (tmp_path / place / f"{kind}.{ending}" for place in ("a", "b"))
            assert first.read_bytes() == second.read_bytes()
    svg = (tmp_path / "a" / "curves.svg").read_text()
    assert "<dc:date>" not in svg
    assert "matplotlib" not in svg.lower().replace("http://matplotlib", "").split("<defs>")[0]
    assert b"matplotlib" not in (tmp_path / "a" / "curves.png").read_bytes()
    page = (tmp_path / "a" / "curves.pdf").read_bytes()
    assert b"/FontFile2" in page  # an embedded font; Type 3 would be pictures of letters
    assert b"/Type3" not in page
    assert b"CreationDate" not in page
    capsys.readouterr()
    assert figure.main(["--spec", '{"kind": "pie"}', *shared, "--out-prefix", str(tmp_path / "c")]) == 2
    assert "figure.kind: unknown figure 'pie'; known: classes" in capsys.readouterr().err


def test_title_and_captions_are_stored_in_the_svg(root: Path, tmp_path: Path) -> None:
    with style.use_house_style():
        drawing = draw.draw_figure(listed_runs(root / "runs.json"), {"kind": "curves", "title": "A < B & C"})
        style.save_figure(drawing, tmp_path / "f")
    assert style.read_words(tmp_path / "f.svg") == ("A < B & C", drawing.caption, drawing.alt, drawing.notes)
    assert len(drawing.notes) == 4  # three marks, and a method whose rate is the true one
    (tmp_path / "f.svg").write_text((tmp_path / "f.svg").read_text()[:3000])
    with pytest.raises(ArtifactError, match=r"f\.svg: damaged SVG"):
        style.read_words(tmp_path / "f.svg")


def test_the_users_matplotlibrc_is_ignored(root: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}), style.use_house_style():
        assert mpl.rcParams["font.size"] == style.STYLE["font.size"]
    assert "matplotlib.pyplot" not in sys.modules or not mpl.pyplot.get_fignums()
