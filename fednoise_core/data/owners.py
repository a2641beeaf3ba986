"""Who owns which training image."""

from __future__ import annotations

import numpy as np

from fednoise_core.data.array_checks import ArraysError


def owners_of(ids: np.ndarray, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """(owner of each image int64 [n], what owners 0, 1 … are called) of numbers or texts [n]; `name` is for messages.

    Ids that are all whole numbers from 0, as numbers or written the usual way, are the owners' numbers themselves, and
    () is returned for their names; others count in alphabetical order.
    """
    if ids.dtype.kind not in "uiU" or ids.ndim != 1:
        raise ArraysError(f"{name}: got {ids.dtype} {list(ids.shape)}; numbers or texts, one per image, are needed")
    texts = [str(one) for one in ids.tolist()]
    if all(_is_number(one) for one in set(texts)):
        return np.array([int(one) for one in texts], np.int64), ()
    names, owner = np.unique(np.array(texts), return_inverse=True)
    return owner.astype(np.int64), tuple(str(one) for one in names)


def _is_number(text: str) -> bool:
    return len(text) <= 18 and text.isascii() and text.isdecimal() and str(int(text)) == text
