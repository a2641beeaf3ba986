"""Compute the first sentences of a study's page: the methods that beat plain averaging, and in how many pairs of runs.

The comparison by pairs (`ranking.py`) makes them as independent of the machine as possible. Methods are named in the
study's order, because their order by mean may change with the last bits of the arithmetic.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pandas as pd
from scipy import stats

from fednoise_core.io import json_digest
from fednoise_core.label_errors.csv_rows import Site, read_rows
from workflow_scripts.paths import DEFAULT, OWN
from workflow_scripts.report.runs import agreement
from workflow_scripts.report.runs.frames import tabulate_results
from workflow_scripts.report.runs.leaderboard import LEAST, SETTING, judge_methods
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.ranking import compared_runs, find_baseline, leading_methods, paired_gains
from workflow_scripts.report.runs.run import RecordedRun, Setting
from workflow_scripts.report.runs.statistics import LEVEL
from workflow_scripts.report.text.cells import (
    METRIC_WORDS,
    count_words,
    format_interval,
    format_signed,
    in_setting,
    mean_std,
    method_words,
)

DIGITS = 1  # decimals of points in sentences
METRIC = "last10_mean"  # not chosen by test labels
NAMED = 3  # most names in a sentence; the others are counted
PAIRS = 3  # fewest pairs for an interval of a gain
LINES = 12  # most settings that the last lines name
OF = "of runs with the same setting and seed"


@dataclass(frozen=True)
class SettingLeaders:
    """Methods that are ahead in a setting.

    Attributes:
        setting: The setting.
        methods: The methods of `leading_methods`, in words.
        accuracy: Mean and deviation of the first one, in percent.
        gain: The mean gain of the first one over the baseline in points, or "".
        won: The number of seeds with which the first one beats the baseline, such as "2 of 2", or "".
    """

    setting: Setting
    methods: list[str]
    accuracy: str = ""
    gain: str = ""
    won: str = ""


@dataclass(frozen=True)
class Headline:
    """First sentence of a page, and the leaders by setting.

    Attributes:
        sentence: One or more sentences about all settings.
        rows: One row per setting.
        baseline: The name of the method that the others are compared with, or "".
    """

    sentence: str
    rows: list[SettingLeaders]
    baseline: str


def headline_of(runs: Sequence[RecordedRun]) -> Headline:
    """The headline of a study by the mean of the last ten evaluations.

    Args:
        runs: All of its runs. In a leaderboard, runs at default settings are ignored, and an entry comes first.
    """
    tuned = [run for run in runs if not run.listed.method.endswith(DEFAULT)] or runs
    results, untrusted = tabulate_results(tuned), agreement.untrusted_datasets(tuned)
    has_entry = any(run.listed.method.startswith(OWN) for run in tuned)
    baseline = find_baseline(tuned)
    noisy: dict[str, dict[Setting, None]] = {}  # by data set
    for run in tuned:
        if run.listed.method == baseline and not is_noiseless(run.spec.get("noise", {})):
            noisy.setdefault(run.listed.dataset, {})[run.listed.setting] = None
    parts: dict[str, Sequence[RecordedRun]] = {}  # title of a data set → its runs; "": all runs together
    if has_entry or len(tuned) < len(runs) or all(len(settings) >= LEAST for settings in noisy.values()):
        for dataset, settings in noisy.items():
            title = Names.of_runs(tuned).of(next(iter(settings)))[0]
            parts[title] = [run for run in tuned if run.listed.dataset == dataset]
    elif sum(map(len, noisy.values())) >= LEAST:
        parts[""] = tuned
    boards = {title: judge_methods(part, METRIC, str(baseline)) for title, part in parts.items()}
    first = make_headline(results, baseline, untrusted, _methods_by_baseline(tuned), boards)
    asked_labels = all(run.spec.get("noise", {}).get("kind") == "given" for run in runs)
    found = " ".join(filter(None, map(_describe_suspects, runs))) if asked_labels and len(runs) <= NAMED else ""
    entries = [
        _describe_entry(judged, f" on {title}" if len(boards) > 1 else "", Names.of_runs(parts[title]), str(baseline))
        for title, judged in boards.items()
    ]
    found = " ".join(filter(None, entries)) or found
    return replace(first, sentence=f"{found} {first.sentence}") if found else first


def _describe_entry(table: pd.DataFrame, place: str, names: Names, baseline: str) -> str:
    """Describe rank and gain of the entry in a leaderboard, and the settings where it is ahead. "" without an entry."""
    rows = table[table["method"].str.startswith(OWN)]
    if rows.empty:
        return ""
    titles = [names.title(Setting(*ids)) for ids in rows[SETTING].itertuples(index=False, name=None)]
    ahead, behind = (
        _count_names([titles[place] for place in np.flatnonzero(rows["ahead"] == sign)]) for sign in (1, -1)
    )
    row, base = rows.iloc[0], table.loc[table["method"] == baseline, "method_label"].iloc[0]
    undecided = (rows["ahead"] == 0).sum() or "none"
    ranked, gain = table.loc[table["rank"].notna(), "method"].nunique(), format_interval(row, "mean_gain")
    rank = f"mean rank {format_interval(row, 'rank', signed=False)} of {ranked} methods"
    words = "no rank" if pd.isna(row["rank"]) else f"{rank}, mean gain over {base} {gain} points"
    if row["of_settings"] < LEAST:
        return f"{row['method_label']}{place}: {words}. With fewer than {LEAST} settings nothing is tested."
    return (
        f"{row['method_label']}{place}: {words}. Of {len(rows)} "
        f"setting{'s' * (len(rows) > 1)} it is ahead in {ahead}, behind in {behind}, and in {undecided} it cannot be "
        f"told apart from {base}."
    )


def _describe_suspects(run: RecordedRun) -> str:
    """Describe the wrong labels that a run found. "" if it has no verdicts."""
    path = run.listed.dir / "sites.csv"
    sites = read_rows(path, Site) if path.exists() else []
    if not sites:
        return ""
    wrong, check, judged = (
        sum(getattr(site, key) for site in sites) for key in ("verdict_wrong", "verdict_check", "samples")
    )
    unclear = sum(not site.estimated for site in sites)
    places = f" at {len(sites)} sites" if len(sites) > 1 else ""
    limit = f" How many are wrong in all cannot be estimated at {unclear} of {len(sites)} sites." if unclear else ""
    return (
        f"{run.label} finds {wrong:,} of {judged:,} labels{places} probably wrong, and {check:,} more to check.{limit}"
    )


def _methods_by_baseline(runs: Sequence[RecordedRun]) -> dict[str, list[str]]:
    """Map plain averaging with each net to the methods with this net. {} unless several nets have both."""
    by_net: dict[str, list[RecordedRun]] = {}
    for run in runs:
        by_net.setdefault(json_digest(run.spec.get("train", {}).get("net")), []).append(run)
    methods = {find_baseline(of_net): sorted({run.listed.method for run in of_net}) for of_net in by_net.values()}
    full = {base: names for base, names in methods.items() if base and len(names) > 1}
    return full if len(full) > 1 else {}


def make_headline(
    results: pd.DataFrame,
    baseline: str | None,
    untrusted: Collection[str] = (),
    by_baseline: Mapping[str, Collection[str]] = MappingProxyType({}),
    boards: Mapping[str, pd.DataFrame] = MappingProxyType({}),
) -> Headline:
    """Name the methods that beat the baseline, and the methods that are ahead in each setting.

    Args:
        results: The result of `tabulate_results`. Runs without label noise are left out if other runs have noise.
        baseline: The id of the method to compare with, such as plain averaging.
        untrusted: Ids of the data sets without trusted test labels.
        by_baseline: If several nets have a baseline: baseline → the methods with its net.
        boards: For a leaderboard: data set → result of `judge_methods`, from which the intervals of gains are taken.
    """
    noisy = results[~results["noiseless"].astype(bool)]
    counted = noisy if len(noisy) else results
    parts = {
        base: paired_gains(counted[counted["method"].isin([base, *names])], METRIC, base).dropna(subset=["gain"])
        for base, names in (by_baseline or {str(baseline): set(counted["method"])}).items()
    }
    parts = {
        method_words(counted[counted["method"] == base]): compared_runs(of) for base, of in parts.items() if len(of)
    }
    parts = {label: of for label, of in parts.items() if len(of)}
    gains = pd.concat(parts.values()) if parts else pd.DataFrame(columns=[*counted, "gain"])
    label = next(iter(parts), "") if len(parts) < 2 else "plain averaging with the same net"
    rows = [
        _find_leaders(Setting(*map(str, ids)), group, gains)
        for ids, group in counted.groupby(["dataset", "noise", "partition"], sort=False)
    ]
    rows = [row for row in rows if row.methods]
    sentences = [
        (f"On {title}: " if len(boards) > 1 else "") + _gains_sentence(judged_gains, base, judged)
        for base, of in parts.items()
        for title, judged in boards.items()
        if len(judged_gains := of[of["dataset"].isin(judged["dataset"])])
    ] or [_gains_sentence(of, base) for base, of in parts.items()]
    sentence = " ".join(sentences) or (_leaders_sentence(rows) if rows else _mean_words(counted))
    seeds = count_words(counted.groupby(["dataset", "noise", "partition", "method"])["seed"].size())
    note = agreement.untrusted_note(sorted(set(counted["dataset"]) & set(untrusted)))
    return Headline(f"{sentence} Accuracy: {METRIC_WORDS[METRIC]}, {seeds}. {note}".rstrip(), rows, label)


def summary_lines(runs: Sequence[RecordedRun]) -> list[str]:
    """Write lines for a terminal or a list: the headline of all runs by the mean of the last ten evaluations.

    If there are several settings, the leading methods of each setting follow.

    Args:
        runs: The runs of the study.
    """
    if not runs:
        return []
    headline = headline_of(runs)
    names, hidden = Names.of_runs(runs), len(headline.rows) - LINES
    lines = [f"{names.title(row.setting)}: {_leaders_words(row, headline.baseline)}" for row in headline.rows[:LINES]]
    if len(headline.rows) < 2:
        return [headline.sentence]
    return [headline.sentence, *lines, *([f"and {hidden} more"] if hidden > 0 else [])]


def _find_leaders(setting: Setting, results: pd.DataFrame, gains: pd.DataFrame) -> SettingLeaders:
    methods = leading_methods(results, METRIC)
    if not methods:
        return SettingLeaders(setting, [])
    first = results.loc[results["method"] == methods[0], METRIC].astype(float)
    pairs = gains[in_setting(gains, setting) & (gains["method"] == methods[0])]["gain"]
    labels = [method_words(results[results["method"] == method]) for method in methods]
    over = (format_signed(pairs.mean(), DIGITS), f"{(pairs > 0).sum()} of {len(pairs)}") if len(pairs) else ()
    return SettingLeaders(setting, labels, mean_std(first.mean(), first.std(), DIGITS), *over)


def _leaders_words(row: SettingLeaders, baseline: str) -> str:
    """For instance "SCE 85.0 ± 0.1 %, +5.0 points over FedAvg (2 of 2 seeds). Ahead of it with a seed: GCE"."""
    text = f"{row.methods[0]} {row.accuracy}\xa0%"
    seeds = "seed" if row.won.endswith(" 1") else "seeds"
    text += f", {row.gain} points over {baseline} ({row.won} {seeds})" if row.gain else ""
    others = f". Not told apart from it: {_join_names(row.methods[1:])}" if len(row.methods) > 1 else ""
    return text + others


def _gains_sentence(gains: pd.DataFrame, baseline: str, judged: pd.DataFrame | None = None) -> str:
    """Name the methods that are above the baseline in every pair, and their gains.

    A gain has an interval if there are at least three pairs, or the interval of a leaderboard. A method beats the
    baseline if its interval is above zero.
    """
    grouped = gains.assign(won=gains["gain"] > 0).groupby("method", sort=False)
    table = grouped.agg(won=("won", "sum"), pairs=("won", "size"), gain=("gain", "mean"), error=("gain", "sem"))
    half = stats.t.ppf((1 + LEVEL) / 2, table["pairs"] - 1) * table["error"].where(table["pairs"] >= PAIRS)
    table["gain_low"], table["gain_high"] = table["gain"] - half, table["gain"] + half
    if judged is not None:
        ends = judged.drop_duplicates("method").set_index("method")
        table[["gain_low", "gain_high"]] = ends[["mean_gain_low", "mean_gain_high"]].reindex(table.index)
    table["words"] = [method_words(group) for _, group in grouped]
    all_won = table[table["won"] == table["pairs"]]
    counted = all_won if len(all_won) else table
    few, most = counted["pairs"].min(), counted["pairs"].max()
    pairs = f"all pairs {OF} ({few} to {most} each)"
    if few == most:
        pairs = {1: f"the only pair {OF}", 2: f"both pairs {OF}"}.get(most, f"all {most} pairs {OF}")
    if not len(all_won):
        share = (table["won"] / table["pairs"]).to_numpy()
        runner_up = table.iloc[int(share.argmax())]
        nearest = (
            f" {runner_up['words']} comes nearest with {runner_up['won']} of {runner_up['pairs']}."
            if share.max() > 0
            else ""
        )
        return f"No method is above {baseline} in {pairs}.{nearest}"
    noun, is_sure = "gain" if most == 1 else "mean gain", bool((all_won["gain_low"] > 0).all())
    if len(all_won) <= NAMED:
        points = _join_words([format_interval(row, "gain") for _, row in all_won.iterrows()])
        if len(all_won) == 1:
            verb, means = "beats" if is_sure else "is above", f"{noun} is"
        else:
            verb, means = "beat" if is_sure else "are above", f"{noun}s are"
        return f"{_join_words(all_won['words'])} {verb} {baseline} in {pairs}. The {means} {points} points."
    top = all_won.nlargest(NAMED, "gain")
    best = _join_words([f"{row['words']} ({format_interval(row, 'gain')})" for _, row in top.iterrows()])
    sentence = f"{len(all_won)} of {len(table)} methods {'beat' if is_sure else 'are above'} {baseline} in {pairs}."
    return f"{sentence} The largest {noun}s among these, in points: {best}."


def _leaders_sentence(rows: Sequence[SettingLeaders]) -> str:
    """Count the settings in which a method is ahead of all others, if there is no baseline."""
    counts = Counter(row.methods[0] for row in rows if len(row.methods) == 1)
    names = [f"{name} in {count}" for name, count in counts.most_common()]
    if not names:
        return "No method is ahead of all others beyond the interval of paired differences."
    return (
        f"Of {len(rows)} settings, ahead of all others beyond the interval of paired differences: {_join_names(names)}."
    )


def _mean_words(results: pd.DataFrame) -> str:
    """Give the accuracy of each method if no setting compares methods: its mean, or the range over settings."""
    texts = []
    for _, runs in results.groupby("method", sort=False):
        means = runs.groupby(["dataset", "noise", "partition"])[METRIC].agg(lambda values: values.mean(skipna=False))
        low, high = means.min(), means.max()
        value = f"{high:.{DIGITS}f}" if len(means) == 1 else f"{low:.{DIGITS}f} to {high:.{DIGITS}f}"
        value = "diverged" if math.isnan(high) else f"{value}\xa0%"
        texts.append(f"{method_words(runs)} {value}" + (f" in {len(means)} settings" if len(means) > 1 else ""))
    return f"Mean accuracy: {_join_names(texts)}."


def _join_words(names: Sequence[str] | pd.Series) -> str:
    """For instance "A", "A and B", "A, B and C"; with semicolons where a name has a comma of its own."""
    *most, last = names
    comma = "; " if any(", " in name for name in names) else ", "
    return f"{comma.join(most)} and {last}" if most else last


def _count_names(names: Sequence[str]) -> str:
    """For instance "2 (A; B)", or "none"."""
    return f"{len(names)} ({_join_names(names)})" if names else "none"


def _join_names(names: Sequence[str]) -> str:
    """For instance "A", "A; B", "A; B; C and 4 more"."""
    hidden = len(names) - NAMED
    return "; ".join(names[:NAMED]) + (f" and {hidden} more" if hidden > 0 else "")
