"""Hash of a step's code: its script and every project module that the script imports, directly or indirectly.

The hash covers syntax trees without docstrings, so it does not depend on comments, docstrings and formatting. Neither
does it depend on messages of exceptions and descriptions of settings.

Entries of a registry ("name": "project.module:object") do not count, so that a new method does not change the hash of
other methods. Callers therefore name the file and object that they use as "file.py:object". They also name modules that
are imported by computed names.
"""

import ast
import contextlib
import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fednoise_core.io import json_digest, write_json

PACKAGES = ("fednoise_core", "workflow_scripts")
# imports of these modules are not followed: they record the code of a result, and do not affect the result
BOOKKEEPING = (
    "fednoise_core/version.py",
    "workflow_scripts/machine/locks.py",
    "workflow_scripts/provenance/",
    "workflow_scripts/steps/common.py",
)
CACHE = "build/modules.json"  # in the project's folder; parsing all modules takes longer than many jobs
OWN_TEXT = Path(__file__).read_text(encoding="utf-8")  # read at import, since the file may change while a job runs


def closure_hash(root: str | Path, *entries: str) -> str:
    """Hash the code reachable by imports from `entries`: files relative to `root`, or "file:object"."""
    named = sorted(entry for entry in entries if ":" in entry)
    return json_digest("python {}.{}".format(*sys.version_info), read_modules(Path(root), entries), named)


def read_modules(root: Path, entries: Iterable[str]) -> dict[str, str]:
    """Hash each file that is reachable by imports, with the `__init__.py` of every package on the way."""
    hashes: dict[str, str] = {}
    waiting = [entry.partition(":")[0] for entry in entries]
    parser = _open_parser(root.resolve())
    while waiting:
        file = waiting.pop()
        if file not in hashes:
            hashes[file], imports = parser.parse_file(file)
            waiting += [file for file in imports if not file.startswith(BOOKKEEPING)]
    parser.save_cache()
    return hashes


def module_file(root: str | Path, dotted: str) -> str | None:
    """Find the file of a module relative to `root`, None if the project has no such module."""
    path = Path(*dotted.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file.as_posix() for file in files if (Path(root) / file).is_file()), None)


class _Parser:
    """Parses files, each once as long as its content, this module and the version of Python do not change."""

    def __init__(self, root: Path) -> None:
        self.root, self.changed, self.cache = root, False, dict[str, Any]()
        self.has_libraries = (root / "numpy").is_dir()  # true after `pip install .`
        self.find_file = functools.cache(functools.partial(module_file, root))
        with contextlib.suppress(OSError, ValueError):
            self.cache |= json.loads((root / CACHE).read_text(encoding="utf-8"))

    def parse_file(self, file: str) -> tuple[str, list[str]]:
        """Return the hash of a file, and the project's files that importing it runs."""
        content, folders = (self.root / file).read_bytes(), file.split("/")[:-1]
        key = json_digest(sys.version, OWN_TEXT, file, hashlib.sha256(content).hexdigest())
        if self.cache.get(file, [None])[0] != key:
            tree = _remove_uncounted(ast.parse(content, filename=file))
            digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
            self.cache[file], self.changed = [key, digest, list(_list_imports(tree, folders))], True
        _, digest, imports = self.cache[file]
        packages = [".".join(folders[:depth]) for depth in range(1, len(folders) + 1)]
        dotted = {name for names in (*imports, packages) for name in names if name}
        if self.has_libraries and file.split("/")[0] in PACKAGES:
            dotted = {name for name in dotted if name.split(".")[0] in PACKAGES}
        return digest, [path for name in dotted if (path := self.find_file(name)) is not None]

    def save_cache(self) -> None:
        if self.changed:
            with contextlib.suppress(OSError):  # the project's folder may be read-only
                write_json(self.root / CACHE, self.cache)
        self.changed = False


_open_parser = functools.cache(_Parser)


def _remove_uncounted(tree: ast.Module) -> ast.Module:
    """Remove docstrings, messages, descriptions, lines of registries and imports for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = node.body[ast.get_docstring(node, clean=False) is not None :]
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Field":
            node.keywords = [word for word in node.keywords if word.arg != "description"]
        elif isinstance(node, ast.Dict):
            pairs = [pair for pair in zip(node.keys, node.values, strict=True) if not _is_registry_line(pair[1])]
            node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node.body = []
    return tree


def _is_registry_line(value: ast.expr) -> bool:
    text = value.value if isinstance(value, ast.Constant) else None
    return isinstance(text, str) and ":" in text and text.startswith(tuple(f"{package}." for package in PACKAGES))


def _list_imports(tree: ast.Module, folders: list[str]) -> Iterator[list[str]]:
    """Yield the dotted names that each import may run, such as "a" and "a.b" for `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folders[: len(folders) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield [base, *(f"{base}.{name.name}" for name in node.names)]
