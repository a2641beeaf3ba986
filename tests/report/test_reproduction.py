"""A paper's numbers beside ours: verdicts, ranks, claims and tables of made-up numbers."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_runs import write_study
from scipy import stats

from fednoise_core.io import ArtifactError
from workflow_scripts.report.runs.csv_files import write_csv
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import claims, intervals, latex, markdown, registry
from workflow_scripts.report.tables.scorecard import column_ranks, compare_numbers

NAN = math.nan
GRID = [{"noises": ["sym40"], "partitions": ["iid", "openset-uniform"], "methods": ["fedavg", "sce", "fedmd"]}]
HEAD = "table,dataset,noise,partition,method,member,mean,std,note\n"


@pytest.mark.parametrize(
    ("ours", "paper", "verdict"),
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
def test_verdicts(ours: tuple[float, float], paper: tuple[float, float], verdict: str) -> None:
    assert compare_numbers(ours, paper) == verdict


def test_ranks_need_three_methods_that_differ() -> None:
    for ours, paper, count, rho in (
        ([1, 2, 3], [10, 20, 90], 3, 1),
        ([1, 2, 3, NAN], [3, 2, 1, 9], 3, -1),
        ([1, 3, 2, 4], [1, 2, 3, 4], 4, 1 - 6 * 2 / (4 * 15)),  # 1 − 6 Σd² / (n (n² − 1))
        ([1, 2], [1, 2], 2, NAN),
        ([1, 2, NAN], [1, 2, 3], 2, NAN),
        ([5, 5, 5], [1, 2, 3], 3, NAN),
    ):
        table = frame(low={f"m{place}": mean for place, mean in enumerate(ours)}).assign(paper_mean=paper)
        assert column_ranks(table) == {("d", "low", "p", ""): (pytest.approx(rho, nan_ok=True), count)}


def frame(**columns: dict[str, Any]) -> pd.DataFrame:
    """A reproduction frame of columns "noise" → method → our value, or one a seed; the paper's mean is one more."""
    rows = []
    for noise, means in columns.items():
        for method, numbers in means.items():
            values = dict(enumerate(numbers)) if isinstance(numbers, list) else {0: numbers}
            finite = {seed: value for seed, value in values.items() if not math.isnan(value)}
            row = {"dataset": "d", "noise": noise, "partition": "p", "member": "", "ceiling": 0, "method": method}
            row |= {"metric": "last", "collapsed": "", "ours_mean": sum(values.values()) / len(values)}
            row |= {"ours_by_seed": claims.format_by_seed(finite)}
            row |= {"ours_peak_by_seed": claims.format_by_seed({seed: v + 9 for seed, v in finite.items()})}
            row |= {"ours_swing_by_seed": claims.format_by_seed(dict.fromkeys(finite, 0.0))}
            row |= {"runs_by_seed": " ".join(f"{seed}={noise}-{method}" for seed in finite)}
            rows.append(row)
    return pd.DataFrame(rows).assign(paper_mean=lambda table: table["ours_mean"] + 1, paper="printed")


# a column that shows how far runs spread
STEADY = {name: [1.0, 2.0, 3.0, 4.0] for name in "stuv"}


def judge(table: pd.DataFrame, claim: dict[str, Any], **spec: Any) -> list[claims.Claim]:
    """The claim, judged on the frame for every reading."""
    full = {"id": "x", "says": "x", "place": "here", **claim}
    return claims.judge_claims({"t": table}, {"t": {"claims": [full], **spec}})


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ({"best": "a"}, "void"),  # b is best in the other column, in the paper, too
        ({"best": "a", "noises": ["low"], "among": ["b", "c"]}, "agrees"),
        ({"above": ["a", "b", "c"], "noises": ["low"]}, "agrees"),
        ({"above": ["a", "c"]}, "agrees"),
        ({"above": ["a", "nobody"]}, "not run"),
        ({"above": ["a", "near"], "noises": ["low"]}, "undecided"),
        ({"within": ["a", "b"], "points": 20}, "agrees"),
        ({"within": ["a", "b"], "points": 10.5, "noises": ["low"]}, "undecided"),
        ({"costs": ["b", "a"], "points": 15, "noises": ["low"]}, "agrees"),
        ({"costs": ["a", "b"], "points": 0, "noises": ["low"]}, "agrees"),  # a is ahead, so the cost is below 0
        ({"leads": ["a", "b"], "at_most": 20, "noises": ["low"]}, "agrees"),
        ({"leads": ["a", "nobody"], "at_most": 1}, "not run"),
        ({"widens": ["b", "a"], "along": ["low", "high"]}, "agrees"),  # −10, then +5
        ({"declines": ["a"]}, "agrees"),
        ({"unjudged": "no run can"}, "not run"),
    ],
)
def test_claims(claim: dict[str, Any], verdict: str) -> None:
    table = frame(
        low={"a": 90.0, "b": 80.0, "c": 70.0, "near": 89.5}, high={"a": 50.0, "b": 55.0, "c": 20.0}, steady=STEADY
    )
    columns = {} if {"noises", "unjudged", "along"} & set(claim) else {"noises": ["low", "high"]}
    if claim == {"best": "a"}:
        columns = {"noises": ["high"]}
    (judged,) = judge(table, {**claim, **columns})
    assert judged.state == verdict


