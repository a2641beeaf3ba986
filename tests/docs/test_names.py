"""Names, lengths, branches and docstrings of the code. A function is a verb with its object, so that a search finds it.

ruff's C901 counts neither conditional expressions nor comprehensions nor `and` and `or`. Here they count.
"""

import ast
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for package in ("fednoise_core", "workflow_scripts")
    for path in sorted((ROOT / package).rglob("*.py"))
}
MEASURED = list(TREES.values())
Function = ast.FunctionDef | ast.AsyncFunctionDef
Branch = ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.Assert | ast.comprehension | ast.match_case
# module-level functions of one word: names of `fn`, the field's words, and verbs whose object is the module
ONE_WORD = """
arrays inject load run
auroc ce gce mae rce sce stream
audit check compare describe draw evaluate export fetch finish inspect main merge normalise plan predict prune publish
read record render restore sample save select split train write
"""


def functions(tree: ast.AST) -> Iterator[Function]:
    """Functions and methods at any depth, but for `__special__` ones."""
    return (node for node in ast.walk(tree) if isinstance(node, Function) and not node.name.startswith("__"))


def is_one_word(name: str) -> bool:
    return "_" not in name.strip("_")


def is_fixture(node: Function | ast.ClassDef) -> bool:
    """Whether pytest calls it by the name of an argument, which is a noun."""
    return any("fixture" in ast.dump(one) for one in node.decorator_list)


def complexity(function: Function) -> int:
    """Cyclomatic complexity (McCabe, 1976), as radon counts it."""
    nodes = list(ast.walk(function))
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    conditions = sum(len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    return 1 + sum(isinstance(node, Branch) for node in nodes) + operators + conditions


def registered_names() -> set[tuple[str, str]]:
    """(file, name) of what a registry holds: as a text "module:name", or in a call such as `KIND = Kind(draw=name)`."""
    found = set()
    for path, tree in TREES.items():
        texts = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        matches = (re.fullmatch(r"([\w.]+):(\w+)", text) for text in texts)
        found |= {(match[1].replace(".", "/") + ".py", match[2]) for match in matches if match}
        constants = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        for call in (value for value in constants if isinstance(value, ast.Call)):
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            found |= {(path, one.id) for one in arguments if isinstance(one, ast.Name)}
    return found


@pytest.fixture(scope="module")
def defined() -> list[tuple[str, str, bool]]:
    """(file, name, whether it is a class) of all module-level functions and classes that no registry names."""
    registered = registered_names()
    return [
        (path, node.name, isinstance(node, ast.ClassDef))
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("__")
        if (path, node.name) not in registered and not is_fixture(node)
    ]


def test_a_module_level_function_has_more_than_one_word(defined: list[tuple[str, str, bool]]):
    short = [(path, name) for path, name, is_class in defined if not is_class and is_one_word(name)]
    assert [(path, name) for path, name in short if name.strip("_") not in ONE_WORD.split()] == []


def test_a_name_is_used_in_two_modules_at_most(defined: list[tuple[str, str, bool]]):
    places = defaultdict(set)
    for path, name, _ in defined:
        places[name].add(path)
    assert {name: found for name, found in places.items() if len(found) > 2 and name != "main"} == {}


def test_a_function_has_60_lines_and_complexity_20_at_most():
    every = [(path, node) for path, tree in TREES.items() for node in functions(tree)]
    sizes = [(path, node.name, node.end_lineno - node.lineno + 1, complexity(node)) for path, node in every]
    assert [one for one in sizes if one[2] > 60 or one[3] > 20] == []


def test_four_of_ten_names_have_one_word_at_most():
    names = [node.name for tree in MEASURED for node in functions(tree)]
    assert sum(map(is_one_word, names)) / len(names) <= 0.4


def test_a_public_docstring_has_four_lines_as_a_rule():
    """Summary, blank line, and what Args, Returns or Raises add. Overrides inherit theirs."""
    lines = []
    for tree in MEASURED:
        owners = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)]
        for node in (one for owner in owners for one in owner.body if isinstance(one, Function)):
            text = None if node.name.startswith("_") else ast.get_docstring(node)
            lines += [len(text.splitlines())] if text else []
    assert statistics.median(lines) >= 4
