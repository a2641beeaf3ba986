"""Which methods are ahead: what tables set in bold, and what a page and the terminal say.

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
        The id, or None. Of several the one with the fewest settings; an entry in a leaderboard if there is no other.
    """
    methods = {run.listed.method: run.spec.get("method", {}) for run in runs}
    plain = [method for method, spec in methods.items() if spec.get("name", method) == "fedavg"]
    return min(plain, key=lambda method: (method.startswith(OWN), len(methods[method])), default=None)


def is_compared(marks: Iterable[Any]) -> bool:
    """Return True if a method is compared with the others: it needs nothing that a federation cannot have.

    Args:
        marks: Texts of marks of its runs.
    """
    return not set(merge_marks(marks)) & set(NO_MEMBERS)


def compared_runs(results: pd.DataFrame) -> pd.DataFrame:
    """Select the runs that are compared: of a method that a federation can have, with a rate that is not the setting's.

    Args:
        results: Of `tabulate_results`.
    """
    members = results["marks"].map(lambda marks: is_compared([marks])).astype(bool)  # of no rows it is no bool
    return results[members & ~results["as_told"].astype(bool)]


def leading_methods(results: pd.DataFrame, metric: str) -> list[str]:
    """The method with the highest mean, then every method that cannot be told apart from it.

    These are the methods whose paired difference from it has an interval with zero in it. One pair has no interval.
    A method of which a run diverged is left out, and so is one that shares no seed with the highest.

    Args:
        results: Of `tabulate_results`, of one setting.
        metric: One of `run.METRICS`.

    Returns:
        Ids of the methods, the highest mean first. None if no other method shares a seed with it.
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
    """The gain of every run over the baseline's run with the same setting and seed.

    Args:
        results: Of `tabulate_results`.
        metric: One of `run.METRICS`.
        baseline: Id of the method that the others are compared with.

    Returns:
        The rows of `results` of other methods with such a run, and the column `gain`, in points. It is -inf where the
        run diverged, and NaN where the baseline's did or where there is no metric.
    """
    pair = ["dataset", "noise", "partition", "seed"]
    base = results[results["method"] == baseline].set_index(pair)[metric].rename("baseline")
    pairs = results[results["method"] != baseline].join(base, on=pair, how="inner")
    lost = pairs["diverged"].astype(bool) & pairs["baseline"].notna()
    return pairs.assign(gain=(pairs[metric] - pairs["baseline"]).mask(lost, -float("inf")))
