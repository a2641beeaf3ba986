"""Where every file of the workflow lies, and the names that paths may be made of. A test compares the patterns with the
rules, which Snakemake wants written out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "ANY",
    "ARRAYS",
    "ARTIFACTS",
    "FIGURE_SUFFIXES",
    "LABELS",
    "LABELS_PAGE",
    "NEEDS",
    "PARTITION",
    "RUN",
    "RUN_FILES",
    "RUN_OUTPUTS",
    "STUDY_FILES",
    "TABLE_SUFFIXES",
    "WORK",
    "name_problem",
    "printed",
    "shown",
]

ANY = "any"  # stands in a path for a part that does not matter, so it is no id

ARRAYS = "data/{place}/{dataset}.npz"  # place: raw, or local for what may not be passed on
LABELS = "results/{root}/labels/{dataset}/{noise}/{partition}/seed{seed}.npz"
PARTITION = "results/{root}/partitions/{dataset}/{noise}/{partition}/seed{seed}.npz"
RUN = "results/{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}"  # a folder
RUN_OUTPUTS = (
    "spec.json",
    "metrics.parquet",
    "diagnostics.parquet",
    "summary.json",
    "cost.json",
    "model.safetensors",
    "suspects.csv",
    "sites.csv",
    "confusion.csv",
)
# A page holds images, which may be the user's own: like their arrays it stays out of DVC's reach, so not in results/.
LABELS_PAGE = "build/labels/{root}/{dataset}/{noise}/{partition}/{method}/seed{seed}/labels.html"
WORK = "work/{run}"  # a run's checkpoint and progress; run: its folder
TABLE_SUFFIXES = ("csv", "md", "tex")
FIGURE_SUFFIXES = ("svg", "png", "pdf", "csv")
STUDY_FILES = ("metrics.json", "headline.json", "report.html", "plots/accuracy.csv", "plots/curves.csv")

# What every table and figure of results follows; some kinds need more. They read spec.json, too, but it also holds the
# code's hash: a rerun with the same numbers must not draw everything again, and the summary's spec digest changes with
# the spec. So the rules ask that it is there, and let no change of it count.
RUN_FILES = ("summary.json", "metrics.parquet")
DIAGNOSTICS = ("diagnostics.parquet",)
NEEDS = {
    **{"cost": ("cost.json",), "seconds": ("cost.json",), "pareto": ("cost.json",), "confusion": ("confusion.csv",)},
    **{"metric": DIAGNOSTICS, "prestop": DIAGNOSTICS},
}
ARTIFACTS = ("histogram", "transition", "clients", "samples")  # figures of settings: no result, but the artifacts


def printed(spec: Mapping[str, Any]) -> list[str]:
    """Files of a paper's numbers that a table is made from, or a figure of such tables."""
    named = (one for part in (spec, *spec.get("of", {}).values()) for one in (part, part.get("reference") or {}))
    return list(dict.fromkeys(str(one["file"]) for one in named if one.get("file")))


STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
OTHER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")


def shown(root: str, tables: Iterable[str], figures: Iterable[str]) -> list[str]:
    """Files of tables and figures below the results folder `root` ("results/…")."""
    return [
        *(f"{root}/tables/{table}.{suffix}" for table in tables for suffix in TABLE_SUFFIXES),
        *(f"{root}/figures/{figure}.{suffix}" for figure in figures for suffix in FIGURE_SUFFIXES),
    ]


def name_problem(name: str, *, study: bool = False) -> str | None:
    """What is wrong with an id or (`study`) the name of a study as a part of paths and commands; None: nothing."""
    if name == ANY:
        return f"{ANY!r} is no id: it stands for a part that does not matter"
    if (STUDY_NAME if study else OTHER_NAME).match(name):
        return None
    marks = "_ -" if study else ". _ + -"
    return f"{name[:64]!r} is no id: letters, digits, and {marks} after the first; 64 at most"