def test_a_claim_that_our_numbers_contradict_disagrees_unless_the_paper_contradicts_it_too() -> None:
    table = frame(low={"a": 80.0, "b": 90.0}, high={"a": 80.0, "b": 90.0}, steady=STEADY)
    table.loc[(table["method"] == "a") & (table["noise"] == "low"), "paper_mean"] = 95.0  # the paper has a above b
    (judged,) = judge(table, {"above": ["a", "b"], "noises": ["low", "high"]})
    assert judged.ours == {"low": "disagrees", "high": "void"}
    assert judged.state == "disagrees"
    assert judged.theirs == {"low": True, "high": False}
    assert judge(table, {"above": ["a", "b"], "noises": ["high"]})[0].state == "void"


def test_a_method_at_chance_makes_claims_void_that_it_could_decide() -> None:
    table = frame(low={"a": 90.0, "b": 80.0, "c": 10.0}, high={"a": 90.0, "b": 89.5, "c": 10.0}, steady=STEADY)
    table.loc[table["method"] == "c", "collapsed"] = "0"
    (judged,) = judge(table, {"best": "a", "among": ["b", "c"], "noises": ["low", "high"]})
    assert judged.ours == {"low": "void", "high": "undecided"}  # without c it would agree in one, and not in the other
    assert judged.reasons == ["c fell to chance"]
    assert judge(table, {"above": ["a", "c"], "noises": ["low"]})[0].state == "void"


def test_generally_means_in_most_columns() -> None:
    table = frame(**{name: {"a": 90.0, "b": 80.0} for name in "xyz"}, w={"a": 80.0, "b": 90.0}, steady=STEADY)
    table.loc[(table["noise"] == "w") & (table["method"] == "a"), "paper_mean"] = 99.0
    claim = {"above": ["a", "b"], "noises": list("xyzw")}
    assert judge(table, claim)[0].state == "disagrees"
    assert judge(table, {**claim, "columns": "most"})[0].state == "agrees"


def test_one_seed_everywhere_decides_nothing() -> None:
    (judged,) = judge(frame(low={"a": 90.0, "b": 10.5}), {"above": ["a", "b"]})
    assert judged.state == "undecided"
    assert judged.comparisons["d · low · p"][0].interval == (-math.inf, math.inf)


def test_the_interval_is_students_with_bonferroni() -> None:
    table = frame(low={"a": [90.0, 92.0], "b": [80.0, 81.0]}, high={"a": [50.0, 51.0], "b": [40.0, 40.0]})
    (judged,) = judge(table, {"above": ["a", "b"]})
    pooled = ((1 / 4 + 1 / 4) * 1 + (1 / 4 + 1 / 4) * 1) / 2 / 2  # rest of each of four cells is ±1/4 in both columns
    assert judged.comparisons["low"][0].differences == (10.0, 11.0)
    low, high = judged.comparisons["low"][0].interval
    variance = max(2 * pooled, 0.5) + 2 * 0.5
    half = stats.t.ppf(1 - 0.05 / 2 / 2, 2) * math.sqrt(variance / 2)
    assert (low, high) == (pytest.approx(10.5 - half), pytest.approx(10.5 + half))
    table["ours_swing_by_seed"] = "0=3.0 1=3.0"
    low, high = judge(table, {"above": ["a", "b"]})[0].comparisons["low"][0].interval
    assert high - low == pytest.approx(2 * stats.t.ppf(1 - 0.05 / 2 / 2, 2) * math.sqrt((18 + 1) / 2))


def test_swing_peak_and_collapse_are_measured() -> None:
    line = [float(value) for value in range(30)]
    assert intervals.measure_swing(line, "last") == pytest.approx(0)  # a trend is no swing
    zigzag = [50.0, 52.0] * 10
    assert intervals.measure_swing(zigzag, "last") == pytest.approx(math.sqrt(16 / 6))
    assert intervals.measure_swing(zigzag, "last10_mean") == pytest.approx(math.sqrt(16 / 6 / 10))
    assert intervals.measure_swing([*line, *line], "best") == pytest.approx(pd.Series([*range(25, 30)] * 2).std())
    assert intervals.find_peak([0.0, *[10.0] * 10, 5.0]) == 10
    assert intervals.is_collapsed([*[50.0] * 90, *[10.5] * 10], 10)
    assert not intervals.is_collapsed([*[10.0] * 10, *[50.0] * 90], 10)  # every run begins there


