"""Ranks, gains and places of a leaderboard agree with independent calculations on made-up accuracies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts.report.figures import draw
from workflow_scripts.report.figures.results.ranks import RanksSettings
from workflow_scripts.report.figures.style import assign_looks, use_house_style
from workflow_scripts.report.pages.headline import headline_of
from workflow_scripts.report.runs import leaderboard
from workflow_scripts.report.runs.csv_files import read_csv, write_csv
from workflow_scripts.report.runs.leaderboard import judge_methods
from workflow_scripts.report.runs.run import ListedRun, RecordedRun
from workflow_scripts.report.tables import registry
from workflow_scripts.report.tables.latex import render_latex
from workflow_scripts.report.tables.markdown import render_markdown
from workflow_scripts.report.text.cells import format_interval

LEVELS = {"fedavg": 70.0, "better": 75.0, "same": 70.0, "worse": 60.0}
CLASSES = {"better": "feddf"}


def make_run(
    method: str, noise: str, seed: int, accuracy: float | None, labels: str = "a", **fields: Any
) -> RecordedRun:
    scores = dict.fromkeys(("best", "last", "last10_mean"), None if accuracy is None else accuracy / 100)
    summary = {
        "headline_view": "global",
        "accuracy": {**scores, "round0": 0.1},
        "diverged": accuracy is None,
        "bytes_up": 200 if method == "better" else 100,
        "bytes_down": 100,
        **fields,
    }
    listed = ListedRun("digits", noise, "iid", method, seed, Path(method, noise, str(seed)), label=method.title())
    spec = {
        "noise": {"kind": "symmetric", "rate": 0.4},
        "method": {"name": CLASSES.get(method, "fedavg")},
        "dataset": {},
        "partition": {},
    }
    run = RecordedRun(listed, {"spec": spec, "inputs": {"labels": labels}}, summary | {"method_label": listed.label})
    run.__dict__["cost"] = {"cpu_seconds": 30.0 if method == "better" else 20.0, "seconds": 1.0}  # no file is read
    return run


def make_board(settings: int, spread: float = 1.0, seeds: int = 3, **levels: float) -> list[RecordedRun]:
    """Make runs: setting and seed shift all methods alike, and each run deviates by `spread`."""
    random, runs = np.random.default_rng(0), []
    for number in range(settings):
        for seed in range(seeds):
            shift = random.normal(0, 5)
            for method, level in (levels or LEVELS).items():
                runs.append(make_run(method, f"noise{number}", seed, level + shift + random.normal(0, spread)))
    return runs


def test_gains_and_intervals_are_those_of_paired_t_tests_with_one_variance_a_method_and_a_factor_a_setting() -> None:
    runs = make_board(leaderboard.LEAST)
    frame = judge_methods(runs, "last", "fedavg").set_index(["method", "noise"])
    values = {
        (run.listed.method, run.listed.noise, run.listed.seed): 100 * run.summary["accuracy"]["last"] for run in runs
    }
    row = frame.loc[("better", "noise2")]
    ours, theirs = ([values[method, "noise2", seed] for seed in range(3)] for method in ("better", "fedavg"))
    gaps = np.subtract(ours, theirs)
    noises = sorted({noise for _, noise, _ in values})
    methods = [name for name in LEVELS if name != "fedavg"]
    gains = np.array(
        [
            [[values[name, noise, seed] - values["fedavg", noise, seed] for seed in range(3)] for noise in noises]
            for name in methods
        ]
    )
    variances = gains.var(axis=2, ddof=1)
    medians = np.median(variances, axis=0)
    factor = max(1, medians[noises.index("noise2")] / medians.mean())
    half = stats.t.ppf(0.975, 12) * np.sqrt(variances[methods.index("better")].mean() * factor / 3)
    assert row[["gain", "gain_low", "gain_high"]].tolist() == pytest.approx(
        [gaps.mean(), gaps.mean() - half, gaps.mean() + half]
    )
    assert row["mean_gain"] == pytest.approx(frame.loc["better"]["gain"].mean())
    assert (row["traffic"], row["cpu"]) == (1.5, 1.5)
    assert row["accuracy"] == pytest.approx(np.mean(ours))
    assert frame.loc[("fedavg", "noise0"), "gain"] == 0
    with pytest.raises(SpecError, match="'other' has no run on noisy labels"):
        judge_methods(runs, "last", "other")


def test_the_mean_rank_is_over_blocks_and_its_interval_holds_it() -> None:
    runs = make_board(6)
    frame = judge_methods(runs, "last", "fedavg").drop_duplicates("method").set_index("method")
    blocks: dict[Any, dict[str, float]] = {}
    for run in runs:
        blocks.setdefault((run.listed.noise, run.listed.seed), {})[run.listed.method] = run.summary["accuracy"]["last"]
    ranks = np.mean([stats.rankdata([-block[method] for method in LEVELS]) for block in blocks.values()], axis=0)
    assert frame.loc[list(LEVELS), "rank"].tolist() == pytest.approx(list(ranks))
    assert list(frame.index[:1]) == ["better"]
    assert (frame["rank_low"] <= frame["rank"]).all()
    assert (frame["rank"] <= frame["rank_high"]).all()
    assert frame.loc["same", "rank_high"] > frame.loc["same", "rank_low"]


def test_bootstrap_intervals_cover_the_rank_of_other_seeds() -> None:
    """The mean rank over many other seeds of the same settings lies in most intervals."""
    truth = judge_methods(make_board(8, 4, seeds=40), "last", "fedavg").drop_duplicates("method").set_index("method")
    estimate = judge_methods(make_board(8, 4, seeds=3), "last", "fedavg").drop_duplicates("method").set_index("method")
    covered = estimate["rank_low"].le(truth["rank"]) & truth["rank"].le(estimate["rank_high"])
    assert covered.mean() >= 0.75
    assert (estimate["rank_high"] - estimate["rank_low"]).between(0.05, 1.9).all()


def test_equal_methods_get_no_verdict_in_many_tests() -> None:
    """Twenty methods equal to the baseline in eight settings: of 160 tests 5 % would be wrong without a correction."""
    frame = judge_methods(
        make_board(8, 1.0, **{"fedavg": 70.0, **{f"m{k}": 70.0 for k in range(20)}}), "last", "fedavg"
    )
    tested = frame[frame["method"] != "fedavg"]
    naive = (tested["gain_low"] > 0).sum() + (tested["gain_high"] < 0).sum()
    assert naive >= 4  # intervals by setting that miss 0
    assert (tested["ahead"] != 0).sum() == 0
    assert (frame[["place_low", "place_high", "rank_ahead"]] == [1, 21, 0]).all(axis=None)


def test_a_setting_in_which_gains_vary_more_brings_no_false_verdicts() -> None:
    """40 boards of 30 methods equal to the baseline, with the variances published for Fashion-MNIST."""
    random, false = np.random.default_rng(0), []
    blocks = [(f"m{k}", f"noise{s}", seed) for k in range(30) for s in range(6) for seed in range(3)]
    frame = pd.DataFrame(blocks, columns=["method", "noise", "seed"])
    frame = frame.assign(dataset="digits", partition="iid", diverged=False, last=70.0)
    deviation = np.sqrt([0.88, 0.30, 2.28, 1.62, 0.71, 0.24])[frame["noise"].str[-1].astype(int)]
    for _ in range(40):
        gains = frame.assign(gain=deviation * random.normal(size=len(frame)))
        false.append(leaderboard._judge_by_setting(gains, "last", is_tested=True)["ahead"].any())
    assert np.mean(false) <= 0.1  # 0.4 with one variance in all settings


def test_methods_with_one_seed_do_not_count_as_methods_that_never_vary() -> None:
    blocks = [
        (f"m{k}", f"noise{s}", seed) for k in range(10) for s in range(6) for seed in range(3) if k < 4 or s or not seed
    ]
    frame = pd.DataFrame(blocks, columns=["method", "noise", "seed"])
    frame = frame.assign(dataset="digits", partition="iid", diverged=False, last=70.0)
    gain = np.where(frame["noise"] == "noise0", 3.0, 1.0) * np.random.default_rng(0).normal(size=len(frame))
    judged = leaderboard._judge_by_setting(frame.assign(gain=gain), "last", is_tested=True).set_index(
        ["noise", "method"]
    )
    width = judged["gain_high"] - judged["gain_low"]
    assert width["noise0", "m0"] > 1.5 * width["noise1", "m0"]


def test_equals_share_a_rank_although_they_differ_by_rounding() -> None:
    runs = [
        make_run(method, f"noise{n}", 0, accuracy)
        for n in range(2)
        for method, accuracy in (("fedavg", 34.855), ("same", 34.855 + 1e-9), ("worse", 30.0))
    ]
    ranks = judge_methods(runs, "last", "fedavg").drop_duplicates("method").set_index("method")["rank"]
    assert ranks.to_dict() == {"fedavg": 1.5, "same": 1.5, "worse": 3}


def test_wins_losses_and_places_of_methods_that_differ() -> None:
    frame = judge_methods(make_board(20, 0.5), "last", "fedavg")
    verdicts = frame.groupby("method")["ahead"].sum()
    assert (verdicts["better"], verdicts["worse"], abs(verdicts["same"]) <= 1) == (20, -20, True)
    places = frame.drop_duplicates("method").set_index("method")[["place_low", "place_high"]].T.to_dict("list")
    ahead = frame.groupby("method")["rank_ahead"].first().to_dict()
    assert ahead == {"better": 1, "fedavg": 0, "same": 0, "worse": -1}
    assert places == {"better": [1, 1], "fedavg": [2, 3], "same": [2, 3], "worse": [4, 4]}


def test_ranks_are_compared_by_paired_t_tests_corrected_for_all_pairs() -> None:
    """Checked with scipy's test of each pair and the step-up rule of Benjamini and Hochberg (1995), section 3.1."""
    random = np.random.default_rng(2)
    ranks = stats.rankdata(random.normal(size=(8, 12)) + np.linspace(0, 4, 12), axis=1)
    ranks[:, 3] = ranks[:, 2]  # these two never differ
    signs = leaderboard.compare_ranks(ranks)
    pairs = [(a, b) for a in range(12) for b in range(a + 1, 12) if (a, b) != (2, 3)]
    p_values = {pair: stats.ttest_rel(ranks[:, pair[0]], ranks[:, pair[1]]).pvalue for pair in pairs}
    in_order = sorted(pairs, key=p_values.__getitem__)
    count = max(k for k, pair in enumerate(in_order, start=1) if p_values[pair] <= 0.05 * k / (len(pairs) + 1))
    assert 10 < count < len(pairs) - 10
    better = {(a, b) for a, b in zip(*np.nonzero(signs > 0), strict=True)}
    means = ranks.mean(axis=0)
    assert better == {(a, b) if means[a] < means[b] else (b, a) for a, b in in_order[:count]}
    assert (signs == -signs.T).all()
    assert not leaderboard.compare_ranks(ranks[: leaderboard.LEAST - 1]).any()


