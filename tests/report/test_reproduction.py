"""A paper's numbers beside ours: verdicts, ranks and claims on made-up numbers, and what the shown table says."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_runs import write_study
from scipy import stats

from fednoise_core.io import ArtifactError
from workflow_scripts.report.runs.csv_files import read_csv, write_csv
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import claims, intervals, latex, markdown, registry
from workflow_scripts.report.tables.scorecard import column_ranks, compare_numbers

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


def frame(**columns: dict[str, Any]) -> pd.DataFrame:
    """A reproduction frame of columns "noise" → method → our value, or one a seed; the paper's mean is one more."""
    rows = []
    for noise, means in columns.items():
        for method, given in means.items():
            values = dict(enumerate(given)) if isinstance(given, list) else {0: given}
            finite = {seed: value for seed, value in values.items() if not math.isnan(value)}
            row = {"dataset": "d", "noise": noise, "partition": "p", "member": "", "ceiling": 0, "method": method}
            row |= {"metric": "last", "collapsed": "", "ours_mean": sum(values.values()) / len(values)}
            row |= {"ours_by_seed": claims.format_by_seed(finite)}
            row |= {"ours_peak_by_seed": claims.format_by_seed({seed: v + 9 for seed, v in finite.items()})}
            row |= {"ours_swing_by_seed": claims.format_by_seed(dict.fromkeys(finite, 0.0))}
            row |= {"runs_by_seed": " ".join(f"{seed}={noise}-{method}" for seed in finite)}
            rows.append(row)
    return pd.DataFrame(rows).assign(paper_mean=lambda table: table["ours_mean"] + 1, paper="printed")


# a column that tells how far runs spread
STEADY = {name: [1.0, 2.0, 3.0, 4.0] for name in "stuv"}


def judge(made: pd.DataFrame, claim: dict[str, Any], **spec: Any) -> list[claims.Claim]:
    """The claim, judged on the frame for every reading."""
    full = {"id": "x", "says": "x", "place": "here", **claim}
    return claims.judge_claims({"t": made}, {"t": {"claims": [full], **spec}})


@pytest.mark.parametrize(
    ("claim", "said"),
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
        ({"costs": ["a", "b"], "points": 0, "noises": ["low"]}, "agrees"),  # to be ahead costs nothing
        ({"leads": ["a", "b"], "at_most": 20, "noises": ["low"]}, "agrees"),
        ({"leads": ["a", "nobody"], "at_most": 1}, "not run"),
        ({"widens": ["b", "a"], "along": ["low", "high"]}, "agrees"),  # −10, then +5
        ({"declines": ["a"]}, "agrees"),
        ({"unjudged": "no run can"}, "not run"),
    ],
)
def test_claims(claim: dict[str, Any], said: str) -> None:
    made = frame(
        low={"a": 90.0, "b": 80.0, "c": 70.0, "near": 89.5}, high={"a": 50.0, "b": 55.0, "c": 20.0}, steady=STEADY
    )
    columns = {} if {"noises", "unjudged", "along"} & set(claim) else {"noises": ["low", "high"]}
    if claim == {"best": "a"}:
        columns = {"noises": ["high"]}
    (one,) = judge(made, {**claim, **columns})
    assert one.state == said


def test_a_claim_that_our_numbers_contradict_disagrees_unless_the_papers_do_so_too() -> None:
    made = frame(low={"a": 80.0, "b": 90.0}, high={"a": 80.0, "b": 90.0}, steady=STEADY)
    made.loc[(made["method"] == "a") & (made["noise"] == "low"), "paper_mean"] = 95.0  # the paper has a above b
    (one,) = judge(made, {"above": ["a", "b"], "noises": ["low", "high"]})
    assert one.ours == {"low": "disagrees", "high": "void"}
    assert one.state == "disagrees"
    assert one.theirs == {"low": True, "high": False}
    assert judge(made, {"above": ["a", "b"], "noises": ["high"]})[0].state == "void"


def test_a_method_at_chance_makes_void_what_it_could_decide() -> None:
    made = frame(low={"a": 90.0, "b": 80.0, "c": 10.0}, high={"a": 90.0, "b": 89.5, "c": 10.0}, steady=STEADY)
    made.loc[made["method"] == "c", "collapsed"] = "0"
    (one,) = judge(made, {"best": "a", "among": ["b", "c"], "noises": ["low", "high"]})
    assert one.ours == {"low": "void", "high": "undecided"}  # without c it would agree in one, and not in the other
    assert one.reasons == ["c fell to chance"]
    assert judge(made, {"above": ["a", "c"], "noises": ["low"]})[0].state == "void"


def test_generally_means_in_most_columns() -> None:
    made = frame(**{name: {"a": 90.0, "b": 80.0} for name in "xyz"}, w={"a": 80.0, "b": 90.0}, steady=STEADY)
    made.loc[(made["noise"] == "w") & (made["method"] == "a"), "paper_mean"] = 99.0
    claim = {"above": ["a", "b"], "noises": list("xyzw")}
    assert judge(made, claim)[0].state == "disagrees"
    assert judge(made, {**claim, "columns": "most"})[0].state == "agrees"


def test_one_seed_everywhere_decides_nothing() -> None:
    (one,) = judge(frame(low={"a": 90.0, "b": 10.5}), {"above": ["a", "b"]})
    assert one.state == "undecided"
    assert one.comparisons["d · low · p"][0].interval == (-math.inf, math.inf)


