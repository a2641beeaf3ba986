"""How many small errors in the code do the tests find?

`planted_errors.csv` lists single-line errors: a line of a function, and the same line with one operator, number or
condition changed. `draw` chose them at random among lines that two versions of the project share, 20 in each area.
`test` plants them into a checkout one at a time, and runs its tests until one fails:

    python -m benchmarks.planted_errors draw --old OLD_CHECKOUT --new NEW_CHECKOUT
    python -m benchmarks.planted_errors test --checkout CHECKOUT --results FILE.csv

`test` runs the test files that are named after the module, then those that import it. With --whole, errors that these
miss meet the whole suite, which takes about a quarter of an hour each. It changes files of the checkout and restores
them: use a checkout of its own. A second start goes on with what is left.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).with_suffix(".csv")
FIELDS = ["id", "area", "path", "function", "line", "planted"]
AREAS = {
    "engine": ["fednoise_core/engine/", *(f"fednoise_core/ops/{name}.py" for name in ("optim", "weights", "losses"))],
    "methods": ["fednoise_core/methods/"],
    "noise": ["fednoise_core/noise/", "fednoise_core/partition/"],
    "workflow": ["workflow_scripts/", "label_review/"],
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
MISSED = "missed by the first tests"
MINUTES = 15  # a test run that takes longer has met the error as an endless loop


def sources(root: Path, area: str) -> Iterator[Path]:
    for place in AREAS[area]:
        yield from sorted((root / place).rglob("*.py")) if place.endswith("/") else [root / place]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                yield f"{node.name}.{inner.name}" if inner is not node else inner.name, inner


def change(node: ast.AST, text: str) -> str | None:
    """The source of an expression with one error in it, None where this script knows none."""

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


def is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def errors(path: str, text: str) -> Iterator[dict[str, str]]:
    """Every error that can be planted into a file, except in messages, decorators, annotations and defaults."""
    lines = text.splitlines()
    for name, function in functions(ast.parse(text)):
        skipped: set[ast.AST] = set()
        for decorator in function.decorator_list:
            skipped.update(ast.walk(decorator))
        for node in ast.walk(function):
            if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments | ast.Assert | ast.Slice):
                skipped.update(ast.walk(node))
            if isinstance(node, ast.AnnAssign | ast.FunctionDef):
                skipped.update(
                    ast.walk(getattr(node, "annotation", None) or getattr(node, "returns", None) or ast.Pass())
                )
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
            if lines.count(line) == 1 and planted != line and is_python(changed_text):
                yield {"path": path, "function": name, "line": line.strip(), "planted": planted.strip()}


def draw(old: Path, new: Path, seed: int, each: int) -> None:
    rows: list[dict[str, str]] = []
    for area in AREAS:
        shared = {file: new / file.relative_to(old) for file in sources(old, area)}
        in_new = [row for file in shared.values() if file.is_file() for row in errors(file.name, file.read_text())]
        keys = {tuple(row.values()) for row in in_new}
        known = [
            {**row, "path": str(file.relative_to(old))}
            for file in shared
            for row in errors(file.name, file.read_text())
            if tuple(row.values()) in keys
        ]
        by_line = {(row["path"], row["line"]): row for row in random.Random(seed).sample(known, len(known))}
        chosen = random.Random(seed).sample(list(by_line.values()), each)
        rows += [{"area": area, **row} for row in sorted(chosen, key=lambda row: (row["path"], row["function"]))]
    with LIST.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({"id": number, **row} for number, row in enumerate(rows, 1))


def find(root: Path, row: dict[str, str]) -> Path | None:
    """The file that has the line now: modules may have moved, functions may have been deleted."""
    files = [root / row["path"], *sources(root, row["area"]), *sorted((root / "fednoise_core").rglob("*.py"))]
    for file in files:
        if file.is_file() and [line.strip() for line in file.read_text().splitlines()].count(row["line"]) == 1:
            return file
    return None


def plant(file: Path, row: dict[str, str]) -> str:
    """Plants one error. Returns the file's text before."""
    text = file.read_text()
    file.write_text(re.sub(rf"(?m)^([ \t]*){re.escape(row['line'])}$", lambda m: m[1] + row["planted"], text, count=1))
    return text


