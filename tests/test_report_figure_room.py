"""Figures of many lines, long names, cut-off seeds and costs that lie close together or far apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from report.fake_runs import METHODS, write_study
from report.layout_check import problems

from fednoise_core.report import figures, style
from fednoise_core.report.result_figures.pareto import _scale
from fednoise_core.report.runs import listed_runs

VIEWS = {f"turn{angle}": f"FedAvg, rotation {angle}°" for angle in (5, 15, 30)} | {"flip": "FedAvg, flip"}
MORE = {f"more{number}": f"Method {number}" for number in range(7)}


def drawn(root: Path, **spec: Any) -> style.Drawn:
    with style.styled():
        return figures.draw(listed_runs(root / "runs.json"), spec)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 methods in one noisy setting, five of them also on clean labels."""
    path = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        for name, label in (VIEWS | MORE).items():
            patch.setitem(METHODS, name, {"name": name, "label": label})
        views = ["fedavg", *VIEWS]
        grid = [
            {"noises": ["sym40"], "partitions": ["iid"], "methods": [*views, *MORE]},
            {"noises": ["clean"], "partitions": ["iid"], "methods": views},
        ]
        write_study(path, grid=grid, rounds=8)
    return path


def edit(folder: Path, **more: Any) -> None:
    """Change cost.json of a run."""
    path = folder / "cost.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


@pytest.mark.parametrize("width", ["page", "column"])
def test_long_names_of_ten_lines_stand_apart_and_ceilings_have_their_colours(root: Path, width: str) -> None:
    made = drawn(root, kind="curves", methods=["fedavg", *VIEWS], width=width)
    with style.styled():
        made.figure.draw_without_rendering()  # the layout moved once the names had grown out of their panel
        assert problems(made.figure) == []
    (axis,) = made.figure.axes
    assert len(axis.texts) == 10
    curves = [line for line in axis.get_lines() if len(line.get_xdata()) == 9]
    dotted = [line for line in curves if line.get_dash_capstyle() == "round"]
    solid = [line for line in curves if line not in dotted]
    assert [line.get_color() for line in dotted] == [line.get_color() for line in solid]
    assert not any("no noise" in text.get_text() for text in axis.texts)
    assert "Dotted: the same method trained on clean labels." in made.caption


def test_of_many_methods_the_best_are_in_colour_and_the_rest_is_named(root: Path) -> None:
    made = drawn(root, kind="curves", noises=["sym40"])
    (axis,) = made.figure.axes
    ends = made.frame.groupby("method_label")["round"].max()
    assert len(ends) == len(axis.texts) == 12
    named = [line for line in axis.get_lines() if line.get_label()[:1] not in ("", "_")]
    grey = [line for line in named if line.get_color() == "#949494"]
    assert len(grey) == 4
    for line in grey:
        assert line.get_label() in made.caption.split("grey: ")[1]
    assert "FedAvg" not in [line.get_label() for line in grey]  # the baseline
    with style.styled():
        assert problems(made.figure) == []


def test_beside_a_line_stands_the_number_of_the_tables_however_smooth_it_is(root: Path) -> None:
    chosen: dict[str, Any] = {"kind": "curves", "methods": ["fedavg"], "noises": ["sym40"]}
    folders = [root / f"runs/digits/sym40/iid/fedavg/seed{seed}" for seed in (0, 1)]
    stored = [json.loads((folder / "summary.json").read_text())["accuracy"] for folder in folders]
    for metric, window in (("last", 1), ("last10_mean", 2), ("best", 2)):
        made = drawn(root, **chosen, metric=metric)
        number = 100 * np.mean([scores[metric] for scores in stored])
        assert f"{number:.1f} FedAvg" in [text.get_text() for text in made.figure.axes[0].texts]
        assert f"FedAvg {number:.1f} %" in made.alt
        assert ("mean of the last 2 evaluations" in made.caption) == (window == 2)  # a quarter of eight
        drawn_last = made.figure.axes[0].get_lines()[0].get_ydata()[-1]
        assert drawn_last == pytest.approx(made.frame["mean"].iloc[-window:].mean())


def test_a_seed_that_is_cut_off_stands_there_as_a_number(tmp_path: Path) -> None:
    noises = ["random20", "random40"]
    write_study(tmp_path, grid=[{"noises": noises, "partitions": ["iid"], "methods": list(METHODS)}], rounds=3)
    folder = tmp_path / "runs/digits/random20/iid/fedcorr/seed1"
    frame = pd.read_parquet(folder / "metrics.parquet")
    headline = (frame["metric"] == "accuracy") & (frame["client"] == -1)
    frame["value"] = frame["value"].where(~headline, 0.7 * frame["value"])
    frame.to_parquet(folder / "metrics.parquet")
    summary = json.loads((folder / "summary.json").read_text())
    summary["accuracy"] = {key: 0.7 * value for key, value in summary["accuracy"].items()}
    (folder / "summary.json").write_text(json.dumps(summary))
    seed = f"{100 * summary['accuracy']['last10_mean']:.0f}"
    for kind, sign in (("dots", "◂"), ("differences", "◂"), ("rate", "▾")):
        made = drawn(tmp_path, kind=kind, methods=["fedavg", "sce", "scaffold", "coteaching-20", "fedcorr", "local"])
        said = [text.get_text() for axis in made.figure.axes for text in axis.texts]
        cut = [text for text in said if text.startswith(f"{sign}\u202f")]
        assert cut, kind
        assert "lowest seed" in made.caption
        assert kind == "differences" or f"{sign}\u202f{seed}" in cut
        assert not any("-" in text for text in cut)


