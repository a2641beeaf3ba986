"""Signatures and docstrings of the public Python names as Markdown, for the pages in docs/api."""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import fednoise_core

WIDTH, QUOTES = 100, "'"
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):\n((?:(?: +.*)?\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^    (\S[^:\n]*): ", re.MULTILINE)
CODE = re.compile(r"(`[^`]*`)")


def describe_name(name: str, members: bool = True) -> str:
    """Describe a module, class, function or registry in Markdown.

    Args:
        name: Its dotted name.
        members: Describe the public methods of a class, too.
    """
    thing = _find(name)
    if isinstance(thing, ModuleType):
        public = [part for part in vars(thing).values() if getattr(part, "__module__", None) == name]
        parts = [part for part in public if inspect.isroutine(part) or inspect.isclass(part)]
        return "\n\n".join(f"### `{part.__name__}`\n\n{_describe(part)}" for part in parts if part.__name__[0] != "_")
    if isinstance(thing, Mapping):
        return textwrap.fill(", ".join(f"`{key}`" for key in thing) + ".", 120)
    public_names = {place.replace(":", "."): f"fn.{public}" for public, place in fednoise_core._NAMES.items()}
    text = _describe(thing, public_names.get(name, ""))
    if members and inspect.isclass(thing):
        text = "\n\n".join([text, *(f"### `{thing.__name__}.{key}`\n\n{text}" for key, text in _members(thing))])
    return text


def _find(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(import_module(module), attribute)


def _members(owner: type) -> Iterator[tuple[str, str]]:
    """Yield name and description of each public method and property, including those inherited within this project."""
    for base in (base for base in owner.__mro__ if base.__module__.startswith("fednoise_core")):
        for name, member in vars(base).items():
            function = getattr(member, "fget", None) or getattr(member, "func", None) or inspect.unwrap(member)
            function = getattr(function, "__func__", function)
            if name[0] != "_" and inspect.isfunction(function) and inspect.getattr_static(owner, name) is member:
                called = inspect.isroutine(member)
                yield name, _describe(function) if called else _format_docstring(inspect.getdoc(function) or "")


def _describe(thing: Any, name: str = "") -> str:
    text = _format_docstring(inspect.getdoc(thing) or "")
    return f"```python\n{_format_signature(thing, name or thing.__name__)}\n```\n\n{text}".strip()


def _format_signature(thing: Any, name: str) -> str:
    """Format the signature as in the source, without the checks of settings."""
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing):
            fields = [field for field in dataclasses.fields(thing) if field.init and field.name[0] != "_"]
            written = dict(pair for base in reversed(thing.__mro__) for pair in _list_fields(base))
            return _wrap(name, [written[field.name] for field in fields], "")
        if "__init__" not in vars(thing):
            return name
        arguments, _ = _parse(thing.__init__)
        return _wrap(name, arguments[1:], "")
    arguments, returns = _parse(thing)
    return _wrap(name, arguments[arguments[:1] in (["self"], ["cls"]) :], returns)


def _list_fields(owner: type) -> Iterator[tuple[str, str]]:
    if owner.__module__.startswith("fednoise_core"):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        for line in ast.walk(tree):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                yield line.target.id, ast.unparse(_Plain().visit(line))


def _parse(function: Any) -> tuple[list[str], str]:
    """Return the arguments and the type of the result, as in the source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    _Plain().visit(tree.args)
    signature, empty = tree.args, [None] * (len(tree.args.args) - len(tree.args.defaults))
    arguments = list(map(_write_argument, signature.args, [*empty, *signature.defaults]))
    if signature.vararg or signature.kwonlyargs:
        arguments.append(f"*{ast.unparse(signature.vararg) if signature.vararg else ''}")
    arguments += map(_write_argument, signature.kwonlyargs, signature.kw_defaults)
    if signature.kwarg:
        arguments.append(f"**{ast.unparse(signature.kwarg)}")
    return arguments, f" -> {ast.unparse(tree.returns).strip(QUOTES)}" if tree.returns else ""


def _write_argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


class _Plain(ast.NodeTransformer):
    """Write `Annotated[type, …]` as `type`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            return cast(ast.AST, self.visit(node.slice.elts[0]))
        return self.generic_visit(node)


def _wrap(name: str, arguments: list[str], returns: str) -> str:
    line = f"{name}({', '.join(arguments)}){returns}"
    return (
        line
        if len(line) <= WIDTH
        else f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"
    )


def _format_docstring(text: str) -> str:
    """Format Google's sections of a docstring as bold words and lists."""
    return SECTION.sub(lambda section: _format_section(*section.groups()), _escape(text) + "\n").strip()


def _format_section(title: str, body: str) -> str:
    if title in ("Returns", "Yields"):
        return f"**{title}**: {textwrap.dedent(body).strip()}\n\n"
    entries = ENTRY.sub(lambda entry: f"- `{entry[1].strip('`')}`: ", body.rstrip())
    return f"**{title}**\n\n" + re.sub(r"\n {8}", "\n  ", entries) + "\n\n"


def _escape(text: str) -> str:
    """Escape `<` outside of code, where it would begin an HTML element."""
    return "".join(part if part[:1] == "`" else part.replace("<", "&lt;") for part in CODE.split(text))