def test_with_too_few_settings_no_methods_differ() -> None:
    frame = judge_methods(make_board(leaderboard.LEAST - 1, 0.01), "last", "fedavg")
    assert set(zip(frame["place_low"], frame["place_high"], strict=True)) == {(1, 4)}
    assert not frame["ahead"].any()
    assert frame[["gain_low", "gain_high"]].isna().all(axis=None)
    assert frame[["rank_low", "mean_gain_high"]].isna().all(axis=None)


def test_the_first_sentence_is_of_tuned_methods_and_has_the_interval_of_the_table() -> None:
    levels = {"fedavg": 70.0, "better": 75.0, "worse": 60.0, "better-default": 76.0}
    boards = [make_board(number, 1.0, **levels) for number in (2, leaderboard.LEAST)]
    few, enough = (headline_of(board).sentence for board in boards)
    assert few.startswith("Better is above Fedavg in all 6 pairs of runs")
    assert "[" not in few
    assert enough.startswith("Better beats Fedavg in all 18 pairs of runs")
    row = judge_methods(boards[1], "last", "fedavg").set_index("method").loc["better"].iloc[0]
    assert f"The mean gain is {format_interval(row, 'mean_gain')} points." in enough
    assert "Better-Default" not in few + enough


def test_the_first_sentence_is_about_an_entry() -> None:
    levels = {"fedavg": 70.0, "my-own": 75.0, "worse": 60.0, "worse-default": 60.0}
    few, enough = (headline_of(make_board(number, 0.01, **levels)).sentence for number in (2, leaderboard.LEAST))
    assert few.startswith(
        "My-Own: mean rank 1.0 of 3 methods, mean gain over Fedavg +5.0 points. With fewer than 6 settings nothing is "
    )
    assert enough.startswith("My-Own: mean rank 1.0 [1.0, 1.0] of 3 methods, mean gain over Fedavg +5.00 [+")
    assert " and 3 more), behind in none, and in none it cannot be told apart from Fedavg. My-Own beats" in enough


