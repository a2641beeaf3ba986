"""Hash of the code behind a step: its script and every project module that the script imports, directly or not.

What decides no result is not in the hash: comments, docstrings, annotations that declare no setting, sentences about
settings and options, texts of errors, names of local variables (as long as those of one name, or of two, stay so),
`__all__`, `__version__`, and where a module lies.

Imports by computed name cannot be seen; callers of `closure_hash` name such modules as further entries. The lines of a
registry ("name": "project.module:object") do not count, so that a further entry changes nothing for the others; callers
name the file and object that they use as "file.py:object".
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from symtable import SymbolTable, symtable
from typing import Any, NamedTuple

from fednoise_core.io import json_digest, write_json

PACKAGES = ("fednoise_core", "workflow_scripts")
BOOKKEEPING = (  # say which code a result is of, and decide nothing in it: not followed
    "workflow_scripts/machine/locks.py",
    "workflow_scripts/provenance/",
    "workflow_scripts/steps/common.py",
)
# only runs on a GPU use these: imports of them are not followed, and `StepCode.train` names them for such runs
GPU_ONLY = tuple(f"fednoise_core/engine/executors/gpu/{name}.py" for name in ("captured", "cuda_graphs", "lanes"))
UNCOUNTED_NAMES = ("__all__", "__version__", "display_name", "family")  # nothing here imports by `*`
UNCOUNTED_KEYWORDS = ("help", "description", "display_name")  # what a command line, a reference or a table shows
SEES_NAMES = ("locals", "vars", "dir", "eval", "exec")  # in a function that uses one, names of variables may decide
CACHE = "build/modules.json"  # in the project's folder
OWN_TEXT = Path(__file__).read_text(encoding="utf-8")  # of the code that runs, whatever becomes of the file

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Tables = Mapping[tuple[str, int], SymbolTable]


def closure_hash(root: str | Path, *entries: str) -> str:
    """Hash the code reachable by imports.

    Args:
        root: The project's folder.
        entries: Files relative to it, or "file:object".

    Returns:
        16 hex digits.
    """
    modules = read_modules(Path(root), entries)

    def hash_module(file: str) -> str:
        """Of a file and its direct imports: which module a name comes from counts, its path and its line do not."""
        imports = sorted(f"{names} {modules[one].hash}" for names, one in modules[file].imports if one in modules)
        return hashlib.sha256("\n".join([modules[file].hash, *imports]).encode()).hexdigest()

    found = {hash_module(file) for file, module in modules.items() if not module.empty}
    found |= {f"{hash_module(file)}:{name}" for file, colon, name in (one.partition(":") for one in entries) if colon}
    words = ["python {}.{}".format(*sys.version_info), *sorted(found)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def module_file(root: str | Path, dotted: str) -> str | None:
    """Find the file of a module.

    Args:
        root: The project's folder.
        dotted: The dotted name of the module.

    Returns:
        The file relative to `root`, None if the project has no such module.
    """
    return _find_module(dotted, lambda file: (Path(root) / file).is_file())


def _find_module(dotted: str, exists: Callable[[str], bool]) -> str | None:
    path = Path(*dotted.split("."))
    return next(filter(exists, (path.with_suffix(".py").as_posix(), (path / "__init__.py").as_posix())), None)


@functools.cache
def read_registry(root: str | Path, file: str, name: str) -> dict[str, str]:
    """Read a dict literal of names and strings without importing anything.

    Args:
        root: The project's folder.
        file: The file, relative to it.
        name: The name to which the dict is assigned.

    Returns:
        The entries whose value is a literal. What the others refer to is imported by `file` itself.

    Raises:
        LookupError: The file assigns no dict literal to the name.
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


class _Module(NamedTuple):
    """Contents of one file that count."""

    hash: str  # of what counts in its syntax tree
    empty: bool  # nothing counts
    imports: tuple[tuple[str, str], ...]  # (names, the project's file that they are imported from)
    packages: tuple[str, ...]  # the __init__.py that importing it runs


