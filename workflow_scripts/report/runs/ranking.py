"""Which methods are ahead: what tables set in bold, and what a page and the terminal say.

Runs with the same setting and seed share labels, partition and first weights. So methods are compared by such pairs of
runs. A comparison of means by the spread of a few seeds can change with the last bits of the arithmetic.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.text.footnotes import NO_MEMBERS, merge_marks

AHEAD = "the highest mean, and every method that is as good or better with at least one seed"


def find_baseline(runs: Sequence[RecordedRun]) -> str | None:
    """Find the id of plain FedAvg among the runs, which the others are compared with.

    Returns:
        The id, that with the fewest settings if there are several, or None.
    """
    methods = {run.listed.method: run.spec.get("method", {}) for run in runs}
    plain = [method for method, spec in methods.items() if spec.get("name", method) == "fedavg"]
    return min(plain, key=lambda method: len(methods[method])) if plain else None


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
    """The method with the highest mean, then every method that beats or equals it with at least one seed.

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
    return [str(method) for method in means.index if (gaps[method] <= 0).any()]


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