def test_an_entry_of_fedavg_is_compared_with_the_published_fedavg() -> None:
    runs = make_board(2, 0.01, **{"my-fedavg": 74.0, "fedavg": 70.0, "worse": 60.0})
    sentence = headline_of(runs).sentence
    assert sentence.startswith("My-Fedavg: mean rank 1.0 of 3 methods, mean gain over Fedavg +4.0 points. With")
    assert "My-Fedavg is above Fedavg in all 6 pairs" in sentence


def move_to(dataset: str, runs: list[RecordedRun]) -> list[RecordedRun]:
    moved = [replace(run, listed=replace(run.listed, dataset=dataset)) for run in runs]
    for run, original in zip(moved, runs, strict=True):
        run.__dict__["cost"] = original.cost
    return moved


def test_each_data_set_is_judged_by_itself() -> None:
    """The entry is ahead on one and behind on the other, on which "better" has not run."""
    first = make_board(leaderboard.LEAST, 0.01, **{"fedavg": 70.0, "better": 75.0, "my-own": 72.0})
    second = make_board(leaderboard.LEAST, 0.01, **{"fedavg": 70.0, "my-own": 69.0})
    sentence = headline_of([*first, *move_to("others", second)]).sentence
    ours, theirs, gains = sentence.partition("My-Own on others: mean rank 2.0 ")
    assert ours.startswith("My-Own on digits: mean rank 2.0 [2.0, 2.0] of 3 methods, mean gain over Fedavg +2.00 [")
    assert "ahead in 6 (" in ours
    assert "digits ·" not in ours
    assert "[2.0, 2.0] of 2 methods, mean gain over Fedavg −1.0" in theirs + gains
    assert "On digits: Better and My-Own beat Fedavg in all 18 pairs" in gains
    assert "On others: No method is above Fedavg in all 18 pairs" in gains


