"""A paper's numbers beside ours: verdicts, ranks and claims on made-up numbers, and what the shown table says."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_runs import write_study

from fednoise_core.io import ArtifactError
from workflow_scripts.report.runs.csv_files import read_csv, write_csv
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import claims, latex, markdown, registry
from workflow_scripts.report.tables.scorecard import column_ranks
from workflow_scripts.report.tables.verdicts import compare_numbers

NAN = math.nan
GRID = [{"noises": ["sym40"], "partitions": ["iid", "openset-uniform"], "methods": ["fedavg", "sce", "fedmd"]}]
HEAD = "table,dataset,noise,partition,method,member,mean,std,note\n"


@pytest.mark.parametrize(
    ("ours", "paper", "said"),
    [
        ((80.0, 3.0), (89.9, 4.0), "within 2 σ"),  # σ is 5
        ((80.0, 3.0), (90.1, 4.0), "apart"),
        ((80.0, 0.1), (81.0, 0.1), "within 2 points"),
        ((80.0, 0.1), (82.0, 0.1), "within 2 points"),
        ((80.0, NAN), (82.1, 9.0), "apart"),  # one seed: no σ, however wide the paper's spread
        ((80.0, 9.0), (82.1, NAN), "apart"),
        ((80.0, NAN), (79.0, NAN), "within 2 points"),
    ],
)
def test_verdicts(ours: tuple[float, float], paper: tuple[float, float], said: str) -> None:
    assert compare_numbers(ours, paper) == said


def test_ranks_need_three_methods_that_differ() -> None:
    for ours, paper, both, rho in (
        ([1, 2, 3], [10, 20, 90], 3, 1),
        ([1, 2, 3, NAN], [3, 2, 1, 9], 3, -1),
        ([1, 3, 2, 4], [1, 2, 3, 4], 4, 1 - 6 * 2 / (4 * 15)),  # 1 − 6 Σd² / (n (n² − 1))
        ([1, 2], [1, 2], 2, NAN),
        ([1, 2, NAN], [1, 2, 3], 2, NAN),
        ([5, 5, 5], [1, 2, 3], 3, NAN),
    ):
        made = frame(low={f"m{place}": mean for place, mean in enumerate(ours)}).assign(paper_mean=paper)
        assert column_ranks(made) == {("d", "low", "p", ""): (pytest.approx(rho, nan_ok=True), both)}


def frame(**columns: dict[str, float]) -> pd.DataFrame:
    """A reproduction frame of columns "noise" → method → our mean; the paper's is one more."""
    rows = [
        {
            "dataset": "d",
            "noise": noise,
            "partition": "p",
            "member": "",
            "ceiling": 0,
            "method": method,
            "ours_mean": mean,
            "ours_by_seed": "",
        }
        for noise, means in columns.items()
        for method, mean in means.items()
    ]
    return pd.DataFrame(rows).assign(paper_mean=lambda table: table["ours_mean"] + 1)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"best": "a"}, "mixed"),
        ({"best": "a", "noises": ["low"]}, "agrees"),
        ({"best": "b", "noises": ["high"]}, "agrees"),
        ({"best": "a", "among": ["c"]}, "agrees"),
        ({"best": "c"}, "disagrees"),
        ({"above": ["a", "c"]}, "agrees"),
        ({"above": ["a", "b", "c"], "noises": ["low"]}, "agrees"),
        ({"above": ["a", "c"], "points": 21}, "mixed"),
        ({"above": ["a", "nobody"]}, "not run"),
        ({"within": ["a", "b"], "points": 5}, "mixed"),
        ({"within": ["a", "b"], "points": 10}, "agrees"),
        ({"costs": ["b", "a"], "points": 10, "noises": ["low"]}, "agrees"),  # behind by the limit
        ({"costs": ["b", "a"], "points": 9, "noises": ["low"]}, "disagrees"),
        ({"costs": ["a", "b"], "points": 5}, "agrees"),  # ahead by 10, behind by 5: to be ahead costs nothing
        ({"costs": ["a", "b"]}, "mixed"),  # not worse
        ({"costs": ["c", "same"], "noises": ["low"]}, "agrees"),  # equal is not worse,
        ({"above": ["c", "same"], "noises": ["low"]}, "disagrees"),  # and not above
        ({"leads": ["a", "b"], "at_most": 10, "noises": ["low"]}, "agrees"),
        ({"leads": ["a", "b"], "at_most": 9, "noises": ["low"]}, "disagrees"),
        ({"leads": ["b", "a"], "at_most": 20, "noises": ["low"]}, "disagrees"),  # behind is no small lead,
        ({"leads": ["c", "same"], "at_most": 1, "noises": ["low"]}, "disagrees"),  # nor is equal
        ({"leads": ["a", "nobody"], "at_most": 1}, "not run"),
        ({"widens": ["b", "a"], "along": ["low", "high"]}, "agrees"),  # −10, then +5
        ({"widens": ["b", "a"], "along": ["high", "low"]}, "disagrees"),
    ],
)
def test_claims(claim: dict[str, Any], said: str) -> None:
    made = frame(low={"a": 90, "b": 80, "c": 70, "same": 70}, high={"a": 50, "b": 55, "c": 20})
    for whose in ("ours", "paper"):
        assert claims.combine_verdicts(claims.judge_columns(made, claim, whose).values()) == said


