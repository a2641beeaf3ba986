"""Evaluation of a leaderboard: gains, ranks and places of methods, with intervals, over settings and seeds.

A block is a setting and a seed: its runs have the same labels, the same clients and the same first weights.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.rng import stream
from workflow_scripts.paths import DEFAULT
from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.ranking import compared_runs, paired_gains
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.runs.statistics import LEVEL

DRAWS = 2000
DIGITS = 6  # decimals of accuracies in %; means of equal accuracies differ only in further decimals
LEAST = 6  # settings; with fewer settings there are no tests, and a bootstrap over them is too narrow
SETTING, BLOCK = frames.IDS[:3], [*frames.IDS[:3], "seed"]


def judge_methods(runs: Sequence[RecordedRun], metric: str, baseline: str) -> pd.DataFrame:
    """Compute gains, ranks and places of the methods of a leaderboard.

    Runs on clean labels, and runs of methods that no federation can have, are ignored. A diverged run counts as 0 %.
    Only methods with a run in every block of the baseline have a rank.

    Args:
        runs: The runs. An id that ends in `-default` belongs to the same method at its default settings.
        metric: One of `run.METRICS`.
        baseline: The method that the others are compared with.

    Returns:
        One row per method and setting, the best mean rank first. By setting: mean `gain` over the baseline in points,
        its 95 % t interval `gain_low`, `gain_high`, and `ahead` (1 ahead, -1 behind, 0 undecided) by t tests, at a
        false discovery rate of 5 % over all rows, if there are at least `LEAST` settings. A method's variance over
        seeds is its mean over the settings. It is enlarged in settings where gains vary more than on average.
        Over the settings: `rank` and `mean_gain`, with 95 % bootstrap intervals over settings and seeds if there are
        at least `LEAST` settings. From `compare_ranks`: `place_low` is 1 + the number of methods with a better mean
        rank. `place_high` is the number of methods minus those with a worse one. `rank_ahead` is 1 if the mean rank is
        better than the baseline's, -1 if it is worse, else 0. `tuning_gain` has the points above the same runs at
        default settings, if these exist in all settings. `traffic` and `cpu` are relative to the baseline's.
        `of_settings` is the number of settings.

    Raises:
        ArtifactError: Two runs of a block have other labels or clients.
        SpecError: The baseline has no run.
    """
    _check_blocks(runs)
    results = frames.tabulate_results(runs)
    sent = results["bytes_up"].fillna(0) + results["bytes_down"].fillna(0)
    results = results.assign(sent=sent, cpu=_list_seconds(runs))
    results = compared_runs(results[~results["noiseless"]])
    if baseline not in set(results["method"]):
        raise SpecError(f"baseline: {baseline!r} has no run on noisy labels")
    scores = results.assign(**{metric: results[metric].mask(results["diverged"], 0.0)})
    gains = paired_gains(scores.assign(diverged=False), metric, baseline)
    if gains.empty:  # there is only the baseline, and the join has another index
        gains = scores.iloc[:0].assign(gain=0.0)
    gains = gains.assign(diverged=results.loc[gains.index, "diverged"])
    tuned = gains[~gains["method"].str.endswith(DEFAULT)]
    base_scores = scores[scores["method"] == baseline].groupby(SETTING, sort=False, as_index=False)
    zero = base_scores.agg(seeds=("seed", "size"), diverged=("diverged", "sum"), accuracy=(metric, "mean"))
    rows = _judge_by_setting(tuned, metric, is_tested=len(zero) >= LEAST)
    ranks = _rank_blocks(scores[~scores["method"].str.endswith(DEFAULT)], metric, baseline)
    by_method = _summarize_ranks(ranks, scores.pivot(index=BLOCK, columns="method", values=metric), baseline)
    base = results[results["method"] == baseline].set_index(BLOCK)
    by_method["tuning_gain"] = _compare_defaults(scores, metric)
    for key, column in (("sent", "traffic"), ("cpu", "cpu")):
        ratio = tuned[key] / base[key].reindex(pd.MultiIndex.from_frame(tuned[BLOCK])).to_numpy()
        by_method[column] = ratio.groupby(tuned["method"]).mean()
    labels = results.groupby("method")["method_label"].first()
    rows = pd.concat([zero.assign(method=baseline, gain=0.0, ahead=0), rows], ignore_index=True)
    rows = rows.join(by_method, on="method").assign(method_label=rows["method"].map(labels))
    rows["of_settings"] = len(zero)
    return rows.sort_values("rank", kind="stable", na_position="last").reset_index(drop=True)


def _check_blocks(runs: Sequence[RecordedRun]) -> None:
    seen: dict[Any, RecordedRun] = {}
    for run in runs:
        first = seen.setdefault((run.listed.setting, run.listed.seed), run)
        for key in ("labels", "partition"):
            ours, theirs = (one.record.get("inputs", {}).get(key) for one in (run, first))
            if ours != theirs:
                raise ArtifactError(
                    f"{run.listed.dir}: its {key} are not those of {first.listed.dir}, with the same setting and seed: "
                    "they cannot be compared. Were they made with other versions of numpy?"
                )


def _list_seconds(runs: Sequence[RecordedRun]) -> list[float]:
    """List CPU seconds of runs. Those of runs made here are converted to the machine of the published runs."""
    ratios = compare_speed(runs)
    return [
        _cpu_seconds(run) * (1.0 if run.listed.is_published else ratios.get(run.listed.setting, 1.0)) for run in runs
    ]


def compare_speed(runs: Sequence[RecordedRun]) -> dict[Setting, float]:
    """Compare the CPU time of published runs with that of the same runs made here.

    Returns:
        Setting → CPU seconds of a published run for each second here, where a run is both published and made here.
    """
    ratios: dict[Setting, list[float]] = {}
    for run in runs:
        if run.listed.local:
            copy = replace(run, listed=replace(run.listed, dir=run.listed.local))
            ratios.setdefault(run.listed.setting, []).append(_cpu_seconds(run) / _cpu_seconds(copy))
    means = {setting: float(np.mean(values)) for setting, values in ratios.items()}
    return {setting: round(mean, 3) for setting, mean in means.items() if np.isfinite(mean)}


def _cpu_seconds(run: RecordedRun) -> float:
    return float(run.cost.get("cpu_seconds") or np.nan) * float(run.cost.get("cpu_ratio", 1.0))


def _judge_by_setting(gains: pd.DataFrame, metric: str, *, is_tested: bool) -> pd.DataFrame:
    """Test the gains of each method in each setting against 0, with the method's variance over seeds in all settings.

    Three seeds in one setting give two degrees of freedom, with which no test passes the correction for all rows. So
    with too few settings for tests, gains have no interval either. If a setting's median variance over the methods is
    above the mean of the settings, the variance there is scaled up by the ratio. Without this, a simulation with the
    published variances has 20 to 40 % false discoveries if no method differs from the baseline.
    """
    deviation = gains["gain"] - gains.groupby(frames.IDS)["gain"].transform("mean")
    frame = (
        gains.assign(squares=deviation**2)
        .groupby(frames.IDS, sort=False, as_index=False)
        .agg(
            seeds=("seed", "size"),
            diverged=("diverged", "sum"),
            accuracy=(metric, "mean"),
            gain=("gain", "mean"),
            squares=("squares", "sum"),
        )
    )
    of_method = frame.groupby("method")
    degrees = (of_method["seeds"].transform("sum") - of_method["seeds"].transform("size")).clip(lower=1)
    single = frame["seeds"] < 2  # whose variance is unknown
    of_setting = frame.assign(own=(frame["squares"] / (frame["seeds"] - 1)).mask(single)).groupby(SETTING)["own"]
    factor = (of_setting.transform("median") / of_setting.median().mean()).clip(lower=1).fillna(1.0)
    variance = of_method["squares"].transform("sum") / degrees * factor
    error = np.sqrt(variance.where(variance > 0) / frame["seeds"])
    half = stats.t.ppf((1 + LEVEL) / 2, degrees) * error if is_tested else np.nan
    p_values = 2 * stats.t.sf((frame["gain"] / error).abs().fillna(0), degrees)
    is_found = stats.false_discovery_control(p_values) < 1 - LEVEL if is_tested else False
    ahead = np.where(is_found, np.sign(frame["gain"]), 0).astype(int)
    frame = frame.assign(gain_low=frame["gain"] - half, gain_high=frame["gain"] + half, ahead=ahead)
    return frame.drop(columns="squares")


def _rank_blocks(scores: pd.DataFrame, metric: str, baseline: str) -> pd.DataFrame:
    """Rank methods in each block of the baseline. 1 is the best. Ties share a rank. Methods with gaps are left out."""
    table = scores.pivot(index=BLOCK, columns="method", values=metric).round(DIGITS)
    table = table[table[baseline].notna()].dropna(axis="columns")
    return table.rank(axis="columns", ascending=False)


def _compare_defaults(scores: pd.DataFrame, metric: str) -> pd.Series:
    """Compare each method with its runs at default settings. Returns its gain in points, as the mean over settings."""
    table = scores.pivot(index=BLOCK, columns="method", values=metric)
    pairs = {method: f"{method}{DEFAULT}" for method in table if f"{method}{DEFAULT}" in table}
    changes = table[list(pairs)] - table[list(pairs.values())].to_numpy()
    by_setting = changes.groupby(SETTING).mean()
    return by_setting.mean().where(by_setting.notna().all())


def _summarize_ranks(ranks: pd.DataFrame, scores: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Mean rank and gain of each method, with bootstrap intervals over settings and their seeds, and its places."""
    scores = scores.loc[ranks.index, ranks.columns]
    gains = scores.sub(scores[baseline], axis="index")
    numbers = np.stack([ranks.to_numpy(), gains.to_numpy()], axis=-1)  # block, method, number
    settings = ranks.groupby(SETTING, sort=False).ngroup().to_numpy()
    blocks = [numbers[settings == place] for place in range(settings.max() + 1)]
    mean = np.mean([block.mean(axis=0) for block in blocks], axis=0)
    random = stream(0, "leaderboard")
    draws = np.empty((DRAWS, *mean.shape))
    for draw in draws:
        chosen = [blocks[number] for number in random.integers(len(blocks), size=len(blocks))]
        draw[:] = np.mean(
            [block[random.integers(len(block), size=len(block))].mean(axis=0) for block in chosen], axis=0
        )
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    if len(blocks) < LEAST:
        low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
    columns: dict[str, Any] = {}
    for place, name in enumerate(("rank", "mean_gain")):
        columns |= {name: mean[:, place], f"{name}_low": low[:, place], f"{name}_high": high[:, place]}
    signs = compare_ranks(np.stack([block[..., 0].mean(axis=0) for block in blocks]))
    columns |= {"place_low": 1 + (signs < 0).sum(axis=1), "place_high": len(mean) - (signs > 0).sum(axis=1)}
    columns["rank_ahead"] = signs[:, ranks.columns.get_loc(baseline)]
    return pd.DataFrame(columns, index=ranks.columns)


