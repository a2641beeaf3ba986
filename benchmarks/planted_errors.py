"""How many small errors in the code do the tests find?

`planted_errors.csv` lists single-line errors. Each is a line of a function, and the same line with one operator, number
or condition changed. Every error stands there twice: in today's code, and as `old_…` in the code of commit 25eac81.
Today's columns are empty where the old line was deleted. `draw` fills the list up to 20 errors in each area that both
versions have, at random. `test` plants them into a checkout one at a time, and runs its tests until one fails:

    python -m benchmarks.planted_errors draw --old OLD_CHECKOUT --new NEW_CHECKOUT
    python -m benchmarks.planted_errors test --checkout CHECKOUT --results FILE.csv [--old]

The tests that most likely meet the error run first: files named after the module, files that import it or belong to its
package, files that mention the function, then whole methods or workflows. Each error has 120 s of CPU time.
`test` changes files of the checkout and restores them: use a checkout of its own. A second start does what is left.
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

LIST = Path(__file__).with_suffix(".csv")
KEYS = ["path", "function", "line", "planted"]
OLD = [f"old_{key}" for key in KEYS]
AREAS = {
    "engine": [
        "fednoise_core/engine/**/*.py",
        *(f"fednoise_core/{name}.py" for name in ("optim", "tree", "losses")),
        *(f"fednoise_core/ops/{name}.py" for name in ("optim", "weights", "losses")),
    ],
    "methods": ["fednoise_core/methods/*.py"],
    "noise": ["fednoise_core/noise/*.py", "fednoise_core/partition/*.py"],
    "workflow": ["workflow_scripts/**/*.py", "label_review/*.py"],
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
SEED, EACH = 0, 20  # of the draw: errors in each area
MISSED = "missed"
GONE = "line is gone"
CPU_SECONDS = 120  # for the tests of one error
WALL_SECONDS = 1800  # for a group of its tests, on a machine that does other work, too


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


def errors_of_file(path: str, text: str) -> Iterator[dict[str, str]]:
    """Every error that can be planted into a file, except in messages, decorators, annotations and defaults."""
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


def read_list() -> list[dict[str, str]]:
    with LIST.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def draw(old: Path, new: Path) -> None:
    rows = read_list()
    for area in AREAS:
        kept = [row for row in rows if row["area"] == area and row["path"]]
        listed = {row["line"] for row in kept}
        now = {(row["function"], row["line"], row["planted"]): row for row in find_errors(new, area)}
        known = [
            dict(zip(OLD, row.values(), strict=True)) | now[place]
            for row in find_errors(old, area)
            if (place := (row["function"], row["line"], row["planted"])) in now and row["line"] not in listed
        ]
        by_line = {row["line"]: row for row in random.Random(SEED).sample(known, len(known))}
        rows += [{"area": area, **row} for row in random.Random(SEED).sample(list(by_line.values()), EACH - len(kept))]
    with LIST.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["id", "area", *OLD, *KEYS], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "id": number} for number, row in enumerate(rows, 1))


def plant(file: Path, row: dict[str, str]) -> str | None:
    """Plants one error. Returns the file's text before, None if it does not have the line."""
    text = file.read_text() if file.is_file() else ""
    lines = text.splitlines(keepends=True)
    function = dict(functions(ast.parse(text))).get(row["function"])
    for number in range(function.lineno - 1, function.end_lineno or 0) if function else ():
        if lines[number].strip() == row["line"]:
            lines[number] = lines[number].replace(row["line"], row["planted"])
            file.write_text("".join(lines))
            return text
    return None


def order_tests(root: Path, row: dict[str, str]) -> list[list[str]]:
    """Test files in groups, those that most likely meet the error first."""
    module = row["path"].removesuffix(".py").replace("/", ".")
    package, _, stem = module.rpartition(".")
    imports = re.compile(rf"(?m)^\s*(from {package} import .*\b{stem}\b|(from|import) {module}\b)")
    folder = re.compile(rf"[/_]{package.rpartition('.')[2]}[/_]")
    words = [word for word in row["function"].split(".") if len(word) > 5 and not word.startswith("__")]
    core = module.startswith("fednoise_core")
    whole = "tests/methods/" if core else "tests/workflow/"
    groups: list[list[tuple[int, str]]] = [[], [], [], []]
    for file in sorted((root / "tests").rglob("test_*.py")):
        text, name = file.read_text(), str(file.relative_to(root))
        mentions = sum(len(re.findall(rf"\b{word}\b", text)) for word in words)
        near = imports.search(text) or folder.search(name) or (core and name.startswith("tests/api/"))
        signs = [re.search(rf"_{stem}[_.]", file.name), near, mentions]
        if name.startswith("tests/workflow/"):  # takes minutes, and would be sorted before the others
            signs = [None, None, None]
        for group, sign in zip(groups, [*signs, name.startswith(whole)], strict=True):
            if sign:
                group.append((-mentions, name))
                break
    return [[name for _, name in sorted(group)] for group in groups if group]


def find_failing(root: Path, tests: list[str], seconds: int) -> str:
    """The first test that fails, "" if there is none."""
    limits = ["timeout", "-s", "KILL", str(WALL_SECONDS), "prlimit", f"--cpu={seconds}"]
    command = [*limits, sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode in (3, 4):
        raise RuntimeError(f"pytest itself failed: {done.stdout}{done.stderr}")
    if done.returncode not in (1, 2):  # all passed, or out of time
        return ""
    found = re.search(r"(?m)^(?:FAILED|ERROR) ([\w/.-]+(::\w+)*)", done.stdout)
    return found[1] if found else "interrupted"


def test_error(root: Path, row: dict[str, str]) -> str:
    file, end = root / row["path"], sum(os.times()[2:4]) + CPU_SECONDS  # of this process's children
    before = plant(file, row)
    if before is None:
        return GONE
    try:
        for tests in order_tests(root, row):
            left = int(end - sum(os.times()[2:4]))
            if left > 0 and (found := find_failing(root, tests, left)):
                return found
        return MISSED
    finally:
        file.write_text(before)


def test(root: Path, results: Path, *, old: bool) -> None:
    rows = [row for row in read_list() if row["path"]]
    answers = dict(csv.reader(results.read_text().splitlines())) if results.exists() else {}
    for row in rows:
        if row["id"] not in answers:
            place = {key: row[f"old_{key}" if old else key] for key in KEYS}
            answers[row["id"]] = test_error(root, place)
            print(row["id"], place["path"], place["planted"], "->", answers[row["id"]], flush=True)
            with results.open("a", encoding="utf-8") as file:
                file.write(f"{row['id']},{answers[row['id']]}\n")
    for area in AREAS:
        found = [answers[row["id"]] for row in rows if row["area"] == area]
        print(f"{area}: {sum(answer not in (MISSED, GONE) for answer in found)} of {len(found)} caught")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--old", type=Path, required=True)
    drawing.add_argument("--new", type=Path, required=True)
    testing = commands.add_parser("test")
    testing.add_argument("--checkout", type=Path, required=True)
    testing.add_argument("--results", type=Path, required=True)
    testing.add_argument("--old", action="store_true", help="the checkout is of the old commit")
    args = parser.parse_args()
    if args.command == "draw":
        draw(args.old.resolve(), args.new.resolve())
    else:
        test(args.checkout.resolve(), args.results.resolve(), old=args.old)


if __name__ == "__main__":
    main()
