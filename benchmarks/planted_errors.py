"""Plant small errors into the code, one at a time, and count those that the tests find.

An error is one changed operator, number or condition in a line of a function. EACH errors are drawn at random in each
area of a checkout, which must not be used for anything else meanwhile:

    python -m benchmarks.planted_errors --checkout CHECKOUT --results FILE.csv

The tests that most likely find the error run first: files named after the module, files that import it or belong to its
package, files that mention the function, then whole methods or workflows. Each error has 120 s of CPU time.
The files of the checkout are restored afterwards. If the command is repeated, it continues with the remaining errors.
"""

import argparse
import ast
import contextlib
import csv
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = ("area", "path", "function", "line", "planted", "failing")
AREAS = {
    "engine": [
        "fednoise_core/engine/**/*.py",
        *(f"fednoise_core/ops/{name}.py" for name in ("optim", "weights", "losses")),
    ],
    "methods": ["fednoise_core/methods/*.py"],
    "noise": ["fednoise_core/noise/*.py", "fednoise_core/partition/*.py"],
    "workflow": [f"workflow_scripts/{room}/*.py" for room in ("commands", "config", "provenance", "steps", "study")],
    "label errors": ["fednoise_core/label_errors/*.py"],
}
SWAPS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.And: "or",
    ast.Or: "and",
}
SEED, EACH = 0, 20  # seed of the draw; number of errors in each area
MISSED = "missed"
CPU_SECONDS = 120  # for the tests of one error
WALL_SECONDS = 1800  # for a group of its tests, since the machine may be busy


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                yield f"{node.name}.{inner.name}" if inner is not node else inner.name, inner


def change(node: ast.AST, text: str) -> str | None:
    """Return the source of an expression with one error in it. None if no kind of error fits."""

    def part(inner: ast.AST) -> str:
        return ast.get_source_segment(text, inner) or ""

    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        return f"{part(node.left)} {SWAPS[type(node.ops[0])]} {part(node.comparators[0])}"
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        return f"{part(node.left)} {SWAPS[type(node.op)]} {part(node.right)}"
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        return f"{part(node.values[0])} {SWAPS[type(node.op)]} {part(node.values[1])}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return part(node.operand)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return repr(node.value + 1)
    return None


def errors_of_file(path: str, text: str) -> Iterator[dict[str, str]]:
    """Yield every error that can be planted into a file, except in messages, decorators, annotations and defaults."""
    lines = text.splitlines()
    for name, function in functions(ast.parse(text)):
        skipped = {inner for node in function.decorator_list for inner in ast.walk(node)}
        for node in ast.walk(function):
            if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments | ast.Assert | ast.Slice):
                skipped.update(ast.walk(node))
            elif isinstance(node, ast.AnnAssign):
                skipped.update(ast.walk(node.annotation))
            elif isinstance(node, ast.FunctionDef) and node.returns:
                skipped.update(ast.walk(node.returns))
        for node in ast.walk(function):
            if node in skipped or not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
                continue
            changed = change(node, text)
            if changed is None:
                continue
            line = lines[node.lineno - 1]
            start, end = (
                len(line.encode()[:column].decode()) for column in (node.col_offset, node.end_col_offset or 0)
            )
            planted = f"{line[:start]}{changed}{line[end:]}"
            changed_text = "\n".join([*lines[: node.lineno - 1], planted, *lines[node.lineno :]])
            if lines.count(line) == 1 and planted != line:
                with contextlib.suppress(SyntaxError):
                    ast.parse(changed_text)
                    yield {"path": path, "function": name, "line": line.strip(), "planted": planted.strip()}


def find_errors(root: Path, area: str) -> Iterator[dict[str, str]]:
    for file in sorted(file for pattern in AREAS[area] for file in root.glob(pattern)):
        yield from errors_of_file(str(file.relative_to(root)), file.read_text())