def test_a_claim_is_judged_by_the_columns_that_were_run() -> None:
    some = frame(low={"a": 90, "b": 80}, high={"a": NAN, "b": 55}, other={"a": 40, "b": 50})
    some["paper"] = "printed"
    one = claims.judge_claim(some, {"id": "lead", "says": "a leads", "above": ["a", "b"]})
    assert (one.state, one.counted, one.against) == ("mixed", "1 of 2 columns run, of 3", ["other"])
    assert one.ours == {"low": True, "high": None, "other": False}
    none = claims.judge_claim(some, {"says": "a leads", "above": ["a", "b"], "noises": ["high"]})
    assert (none.state, none.counted, none.against) == ("not run", "0 of 1 column", [])
    widens = claims.judge_claim(some, {"says": "a falls", "widens": ["a", "b"], "along": ["low", "high"]})
    assert (widens.state, widens.ours) == ("not run", {"d · p": None})


@pytest.mark.parametrize(("state", "words"), [("absent", "not in the paper"), ("unreadable", "unreadable")])
def test_a_number_that_the_paper_lacks_is_not_one_that_nobody_can_read(state: str, words: str) -> None:
    made = frame(low={"a": 90, "b": 80}, high={"a": NAN, "b": 55})
    made["paper"] = ["printed", "printed", state, "printed"]

    def said(**claim: Any) -> str:
        return claims.judge_claim(made, {"says": "x", **claim}).in_paper

    assert said(above=["a", "b"]) == f"1 of 1 column, 1 {words}"
    assert said(above=["a", "b"], noises=["high"]) == words
    assert said(above=["b", "a"]) == f"0 of 1 column, 1 {words}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_study(path, grid=GRID, rounds=12, seeds=(0, 1))
    return path


@pytest.fixture
def made(root: Path, tmp_path: Path) -> Any:
    """Build and show the table of the fake runs as data set `big`, which digits stand in for."""
    path = tmp_path / "printed.csv"
    path.write_text(
        HEAD + "2,big,sym40,iid,fedavg,,50,1.0,\n2,big,sym40,iid,sce,,,,unreadable\n2,big,sym40,iid,lc,,70,,\n"
        "2,gone,sym40,iid,fedavg,,60,,\n2,big,sym40,iid,,,77,1,head lost\n3,big,sym40,iid,fedavg,,1,,\n"
        "2,big,sym40,iid,fedmd,1,40,,\n"
    )
    cells = [["big", "sym40", part, one] for part in ("iid", "openset-uniform") for one in ("fedavg", "sce", "fedmd")]
    base = {
        "kind": "reproduction",
        "reference": {"file": str(path), "table": 2},
        "scale": "paper",
        "cells": [*cells, ["gone", "sym40", "iid", "fedavg"]],
        "labels": {"fedavg": "FedAvg", "sce": "SCE", "fedmd": "FedMD"},
        "dataset_substitutes": {"big": "digits"},
        "absent": ["gone"],
        "parts": {"noise": {"sym40": {"kind": "symmetric", "rate": 0.4}}},
    }

    def build(without: tuple[str, int] | None = None, **spec: Any) -> tuple[pd.DataFrame, Any]:
        full = {**base, **spec}
        runs = [one for one in listed_runs(root / "runs.json") if (one.method, one.seed) != without]
        write_csv(tmp_path / "t.csv", registry.build_table(runs, full))
        table = read_csv(tmp_path / "t.csv")
        return table, registry.lay_out_table(table, full)

    return build


