"""Where an axis of accuracies starts."""

from collections.abc import Sequence

import numpy as np


def find_axis_minimum(ends: Sequence[float]) -> float | None:
    """Choose where the y axis starts so that the ends of most lines are told apart.

    A quarter of the lines at most may end under it, if they are far below the others and this halves the axis at
    least. The others keep three quarters of the height.

    Args:
        ends: Where the lines end, in percent. NaN stands for a line without an end.

    Returns:
        The start in percent, a multiple of 5, or None if the axis should start at the data.
    """
    found = np.sort(np.asarray([y for y in ends if np.isfinite(y)]))[::-1]
    if len(found) < 2:
        return None
    whole, last = found[0] - found[-1], len(found) - 1
    for place in range(len(found) - len(found) // 4, len(found)):  # the first great gap among the lowest quarter
        if found[place - 1] - found[place] > 0.25 * whole:
            last = place - 1
            break
    core = max(found[0] - found[last], 10.0)
    if whole < 2 * core:
        core = max(whole, 10.0)
    low = 5 * np.floor((found[0] - 1.3 * core) / 5)
    return float(low) if low > 0 else None