def test_data_sets_with_few_settings_are_judged_together() -> None:
    runs = [run for name in "abcdef" for run in move_to(name, make_board(1, 0.01))]
    sentence = headline_of(runs).sentence
    assert sentence.startswith("Better beats Fedavg in all 18 pairs of runs")


def test_the_cost_of_an_entry_is_relative_to_fedavg_on_the_same_machine(tmp_path: Path) -> None:
    """FedAvg takes twice as long on the entry's machine as on that of the published runs. It ran once a setting."""
    (tmp_path / "cost.json").write_text('{"seconds": 50, "cpu_seconds": 40}')
    runs = make_board(2, **{"fedavg": 70.0, "my-own": 75.0, "better": 75.0})
    for run in runs:
        if run.listed.method != "my-own":
            local = tmp_path if (run.listed.method, run.listed.seed) == ("fedavg", 0) else None
            run.__dict__["listed"] = replace(run.listed, dir=tmp_path / "store/runs" / run.listed.dir, local=local)
    costs = judge_methods(runs, "last", "fedavg").groupby("method")["cpu"].first()
    assert (costs["my-own"], costs["better"]) == (0.5, 1.5)
    for run in runs:
        if run.listed.method == "better":  # made on a machine where FedAvg took three times as long
            run.cost["cpu_ratio"] = 1 / 3
    assert judge_methods(runs, "last", "fedavg").groupby("method")["cpu"].first()["better"] == 0.5


