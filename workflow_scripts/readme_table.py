"""Fill in the README's tables from docs/results: accuracy and cost per method, from the published study
`gallery-methods`, and what was reproduced of the papers.

python -m workflow_scripts.readme_table [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import pandas as pd

from fednoise_core.io import ArtifactError, SpecError, atomic
from fednoise_core.report.marks import as_told_notes, marked, notes
from workflow_scripts import readme_papers

__all__ = ["fill", "filled", "table"]

PAGE = Path("README.md")
STUDY = Path("docs/results/gallery-methods")
BLOCK = re.compile(r"(<!-- methods: made by workflow_scripts.readme_table -->\n).*?(<!-- end of methods -->)", re.S)
PAPERS = re.compile(r"(<!-- papers: made by workflow_scripts.readme_table -->\n).*?(<!-- end of papers -->)", re.S)
HEAD = "| method | last ten, % | best, % | CPU s | MB sent | memory, MB | lines |\n|---|--:|--:|--:|--:|--:|--:|\n"


def table(study: Path) -> str:
    """The table in Markdown, a row for each of the study's methods in its order; below it what the marks mean.

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
    said = [*notes(accuracy.fillna({"marks": ""})), *as_told_notes(accuracy)]
    return HEAD + "".join(_row(row) for _, row in rows.iterrows()) + "".join(f"\n{note}  " for note in said) + "\n"


def _row(row: pd.Series) -> str:
    sent = row["up_mb_mean"] + row["down_mb_mean"]
    return (
        f"| {marked(row['method_label'], row.get('marks'))} | {row['last10_mean_mean']:.1f} | {row['best_mean']:.1f} "
        f"| {row['cpu_seconds_mean']:.1f} | {sent:,.1f} | {row['peak_memory_mb_mean']:,.0f} | {row['lines']} |\n"
    )


def filled(text: str, folder: Path = Path()) -> str:
    """The README of the project in `folder` with the tables as docs/results has them. Raises ArtifactError if the
    README has no place for one.
    """
    for block, made in ((BLOCK, table(folder / STUDY)), (PAPERS, readme_papers.table(folder))):
        found = block.search(text)
        if found is None:
            raise ArtifactError(f"{PAGE}: the lines around a table are missing: {block.pattern}")
        text = f"{text[: found.start()]}{found[1]}{made}{found[2]}{text[found.end() :]}"
    return text


def fill() -> None:
    """Write the README of the working folder with its tables. Raises as `filled` does."""
    new = filled(PAGE.read_text(encoding="utf-8"))
    with atomic(PAGE) as page:
        page.write(new)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 1 if `--check` finds the table out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the tables are up to date")
    args = parser.parse_args(argv)
    old = PAGE.read_text(encoding="utf-8")
    try:
        new = filled(old)
    except (ArtifactError, SpecError) as error:
        print(f"readme_table: {error}", file=sys.stderr)
        return 2
    if args.check:
        print(f"{PAGE}: {'up to date' if new == old else 'out of date: python -m workflow_scripts.readme_table'}")
        return int(new != old)
    fill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