def read_modules(root: Path, entries: Iterable[str]) -> dict[str, _Module]:
    """Read the project's files that are reachable by imports.

    The `__init__.py` of every package on the way belongs to them, because importing a module runs them.

    Args:
        root: The project's folder.
        entries: Files relative to it, or "file:object".

    Returns:
        File relative to `root` → what is read in it.
    """
    found: dict[str, _Module] = {}
    waiting = [entry.partition(":")[0] for entry in entries]
    cache = _open_cache(root.resolve())
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = module = cache.read_module(name)
            imports = (file for _, file in module.imports)
            waiting += [file for file in (*module.packages, *imports) if not file.startswith(BOOKKEEPING + GPU_ONLY)]
    cache.save()
    return found


class _Cache:
    """Cache of parsed files of PACKAGES. Parsing them takes longer than many a job."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: dict[str, Any] = {}
        self.changed = False
        with contextlib.suppress(OSError, ValueError):
            self.known |= json.loads((root / CACHE).read_text(encoding="utf-8"))
        walks = (os.walk(root / one, followlinks=True) for one in PACKAGES)
        files = (Path(folder, name) for walk in walks for folder, _, names in walk for name in names)
        there = sorted(file.relative_to(root).as_posix() for file in files if file.suffix == ".py" and file.is_file())
        # what decides besides a file's content: Python, this module, and which modules there are to import
        self.there = frozenset(there)
        self.context = json_digest(sys.version, OWN_TEXT, there)

    def read_module(self, name: str) -> _Module:
        content = (self.root / name).read_bytes()
        if name.split("/")[0] not in PACKAGES:  # the user's: it may import from anywhere
            return _parse_module(name, content, lambda file: (self.root / file).is_file(), own=True)
        key = hashlib.sha256(f"{self.context} {name} ".encode() + content).hexdigest()
        if self.known.get(name, [None])[0] != key:
            self.known[name] = [key, *_parse_module(name, content, self.there.__contains__)]
            self.changed = True
        _, value, empty, imports, packages = self.known[name]
        return _Module(value, empty, tuple((names, file) for names, file in imports), tuple(packages))

    def save(self) -> None:
        if self.changed:
            with contextlib.suppress(OSError):  # the project's folder may be read-only
                write_json(self.root / CACHE, self.known)
        self.changed = False


_open_cache = functools.cache(_Cache)


def _parse_module(name: str, content: bytes, exists: Callable[[str], bool], own: bool = False) -> _Module:
    folders = name.split("/")[:-1]
    tables = dict(_function_tables(symtable(content.decode("utf-8-sig"), name, "exec")))
    counted = _SignificantParts(exists, folders, own, tables)
    tree = counted.visit(ast.parse(content, filename=name))
    inits = ("/".join([*folders[:depth], "__init__.py"]) for depth in range(1, len(folders) + 1))
    packages = tuple(init for init in inits if exists(init))
    value = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return _Module(value, not tree.body and not counted.imports, tuple(counted.imports), packages)


def _function_tables(table: SymbolTable) -> Iterator[tuple[tuple[str, int], SymbolTable]]:
    """Name, line and symbols of every function that is in no other one."""
    for child in table.get_children():
        if child.get_type() == "function":
            yield (child.get_name(), child.get_lineno()), child
        else:
            yield from _function_tables(child)


class _SignificantParts(ast.NodeTransformer):
    """Takes out of a syntax tree what decides nothing, and collects the project's files that are imported.

    package: the folders that lead to the file. own: the file is the user's; what it imports of the project counts,
    wherever it lies. tables: name and line → symbols of the functions that are in no other function.
    """

    def __init__(self, exists: Callable[[str], bool], package: list[str], own: bool, tables: Tables) -> None:
        self.exists, self.package, self.own, self.tables = exists, package, own, tables
        self.imports: list[tuple[str, str]] = []
        self.in_class = False

    # imports: of the project's modules the names count, apart from the order and the lines in which they stand

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        node.names = [one for one in node.names if not self._note_import(one.name, f"{one.asname or one.name}")]
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module == "__future__":
            return None
        above = self.package[: len(self.package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        node.names = [one for one in node.names if not self._note_imported_name(base, one)]
        return node if node.names else None

    def _note_imported_name(self, base: str, name: ast.alias) -> bool:
        """Return True if `name` is a module of the project, or of one."""
        bound = name.asname or name.name
        return self._note_import(f"{base}.{name.name}", bound) or self._note_import(base, f"{name.name} as {bound}")

    def _note_import(self, dotted: str, names: str) -> bool:
        """Note an imported module with the names that are bound. Returns False if the project has no such module."""
        ours = dotted and (self.own or dotted.split(".")[0] in PACKAGES)
        file = _find_module(dotted, self.exists) if ours else None
        self.imports += [(names, file)] if file else []
        return file is not None

    def visit_If(self, node: ast.If) -> Any:
        if _last_name(node.test) == "TYPE_CHECKING":
            return self._visit_all(node.orelse)
        return self.generic_visit(node)

    # texts

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = self._visit_all(part for part in _without_docstring(node) if not _assigns_to(part, UNCOUNTED_NAMES))
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = [_Textless().visit(part) for part in node.exc.args]
            node.exc.keywords = [_Textless().visit(part) for part in node.exc.keywords]
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [one for one in node.keywords if one.arg not in UNCOUNTED_KEYWORDS or not _is_text(one.value)]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        pairs = [pair for pair in zip(node.keys, node.values, strict=True) if not _is_registry_line(pair[1])]
        node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        return self.generic_visit(node)

    # annotations: fields of classes, keyword-only parameters and Annotated[…] may declare settings

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self.in_class:
            return self.generic_visit(node)
        if node.value is None:
            return None
        return self.visit(ast.Assign([node.target], node.value))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outside, self.in_class = self.in_class, True
        node.body = [part for part in _without_docstring(node) if not _assigns_to(part, UNCOUNTED_NAMES)]
        self.generic_visit(node)
        self.in_class = outside
        return node

    def _visit_function(self, node: FunctionNode) -> ast.AST:
        node.returns = None
        for one in _list_parameters(node.args):
            said = one not in node.args.kwonlyargs and one.annotation
            if said and all(_last_name(part) != "Annotated" for part in ast.walk(said)):
                one.annotation = None
        outside, self.in_class = self.in_class, False
        node.body = _without_docstring(node)
        self.generic_visit(node)
        self.in_class = outside
        table = self.tables.get((node.name, node.lineno))
        return _number_variables(node, table) if table else node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def _visit_all(self, nodes: Iterable[Any]) -> list[Any]:
        """The nodes that are left of `nodes`."""
        found: list[Any] = []
        for node in nodes:
            left = self.visit(node)
            found += left if isinstance(left, list) else [] if left is None else [left]
        return found


class _Textless(ast.NodeTransformer):
    """Empties texts."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if _is_text(node) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("")


