"""How long a method is: the lines of code of its file."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fednoise_core.methods import METHODS

__all__ = ["code_lines", "method_lines"]

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str, without: frozenset[str] = frozenset()) -> int:
    """Lines of Python that are not blank, not comment alone and not docstring; `without`: classes left out."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held.difference_update(range(node.lineno, node.value.end_lineno + 1))  # type: ignore[operator]
        if isinstance(node, ast.ClassDef) and node.name in without:
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            held.difference_update(range(first, node.end_lineno + 1))  # type: ignore[operator]
    return len(held)


@cache
def method_lines(name: str) -> int | None:
    """Code lines of the file of a method (a name of METHODS), without other methods that stand in it; a base that
    several methods share is not counted. None for a method that is not known any more.

    Comments and docstrings do not count. A finished table keeps the number that it was made with.
    """
    if name not in METHODS:
        return None
    module, own = METHODS[name].split(":")
    spec = find_spec(module)  # does not import the module, and so no torch
    if spec is None or spec.origin is None:
        return None
    others = frozenset(line.split(":")[1] for line in METHODS.values() if line.split(":")[0] == module) - {own}
    return code_lines(Path(spec.origin).read_text(encoding="utf-8"), others)