def test_a_claim_has_a_verdict_for_each_reading() -> None:
    table = frame(low={"a": 90.0, "b": 80.0, "as-printed": 30.0}, steady=STEADY)
    readings = {"printed": {"a": "as-printed"}, "of another method": {"s": "t"}}
    chosen, printed = judge(table, {"above": ["a", "b"], "noises": ["low"]}, readings=readings)
    assert (chosen.reading, chosen.state) == ("", "agrees")
    assert (printed.reading, printed.state) == ("printed", "disagrees")
    assert printed.theirs == chosen.theirs  # the paper's number is that of the method
    (narrow,) = judge(table, {"above": ["a", "b"], "noises": ["low"]}, void="the width decides")
    assert (narrow.state, narrow.reasons) == ("void", ["the width decides"])


def test_a_claim_is_judged_by_the_columns_that_were_run() -> None:
    table = frame(low={"a": 90.0, "b": 80.0}, high={"a": NAN, "b": 55.0}, steady=STEADY)
    (judged,) = judge(table, {"above": ["a", "b"], "noises": ["low", "high"]})
    assert (judged.state, judged.counted) == ("agrees", "1 agrees, 1 not run")
    assert judged.ours == {"low": "agrees", "high": "not run"}


@pytest.mark.parametrize(("state", "verdict"), [("absent", "not in the paper"), ("unreadable", "unreadable")])
def test_absent_and_unreadable_numbers_of_a_paper_differ(state: str, verdict: str) -> None:
    table = frame(low={"a": 90.0, "b": 80.0}, high={"a": 60.0, "b": 55.0})
    table.loc[(table["noise"] == "high") & (table["method"] == "a"), ["paper_mean", "paper"]] = [NAN, state]
    rows = claims.list_comparisons(judge(table, {"above": ["a", "b"]}))
    assert list(rows["theirs"]) == ["agrees", verdict]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    write_study(path, grid=GRID, rounds=12, seeds=(0, 1))
    return path


@pytest.fixture
def build_table(root: Path, tmp_path: Path) -> Any:
    """Build and show the table of the fake runs as data set `big`, which digits stand in for."""
    path = tmp_path / "printed.csv"
    path.write_text(
        HEAD + "2,big,sym40,iid,fedavg,,50,1.0,\n2,big,sym40,iid,sce,,,,unreadable\n2,big,sym40,iid,lc,,70,,\n"
        "2,gone,sym40,iid,fedavg,,60,,\n2,big,sym40,iid,,,77,1,head lost\n3,big,sym40,iid,fedavg,,1,,\n"
        "2,big,sym40,iid,fedmd,1,40,,\n"
    )
    methods = ("fedavg", "sce", "fedmd")
    cells = [["big", "sym40", part, method] for part in ("iid", "openset-uniform") for method in methods]
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
        runs = [run for run in listed_runs(root / "runs.json") if (run.method, run.seed) != without]
        write_csv(tmp_path / "t.csv", registry.build_table(runs, full))
        table = registry.read_table(tmp_path / "t.csv", full)
        return table, registry.lay_out_table(table, full)

    return build


def cell(table: pd.DataFrame, *key: str) -> pd.Series:
    values = dict(zip(("dataset", "partition", "method", "member"), (*key, ""), strict=False))
    return table[(table[list(values)] == list(values.values())).all(axis=1)].iloc[0]


def test_every_cell_without_a_verdict_gives_the_reason(build_table: Any) -> None:
    table, grid = build_table()
    entry = cell(table, "big", "iid", "fedavg")
    assert entry["difference"] == pytest.approx(entry["ours_mean"] - 50, abs=1e-3)
    assert (entry["seeds"], entry["verdict"]) == (2, "apart")
    assert cell(table, "big", "iid", "sce")["verdict"] == "paper unreadable"
    assert cell(table, "big", "openset-uniform", "sce")["verdict"] == "not in paper"
    assert cell(table, "big", "iid", "lc")["verdict"] == "not run"
    assert cell(table, "gone", "iid", "fedavg")["verdict"] == "not run (data absent)"
    assert all(item.text for row in grid.rows for item in row.cells)  # no blank that looks like a result
    text = markdown.render_markdown(grid)
    assert "1 apart, 1 paper unreadable" in text
    assert latex.render_latex(grid, "t")


def test_at_another_scale_there_is_neither_difference_nor_verdict(build_table: Any) -> None:
    claim = {"id": "sce", "says": "x", "place": "y", "above": ["sce", "fedavg"], "datasets": ["big"]}
    table, grid = build_table(scale="cpu", claims=[claim])
    ran = table[table["seeds"] > 0]
    assert set(ran["verdict"]) == {"run"}
    assert table["difference"].isna().all()
    assert "Scale: cpu." in grid.caption
    assert "verdict" not in [row.stub for row in grid.rows]
    assert "within 2 points" not in markdown.render_markdown(grid)


