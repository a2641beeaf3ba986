"""Hash of the code behind a step: its script and every project module that the script imports, directly or not.

What decides no result is not in the hash: comments, docstrings, annotations that declare no setting, sentences about
settings and options, texts of errors, names of local variables, `__all__`, `__version__`, and where a module lies.
Imports by computed name cannot be seen; callers of `closure_hash` name such modules as further entries. The lines of a
registry ("name": "project.module:object") do not count, so that a further entry changes nothing for the others; callers
name the file and object that they use as "file.py:object".
"""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["BOOKKEEPING", "GPU_ONLY", "PACKAGES", "closure", "closure_hash", "module_file", "registry"]

PACKAGES = ("fednoise_core", "workflow_scripts", "label_review")
BOOKKEEPING = tuple(  # say which code a result is of, and decide nothing in it: not followed
    f"workflow_scripts/{name}.py"
    for name in ("codehash", "locks", "progress", "step", "stepcode", "sums")
)
# only runs on a GPU use these: imports of them are not followed, and `StepCode.train` names them for such runs
GPU_ONLY = tuple(f"fednoise_core/engine/executors/{name}.py" for name in ("captured", "cuda_graphs", "lanes"))
MODULE_REGISTRIES = ("READERS",)  # names of dicts whose lines are "name": "module beside the file"
UNCOUNTED_NAMES = ("__all__", "__version__")  # assigned in a module: nothing here imports by `*`
UNCOUNTED_KEYWORDS = ("help", "description")  # sentences that a command line or a reference shows
SEES_NAMES = ("locals", "vars", "dir", "eval", "exec")  # in a function that uses one, names of variables may decide

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
ComprehensionNode = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def closure_hash(root: str | Path, *entries: str) -> str:
    """16 hex digits for the code reachable from `entries`: files relative to the project's `root`, or "file:object"."""
    modules = _modules(Path(root), entries)

    def hashed(file: str) -> str:
        """Of a file and its direct imports, in order: which module a name comes from counts, its path does not."""
        imports = (modules[one].hash for one in modules[file].imports if one in modules)
        return hashlib.sha256("\n".join([modules[file].hash, *imports]).encode()).hexdigest()

    found = {hashed(file) for file, module in modules.items() if not module.empty}
    found |= {f"{hashed(file)}:{name}" for file, colon, name in (one.partition(":") for one in entries) if colon}
    words = ["python {}.{}".format(*sys.version_info), *sorted(found)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def closure(root: str | Path, *entries: str) -> list[str]:
    """The project's files reachable by imports from `entries`, relative to `root` and sorted.

    The `__init__.py` of every package on the way belongs to them, because importing a module runs them.
    """
    return sorted(_modules(Path(root), entries))


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


class _Module(NamedTuple):
    """What is read in one file."""

    hash: str  # of what counts in its syntax tree
    empty: bool  # nothing counts
    imports: tuple[str, ...]  # the project's files whose names it imports, in order
    packages: tuple[str, ...]  # the __init__.py that importing it runs


def _modules(root: Path, entries: Iterable[str]) -> dict[str, _Module]:
    """The files reachable from `entries`."""
    found: dict[str, _Module] = {}
    waiting = [entry.partition(":")[0] for entry in entries]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = module = _read(root, name, (root / name).read_bytes())
            waiting += [file for file in (*module.packages, *module.imports) if file not in BOOKKEEPING + GPU_ONLY]
    return found


@functools.cache
def _read(root: Path, name: str, content: bytes) -> _Module:
    folders = name.split("/")[:-1]
    counted = _Counted(root, folders, own=name.split("/")[0] not in PACKAGES)
    tree = counted.visit(ast.parse(content, filename=name))
    inits = ("/".join([*folders[:depth], "__init__.py"]) for depth in range(1, len(folders) + 1))
    packages = tuple(init for init in inits if (root / init).is_file())
    value = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return _Module(value, not tree.body, tuple(counted.imports), packages)


class _Counted(ast.NodeTransformer):
    """Takes out of a syntax tree what decides nothing, and collects the project's files that are imported.

    package: the folders that lead to the file. own: the file is the user's; what it imports of the project counts,
    wherever it lies. `names`: the local variables in sight → what stands for them.
    """

    def __init__(self, root: Path, package: list[str], own: bool) -> None:
        self.root, self.package, self.own = root, package, own
        self.imports: list[str] = []
        self.names: dict[str, str] = {}
        self.variables = 0
        self.in_class = False

    # imports: without the path of the project's modules

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for alias in node.names:
            if self._import(alias.name) and alias.asname:
                alias.name = ""
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module == "__future__":
            return None
        above = self.package[: len(self.package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        # all of them, also where the first is one of the project's
        if any([self._import(f"{base}.{alias.name}") or self._import(base) for alias in node.names]):
            node.module, node.level = "", 0
        return node

    def _import(self, dotted: str) -> bool:
        """Whether the project has this module; then it is noted."""
        ours = dotted and (self.own or dotted.split(".")[0] in PACKAGES)
        file = module_file(self.root, dotted) if ours else None
        self.imports += [file] if file else []
        return file is not None

    def visit_If(self, node: ast.If) -> Any:
        if _name(node.test) == "TYPE_CHECKING":
            return self._all(node.orelse)
        return self.generic_visit(node)

    # texts

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = self._all(part for part in _undocumented(node) if not _assigns_to(part, UNCOUNTED_NAMES))
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

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if _name(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            node.slice.elts = [part for part in node.slice.elts if not _is_text(part)]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        pairs = [pair for pair in zip(node.keys, node.values, strict=True) if not _is_line(pair[1])]
        node.keys, node.values = [key for key, _ in pairs], [value for _, value in pairs]
        return self.generic_visit(node)

    # annotations: fields of classes, keyword-only parameters and Annotated[…] may declare settings

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self.in_class:
            return self.generic_visit(node)
        if node.value is None:
            return None
        return self.visit(ast.Assign([node.target], node.value))

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if _assigns_to(node, MODULE_REGISTRIES):
            node.value = ast.Constant(None)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outside, self.in_class = self.in_class, True
        node.body = _undocumented(node)
        self.generic_visit(node)
        self.in_class = outside
        return node

    def _visit_function(self, node: FunctionNode) -> ast.AST:
        node.returns = None
        for one in _parameters(node.args):
            said = one not in node.args.kwonlyargs and one.annotation
            if said and all(_name(part) != "Annotated" for part in ast.walk(said)):
                one.annotation = None
        node.decorator_list = self._all(node.decorator_list)
        node.args = self.visit(node.args)
        around, in_class = self.names, self.in_class
        self.names, self.in_class = self._inside(node.args, _variables(node)), False
        node.body = self._all(_undocumented(node))
        self.names, self.in_class = around, in_class
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    # names of local variables: numbered in the order of their assignments

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.args = self.visit(node.args)
        around, self.names = self.names, self._inside(node.args, [])
        node.body = self.visit(node.body)
        self.names = around
        return node

    def _visit_comprehension(self, node: ComprehensionNode) -> ast.AST:
        first = node.generators[0]
        first.iter = self.visit(first.iter)  # belongs to the scope around
        done, first.iter = first.iter, ast.Constant(None)
        around = self.names
        self.names = self._inside(None, _stored([one.target for one in node.generators]))
        self.generic_visit(node)
        self.names, first.iter = around, done
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def _inside(self, parameters: ast.arguments | None, variables: Iterable[str]) -> dict[str, str]:
        """The names in sight within a function or comprehension."""
        found = dict(self.names)
        for name in variables:
            found[name] = f"%{self.variables}"
            self.variables += 1
        # parameters are called by name, and hide the variables around
        return found | {one.arg: one.arg for one in (_parameters(parameters) if parameters else ())}

    def _all(self, nodes: Iterable[Any]) -> list[Any]:
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


def _variables(function: FunctionNode) -> list[str]:
    """The variables of a function whose names decide nothing: not those that are also names of something else, and none
    where a class is defined, whose names are attributes.
    """
    other: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.ClassDef():
                return []
            case ast.Name(id=name) if name in SEES_NAMES:
                return []
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ExceptHandler(name=str(name)):
                other.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                other.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                other.update(names)
            case ast.alias(name=name, asname=other_name):
                other.add(other_name or name.partition(".")[0])
    return [name for name in _stored(function.body) if name not in other]


def _stored(nodes: Iterable[ast.AST]) -> list[str]:
    """The names that are assigned to in these nodes, scopes within them left out, in order."""
    found: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        elif not isinstance(node, FunctionNode | ast.Lambda | ComprehensionNode):
            found |= dict.fromkeys(_stored(ast.iter_child_nodes(node)))
    return list(found)


def _parameters(parameters: ast.arguments) -> list[ast.arg]:
    several = [one for one in (parameters.vararg, parameters.kwarg) if one]
    return [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs, *several]


def _undocumented(node: ast.Module | ast.ClassDef | FunctionNode) -> list[ast.stmt]:
    """The body without the docstring."""
    return node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body


def _assigns_to(node: ast.stmt, names: tuple[str, ...]) -> bool:
    """Whether a statement assigns to these names and to nothing else."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, ast.Name) and target.id in names for target in targets)


def _name(node: ast.AST) -> str:
    """The last part of a dotted name; "" for other expressions."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_line(node: ast.expr) -> bool:
    """Whether a value of a dict literal makes its entry a registry's line."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and ":" in text and text.startswith(tuple(f"{package}." for package in PACKAGES))