def first_tests(root: Path, file: Path) -> list[list[str]]:
    """Arguments of the test runs to try first: files named after the module, then those that import it."""
    module = ".".join(file.relative_to(root).with_suffix("").parts)
    package, _, stem = module.rpartition(".")
    tests = sorted((root / "tests").rglob("test_*.py"))
    named = [str(test) for test in tests if re.fullmatch(rf"test_(\w+_)?{stem}(_\w+)?", test.stem)]
    imports = re.compile(rf"(?m)^\s*(from {package} import .*\b{stem}\b|(from|import) {module}\b)")
    importing = [str(test) for test in tests if str(test) not in named and imports.search(test.read_text())]
    runs = [named, importing]
    if "methods" in module:
        runs.append([str(root / "tests/methods"), "-k", stem])
    return [run for run in runs if run]


def failing(root: Path, arguments: list[str], *options: str, minutes: float | None = MINUTES) -> list[str]:
    """Test files that fail, or "timeout"."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=no", *options, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=minutes and 60 * minutes
        )
    except subprocess.TimeoutExpired:
        return ["timeout"]
    if done.returncode in (0, 5):
        return []
    if done.returncode > 2:
        raise RuntimeError(f"pytest itself failed: {done.stdout}{done.stderr}")
    return sorted(set(re.findall(r"(?m)^(?:FAILED|ERROR) ([\w/.-]+)", done.stdout))) or ["interrupted"]


def test(root: Path, results: Path, ids: range, *, whole: bool) -> None:
    with LIST.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["id"]) in ids]
    answers = dict(csv.reader(results.read_text().splitlines())) if results.exists() else {}

    def note(row: dict[str, str], answer: str) -> None:
        answers[row["id"]] = answer
        print(row["id"], row["path"], row["planted"], "->", answer, flush=True)
        results.write_text("".join(f'{key},"{value}"\n' for key, value in answers.items()))

    for row in (row for row in rows if row["id"] not in answers):
        source = find(root, row)
        if source is None:
            note(row, "line is gone")
            continue
        before = plant(source, row)
        try:
            found = next((found for run in first_tests(root, source) if (found := failing(root, run, "-x"))), [])
        finally:
            source.write_text(before)
        note(row, found[0] if found else MISSED)
    for row in (row for row in rows if whole and answers[row["id"]] == MISSED):
        source = find(root, row)
        assert source
        before = plant(source, row)
        try:
            found = failing(root, ["tests"], "-x", "-n", "2", minutes=None)
        finally:
            source.write_text(before)
        note(row, found[0] if found else "missed by the whole suite")
    count = sum(answer.startswith("missed") for answer in answers.values())
    gone = sum(answer == "line is gone" for answer in answers.values())
    print(f"{len(rows) - count - gone} of {len(rows) - gone} caught; {gone} lines are gone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--old", type=Path, required=True)
    drawing.add_argument("--new", type=Path, required=True)
    drawing.add_argument("--seed", type=int, default=0)
    drawing.add_argument("--each", type=int, default=20, help="errors in each area")
    testing = commands.add_parser("test")
    testing.add_argument("--checkout", type=Path, required=True)
    testing.add_argument("--results", type=Path, required=True)
    testing.add_argument("--first", type=int, default=1, help="number of the first error to plant")
    testing.add_argument("--last", type=int, default=80, help="number of the last one")
    testing.add_argument("--whole", action="store_true", help="try the whole suite on what the first tests missed")
    args = parser.parse_args()
    if args.command == "draw":
        draw(args.old.resolve(), args.new.resolve(), args.seed, args.each)
    else:
        numbers = range(args.first, args.last + 1)
        test(args.checkout.resolve(), args.results.resolve(), numbers, whole=args.whole)


if __name__ == "__main__":
    main()