def test_methods_are_compared_over_the_seeds_that_both_have(build_table: Any) -> None:
    def by_seed(table: pd.DataFrame, method: str) -> dict[str, float]:
        pairs = cell(table, "big", "iid", method)["ours_by_seed"]
        return {seed: float(value) for seed, _, value in (word.partition("=") for word in pairs.split())}

    full = build_table()[0]
    sce, fedavg = by_seed(full, "sce"), by_seed(full, "fedavg")
    leads = {seed: sce[seed] - fedavg[seed] for seed in ("0", "1")}
    assert cell(full, "big", "iid", "sce")["ours_mean"] == pytest.approx(sum(sce.values()) / 2, abs=1e-3)
    assert cell(full, "big", "iid", "sce")["ours_gain"] == pytest.approx(sum(leads.values()) / 2, abs=1e-3)
    for gone, left in ((0, "1"), (1, "0")):
        table = build_table(without=("sce", gone))[0]
        entry = cell(table, "big", "iid", "sce")
        assert by_seed(table, "sce") == {left: sce[left]}
        unpaired = entry["ours_mean"] - cell(table, "big", "iid", "fedavg")["ours_mean"]
        assert entry["ours_gain"] == pytest.approx(leads[left], abs=1e-3)
        assert abs(entry["ours_gain"] - unpaired) > 0.1


def test_a_lead_is_over_shared_seeds_or_the_difference_of_the_means() -> None:
    def lead(first: tuple[float, str], second: tuple[float, str]) -> float:
        keys = ("ours_mean", "ours_by_seed")
        return claims.measure_lead(*(dict(zip(keys, row, strict=True)) for row in (first, second)))

    two_seeds = (45.0, "0=50 1=40")
    assert lead(two_seeds, (49.0, "0=49")) == 1
    assert lead(two_seeds, (44.0, "2=44")) == lead(two_seeds, (44.0, "")) == 1
    assert math.isnan(lead((NAN, "0=50 1=nan"), (49.0, "0=49")))
    tie = (75.1123, "0=78.7720 1=71.4526"), (75.1123, "0=75.4644 1=74.7602")  # the differences do not sum to exactly 0
    assert lead(*tie) == 0


def test_a_lead_widens_over_the_seeds_that_all_have() -> None:
    table = frame(low={"a": [60.0, 40.0], "b": 50.0}, high={"a": [50.0, 30.0], "b": [48.0, 56.0]}, steady=STEADY)
    (judged,) = judge(table, {"widens": ["a", "b"], "along": ["low", "high"]})
    assert judged.comparisons["high"][0].differences == (2 - 10,)  # seed 0


def test_the_csv_has_gains_and_ranks(build_table: Any) -> None:
    table, _ = build_table(scale="cpu")
    sce, fedavg = cell(table, "big", "iid", "sce"), cell(table, "big", "iid", "fedavg")
    assert sce["ours_gain"] == pytest.approx(sce["ours_mean"] - fedavg["ours_mean"], abs=1e-3)
    assert math.isnan(fedavg["ours_gain"])
    assert math.isnan(sce["paper_gain"])  # unreadable
    assert (fedavg["ours_rank"], fedavg["paper_rank"]) == (1, 1)  # the only method in the column that both have
    assert math.isnan(sce["ours_rank"])
    assert sce["runs_by_seed"].startswith("0=")
    assert len(sce["runs_by_seed"].split()) == len(sce["ours_peak_by_seed"].split()) == sce["seeds"]
    against_sce, _ = build_table(baseline="sce")
    assert cell(against_sce, "big", "iid", "fedavg")["ours_gain"] == pytest.approx(-sce["ours_gain"], abs=1e-3)


def test_clients_have_columns_of_their_own(build_table: Any) -> None:
    table, grid = build_table(clients=2, metric="last")
    first, second = (cell(table, "big", "iid", "fedmd", client)["ours_mean"] for client in "01")
    assert second - first == pytest.approx(1, abs=1e-3)  # as the fake runs have it
    assert cell(table, "big", "iid", "fedmd", "1")["difference"] == pytest.approx(second - 40, abs=1e-3)
    assert [text for text, _ in grid.levels[-1]][:3] == ["mean", "client 0", "client 1"]


def test_without_any_run_all_cells_are_not_run(build_table: Any, tmp_path: Path) -> None:
    build_table()
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
    grid = registry.lay_out_table(registry.build_table([], spec), spec)
    assert [row.cells[0].text for row in grid.rows] == ["100", "9-layer CNN", "64 (ours 32)"]
    assert grid.notes == ["2 of 3 cells are settings of this study, and were compared."]
