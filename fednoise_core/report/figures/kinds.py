"""The function behind a kind of figure. Kinds are strings, so that one kind's code is not part of the others'."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from fednoise_core.report.figures.style import Drawn

__all__ = ["figure_function"]


def figure_function(where: str) -> Callable[..., Drawn]:
    """The function "module:function" of RESULT_FIGURES or SETTING_FIGURES."""
    module, _, name = where.partition(":")
    function: Callable[..., Drawn] = getattr(importlib.import_module(module), name)
    return function