def _number_variables(function: FunctionNode, table: SymbolTable) -> FunctionNode:
    """Replace the names of a function's variables by numbers, in the order in which they come.

    Names of parameters and of what is also global stay, and those that another statement than an assignment binds. All
    names stay where a class is defined, or where a name is seen from outside (`SEES_NAMES`).
    """
    tables = [table]
    for one in tables:
        tables += one.get_children()
    symbols = [symbol for one in tables for symbol in one.get_symbols()]
    bound = (symbol for symbol in symbols if symbol.is_global() or symbol.is_parameter() or symbol.is_imported())
    kept = {symbol.get_name() for symbol in bound}
    if any(one.get_type() == "class" for one in tables) or kept & set(SEES_NAMES):
        return function
    # decorators, defaults and annotations see the names around the function
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    variables = {symbol.get_name() for symbol in symbols} - kept - _names_in_statements(nodes)
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in variables:
            node.id = found.setdefault(node.id, f"%{len(found)}")
    return function


def _names_in_statements(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that stand in a statement itself: of an inner function, an exception, a pattern, or after `nonlocal`."""
    found = {str(getattr(node, key, "")) for node in nodes for key in ("name", "rest")}
    return found.union(*(node.names for node in nodes if isinstance(node, ast.Nonlocal)))


def _list_parameters(parameters: ast.arguments) -> list[ast.arg]:
    several = [one for one in (parameters.vararg, parameters.kwarg) if one]
    return [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs, *several]


def _without_docstring(node: ast.Module | ast.ClassDef | FunctionNode) -> list[ast.stmt]:
    """The body without the docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _assigns_to(node: ast.stmt, names: tuple[str, ...]) -> bool:
    """Return True if a statement assigns to these names and to nothing else."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, ast.Name) and target.id in names for target in targets)


def _last_name(node: ast.AST) -> str:
    """The last part of a dotted name; "" for other expressions."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_registry_line(node: ast.expr) -> bool:
    """Return True if a value of a dict literal makes its entry a registry's line."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and ":" in text and text.startswith(tuple(f"{package}." for package in PACKAGES))
