"""The comments of a YAML file, each with the keys of the value that it stands behind.

A paper's file says in its comments who says so: the paper, its code, or nobody. They are read from there, so that the
file stays the one place where this is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from fednoise_core.io import SpecError

__all__ = ["Keys", "Note", "notes"]

Keys = tuple[str | int, ...]


class Note(NamedTuple):
    """A comment, and the keys that lead to what it is about; none: the comment at the head of the file."""

    keys: Keys
    text: str


class _Entry(NamedTuple):
    keys: Keys
    first: int  # line of the key, or of a list's item
    last: int  # line on which the value ends; an alias ends where it stands, a block nowhere: below it goes on


def notes(path: str | Path) -> list[Note]:
    """Every comment of a file in its order. A comment on a line of its own is about the entry of the next line.

    Behind several entries that end on one line a comment is about the outermost; behind a key whose value goes on
    below, about that key. One about nothing, as at the end of the file, is left out. Raises SpecError, naming the file,
    for what is no YAML.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        entries = list(_entries(yaml.compose(text, Loader=yaml.SafeLoader)))
        found = _comments(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path}: cannot be read ({error})") from error
    start = min((entry.first for entry in entries), default=0)
    head = [words for line, (words, _) in found.items() if line < start]
    told = [Note((), " ".join(head))] if head else []
    waiting: list[str] = []
    for line, (words, alone) in found.items():
        if line < start:
            continue
        waiting.append(words)
        if alone and line + 1 in found and found[line + 1][1]:
            continue  # the comment goes on
        entry = _next(entries, line) if alone else _behind(entries, line)
        told += [Note(entry.keys, " ".join(waiting))] if entry else []
        waiting = []
    return told


def _next(entries: list[_Entry], line: int) -> _Entry | None:
    """The outermost entry that begins below a line."""
    return min((one for one in entries if one.first == line + 1), key=_depth, default=None)


def _behind(entries: list[_Entry], line: int) -> _Entry | None:
    """The outermost entry that ends on a line, else the innermost that begins there."""
    ended = min((one for one in entries if one.last == line), key=_depth, default=None)
    return ended or max((one for one in entries if one.first == line), key=_depth, default=None)


def _depth(entry: _Entry) -> int:
    return len(entry.keys)


def _entries(node: yaml.Node | None, keys: Keys = (), seen: frozenset[int] = frozenset()) -> Iterator[_Entry]:
    """Every key and every item of a list, outer before inner; what an alias stands for is met at its anchor alone."""
    if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
        return
    parts: list[tuple[str | int, int, yaml.Node]]
    if isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), key.start_mark.line, value) for key, value in node.value]
    else:
        parts = [(number, value.start_mark.line, value) for number, value in enumerate(node.value)]
    for name, line, value in parts:
        alias = value.start_mark.line < line
        yield _Entry((*keys, name), line, line if alias else -1 if _is_block(value) else value.end_mark.line)
        if not alias:
            yield from _entries(value, (*keys, name), seen | {id(node)})


def _is_block(node: yaml.Node) -> bool:
    if isinstance(node, yaml.CollectionNode):
        return not node.flow_style
    return getattr(node, "style", None) in ("|", ">")


def _comments(text: str) -> dict[int, tuple[str, bool]]:
    """Line → (words of its comment, whether it stands alone). A # inside a text is none."""
    lines = text.splitlines()
    ends: dict[int, int] = {}
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if token.start_mark.index < token.end_mark.index:
            inside = range(token.start_mark.line, token.end_mark.line + (token.end_mark.column > 0))
            ends |= {line: len(lines[line]) for line in inside if line < token.end_mark.line}
            ends[token.end_mark.line] = max(ends.get(token.end_mark.line, 0), token.end_mark.column)
    found = {}
    for number, line in enumerate(lines):
        rest = line[ends.get(number, 0) :].lstrip(" ,]}")
        if rest.startswith("#"):
            found[number] = (rest.lstrip("# ").rstrip(), not line[: line.index("#")].strip())
    return found
