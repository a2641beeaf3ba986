"""Lower end of an axis of accuracies."""

from collections.abc import Sequence

import numpy as np


def find_axis_minimum(*panels: Sequence[float]) -> float | None:
    """Choose the common start of the panels' y axes so that the ends of most lines can be distinguished.

    At most a quarter of a panel's lines may end below the start. They must be far below the others, and without them
    the axis must be at most half as long. The other lines keep three quarters of the height.

    Args:
        panels: The values at the ends of each panel's lines, in percent. NaN stands for a line without an end.

    Returns:
        The start in percent, a multiple of 5, or None if the axes should start at the data.
    """
    minima = [_find_minimum(ends) for ends in panels]
    return min((minimum for minimum in minima if minimum is not None), default=None) if None not in minima else None


def _find_minimum(ends: Sequence[float]) -> float | None:
    values = np.sort(np.asarray([y for y in ends if np.isfinite(y)]))[::-1]
    if len(values) < 2:
        return None
    spread, last = values[0] - values[-1], len(values) - 1
    for place in range(len(values) - len(values) // 4, len(values)):  # the first great gap among the lowest quarter
        if values[place - 1] - values[place] > 0.25 * spread:
            last = place - 1
            break
    core = max(values[0] - values[last], 10.0)
    if spread < 2 * core:
        core = max(spread, 10.0)
    low = 5 * np.floor((values[0] - 1.3 * core) / 5)
    return float(low) if low > 0 else None