def test_the_tables_mark_an_entry_and_note_how_it_is_judged() -> None:
    runs = make_board(2, **{"fedavg": 70.0, "my-own": 75.0})
    for show in ("overall", "settings"):
        spec = registry.complete_spec({"kind": "leaderboard", "metric": "last", "show": show})
        grid = registry.lay_out_table(registry.find_kind(spec).frame(runs, spec), spec)
        assert {row.stub: row.style for row in grid.rows if row.style} == {"My-Own": "own"}
        assert "The CPU time of My-Own is relative to Fedavg's on the same machine." in grid.notes
        assert "With fewer than 6 settings nothing is tested, and there are no intervals." in grid.notes
        assert not any("ahead and" in note for note in grid.notes)
        assert "| **My-Own** |" in render_markdown(grid)
        assert r"\textbf{My-Own}" in render_latex(grid, "main")


def test_a_method_that_lacks_a_block_has_gains_but_no_rank() -> None:
    runs = [run for run in make_board(3) if (run.listed.method, run.listed.noise) != ("same", "noise1")]
    frame = judge_methods(runs, "last", "fedavg").set_index("method")
    assert frame.loc["same", "rank"].isna().all()
    assert len(frame.loc["same"]) == 2
    assert frame["rank"].max() <= 3
    assert frame.index[-1] == "same"


def test_the_baseline_alone_is_a_board() -> None:
    frame = judge_methods(make_board(2, fedavg=70.0), "last", "fedavg")
    assert frame[["method", "rank", "gain"]].to_numpy().tolist() == [["fedavg", 1.0, 0.0]] * 2


def test_a_diverged_run_counts_as_zero_accuracy() -> None:
    runs = make_board(3)
    index = next(position for position, run in enumerate(runs) if run.listed.method == "better")
    runs[index] = make_run("better", "noise0", 0, None)
    frame = judge_methods(runs, "last", "fedavg").set_index(["method", "noise"])
    assert frame.loc[("better", "noise0"), "diverged"] == 1
    assert frame.loc[("better", "noise0"), "gain"] < -10
    assert frame.loc[("better", "noise0"), "rank"] == pytest.approx(1 + 3 / 9)


def test_default_settings_take_no_rank() -> None:
    runs = make_board(3, 1e-6, **{**LEVELS, "better-default": 64.0})
    runs = [run for run in runs if run.listed.method != "better-default" or run.listed.seed == 0]
    frame = judge_methods(runs, "last", "fedavg")
    assert set(frame["method"]) == set(LEVELS)
    assert frame.loc[frame["method"] == "better", "tuning_gain"].tolist() == pytest.approx([11.0] * 3, abs=1e-4)
    assert frame["rank"].max() == 4
    fewer = [run for run in runs if (run.listed.method, run.listed.noise) != ("better-default", "noise1")]
    assert judge_methods(fewer, "last", "fedavg")["tuning_gain"].isna().all()


def test_a_method_with_the_true_noise_rate_takes_no_part() -> None:
    runs = [run for run in make_board(3) if run.listed.method != "better"]
    oracle_runs = [make_run("better", f"noise{n}", seed, 99, oracle_rate=True) for n in range(3) for seed in range(3)]
    assert set(judge_methods([*runs, *oracle_runs], "last", "fedavg")["method"]) == {"fedavg", "same", "worse"}


def test_a_note_names_a_method_without_a_rank_whose_rate_is_the_true_one(tmp_path: Path) -> None:
    runs = [make_run("told", f"noise{n}", seed, 71, as_told=n == 0) for n in range(3) for seed in range(3)]
    spec = registry.complete_spec({"kind": "leaderboard", "metric": "last"})
    write_csv(tmp_path / "table.csv", registry.find_kind(spec).frame([*make_board(3), *runs], spec))
    notes = registry.lay_out_table(registry.read_table(tmp_path / "table.csv", spec), spec).notes
    assert "Without a rank, as runs are missing or may not be compared: Told." in notes
    assert any(note.startswith("The noise rate that Told assumes is the true one in “40 % of") for note in notes)


