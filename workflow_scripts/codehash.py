"""Hash of the code behind a step: its script and every project module that the script imports, directly or not.

The hash is taken over syntax trees without comments, docstrings, the sentences of settings (texts in Annotated[…]),
help texts of command lines, `__all__` and `__version__`: explaining, reformatting or releasing costs no recomputation.
Imports by computed name cannot be seen; callers of `closure_hash` name such modules as extra entries.
A registry's lines ("name": "project.module:object") do not count, so that a further entry changes nothing for the
others; a caller names the line that it uses as an entry of its own, which holds a colon.
Only the standard library is needed, and the value does not depend on the Python version.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["BOOKKEEPING", "PACKAGES", "closure", "closure_hash", "module_file", "registry"]

PACKAGES = ("fednoise_core", "workflow_scripts")
BOOKKEEPING = tuple(  # say which code a result is of, and decide nothing in it: not followed
    f"workflow_scripts/{name}.py"
    for name in ("codehash", "locks", "own_code", "progress", "step", "stepcode", "sums", "terminal")
)
MODULE_REGISTRIES = ("READERS",)  # names of dicts whose lines are "name": "module beside the file"
SKIPPED_FIELDS = ("ctx", "kind", "type_comment")  # say nothing, or are not filled in by every version of Python
UNCOUNTED_NAMES = ("__all__", "__version__")  # assigned in a module: nothing here imports by `*`
UNCOUNTED_KEYWORDS = ("help", "description")  # plain texts that a command line shows
WHOLE = ("Name", "Constant", "Attribute", "arg", "Tuple", "keyword", "BinOp", "Compare")  # of which all fields count
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def closure_hash(root: str | Path, *entries: str, without: tuple[str, ...] = ()) -> str:
    """16 hex digits for the code reachable from `entries`, files relative to the project's `root`."""
    total = hashlib.sha256()
    for name, value in closure(root, *entries, without=without).items():
        total.update(f"{name}\0{value}\n".encode())
    return total.hexdigest()[:16]


def closure(root: str | Path, *entries: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Project files reachable by imports from `entries`, relative to `root` and sorted → hash of the syntax tree.
    without: files that are left out, with what only they import.

    The `__init__.py` of every package on the way belongs to it, because importing a module runs them.
    """
    found: dict[str, str] = {}
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if ":" in name:  # a registry's line
            found[name] = name
        elif name not in found:
            found[name], imported = _read(Path(root), name)
            waiting.extend(file for file in imported if file not in without)
    return dict(sorted(found.items()))


def module_file(root: str | Path, dotted: str) -> str | None:
    """The project file (relative to `root`) of a dotted module name, None if the project has no such module."""
    path = Path(*dotted.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if (Path(root) / candidate).is_file():
            return candidate.as_posix()
    return None


@functools.cache
def registry(root: str | Path, file: str, name: str) -> dict[str, str]:
    """The dict literal that `file` assigns to `name` (names to strings), read without importing anything.

    Entries whose value is no literal are left out: what they refer to is imported by `file` itself.
    """
    for node in ast.parse((Path(root) / file).read_bytes()).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(t, ast.Name) and t.id == name for t in targets) and isinstance(node.value, ast.Dict):  # type: ignore[attr-defined]
            return {
                str(key.value): str(value.value)
                for key, value in zip(node.value.keys, node.value.values, strict=True)  # type: ignore[attr-defined]
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
            }
    raise LookupError(f"{file}: no dict literal named {name}")


def _read(root: Path, name: str) -> tuple[str, tuple[str, ...]]:
    """Hash of one file's syntax tree, and the project files that importing it runs."""
    return _parsed(root, name, (root / name).read_bytes())


@functools.cache
def _parsed(root: Path, name: str, content: bytes) -> tuple[str, tuple[str, ...]]:
    value, names = _kept(root.resolve()).look_up(name, content)
    files = {module_file(root, dotted) for dotted in names}
    return value, tuple(sorted(file for file in files if file is not None and file not in BOOKKEEPING))


def _analysed(name: str, content: bytes) -> tuple[str, list[str]]:
    """The same as it follows from the file alone: dotted names instead of files."""
    tree = ast.parse(content, filename=name)
    package = name.removesuffix(".py").split("/")[:-1]
    names = {".".join(package[:depth]) for depth in range(1, len(package) + 1)}
    own = name.split("/")[0] not in PACKAGES  # the user's: what it imports of the project counts, wherever it lies
    names |= {dotted for dotted in _imports(tree, package) if dotted and (own or dotted.split(".")[0] in PACKAGES)}
    return hashlib.sha256("\n".join(_words(tree, [])).encode()).hexdigest(), sorted(names)


class _Kept:
    """What earlier processes found out about files of the same name and content, in the folder of compiled files and as
    easily lost: every job waits for this at its start, a parse of all files takes a second.
    """

    MOST = 2000  # entries: the project has a tenth of that

    def __init__(self, folder: Path) -> None:
        this = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]  # another way to hash is another file
        self.path = folder / f"codehash.{sys.implementation.cache_tag}.{this}.json"
        self.new: dict[str, tuple[str, list[str]]] = {}
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            found = None
        whole = isinstance(found, dict) and all(map(_is_entry, found.values()))
        self.old: dict[str, Any] = found if whole else {}

    def look_up(self, name: str, content: bytes) -> tuple[str, list[str]]:
        """Hash and dotted names of one file."""
        key = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()
        if key not in self.old and key not in self.new:
            self.new[key] = _analysed(name, content)
            if len(self.new) == 1:
                atexit.register(self.write)
        value, names = self.new[key] if key in self.new else self.old[key]
        return value, names

    def write(self) -> None:
        """Add what is new, whole or not at all. Without a folder for compiled files, or room, it stays unsaved."""
        if sys.dont_write_bytecode:
            return
        old = self.old if len(self.old) + len(self.new) <= self.MOST else {}
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".codehash.", suffix=".tmp")
            try:
                with open(handle, "w", encoding="utf-8") as file:
                    json.dump({**old, **self.new}, file)
                os.chmod(name, 0o644)  # others who share the folder may read it
                os.replace(name, self.path)
            except OSError:
                os.unlink(name)


