#!/usr/bin/env python3
"""Share of bound names (assignments, loop variables, arguments) that are pronouns or bare participles.

usage: count_pronouns.py [FOLDER …]   (default: fednoise_core workflow_scripts benchmarks tests)

The exit status is 1 above 1.0 %, or if a docstring begins with a question word.
"""

import ast
import collections
import pathlib
import re
import sys

WORDS = re.findall(
    r"\w+",
    """one those made told mine found kept many whole every own wanted given words what how here more rest at handed
    held near known spoilt two some other both said shown meant whose them""",
)
QUESTIONS = re.compile(r"(What|Whether|Where|How|Who)\b")


def main(folders: list[str]) -> int:
    """Count, print the most frequent words and the docstrings that begin with a question word."""
    names: collections.Counter[str] = collections.Counter()
    questions = []
    for file in sorted(path for folder in folders for path in pathlib.Path(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] += 1
            elif isinstance(node, ast.arg):
                names[node.arg] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                text = ast.get_docstring(node) or ""
                if QUESTIONS.match(text):
                    questions.append(f"{file}: {getattr(node, 'name', 'module')}: {text.splitlines()[0]}")
    counts = {word: names[word] for word in WORDS if names[word]}
    share = 100 * sum(counts.values()) / max(1, names.total())
    print(
        f"{share:.1f} % of {names.total()} bound names:", dict(sorted(counts.items(), key=lambda item: -item[1])[:20])
    )
    print(f"{len(questions)} docstrings begin with a question word")
    print(*questions[:20], sep="\n")
    return int(share > 1.0 or bool(questions))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["fednoise_core", "workflow_scripts", "benchmarks", "tests"]))