def draw_errors(root: Path, seed: int) -> list[dict[str, str]]:
    """Draw EACH errors in each area, at most one per line."""
    rows = []
    for area in AREAS:
        by_line = {(row["path"], row["line"]): row for row in find_errors(root, area)}
        chosen = random.Random(seed).sample(sorted(by_line), EACH)
        rows += [{"area": area, **by_line[place]} for place in chosen]
    return rows


def plant(file: Path, row: dict[str, str]) -> str:
    """Plant an error. Returns the file's text before."""
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    function = dict(functions(ast.parse(text)))[row["function"]]
    for number in range(function.lineno - 1, function.end_lineno or 0):
        if lines[number].strip() == row["line"]:
            lines[number] = lines[number].replace(row["line"], row["planted"])
            break
    file.write_text("".join(lines))
    return text


def order_tests(root: Path, row: dict[str, str]) -> list[list[str]]:
    """List test files in groups, those that most likely find the error first."""
    module = row["path"].removesuffix(".py").replace("/", ".")
    package, _, stem = module.rpartition(".")
    imports = re.compile(rf"(?m)^\s*(from {package} import .*\b{stem}\b|(from|import) {module}\b)")
    folder = re.compile(rf"[/_]{package.rpartition('.')[2]}[/_]")
    names = [word for word in row["function"].split(".") if len(word) > 5 and not word.startswith("__")]
    core = module.startswith("fednoise_core")
    broad = "tests/methods/" if core else "tests/workflow/"
    groups: list[list[tuple[int, str]]] = [[], [], [], []]
    for file in sorted((root / "tests").rglob("test_*.py")):
        text, name = file.read_text(), str(file.relative_to(root))
        mentions = sum(len(re.findall(rf"\b{word}\b", text)) for word in names)
        related = imports.search(text) or folder.search(name) or (core and name.startswith("tests/api/"))
        signs = [re.search(rf"_{stem}[_.]", file.name), related, mentions]
        if name.startswith("tests/workflow/"):  # these take minutes, and must be last
            signs = [None, None, None]
        for group, sign in zip(groups, [*signs, name.startswith(broad)], strict=True):
            if sign:
                group.append((-mentions, name))
                break
    return [[name for _, name in sorted(group)] for group in groups if group]


def find_failing(root: Path, tests: list[str], seconds: int) -> str:
    """Return the first test that fails, or ""."""
    limits = ["timeout", "-s", "KILL", str(WALL_SECONDS), "prlimit", f"--cpu={seconds}"]
    command = [*limits, sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode in (3, 4):
        raise RuntimeError(f"pytest itself failed: {done.stdout}{done.stderr}")
    if done.returncode not in (1, 2):  # all tests passed, or the time is over
        return ""
    failed = re.search(r"(?m)^(?:FAILED|ERROR) ([\w/.-]+(::\w+)*)", done.stdout)
    return failed[1] if failed else "interrupted"


def test_error(root: Path, row: dict[str, str]) -> str:
    """Return the first test that fails with this error planted, else MISSED."""
    file, end = root / row["path"], sum(os.times()[2:4]) + CPU_SECONDS  # CPU seconds of child processes
    before = plant(file, row)
    try:
        for tests in order_tests(root, row):
            left = int(end - sum(os.times()[2:4]))
            if left > 0 and (failing := find_failing(root, tests, left)):
                return failing
        return MISSED
    finally:
        file.write_text(before)


def main() -> None:
    """Test all errors that FILE.csv does not have yet, and print how many of each area were caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()
    root, done = args.checkout.resolve(), []
    if args.results.exists():
        done = list(csv.DictReader(args.results.read_text().splitlines()))
    with args.results.open("a", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not done:
            table.writeheader()
        for row in draw_errors(root, args.seed)[len(done) :]:
            done.append({**row, "failing": test_error(root, row)})
            table.writerow(done[-1])
            file.flush()
            print(*done[-1].values(), sep=" | ", flush=True)
    for area in AREAS:
        caught = [row["failing"] != MISSED for row in done if row["area"] == area]
        print(f"{area}: {sum(caught)} of {len(caught)} caught")


if __name__ == "__main__":
    main()
