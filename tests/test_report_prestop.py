"""Figure 2 of paper 002: what the rule watched, where it stopped (T_e), and how well the noise was known."""

from __future__ import annotations

from pathlib import Path

from report.fake_runs import STOPPED, write_study

from fednoise_core.report import figures
from fednoise_core.report.runs import listed_runs
from fednoise_core.report.style import styled


def test_the_end_of_the_first_phase_is_marked_in_both_panels_and_told_in_the_legend(tmp_path: Path) -> None:
    grid = [{"noises": ["sym40"], "partitions": ["iid"], "methods": list(STOPPED)}]
    write_study(tmp_path, grid=grid, rounds=12)
    with styled():
        made = figures.draw(listed_runs(tmp_path / "runs.json"), {"kind": "prestop"})
    left, right = made.figure.axes[:2]
    for axis in (left, right):
        assert [6, 6] in [list(line.get_xdata()) for line in axis.get_lines()]
        assert all(float(tick).is_integer() for tick in axis.get_xticks())
    told = [text.get_text() for legend in made.figure.legends for text in legend.get_texts()]
    assert told == ["test accuracy", "watched accuracy", "end of the first phase, T_e"]
    assert right.get_ylabel() == "cosine similarity"
    assert set(made.frame["metric"]) == {"test accuracy", "watched accuracy", "cosine similarity"}
