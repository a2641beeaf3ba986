"""The table of all methods, made from the front matter of their pages and from the code."""

from typing import Any

import yaml

from workflow_scripts.provenance.step_code import ROOT

PAGES = ROOT / "docs/methods"
HEAD = """\
| method | what it changes | traffic | client state | passes | also needs |
|---|---|---|---|--:|---|
"""


def read_facts(name: str) -> dict[str, Any]:
    """The front matter of a method's page: method, changes, traffic, client_state, passes, and perhaps needs."""
    _, front, _ = (PAGES / f"{name}.md").read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front)


def format_table() -> str:
    """The table in Markdown, one row for each registered method."""
    methods = yaml.safe_load((ROOT / "config/schema/method.yaml").read_text(encoding="utf-8"))
    return HEAD + "".join(_row(name, **read_facts(name)) for name in methods)


def _row(name: str, method: str, changes: str, traffic: str, client_state: str, passes: int, needs: str = "–") -> str:
    cells = (f"[{method}]({name}.md) `{name}`", changes, traffic, client_state, passes, needs)
    return f"| {' | '.join(map(str, cells))} |\n"