def compare_ranks(ranks: np.ndarray) -> np.ndarray:
    """Compare the mean ranks of all pairs of methods.

    Each pair has a paired t test over settings, at a false discovery rate of 5 % over all pairs. Nemenyi's test is not
    suitable: its critical difference grows with the number of methods, to 34 ranks for 50 methods in six settings.

    Args:
        ranks: Ranks in each setting, averaged over seeds, of shape (settings, methods).

    Returns:
        Integers of shape (methods, methods): 1 where the row's mean rank is better than the column's, -1 where it is
        worse, and 0 where the test finds no difference or there are fewer than `LEAST` settings.
    """
    settings, methods = ranks.shape
    first, second = np.triu_indices(methods, 1)
    signs = np.zeros((methods, methods), int)
    if settings < LEAST or not len(first):
        return signs
    gaps = ranks[:, second] - ranks[:, first]  # positive: the first is better
    mean, error = gaps.mean(axis=0), stats.sem(gaps, axis=0)
    # not scipy.stats.ttest_rel, which warns where two methods are equal in all settings, or apart by the same in all
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = np.nan_to_num(2 * stats.t.sf(np.abs(mean / error), settings - 1), nan=1.0)
    verdicts = np.where(stats.false_discovery_control(p_values) < 1 - LEVEL, np.sign(mean), 0).astype(int)
    signs[first, second], signs[second, first] = verdicts, -verdicts
    return signs
