"""Figures: readable texts, the right numbers, the same bytes every time, for small and for large federations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from report.fake_runs import METHODS, NOISES, PARTITIONS, write_arrays, write_labels, write_partition, write_study
from report.layout_check import problems

from fednoise_core.io import ArtifactError, SpecError, load_npz, save_npz
from fednoise_core.report import figures, style, tables
from fednoise_core.report.artifacts import SettingArtifacts
from fednoise_core.report.best import best_methods
from fednoise_core.report.cells import method_words
from fednoise_core.report.floor import floor
from fednoise_core.report.runs import listed_runs
from fednoise_core.report.setting_figures import SETTING_FIGURES
from workflow_scripts import make_figure
from workflow_scripts.paper_tables import FIGURES as OF_PAPERS

GRID = [
    {"noises": ["sym40"], "partitions": ["openset-uniform", "iid"], "methods": list(METHODS)},
    {"noises": ["random20", "random40"], "partitions": ["openset-nonuniform"], "methods": list(METHODS)},
    {"noises": ["clean"], "partitions": list(PARTITIONS), "methods": ["fedavg"]},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_study(path, grid=GRID, rounds=12)
    return path


def drawn(root: Path, **spec: Any) -> style.Drawn:
    with style.styled():
        return figures.draw(listed_runs(root, root / "runs.json"), spec)


@pytest.mark.parametrize("kind", [kind for kind in figures.FIGURES if kind not in ("sweep", "prestop", *OF_PAPERS)])
@pytest.mark.parametrize(
    "select", [{}, {"noises": ["sym40"], "partitions": ["iid"], "width": "column"}], ids=["page", "column"]
)
def test_no_text_overlaps_or_is_tiny(root: Path, kind: str, select: dict[str, Any]) -> None:
    spec = {"kind": kind, **select} | ({"metric": "clients"} if kind == "metric" else {})
    with style.styled():
        made = figures.draw(listed_runs(root, root / "runs.json"), spec)
        assert problems(made.figure) == []
    assert made.figure.get_size_inches()[0] <= (3.4 if select else 7.0)
    assert "n = " in made.caption or "one seed" in made.caption
    assert made.caption.endswith(".")
    assert made.title in made.alt
    assert len(made.frame) > 0


def test_a_setting_of_reference_methods_alone_has_no_front(root: Path) -> None:
    made = drawn(root, kind="pareto", noises=["sym40"], partitions=["iid"], methods=["coteaching-oracle"])
    assert list(made.frame["method"]) == ["coteaching-oracle"]
    assert not made.frame[["front_cpu_seconds", "front_megabytes"]].to_numpy().any()


def test_the_check_sees_an_overlap_and_a_tiny_text() -> None:
    figure = style.canvas(2, 2)
    figure.text(0.3, 0.5, "one text")
    figure.text(0.35, 0.5, "another", fontsize=5)
    figure.text(0.95, 0.9, "cut off")
    found = " ".join(problems(figure))
    assert "overlap" in found
    assert "is 5.0 pt" in found
    assert "leaves the figure" in found


def test_long_names_many_methods_and_many_settings_still_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        label = f"Robust method number {number} with a long name"
        monkeypatch.setitem(METHODS, f"m{number}", {"name": f"m{number}", "label": label})
    noises = {f"n{number}": {"kind": "class_dependent_asymmetric", "rate": number / 10} for number in range(1, 7)}
    for name, spec in noises.items():
        monkeypatch.setitem(NOISES, name, spec)
    monkeypatch.setitem(PARTITIONS, "p", {"kind": "bernoulli_dirichlet", "p": 0.5, "alpha": 10.0, "clients": 20})
    methods = ["fedavg", *(f"m{number}" for number in range(8))]
    grid = [{"noises": list(noises), "partitions": ["p"], "methods": methods}]
    write_study(tmp_path, grid=grid, rounds=3, seeds=(0,))
    for kind in ("curves", "dots", "bytes", "seconds", "rate", "classes"):
        with style.styled():
            made = figures.draw(listed_runs(tmp_path, tmp_path / "runs.json"), {"kind": kind})
            assert problems(made.figure) == [], kind


def stored_curves(root: Path, place: str) -> list[np.ndarray]:
    found = []
    for seed in (0, 1):
        frame = pd.read_parquet(root / "runs/digits" / place / f"seed{seed}" / "metrics.parquet")
        found.append(100 * frame.query("metric == 'accuracy' and client == -1")["value"].to_numpy())
    return found


def test_curves_show_the_mean_of_the_seeds_over_work(root: Path) -> None:
    chosen: dict[str, Any] = {"methods": ["fedcorr"], "noises": ["sym40"], "partitions": ["iid"]}
    made = drawn(root, kind="curves", **chosen, smooth=1, x="work")
    stored = stored_curves(root, "sym40/iid/fedcorr")
    line = made.figure.axes[0].get_lines()[0]
    assert line.get_ydata() == pytest.approx(np.mean(stored, 0))
    assert line.get_xdata() == pytest.approx(1.4 * np.arange(13))  # the fake's FedCorr works more a round
    assert made.frame["std"].to_numpy() == pytest.approx(np.std(stored, 0, ddof=1))
    assert "at each the mean of the last" not in made.caption


def test_lines_end_at_the_number_of_the_table(root: Path) -> None:
    made = drawn(root, kind="curves", noises=["sym40"], partitions=["iid"], smooth=10)
    line = next(line for line in made.figure.axes[0].get_lines() if line.get_label() == "FedAvg")
    mean = np.mean(stored_curves(root, "sym40/iid/fedavg"), 0)
    wanted = [mean[0], *(mean[max(1, n - 9) : n + 1].mean() for n in range(1, 13))]
    assert line.get_ydata() == pytest.approx(wanted)
    table = tables.build(listed_runs(root, root / "runs.json"), {"kind": "accuracy", "metric": "last10_mean"})
    row = table.query("noise == 'sym40' and partition == 'iid' and method == 'fedavg'").iloc[0]
    assert line.get_ydata()[-1] == pytest.approx(row["last10_mean_mean"])
    assert f"{row['last10_mean_mean']:.1f} FedAvg" in [text.get_text() for text in made.figure.axes[0].texts]
    end = made.frame[made.frame["method"] == "fedavg"].iloc[-1]
    assert end["spread"] == pytest.approx(row["last10_mean_std"])
    assert f"FedAvg {row['last10_mean_mean']:.1f} %" in drawn(root, kind="dots", methods=["fedavg"]).alt


def test_up_to_five_methods_have_bands(root: Path) -> None:
    made = drawn(root, kind="curves", noises=["sym40"], partitions=["iid"])
    assert not made.figure.axes[0].collections
    assert "bands" not in made.caption
    asked = drawn(root, kind="curves", noises=["sym40"], partitions=["iid"], band="range")
    assert len(asked.figure.axes[0].collections) == len(METHODS)
    assert "bands: range" in asked.caption
    few = drawn(root, kind="curves", noises=["sym40"], partitions=["iid"], methods=["fedavg", "fedcorr"])
    assert len(few.figure.axes[0].collections) == 2


@pytest.mark.parametrize("y", [None, [0, 100], [92, 93]])
@pytest.mark.parametrize("width", ["page", "column"])
def test_names_stand_beside_the_axes_in_order_and_no_sign_at_a_false_value(
    root: Path, y: list[float] | None, width: str
) -> None:
    made = drawn(root, kind="curves", noises=["sym40"], y=y, width=width, smooth=10)
    with style.styled():
        assert [text for text in problems(made.figure) if "overlap" in text] == []
    for axis in made.figure.axes:
        lines = [line for line in axis.get_lines() if not line.get_label().startswith("_")]
        texts = axis.texts
        assert len(texts) == len(METHODS)
        right = axis.get_window_extent().x1
        assert all(text.get_window_extent().x0 > right for text in texts)
        ends = {line.get_label(): line.get_ydata()[-1] for line in lines}
        said = sorted(texts, key=lambda text: text.get_position()[1])
        words = [" ".join(text.get_text().split()) for text in said]
        low, high = axis.get_ylim()
        seen = [word for word in words if not word.startswith("▾")]
        assert [word.split(" ", 1)[0] for word in words if word not in seen] == ["▾"] * (len(words) - len(seen))
        values = [float(word.split()[0]) for word in seen]
        inside = [value for value in values if value < high]
        assert inside == sorted(inside)
        for word, text in zip(words, said, strict=True):
            value, _, name = word.removeprefix("▾ ").partition(" ")
            if width == "column":  # the names stand in the legend, in the colour of the value
                assert not name
                same = [line for line in lines if line.get_color() == text.get_color()]
                (name,) = [line.get_label() for line in same if abs(ends[line.get_label()] - float(value)) < 0.051]
                assert name in [text.get_text() for text in made.figure.legends[0].get_texts()]
            assert float(value) == pytest.approx(ends[name], abs=0.051)
            assert word.startswith("▾") == (ends[name] < low)
        leaders = [line for line in axis.get_children() if isinstance(line, Line2D) and line.get_linewidth() == 0.5]
        assert leaders or y == [92, 93]
        assert all(min(line.get_xdata()) >= 1 for line in leaders)  # of the axes' width: none crosses a curve
        assert not [line for line in lines if line.get_marker() not in ("None", "", "x")]


def test_poor_methods_do_not_flatten_the_others_and_the_axis_says_so(root: Path) -> None:
    made = drawn(root, kind="curves", noises=["sym40"], partitions=["iid"], smooth=10)
    low, high = made.figure.axes[0].get_ylim()
    ends = made.frame.groupby("method", sort=False)["drawn"].last()
    assert ends["local"] < low
    assert f"The axis starts at {low:g} %" in made.caption
    assert np.ptp(ends.drop("local")) > 0.6 * (high - low)
    whole = drawn(root, kind="curves", noises=["sym40"], partitions=["iid"], y=[0, 100])
    assert whole.figure.axes[0].get_ylim() == (0, 100)
    assert "starts" not in whole.caption


def test_the_axis_keeps_what_is_not_far_below() -> None:
    assert floor([95, 91, 90, 89, 87, 85, 84, 79, 57, 42]) == 70
    assert floor([90, 80, 70, 60, 50, 40]) == 25  # no gap
    assert floor([90, 89, 30, 29]) == 10  # half of the lines are no exception
    assert floor([90.0]) is None
    assert floor([]) is None
    assert floor([np.nan, 90, 80]) == 75


def test_dots_show_every_seed_the_baseline_and_the_ceiling(root: Path) -> None:
    made = drawn(root, kind="dots", noises=["sym40", "clean"], partitions=["iid"], metric="last")
    axis = made.figure.axes[0]
    last = {m: [c[-1] for c in stored_curves(root, f"sym40/iid/{m}")] for m in METHODS}
    means = {method: float(np.mean(values)) for method, values in last.items()}
    names = [text.get_text() for text in axis.get_yticklabels()]
    order = sorted(METHODS, key=lambda method: -means[method])
    assert [name.split(" †")[0].split(" ‡")[0].split(" §")[0] for name in names] == [METHODS[m]["label"] for m in order]
    ticks = sorted(x for line in axis.get_lines() if line.get_marker() == "|" for x in line.get_xdata())
    low = axis.get_xlim()[0]
    assert ticks == pytest.approx(sorted(x for m, xs in last.items() for x in xs if means[m] >= low))
    upright = [line.get_xdata()[0] for line in axis.get_lines() if list(line.get_ydata()) == [0, 1]]
    clean = float(np.mean([curve[-1] for curve in stored_curves(root, "clean/iid/fedavg")]))
    assert sorted(upright) == pytest.approx(sorted([means["fedavg"], clean]))
    assert f"◂\u202f{means['local']:.0f}" in axis.texts[0].get_text()
    hollow = [line for line in axis.get_lines() if line.get_markerfacecolor() == "white"]
    assert [line.get_xdata()[0] for line in hollow] == [pytest.approx(means["coteaching-oracle"])]
    assert "not compared: Co-teaching †" in made.alt


def test_the_alternative_text_names_ties_and_what_the_numbers_are(root: Path) -> None:
    select = {"noises": ["sym40"], "partitions": ["iid"], "metric": "last"}
    frame = tables.build(listed_runs(root, root / "runs.json"), {"kind": "accuracy", **select})
    best = [
        f"{method_words(frame[frame['method'] == method])} {mean:.1f} %"
        for method, mean in frame.sort_values("last_mean", ascending=False)[["method", "last_mean"]].to_numpy()
        if method in best_methods(frame, "last", 1)
    ]
    assert len(best) > 1
    assert f": {' = '.join(best)} (tie)" in drawn(root, kind="dots", **select).alt
    differences = drawn(root, kind="differences", **select)
    said = differences.alt.split("Highest difference to FedAvg: ")[1]
    assert "%" not in said
    lowest = differences.frame["mean"].min()
    assert said.endswith(f", lowest Local only § −{-lowest:.1f} points.")
    assert "-" not in "".join(text.get_text() for text in differences.figure.axes[0].texts)


def test_a_rate_that_is_the_settings_is_not_compared_in_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "guess", {"name": "coteaching", "label": "Guess", "forget_rate": 0.4})
    grid = [{"noises": ["sym40", "random20"], "partitions": ["iid"], "methods": ["guess", "fedavg"]}]
    write_study(tmp_path, grid=grid, rounds=3, seeds=(0,))
    made = drawn(tmp_path, kind="dots", metric="last")
    hollow = [sum(line.get_markerfacecolor() == "white" for line in axis.get_lines()) for axis in made.figure.axes]
    assert hollow == [1, 0]
    assert "goes by is the nominal one in symmetric 0.4: there it is as if told (†)" in made.caption
    assert [text.get_text() for text in made.figure.legends[0].get_texts()][1] == "not compared: †"


def test_the_caption_says_which_rounds_were_evaluated(root: Path, tmp_path: Path) -> None:
    assert "Test accuracy after every round, at each the mean of the last 3" in drawn(root, kind="curves").caption
    write_study(tmp_path, grid=[{**GRID[0], "methods": ["fedavg"]}], rounds=6, eval_every=3)
    assert "Test accuracy after every 3 rounds, mean over" in drawn(tmp_path, kind="curves").caption


def test_no_point_stands_below_noise_rate_0(tmp_path: Path) -> None:
    noises = ["clean", "random20", "random40"]
    write_study(tmp_path, grid=[{"noises": noises, "partitions": ["iid"], "methods": list(METHODS)}], rounds=3)
    made = drawn(tmp_path, kind="rate")
    lines = [line for line in made.figure.axes[0].get_lines() if line.get_label()[:1] not in ("", "_")]
    drawn_at = np.array([line.get_xdata() for line in lines])
    assert drawn_at.shape == (len(METHODS), 3)
    assert drawn_at.min() == 0
    assert (np.diff(drawn_at[:, 0]) > 0).all()  # still beside one another
    assert drawn_at[:, 1:].mean(0) == pytest.approx([0.2, 0.4])


def test_a_method_keeps_its_looks_in_every_figure(root: Path) -> None:
    def colour(**spec: Any) -> Any:
        made = drawn(root, noises=["sym40"], partitions=["iid"], **spec)
        return next(line for line in made.figure.axes[0].get_lines() if line.get_label() == "FedCorr").get_color()

    assert colour(kind="curves") == colour(kind="seconds") == colour(kind="curves", methods=["fedcorr", "fedavg"])


def test_looks_stay_apart_without_colour() -> None:
    looks = style.look([f"m{number}" for number in range(40)])
    assert len({(one.marker, str(one.dash)) for one in looks.values()}) == 40
    assert len({(one.colour, str(one.dash)) for one in looks.values()}) == 40
    assert len({one.colour for one in list(looks.values())[:8]}) == 8
    assert len({str(one.dash) for one in list(looks.values())[:7]}) == 7


def luminance(colour: str) -> float:
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722))


def test_colours_are_dark_enough_and_neighbours_differ_in_grey() -> None:
    light = [luminance(colour) for colour in style.COLOURS]
    assert min(1.05 / (y + 0.05) for y in light) >= 3
    grey = [116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y for y in light]  # CIE lightness
    assert np.abs(np.diff(grey)).min() > 7
    looks = list(style.look([f"m{number}" for number in range(16)]).values())
    for place, one in enumerate(looks):
        for other in looks[place + 1 :]:
            if one.dash == other.dash:  # a grey print has nothing else to tell two lines apart
                assert abs(grey[style.COLOURS.index(one.colour)] - grey[style.COLOURS.index(other.colour)]) > 6
    for ground in ("#ffffff", "#1b6ab0", "#7a7a7a", "#ffb050", "#000000"):
        contrast = sorted([luminance(ground) + 0.05, luminance(style.ink_on(ground)) + 0.05])
        assert contrast[1] / contrast[0] >= 4.5


def test_bytes_show_the_accuracy_when_a_budget_is_used_up(root: Path) -> None:
    made = drawn(root, kind="bytes", noises=["sym40"], partitions=["iid"])
    frame = made.frame.set_index(["budget", "method"])
    half, whole = dict.fromkeys(made.frame["budget"])
    assert list(set(frame.loc[whole]["budget_mb"])) == pytest.approx([1.01 * 12 * 2 * 0.4])  # what FedAvg sends
    curve = np.mean(stored_curves(root, "sym40/iid/fedavg"), 0)
    assert frame.loc[whole, "fedavg"]["mean"] == pytest.approx(curve[10:].mean())  # the last quarter of 12 evaluations
    assert frame.loc[half, "fedavg"]["mean"] == pytest.approx(curve[4:7].mean())
    double = np.mean(stored_curves(root, "sym40/iid/scaffold"), 0)
    assert frame.loc[whole, "scaffold"]["mean"] == pytest.approx(double[4:7].mean())  # sends twice as much
    once = np.mean(stored_curves(root, "sym40/iid/feddpcont"), 0)
    assert frame.loc[whole, "feddpcont"]["mean"] == pytest.approx(once[10:].mean())  # its release costs no round
    alone = np.mean(stored_curves(root, "sym40/iid/local"), 0)
    assert frame.loc[half, "local"]["mean"] == pytest.approx(alone[10:].mean())  # sends nothing
    hollow = [line for line in made.figure.axes[0].get_lines() if line.get_markerfacecolor() == "white"]
    told = frame.loc[whole, "coteaching-oracle"]["mean"]
    assert [x for line in hollow for x in line.get_xdata()].count(pytest.approx(told)) == 1
    assert {line.get_color() for line in hollow} == {style.WRONG}
    few = drawn(root, kind="bytes", noises=["sym40"], partitions=["iid"], budgets=[0.5], methods=["fedavg"])
    assert few.frame["mean"].isna().all()  # its only model within the budget is untrained
    asked = drawn(root, kind="bytes", noises=["sym40"], partitions=["iid"], budgets=[2.0])
    assert set(asked.frame["budget"]) == {"2 MB"}
    assert "2 MB" in asked.caption


def test_classes_are_means_of_the_last_ten_evaluations(root: Path) -> None:
    made = drawn(root, kind="classes", noises=["sym40"], partitions=["iid"])
    cell = made.frame[(made.frame["method"] == "sce") & (made.frame["class"] == 3)]["mean"].item()
    stored = [pd.read_parquet(root / f"runs/digits/sym40/iid/sce/seed{s}/metrics.parquet") for s in (0, 1)]
    values = [frame[frame["metric"] == "accuracy_class_3"]["value"].iloc[-10:].mean() for frame in stored]
    assert cell == pytest.approx(100 * np.mean(values))
    row = [text.get_text() for text in made.figure.axes[0].get_yticklabels()].index("SCE")
    numbers = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in made.figure.axes[0].texts}
    assert numbers[row, 3] == f"{cell:.0f}"


def test_any_metric_is_drawn_with_the_phases_and_the_stop(tmp_path: Path) -> None:
    grid = [{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg", "sce"]}]
    write_study(tmp_path, grid=grid, rounds=6)
    watched = np.linspace(0.1, 0.7, 6)
    for seed in (0, 1):
        folder = tmp_path / f"runs/digits/sym40/iid/sce/seed{seed}"
        frame = pd.read_parquet(folder / "metrics.parquet")
        frame["phase"] = np.where(frame["round"] > 4 + seed, "correct", "watch")
        row = {"work": 1.0, "phase": "watch", "view": "", "client": -1, "metric": "watched_accuracy"}
        more = pd.DataFrame([{**row, "round": n + 1, "value": value + seed / 10} for n, value in enumerate(watched)])
        frame = pd.concat([frame, more]).astype({"round": "int32", "client": "int32"})
        frame.to_parquet(folder / "metrics.parquet")
        summary = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps(summary | {"notes": {"prestop": {"round": 3}}}))
    made = drawn(tmp_path, kind="metric", metric="watched_accuracy")
    assert set(made.frame["method"]) == {"sce"}
    assert made.frame["mean"].to_numpy() == pytest.approx(watched + 0.05)
    lines = made.figure.axes[0].get_lines()
    assert [5.5, 5.5] in [list(line.get_xdata()) for line in lines]
    assert [line.get_xdata()[0] for line in lines if line.get_marker() == "x"] == [3]
    assert "SCE: correct from rounds 5 to 6; SCE stopped at round 3" in made.caption
    with pytest.raises(SpecError, match=r"none of the runs reports 'q' by round; they report .*watched_accuracy"):
        drawn(tmp_path, kind="metric", metric="q")


def test_rate_puts_clean_runs_at_zero_and_refuses_unknown_rates(root: Path, tmp_path: Path) -> None:
    frame = drawn(root, kind="rate", methods=["fedavg"]).frame
    line = frame[(frame["noise_kind"] == "random") & (frame["partition"] == "openset-nonuniform")]
    assert list(line["rate"]) == [0, 0.2, 0.4]
    grid = [{"noises": ["human"], "partitions": ["iid"], "methods": ["fedavg"]}]
    NOISES["human"] = {"kind": "human", "key": "worst"}
    try:
        write_study(tmp_path, grid=grid, rounds=3, clean_known=False)
    finally:
        del NOISES["human"]
    with pytest.raises(SpecError, match="noise human has no known rate"):
        drawn(tmp_path, kind="rate")


def test_the_histogram_counts_every_sample_of_every_client(root: Path) -> None:
    frame = drawn(root, kind="histogram", noises=["sym40"], partitions=["openset-uniform"]).frame
    split, _ = load_npz(root / "partitions/digits/sym40/openset-uniform/seed0.npz", "partition")
    labels, _ = load_npz(root / "labels/digits/sym40/any/seed0.npz", "labels")
    for kind, y in (("clean", labels["clean"]), ("given", labels["noisy"])):
        counts = frame[frame["labels"] == kind].set_index(["client", "class"])["samples"]
        assert counts.sum() == len(split["index"])
        mine = y[split["index"][split["offsets"][3] : split["offsets"][4]]]
        bad = frame[frame["labels"] == kind].set_index(["client", "class"])["mislabelled"]
        assert bad.sum() == (labels["clean"] != labels["noisy"])[split["index"]].sum()
        third = split["index"][split["offsets"][3] : split["offsets"][4]]
        wrong = third[(labels["clean"] != labels["noisy"])[third]]
        assert {k: n for k, n in bad[3].items() if n} == {k: n for k, n in enumerate(np.bincount(y[wrong])) if n}
        assert counts[3].to_dict() == {k: n for k, n in enumerate(np.bincount(mine)) if n}


def test_transition_shows_both_matrices_once_per_noise(root: Path) -> None:
    made = drawn(root, kind="transition", noises=["sym40"])  # two partitions, one labels artifact
    labels, _ = load_npz(root / "labels/digits/sym40/any/seed0.npz", "labels")
    assert len(made.frame) == 200
    minus = made.frame[made.frame["matrix"] == "realised minus nominal"]["probability"].to_numpy().reshape(10, 10)
    assert minus == pytest.approx(labels["T_realised"] - labels["T_nominal"])
    numbers = {text.get_text() for text in made.figure.axes[0].texts}
    assert numbers == {".60", ".04"}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> SettingArtifacts:
    """100 classes with long names over 300 clients."""
    folder = tmp_path_factory.mktemp("wide")
    names = [f"rather_long_class_{k}" for k in range(100)]
    y = write_arrays(folder / "arrays.npz", classes=100, n=6000, names=names)
    noisy = write_labels(folder / "labels.npz", y, NOISES["sym40"], classes=100)
    write_partition(folder / "partition.npz", noisy, {"kind": "openset", "mode": "uniform", "clients": 300})
    paths = (folder / "labels.npz", folder / "partition.npz", folder / "arrays.npz")
    return SettingArtifacts("wide", "sym40", "openset", 0, *paths)


@pytest.mark.parametrize("kind", SETTING_FIGURES)
def test_a_hundred_classes_and_three_hundred_clients_are_readable(wide: SettingArtifacts, kind: str) -> None:
    with style.styled():
        made = SETTING_FIGURES[kind]([wide], {"kind": kind})
        assert problems(made.figure) == []
    if kind == "histogram":
        assert "Evenly chosen clients" in made.caption


@pytest.mark.parametrize("classes", [2, 12, 20])
def test_heat_maps_with_numbers_fit(tmp_path: Path, classes: int) -> None:
    names = [f"class number {k}" for k in range(classes)]
    y = write_arrays(tmp_path / "arrays.npz", classes=classes, n=600, names=names)
    noisy = write_labels(tmp_path / "labels.npz", y, NOISES["sym40"], classes=classes)
    write_partition(tmp_path / "partition.npz", noisy, PARTITIONS["iid"])
    paths = (tmp_path / "labels.npz", tmp_path / "partition.npz", tmp_path / "arrays.npz")
    with style.styled():
        made = SETTING_FIGURES["transition"]([SettingArtifacts("d", "n", "p", 0, *paths)], {})
        assert problems(made.figure) == []
    assert len(made.frame) == 2 * classes**2


def test_unknown_clean_labels_draw_what_is_known(tmp_path: Path) -> None:
    write_study(tmp_path, grid=[{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg"]}], clean_known=False)
    assert set(drawn(tmp_path, kind="histogram").frame["labels"]) == {"given"}
    assert drawn(tmp_path, kind="clients").frame["noise_rate"].isna().all()
    assert list(drawn(tmp_path, kind="transition").frame["note"]) == ["unknown"]
    assert "unknown" in drawn(tmp_path, kind="samples").caption
    with pytest.raises(SpecError, match="clean labels are unknown"):
        drawn(tmp_path, kind="histogram", show=["clean"])


def test_client_level_noise_is_averaged_by_samples(tmp_path: Path) -> None:
    clean = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    split = {"index": np.arange(8), "offsets": np.array([0, 6, 8]), "valid": np.zeros(8, bool)}
    spec = {"artifact": "partition", "partition": {"kind": "iid"}, "seed": 0, "clients": 2, "labels": "clean"}
    save_npz(tmp_path / "p.npz", split, {**spec, "notes": {"samples": 8, "overlap": False}})
    T = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.8], [0.5, 0.5]]])
    arrays = {"clean": clean, "noisy": clean, "rate": np.array(0.0), "T_nominal": T, "T_realised": np.eye(2)}
    noise = {"artifact": "labels", "noise": {"kind": "fedcorr"}, "seed": 0, "nominal_rate": None, "classes": 2}
    save_npz(tmp_path / "l.npz", arrays, noise)
    one = SettingArtifacts("d", "n", "p", 0, tmp_path / "l.npz", tmp_path / "p.npz", None)
    with style.styled():
        frame = SETTING_FIGURES["transition"]([one], {}).frame
    nominal = frame[frame["matrix"] == "nominal"]["probability"].to_numpy()
    assert nominal == pytest.approx([(3 * 1 + 0.2) / 4, 0.8 / 4, 0.5 / 4, (3 * 1 + 0.5) / 4])  # 3 and 1 samples of each


def test_open_set_noise_shows_the_foreign_image(tmp_path: Path) -> None:
    y = write_arrays(tmp_path / "a.npz", n=40)
    write_arrays(tmp_path / "donor.npz", n=60, size=4)
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
    one = SettingArtifacts("d", "n", "p", 0, tmp_path / "l.npz", None, tmp_path / "a.npz", tmp_path / "donor.npz")
    donors, _ = load_npz(tmp_path / "donor.npz", "arrays")
    own, _ = load_npz(tmp_path / "a.npz", "arrays")
    assert (one.image(7) == np.repeat(np.repeat(donors["x_train"][5], 2, 0), 2, 1)).all()
    assert (one.image(8) == own["x_train"][8]).all()
    alone = SettingArtifacts("d", "n", "p", 0, tmp_path / "l.npz", None, tmp_path / "a.npz")
    assert (alone.image(7) == 128).all()


def test_artifacts_that_do_not_belong_together_are_named(root: Path, tmp_path: Path) -> None:
    y = write_arrays(tmp_path / "a.npz", n=50)
    write_labels(tmp_path / "l.npz", y, NOISES["sym40"])
    big = root / "partitions/digits/sym40/iid/seed0.npz"
    one = SettingArtifacts("d", "n", "p", 0, tmp_path / "l.npz", big, root / "raw/digits.npz")
    with pytest.raises(ArtifactError, match=r"seed0\.npz: names sample \d+, but .*l\.npz has 50"):
        _ = one.split
    with pytest.raises(ArtifactError, match=r"l\.npz: 50 labels for 1200 samples"):
        _ = one.arrays
    with pytest.raises(ArtifactError, match="the runs list names no labels file"):
        _ = SettingArtifacts("d", "n", "p", 0, None, None, None).labels


def test_the_command_writes_the_same_bytes_again(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["--root", str(root), "--runs-list", str(root / "runs.json")]
    for kind in ("curves", "histogram"):
        for place in ("a", "b"):
            spec = tmp_path / f"{kind}.json"
            spec.write_text(json.dumps({"kind": kind, "noises": ["sym40"]}))
            prefix = tmp_path / place / kind
            assert make_figure.main(["--spec", str(spec), *shared, "--out-prefix", str(prefix)]) == 0
        for ending in ("svg", "png", "pdf", "csv"):
            one, two = (tmp_path / place / f"{kind}.{ending}" for place in ("a", "b"))
            assert one.read_bytes() == two.read_bytes()
    svg = (tmp_path / "a" / "curves.svg").read_text()
    assert "<dc:date>" not in svg
    assert "matplotlib" not in svg.lower().replace("http://matplotlib", "").split("<defs>")[0]
    assert b"matplotlib" not in (tmp_path / "a" / "curves.png").read_bytes()
    page = (tmp_path / "a" / "curves.pdf").read_bytes()
    assert b"/FontFile2" in page  # a real font; of Type 3 are pictures of letters
    assert b"/Type3" not in page
    assert b"CreationDate" not in page
    capsys.readouterr()
    assert make_figure.main(["--spec", '{"kind": "pie"}', *shared, "--out-prefix", str(tmp_path / "c")]) == 2
    assert "figure kind 'pie' is not one of dots, curves" in capsys.readouterr().err


def test_words_travel_in_the_svg(root: Path, tmp_path: Path) -> None:
    with style.styled():
        made = figures.draw(listed_runs(root, root / "runs.json"), {"kind": "curves", "title": "A < B & C"})
        style.save(made, tmp_path / "f")
    assert style.words_of(tmp_path / "f.svg") == ("A < B & C", made.caption, made.alt)
    (tmp_path / "f.svg").write_text((tmp_path / "f.svg").read_text()[:3000])
    with pytest.raises(ArtifactError, match=r"f\.svg: damaged SVG"):
        style.words_of(tmp_path / "f.svg")


def test_the_users_matplotlibrc_has_no_say(root: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9}), style.styled():
        assert mpl.rcParams["font.size"] == style.STYLE["font.size"]
    assert "matplotlib.pyplot" not in sys.modules or not mpl.pyplot.get_fignums()
