"""Verdict on a paper's number and ours."""

import math

POINTS = 2.0  # of %: closer than that is near, whatever the spread
KEYS = ["dataset", "noise", "partition", "method", "member"]
JUDGED = ("within 2 σ", "within 2 points", "apart")
VERDICTS = (
    *JUDGED,
    "diverged",
    "no number",
    "paper unreadable",
    "not in paper",
    "run",
    "not run",
    "not run (data absent)",
)
LEAST_RANKED = 3  # methods: two can only agree or not


def compare_numbers(ours: tuple[float, float], paper: tuple[float, float]) -> str:
    """Compare two numbers: "within 2 σ", else "within 2 points", else "apart".

    σ² is the sum of both variances, where both are known. Equal means within rounding are never apart.

    Args:
        ours: Mean and standard deviation in %; NaN where the latter is unknown.
        paper: The same of the paper's.
    """
    apart, spread = abs(ours[0] - paper[0]), math.hypot(ours[1], paper[1])  # NaN if one is unknown
    if apart <= 2 * spread:
        return "within 2 σ"
    return "within 2 points" if apart <= POINTS else "apart"
