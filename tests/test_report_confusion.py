"""The figure of confusion matrices, and the file it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report.fake_runs import METHODS, confusion, write_study
from report.layout_check import problems

from fednoise_core.io import ArtifactError
from fednoise_core.report import figures, style, tables
from fednoise_core.report.confusion_file import read_confusion
from fednoise_core.report.result_figures.confusion import _first
from fednoise_core.report.runs import listed_runs

GRID = [
    {"noises": ["sym40"], "partitions": ["openset-uniform", "iid"], "methods": list(METHODS)},
    {"noises": ["random40"], "partitions": ["iid"], "methods": ["fedavg"]},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_study(path, grid=GRID, rounds=3)
    return path


def drawn(root: Path, **spec: Any) -> style.Drawn:
    with style.styled():
        return figures.draw(listed_runs(root / "runs.json"), spec)


def test_confusion_is_the_mean_of_the_seeds_shares(root: Path) -> None:
    made = drawn(root, kind="confusion", noises=["sym40", "random40"])
    assert set(made.frame["partition"]) == {"openset-uniform"}, "the first setting"
    rows = made.frame[made.frame["method"] == "local"].set_index(["class", "predicted"])["mean"]
    shares = []
    for seed in (0, 1):
        stored = pd.read_csv(root / f"runs/digits/sym40/openset-uniform/local/seed{seed}/confusion.csv")
        counts = stored.filter(like="predicted_").to_numpy()
        shares.append(100 * counts / counts.sum(1, keepdims=True))
    wanted = np.mean(shares, 0)
    assert rows.to_numpy().reshape(10, 10) == pytest.approx(wanted)
    titles = [axis.get_title("left").strip() for axis in made.figure.axes]
    axis = made.figure.axes[titles.index("Local only §")]
    numbers = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in axis.texts}
    often = [(i, j) for i, j in np.argwhere(wanted >= 10)]
    assert numbers == {(i, j): f"{wanted[i, j]:.0f}" for i, j in often}
    i, j = max(((i, j) for i, j in often if i != j), key=lambda place: wanted[place])
    assert f"Local only §: class {i} as class {j} ({wanted[i, j]:.0f} %)" in made.alt
    order = list(made.frame.groupby("method", sort=False)["n"].first().index)
    means = tables.build(listed_runs(root / "runs.json"), {"kind": "accuracy", "metric": "last10_mean"})
    means = means[(means["partition"] == "openset-uniform") & (means["noise"] == "sym40")].set_index("method")
    assert list(means.loc[order, "last10_mean_mean"]) == sorted(means.loc[order, "last10_mean_mean"], reverse=True)


def test_confusion_leaves_out_what_has_no_room_but_the_baseline(root: Path) -> None:
    made = drawn(root, kind="confusion", noises=["sym40"], partitions=["iid"], width="column")
    assert "Left out: 1 of 9 methods" in made.caption
    assert "fedavg" in set(made.frame["method"])
    assert _first(["a", "b", "c", "base"], 2, "base") == ["a", "base"]
    assert _first(["a", "base", "c"], 2, "base") == ["a", "base"]


@pytest.mark.parametrize(("classes", "width"), [(2, "page"), (20, "column"), (100, "page"), (100, "column")])
def test_confusion_of_few_and_many_classes(tmp_path: Path, classes: int, width: str) -> None:
    write_study(tmp_path, grid=[{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg", "sce"]}], rounds=2)
    for path in tmp_path.glob("runs/*/*/*/*/*/confusion.csv"):
        path.write_text(confusion(0.6, classes, np.random.default_rng(0), images=10))
    with style.styled():
        made = figures.draw(listed_runs(tmp_path / "runs.json"), {"kind": "confusion", "width": width})
        assert problems(made.figure) == []
    assert len(made.frame) == 2 * classes**2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("predicted_3", "predicted_x", "damaged: 10 rows under the columns"),
        ("\n3,", "\n4,", "the classes are not in order"),
        (",class 3,", ",class 3,-", "damaged"),
        (",class 3,", ",class 3,1.5", "damaged"),
        (",class 3,", ",class 3,7,", "damaged"),
    ],
)
def test_a_damaged_confusion_matrix_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = confusion(0.6, 10, np.random.default_rng(0))
    (tmp_path / "confusion.csv").write_text(text.replace(old, new))
    with pytest.raises(ArtifactError, match=rf"confusion\.csv: .*{said}"):
        read_confusion(tmp_path / "confusion.csv")
    (tmp_path / "confusion.csv").write_text(text.splitlines()[0] + "\n")  # a run that diverged
    assert read_confusion(tmp_path / "confusion.csv").counts is None
    with pytest.raises(ArtifactError, match="no such file"):
        read_confusion(tmp_path / "other.csv")