def test_runs_of_other_labels_are_refused() -> None:
    with pytest.raises(ArtifactError, match="its labels are not those of"):
        judge_methods([*make_board(2), make_run("other", "noise0", 0, 50, labels="b")], "last", "fedavg")


def test_the_table_agrees_with_its_frame(tmp_path: Path) -> None:
    kind = registry.find_kind({"kind": "leaderboard"})
    spec = registry.complete_spec({"kind": "leaderboard", "metric": "last"})
    write_csv(tmp_path / "table.csv", kind.frame(make_board(20, 0.5), spec))
    frame = read_csv(tmp_path / "table.csv")
    grid = registry.lay_out_table(frame, spec)
    first = grid.rows[0]
    assert first.stub == "Better"
    assert [cell.text for cell in first.cells[1:2] + first.cells[3:6]] == ["1", "20", "0", "0 of 20"]
    assert [cell.text for cell in next(row for row in grid.rows if row.stub == "Fedavg").cells[2:6]] == ["–"] * 4
    assert [row.cells[2].bold for row in grid.rows] == [True, False, False, False]
    assert [row.cells[9].text for row in grid.rows] == ["needed", "–", "–", "–"]
    assert set(zip(frame["method"], frame["seeds"], strict=True)) == {(method, 3) for method in LEVELS}
    of_settings = {**spec, "show": "settings"}
    write_csv(tmp_path / "gains.csv", kind.frame(make_board(20, 0.5), of_settings))
    by_setting = registry.lay_out_table(read_csv(tmp_path / "gains.csv"), of_settings)
    assert [row.stub for row in by_setting.rows] == ["Better", "Same", "Worse"]
    bold = sum(cell.bold for row in by_setting.rows for cell in row.cells)
    behind = sum(int(row.cells[4].text) for row in grid.rows if row.cells[4].text != "–")
    assert f"Of 60 gains {bold} are ahead and {behind} behind." in by_setting.notes
    assert any(note.endswith("Better than Fedavg by these tests: Better.") for note in grid.notes)
    assert by_setting.rows[0].cells[0].text.startswith("+")
    assert "[" in by_setting.rows[0].cells[0].text


@pytest.mark.parametrize("show", ["overall", "settings"])
def test_tables_say_how_many_seeds_settings_have(show: str) -> None:
    runs = [run for run in make_board(7) if run.listed.noise != "noise1" or run.listed.seed == 0]
    spec = registry.complete_spec({"kind": "leaderboard", "metric": "last", "show": show})
    assert "n = 1–3 seeds" in registry.lay_out_table(registry.find_kind(spec).frame(runs, spec), spec).caption


def test_figure_draws_each_ranked_method() -> None:
    runs = make_board(10, 0.5)
    with use_house_style():
        kind = draw.find_figure_kind({"kind": "ranks"})
        drawn = kind.draw(runs, assign_looks([run.listed for run in runs]), RanksSettings(metric="last"))
    assert drawn.frame["method"].iloc[0] == "better"
    assert len(drawn.figure.axes[0].get_yticklabels()) == 4
    assert "mean ranks: Better 1.0" in drawn.alt
    labels = [text.get_text() for text in drawn.figure.legends[0].get_texts()]
    assert labels[0] == "server"
    assert "personal models" not in labels
    assert labels[-2:] == ["better or worse than Fedavg", "not told apart from Fedavg"]
    faces = [line.get_markerfacecolor() for line in drawn.figure.axes[0].lines if line.get_marker() == "o"]
    assert [face == "white" for face in faces] == [method == "same" for method in drawn.frame["method"]]
    assert "in 10 settings of digits; n = 3 seeds." in drawn.caption


def test_figure_mentions_no_tests_where_none_was_made() -> None:
    runs = make_board(2, 0.5)
    with use_house_style():
        kind = draw.find_figure_kind({"kind": "ranks"})
        drawn = kind.draw(runs, assign_looks([run.listed for run in runs]), RanksSettings(metric="last"))
    assert not any("told apart" in text.get_text() for text in drawn.figure.legends[0].get_texts())
    assert all(line.get_markerfacecolor() != "white" for line in drawn.figure.axes[0].lines)
