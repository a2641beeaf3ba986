"""Which methods are the best of a setting: what tables set in bold, and what a page says first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from fednoise_core.report.marks import NO_MEMBERS, together

__all__ = ["best_methods", "compared", "is_compared"]


def is_compared(marks: Iterable[Any]) -> bool:
    """Whether a method is compared with the others: it needs nothing that a federation cannot have."""
    return not set(together(marks)) & set(NO_MEMBERS)


def compared(block: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows of a setting (of an accuracy table's frame) that are compared: they have a mean, too."""
    return block[block["marks"].map(lambda marks: is_compared([marks])) & block[f"{metric}_mean"].notna()]


def best_methods(block: pd.DataFrame, metric: str, digits: int) -> set[str]:
    """Ids: the highest mean of a setting, and those within one standard deviation of it (over its seeds), as shown with
    `digits` decimals. None where there is nothing to compare.
    """
    found = compared(block, metric)
    if len(found) < 2:
        return set()
    means, spreads = found[f"{metric}_mean"], found[f"{metric}_std"].fillna(0)
    least = round(float(means.max() - spreads[means == means.max()].iloc[0]), digits)
    return set(found["method"][means.round(digits) >= least])