def cell(table: pd.DataFrame, *key: str) -> pd.Series:
    wanted = dict(zip(("dataset", "partition", "method", "member"), (*key, ""), strict=False))
    return table[(table[list(wanted)] == list(wanted.values())).all(axis=1)].iloc[0]


def test_every_cell_says_why_it_has_no_verdict(made: Any) -> None:
    table, shown = made()
    one = cell(table, "big", "iid", "fedavg")
    assert one["difference"] == pytest.approx(one["ours_mean"] - 50, abs=1e-3)
    assert (one["seeds"], one["verdict"]) == (2, "apart")
    assert cell(table, "big", "iid", "sce")["verdict"] == "paper unreadable"
    assert cell(table, "big", "openset-uniform", "sce")["verdict"] == "not in paper"
    assert cell(table, "big", "iid", "lc")["verdict"] == "not run"
    assert cell(table, "gone", "iid", "fedavg")["verdict"] == "not run (data absent)"
    assert all(one.text for row in shown.rows for one in row.cells)  # no blank that looks like a result
    text = markdown.render_markdown(shown)
    assert "1 apart, 1 paper unreadable" in text
    assert latex.render_latex(shown, "t")


def test_at_another_scale_there_is_neither_difference_nor_verdict(made: Any) -> None:
    claim = {"id": "sce", "says": "x", "above": ["sce", "fedavg"], "datasets": ["big"]}
    table, shown = made(scale="cpu", claims=[claim])
    ran = table[table["seeds"] > 0]
    assert set(ran["verdict"]) == {"run"}
    assert table["difference"].isna().all()
    assert "Scale: cpu." in shown.caption
    assert "verdict" not in [row.stub for row in shown.rows]
    assert "within 2 points" not in markdown.render_markdown(shown)


def test_methods_are_compared_over_the_seeds_that_both_have(made: Any) -> None:
    def by_seed(table: pd.DataFrame, method: str) -> dict[str, float]:
        told = cell(table, "big", "iid", method)["ours_by_seed"]
        return {seed: float(value) for seed, _, value in (word.partition("=") for word in told.split())}

    limit = {"id": "limit", "says": "x", "leads": ["sce", "fedavg"], "partitions": ["iid"], "datasets": ["big"]}
    both = made()[0]
    sce, fedavg = by_seed(both, "sce"), by_seed(both, "fedavg")
    leads = {seed: sce[seed] - fedavg[seed] for seed in ("0", "1")}
    assert cell(both, "big", "iid", "sce")["ours_mean"] == pytest.approx(sum(sce.values()) / 2, abs=1e-3)
    assert cell(both, "big", "iid", "sce")["ours_gain"] == pytest.approx(sum(leads.values()) / 2, abs=1e-3)
    for gone, left in ((0, "1"), (1, "0")):
        table = made(without=("sce", gone), claims=[{**limit, "at_most": leads[left] + 0.01}])[0]
        mine = cell(table, "big", "iid", "sce")
        assert by_seed(table, "sce") == {left: sce[left]}
        unpaired = mine["ours_mean"] - cell(table, "big", "iid", "fedavg")["ours_mean"]
        assert mine["ours_gain"] == pytest.approx(leads[left], abs=1e-3)
        assert abs(mine["ours_gain"] - unpaired) > 0.1
        assert mine["disagrees"] == ""


def test_a_lead_is_over_shared_seeds_or_the_difference_of_the_means() -> None:
    def lead(first: tuple[float, str], second: tuple[float, str]) -> float:
        return claims.measure_lead(claims.SeedValues(*first), claims.SeedValues(*second))

    one = (45.0, "0=50 1=40")
    assert lead(one, (49.0, "0=49")) == 1
    assert lead(one, (44.0, "2=44")) == lead(one, (44.0, "")) == 1
    assert math.isnan(lead((NAN, "0=50 1=nan"), (49.0, "0=49")))
    tie = (75.1123, "0=78.7720 1=71.4526"), (75.1123, "0=75.4644 1=74.7602")  # sums of whose differences are not 0
    assert lead(*tie) == 0


