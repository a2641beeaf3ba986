"""Fill in the README's table of accuracy and cost per method, from the published study `gallery-methods`.

python -m workflow_scripts.readme_table [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pandas as pd

from fednoise_core.io import ArtifactError, atomic
from fednoise_core.report.marks import marked

__all__ = ["filled", "table"]

PAGE = Path("README.md")
STUDY = Path("docs/results/gallery-methods")
BLOCK = re.compile(r"(<!-- methods: made by workflow_scripts.readme_table -->\n).*?(<!-- end of methods -->)", re.S)
HEAD = "| method | last ten, % | best, % | CPU s | MB sent | memory, MB | lines |\n|---|--:|--:|--:|--:|--:|--:|\n"


def table(study: Path) -> str:
    """The table in Markdown, a row for each of the study's methods in its order.

    Raises ArtifactError if the study was not published, or has several settings.
    """
    try:
        accuracy, cost = (pd.read_csv(study / f"{name}.csv") for name in ("accuracy", "cost"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{error.filename}: no such file; publish the study first") from error
    for name, frame in (("accuracy", accuracy), ("cost", cost)):
        if frame["method"].duplicated().any():
            raise ArtifactError(f"{study / name}.csv: several rows of a method, so the study has several settings")
    rows = accuracy.merge(cost, on="method", suffixes=("", "_cost"))
    if len(rows) != len(accuracy):
        raise ArtifactError(f"{study}: accuracy.csv and cost.csv are of different methods")
    return HEAD + "".join(_row(row) for _, row in rows.iterrows())


def _row(row: pd.Series) -> str:
    sent = row["up_mb_mean"] + row["down_mb_mean"]
    return (
        f"| {marked(row['method_label'], row.get('marks'))} | {row['last10_mean_mean']:.1f} | {row['best_mean']:.1f} "
        f"| {row['cpu_seconds_mean']:.1f} | {sent:,.1f} | {row['peak_memory_mb_mean']:,.0f} | {row['lines']} |\n"
    )


def filled(text: str, study: Path = STUDY) -> str:
    """The README with the table as the study has it. Raises ArtifactError if the README has no place for it."""
    if not BLOCK.search(text):
        raise ArtifactError(f"{PAGE}: the lines around the table are missing: {BLOCK.pattern}")
    made = table(study)
    return BLOCK.sub(lambda match: f"{match[1]}{made}{match[2]}", text)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 1 if `--check` finds the table out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the table is up to date")
    args = parser.parse_args(argv)
    old = PAGE.read_text(encoding="utf-8")
    try:
        new = filled(old)
    except ArtifactError as error:
        print(f"readme_table: {error}", file=sys.stderr)
        return 2
    if args.check:
        print(f"{PAGE}: {'up to date' if new == old else 'out of date: python -m workflow_scripts.readme_table'}")
        return int(new != old)
    with atomic(PAGE) as page:
        page.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
