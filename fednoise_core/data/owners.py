"""Who owns which training image, where owners are called by texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["owners_named"]


def owners_named(ids: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(owner of each image int64 [n], what owners 0, 1 … are called). Ids that are all whole numbers, written the usual
    way, are the owners' numbers themselves, and () is returned for their names; others count in alphabetical order.
    """
    if all(_is_number(one) for one in set(ids)):
        return np.array([int(one) for one in ids], np.int64), ()
    names, owner = np.unique(np.array(ids), return_inverse=True)
    return owner.astype(np.int64), tuple(str(name) for name in names)


def _is_number(text: str) -> bool:
    return len(text) <= 18 and text.isascii() and text.isdecimal() and str(int(text)) == text