def test_a_lead_widens_over_the_seeds_that_all_have_and_the_papers_by_its_means() -> None:
    made = frame(low={"a": 50, "b": 50}, high={"a": 40, "b": 52})
    made["ours_by_seed"] = ["0=60 1=40", "0=50", "0=50 1=30", "0=48 1=56"]
    claim = {"widens": ["a", "b"], "along": ["low", "high"]}
    assert claims.judge_columns(made, claim) == {("d", "", "p", ""): False}  # seed 0: from 10 to 2
    assert claims.judge_columns(made, {**claim, "along": ["high", "low"]}) == {("d", "", "p", ""): True}
    above = {"above": ["b", "a"], "noises": ["high"]}
    assert claims.judge_columns(made, above)["d", "high", "p", ""]  # 52 and 40 on average
    made["paper_mean"] = [1, 2, 4, 3]
    assert not claims.judge_columns(made, above, "paper")["d", "high", "p", ""]
    assert claims.judge_columns(made, claim, "paper") == {("d", "", "p", ""): True}


def test_the_csv_has_gains_ranks_and_the_claims_that_disagree(made: Any) -> None:
    claims_of = [
        {"id": "falls", "says": "x", "above": ["fedavg", "sce"]},
        {"id": "leads", "says": "y", "above": ["sce", "fedavg"]},
    ]
    table, _ = made(scale="cpu", claims=claims_of)
    one, base = cell(table, "big", "iid", "sce"), cell(table, "big", "iid", "fedavg")
    assert one["ours_gain"] == pytest.approx(one["ours_mean"] - base["ours_mean"], abs=1e-3)
    assert math.isnan(base["ours_gain"])
    assert math.isnan(one["paper_gain"])  # unreadable
    assert (base["ours_rank"], base["paper_rank"]) == (1, 1)  # the only one in the column that both have
    assert math.isnan(one["ours_rank"])
    assert one["disagrees"] == base["disagrees"] == "falls"
    assert cell(table, "gone", "iid", "fedavg")["disagrees"] == ""
    other, _ = made(baseline="sce")
    assert cell(other, "big", "iid", "fedavg")["ours_gain"] == pytest.approx(-one["ours_gain"], abs=1e-3)


def test_clients_have_columns_of_their_own(made: Any) -> None:
    table, shown = made(clients=2, metric="last")
    first, second = (cell(table, "big", "iid", "fedmd", one)["ours_mean"] for one in "01")
    assert second - first == pytest.approx(1, abs=1e-3)  # as the fake runs have it
    assert cell(table, "big", "iid", "fedmd", "1")["difference"] == pytest.approx(second - 40, abs=1e-3)
    assert [text for text, _ in shown.levels[-1]][:3] == ["mean", "client 0", "client 1"]


def test_without_any_run_all_cells_are_not_run(made: Any, tmp_path: Path) -> None:
    made()
    spec = {"kind": "reproduction", "reference": {"file": str(tmp_path / "printed.csv"), "table": 2}, "cells": []}
    empty = registry.build_table([], spec)
    assert set(empty["verdict"]) == {"not run"}
    assert markdown.render_markdown(registry.lay_out_table(empty, spec))
    (tmp_path / "bad.csv").write_text(HEAD + "2,d,n,p,m,,many,,\n")
    with pytest.raises(ArtifactError, match=r"bad\.csv: d / n / p / m: could not convert"):
        registry.build_table([], {**spec, "reference": {"file": str(tmp_path / "bad.csv")}})


def test_setup_shows_ours_where_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "setup.csv"
    path.write_text("parameter,key,mnist\nrounds,train.rounds,100\nmodel,train.net,9-layer CNN\nbatch,train.batch,64\n")
    spec = {
        "kind": "setup",
        "file": str(path),
        "ours": [{"mnist": 100}, {}, {"mnist": 32}],
        "heads": {"mnist": "MNIST"},
    }
    shown = registry.lay_out_table(registry.build_table([], spec), spec)
    assert [row.cells[0].text for row in shown.rows] == ["100", "9-layer CNN", "64 (ours 32)"]
    assert shown.notes == ["2 of 3 cells are settings of this study, and were compared."]