def test_the_interval_is_students_with_bonferroni() -> None:
    made = frame(low={"a": [90.0, 92.0], "b": [80.0, 81.0]}, high={"a": [50.0, 51.0], "b": [40.0, 40.0]})
    (one,) = judge(made, {"above": ["a", "b"]})
    pooled = ((1 / 4 + 1 / 4) * 1 + (1 / 4 + 1 / 4) * 1) / 2 / 2  # rest of each of four cells is ±1/4 in both columns
    assert one.comparisons["low"][0].differences == (10.0, 11.0)
    low, high = one.comparisons["low"][0].interval
    variance = max(2 * pooled, 0.5) + 2 * 0.5
    half = stats.t.ppf(1 - 0.05 / 2 / 2, 2) * math.sqrt(variance / 2)
    assert (low, high) == (pytest.approx(10.5 - half), pytest.approx(10.5 + half))
    made["ours_swing_by_seed"] = "0=3.0 1=3.0"
    low, high = judge(made, {"above": ["a", "b"]})[0].comparisons["low"][0].interval
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
    made = frame(low={"a": 90.0, "b": 80.0, "as-printed": 30.0}, steady=STEADY)
    readings = {"printed": {"a": "as-printed"}, "of another method": {"s": "t"}}
    chosen, printed = judge(made, {"above": ["a", "b"], "noises": ["low"]}, readings=readings)
    assert (chosen.reading, chosen.state) == ("", "agrees")
    assert (printed.reading, printed.state) == ("printed", "disagrees")
    assert printed.theirs == chosen.theirs  # the paper's number is that of the method
    (narrow,) = judge(made, {"above": ["a", "b"], "noises": ["low"]}, void="the width decides")
    assert (narrow.state, narrow.reasons) == ("void", ["the width decides"])


def test_a_claim_is_judged_by_the_columns_that_were_run() -> None:
    some = frame(low={"a": 90.0, "b": 80.0}, high={"a": NAN, "b": 55.0}, steady=STEADY)
    (one,) = judge(some, {"above": ["a", "b"], "noises": ["low", "high"]})
    assert (one.state, one.counted) == ("agrees", "1 agrees, 1 not run")
    assert one.ours == {"low": "agrees", "high": "not run"}


@pytest.mark.parametrize(("state", "words"), [("absent", "not in the paper"), ("unreadable", "unreadable")])
def test_a_number_that_the_paper_lacks_is_not_one_that_nobody_can_read(state: str, words: str) -> None:
    made = frame(low={"a": 90.0, "b": 80.0}, high={"a": 60.0, "b": 55.0})
    made.loc[(made["noise"] == "high") & (made["method"] == "a"), ["paper_mean", "paper"]] = [NAN, state]
    rows = claims.list_comparisons(judge(made, {"above": ["a", "b"]}))
    assert list(rows["theirs"]) == ["agrees", words]


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
    claim = {"id": "sce", "says": "x", "place": "y", "above": ["sce", "fedavg"], "datasets": ["big"]}
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

    both = made()[0]
    sce, fedavg = by_seed(both, "sce"), by_seed(both, "fedavg")
    leads = {seed: sce[seed] - fedavg[seed] for seed in ("0", "1")}
    assert cell(both, "big", "iid", "sce")["ours_mean"] == pytest.approx(sum(sce.values()) / 2, abs=1e-3)
    assert cell(both, "big", "iid", "sce")["ours_gain"] == pytest.approx(sum(leads.values()) / 2, abs=1e-3)
    for gone, left in ((0, "1"), (1, "0")):
        table = made(without=("sce", gone))[0]
        mine = cell(table, "big", "iid", "sce")
        assert by_seed(table, "sce") == {left: sce[left]}
        unpaired = mine["ours_mean"] - cell(table, "big", "iid", "fedavg")["ours_mean"]
        assert mine["ours_gain"] == pytest.approx(leads[left], abs=1e-3)
        assert abs(mine["ours_gain"] - unpaired) > 0.1


def test_a_lead_is_over_shared_seeds_or_the_difference_of_the_means() -> None:
    def lead(first: tuple[float, str], second: tuple[float, str]) -> float:
        keys = ("ours_mean", "ours_by_seed")
        return claims.measure_lead(*(dict(zip(keys, row, strict=True)) for row in (first, second)))

    one = (45.0, "0=50 1=40")
    assert lead(one, (49.0, "0=49")) == 1
    assert lead(one, (44.0, "2=44")) == lead(one, (44.0, "")) == 1
    assert math.isnan(lead((NAN, "0=50 1=nan"), (49.0, "0=49")))
    tie = (75.1123, "0=78.7720 1=71.4526"), (75.1123, "0=75.4644 1=74.7602")  # sums of whose differences are not 0
    assert lead(*tie) == 0


def test_a_lead_widens_over_the_seeds_that_all_have() -> None:
    made = frame(low={"a": [60.0, 40.0], "b": 50.0}, high={"a": [50.0, 30.0], "b": [48.0, 56.0]}, steady=STEADY)
    (one,) = judge(made, {"widens": ["a", "b"], "along": ["low", "high"]})
    assert one.comparisons["high"][0].differences == (2 - 10,)  # seed 0


def test_the_csv_has_gains_and_ranks(made: Any) -> None:
    table, _ = made(scale="cpu")
    one, base = cell(table, "big", "iid", "sce"), cell(table, "big", "iid", "fedavg")
    assert one["ours_gain"] == pytest.approx(one["ours_mean"] - base["ours_mean"], abs=1e-3)
    assert math.isnan(base["ours_gain"])
    assert math.isnan(one["paper_gain"])  # unreadable
    assert (base["ours_rank"], base["paper_rank"]) == (1, 1)  # the only one in the column that both have
    assert math.isnan(one["ours_rank"])
    assert one["runs_by_seed"].startswith("0=")
    assert len(one["runs_by_seed"].split()) == len(one["ours_peak_by_seed"].split()) == one["seeds"]
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