def _is_entry(found: object) -> bool:
    """Whether a kept entry has the shape of one: a SHA-256 and a list of names."""
    match found:
        case [str(value), [*names]]:
            return len(value) == 64 and all(isinstance(name, str) for name in names)
    return False


@functools.cache
def _kept(root: Path) -> _Kept:
    return _Kept(root / "workflow_scripts" / "__pycache__")


def _imports(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Dotted names that may be imported anywhere below `node`; blocks only for type checkers are passed over."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for branch in node.orelse:
            yield from _imports(branch, package)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, package)


def _lines(node: ast.Dict) -> Iterator[bool]:
    """For each entry of a dict literal whether it is a registry's line."""
    for value in node.values:
        text = value.value if isinstance(value, ast.Constant) else None
        yield isinstance(text, str) and ":" in text and text.startswith(tuple(f"{package}." for package in PACKAGES))


def _words(value: object, found: list[str]) -> list[str]:
    """Add the syntax tree to `found` as words, equal for every version of Python that can parse the file.

    Snakemake and every job wait for this at their start: a generator took two to three times as long.
    """
    if isinstance(value, ast.AST):
        name = type(value).__name__
        found.append(f"({name}")
        for field in value._fields:
            if field in SKIPPED_FIELDS:
                continue
            content = getattr(value, field, None)
            if name not in WHOLE:
                content = _counted(value, field, content)
            if (content is None or content == []) and name != "Constant":  # None is a constant, too
                continue
            found.append(field)
            _words(content, found)
        found.append(")")
    elif isinstance(value, list):
        found.append("[")
        for item in value:
            _words(item, found)
        found.append("]")
    else:
        found.append(f"{type(value).__name__}:{value!r}")
    return found


def _counted(node: ast.AST, field: str, content: Any) -> Any:
    """What counts of a node's field: code that decides something, in a form that every version of Python gives."""
    if field == "body" and isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        content = content[1:]
    if field == "body" and isinstance(node, ast.Module):
        return [part for part in content if not _assigns_to(part, UNCOUNTED_NAMES)]
    if field == "value" and isinstance(node, ast.stmt) and _assigns_to(node, MODULE_REGISTRIES):
        return None
    if field == "slice" and isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        return [part for part in getattr(content, "elts", [content]) if not _is_text(part)]
    if isinstance(node, ast.Dict):
        return [part for part, line in zip(content, _lines(node), strict=True) if not line]
    if field == "keywords" and isinstance(node, ast.Call):
        return [word for word in content if word.arg not in UNCOUNTED_KEYWORDS or not _is_text(word.value)]
    if isinstance(node, ast.JoinedStr):
        return _joined(content)
    if field == "format_spec" and content is not None and not _joined(content.values):
        return None
    return content


def _assigns_to(node: ast.stmt, names: tuple[str, ...]) -> bool:
    """Whether a statement assigns to these names and to nothing else."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, ast.Name) and target.id in names for target in targets)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _joined(parts: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string with neighbouring texts as one; versions of Python cut them in different places."""
    found: list[ast.expr] = []
    for part in parts:
        if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
            found.append(part)
        elif part.value and found and isinstance(last := found[-1], ast.Constant):
            found[-1] = ast.Constant(str(last.value) + part.value)
        elif part.value:
            found.append(part)
    return found
