"""Paths of the workflow's files, and the names that studies and ids may have."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ARRAYS, LABELS, PARTITION = "arrays.npz", "labels.npz", "partition.npz"  # in their folders of the store
# These pages have images, which may be the user's own. Like the user's arrays, they are not stored with DVC.
LABELS_PAGE = "build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html"
SETTING_PAGE = "build/settings/{root}/{dataset}/{noise}/{partition}/seed{seed}.html"
TABLE_SUFFIXES = ("csv", "md", "tex")
FIGURE_SUFFIXES = ("svg", "png", "pdf", "csv")
INDEX = "index.csv"
OWN = "my-"  # prefix of the ids of methods that are entered in a leaderboard
DEFAULT = "-default"  # suffix of the id of a leaderboard's method at its default settings
STUDY_FILES = {  # file in results/<study>/ → file of the page or the summary in the store
    "report.html": "report.html",
    "metrics.json": "metrics.json",
    "headline.json": "headline.json",
    "plots/accuracy.csv": "accuracy.csv",
    "plots/curves.csv": "curves.csv",
}


def reference_files(spec: Mapping[str, Any]) -> list[str]:
    """List the files of a paper's numbers that a table, or a figure of such tables, is made from."""
    named = (
        part_spec for part in (spec, *spec.get("of", {}).values()) for part_spec in (part, part.get("reference") or {})
    )
    return list(dict.fromkeys(str(part_spec["file"]) for part_spec in named if part_spec.get("file")))


def resolve_user_file(path: str | Path) -> Path:
    """Find a file that a spec names: in the working folder, else beside the code (`snakemake --directory`).

    Args:
        path: As the spec has it.
    """
    beside = Path(__file__).parents[1] / path
    return beside if not Path(path).exists() and beside.exists() else Path(path)


STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
OTHER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")


def name_problem(name: str, *, study: bool = False) -> str | None:
    """Check an id, which becomes a part of paths and commands.

    Args:
        name: The id.
        study: It is the name of a study.

    Returns:
        What is wrong with it, or None.
    """
    if (STUDY_NAME if study else OTHER_NAME).match(name):
        return None
    marks = "_ -" if study else ". _ + -"
    return f"expected an id of at most 64 letters and digits, after the first also {marks}, got {name[:64]!r}"
