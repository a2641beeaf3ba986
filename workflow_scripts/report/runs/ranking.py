"""Find the methods that are ahead, for bold type in tables and for sentences on pages and in the terminal.

Runs with the same setting and seed share labels, partition and first weights. So methods are compared by such pairs of
runs: a method is ahead where the interval of the differences lies above zero.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from scipy import stats

from workflow_scripts.paths import OWN
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.runs.statistics import LEVEL
from workflow_scripts.report.text.footnotes import NO_MEMBERS, merge_marks

AHEAD = "the highest mean, if the 95\xa0% interval of its paired difference from each other method is above zero"


def find_baseline(runs: Sequence[RecordedRun]) -> str | None:
    """Find the id of plain FedAvg among the runs, which the others are compared with.

    Returns:
        The id, or None. If there are several, the one with the fewest settings. A leaderboard's entry comes last.
    """
    methods = {run.listed.method: run.spec.get("method", {}) for run in runs}
    plain = [method for method, spec in methods.items() if spec.get("name", method) == "fedavg"]
    return min(plain, key=lambda method: (method.startswith(OWN), len(methods[method])), default=None)


def is_compared(marks: Iterable[Any]) -> bool:
    """Return True if a method is compared with the others, because it only uses what a federation can have.

    Args:
        marks: Texts of marks of its runs.
    """
    return not set(merge_marks(marks)) & set(NO_MEMBERS)


def compared_runs(results: pd.DataFrame) -> pd.DataFrame:
    """Select the runs of methods that a federation can have and whose own noise rate is not that of the setting.

    Args:
        results: Of `tabulate_results`.
    """
    members = results["marks"].map(lambda marks: is_compared([marks])).astype(bool)  # without rows the type is not bool
    return results[members & ~results["as_told"].astype(bool)]


def leading_methods(results: pd.DataFrame, metric: str) -> list[str]:
    """List the method with the highest mean, then every method that does not differ significantly from it.

    Such a method has a paired difference from it whose interval contains zero. One pair gives no interval. Methods with
    a diverged run, and methods that share no seed with the highest one, are left out.

    Args:
        results: Of `tabulate_results`, of one setting.
        metric: One of `run.METRICS`.

    Returns:
        Ids of the methods, the highest mean first. Empty if no other method shares a seed with it.
    """
    by_seed = compared_runs(results).pivot(index="seed", columns="method", values=metric)
    lost = compared_runs(results).loc[lambda rows: rows[metric].isna(), "method"]
    means = by_seed.drop(columns=lost.unique()).mean().sort_values(ascending=False, kind="stable")
    gaps = by_seed[means.index].rsub(by_seed[means.index[0]], axis=0) if len(means) else by_seed[[]]
    if not gaps.iloc[:, 1:].notna().any(axis=None):
        return []
    pairs = gaps.count()
    low = gaps.mean() - stats.t.ppf((1 + LEVEL) / 2, pairs - 1) * gaps.sem()
    apart = (low > 0) | (pairs == 0)
    return [str(means.index[0]), *(str(method) for method in means.index[1:] if not apart[method])]


def paired_gains(results: pd.DataFrame, metric: str, baseline: str) -> pd.DataFrame:
    """Compute the gain of every run over the baseline's run with the same setting and seed.

    Args:
        results: Of `tabulate_results`.
        metric: One of `run.METRICS`.
        baseline: Id of the method that the others are compared with.

    Returns:
        The rows of other methods in `results` that have such a run, with the column `gain` in points. It is -inf if the
        run diverged, and NaN if the baseline's run diverged or the metric is missing.
    """
    pair = ["dataset", "noise", "partition", "seed"]
    base = results[results["method"] == baseline].set_index(pair)[metric].rename("baseline")
    pairs = results[results["method"] != baseline].join(base, on=pair, how="inner")
    lost = pairs["diverged"].astype(bool) & pairs["baseline"].notna()
    return pairs.assign(gain=(pairs[metric] - pairs["baseline"]).mask(lost, -float("inf")))