def test_cost_is_cpu_seconds_and_leaves_out_traffic_that_is_alike(tmp_path: Path) -> None:
    methods = ["fedavg", "sce", "scaffold"]
    write_study(tmp_path, grid=[{"noises": ["sym40"], "partitions": ["iid"], "methods": methods}], rounds=2, seeds=[0])
    both = drawn(tmp_path, kind="pareto")
    assert [axis.get_xlabel() for axis in both.figure.axes] == ["CPU seconds a run", "MB a run, both ways"]
    alike = drawn(tmp_path, kind="pareto", methods=["fedavg", "sce"])
    assert [axis.get_xlabel() for axis in alike.figure.axes] == ["CPU seconds a run"]
    assert "No traffic: all send about the same, 1.6 to 1.6 MB a run." in alike.caption
    cost = json.loads((tmp_path / "runs/digits/sym40/iid/sce/seed0/cost.json").read_text())
    times = drawn(tmp_path, kind="seconds").frame.set_index("method")["cpu_seconds"]
    assert times["sce"] == pytest.approx(cost["cpu_seconds"])
    edit(tmp_path / "runs/digits/sym40/iid/sce/seed0", cpu_seconds=None)
    wall = drawn(tmp_path, kind="pareto")
    assert wall.figure.axes[0].get_xlabel() == "seconds a run (wall time)"
    assert not wall.frame["front_seconds"].any()  # one run each: it tells of the machine
    assert wall.frame["front_megabytes"].any()
    assert "No front over time" in wall.caption
    assert drawn(tmp_path, kind="seconds").figure.axes[0].get_xlabel() == "seconds a run (wall time)"


def test_costs_far_apart_have_a_logarithmic_axis_with_a_place_for_none() -> None:
    def axis_of(*values: float) -> Axes:
        axis = style.canvas(3, 2).subplots()
        axis.plot(values, values, "o")
        _scale(axis, pd.Series(values))
        return axis

    assert axis_of(1.0, 5.0).get_xscale() == "linear"
    assert axis_of(0.1, 5.0).get_xscale() == "log"
    some = axis_of(0.0, 0.1, 38.0)
    assert some.get_xscale() == "symlog"
    assert [tick for tick in some.get_xticks() if tick < 100] == pytest.approx([0, 0.1, 0.3, 1, 3, 10, 30])


def test_heat_maps_say_what_they_are_and_name_classes_at_their_edges(root: Path, tmp_path: Path) -> None:
    made = drawn(root, kind="confusion", noises=["sym40"], methods=["fedavg", *VIEWS])
    panels = made.figure.axes[:5]
    assert [bool(axis.get_xlabel()) for axis in panels] == [False, True, True, True, True]
    shown = [any(label.get_visible() for label in axis.get_xticklabels()) for axis in panels]
    assert shown == [False, True, True, True, True]
    right = made.frame.query("method == 'fedavg' and `class` == predicted")["mean"]
    place = [axis.get_title(loc="left").strip() for axis in panels].index("FedAvg")
    numbers = {text.get_position(): text.get_text() for text in panels[place].texts}
    assert [numbers[k, k] for k in range(10)] == [f"{value:.0f}" for value in right]
    noises = ["sym40", "random20", "random40"]
    grid = [{"noises": noises, "partitions": ["iid"], "methods": ["fedavg"]}]
    write_study(tmp_path, grid=grid, rounds=2, seeds=[0])
    for width, head in (("page", "drawn − asked"), ("column", "difference")):
        pairs = drawn(tmp_path, kind="transition", width=width)
        with style.styled():
            assert problems(pairs.figure) == []
        heads = [axis.get_title(loc="left").split("\n")[-1] for axis in pairs.figure.axes[:6]]
        assert heads == ["asked for", head] * 3
        assert [label.get_text() for label in pairs.figure.axes[0].get_yticklabels()] == ["0", "9"]


@pytest.mark.parametrize("kind", ["curves", "classes", "seconds"])
def test_a_column_holds_four_settings(tmp_path: Path, kind: str) -> None:
    block = {"noises": ["sym40", "random20"], "partitions": ["iid", "openset-uniform"], "methods": ["fedavg", "sce"]}
    write_study(tmp_path, grid=[block], rounds=2, seeds=[0])
    made = drawn(tmp_path, kind=kind, width="column")
    with style.styled():
        assert problems(made.figure) == []
    width, height = made.figure.get_size_inches()
    assert width <= 3.4
    assert height < 7
