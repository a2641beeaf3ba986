"""Which variant of each method a `tuned` table shows: the one that does best on the clients' own, noisy labels.

Neither test data nor clean labels take part in the choice, so it is one that a federation could make.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from fednoise_core.io import ArtifactError
from fednoise_core.report.frames import IDS
from fednoise_core.report.marks import together
from fednoise_core.report.runs import RecordedRun
from fednoise_core.variants import family, settings, told, without

__all__ = ["chosen", "note", "words"]


def chosen(frame: pd.DataFrame, runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """`frames.results` of the runs with each method's best variant only, setting by setting, under the method's own id;
    `variant` is the id of the one it is, `valid` its validation accuracy in %.

    Best: the highest mean over seeds. Of equals the first is taken, and one of which a run diverged only if all did.
    Raises ArtifactError if a variant's run has no validation accuracy.
    """
    for run in runs:
        if settings(run.listed.method) and "valid_accuracy" not in run.summary:
            raise ArtifactError(
                f"{run.listed.dir / 'summary.json'}: has no 'valid_accuracy', by which `tuned` picks variants: "
                "give the partition a `validation` share, of which every client has samples, and train again"
            )
    values = [run.summary.get("valid_accuracy") for run in runs]
    frame = frame.assign(
        variant=frame["method"],
        valid=[math.nan if value is None else 100 * float(value) for value in values],
        method_label=[without(*both) for both in zip(frame["method_label"], frame["method"], strict=True)],
        method=frame["method"].map(family),
    )
    kept = []
    for _, group in frame.groupby(IDS, sort=False):
        means = group.groupby("variant", sort=False)["valid"].agg(lambda column: column.mean(skipna=False))
        best = means.idxmax() if means.notna().any() else means.index[0]
        kept.append(group[group["variant"] == best])
    found = pd.concat(kept)  # methods and settings in the order in which any variant of theirs came first
    marks = found.groupby("method")["marks"].transform(together)  # one row a method, so the marks of all its variants
    return found.assign(marks=marks)


def words(group: pd.DataFrame) -> dict[str, Any]:
    """The columns that a row has of its choice: `variant`, an id, and `valid_mean`, in %."""
    return {"variant": group["variant"].iloc[0], "valid_mean": group["valid"].mean()}


def note(table: pd.DataFrame) -> str:
    """Which variant was chosen where, in words."""
    said = []
    for _, rows in table.groupby("method", sort=False):
        picks: dict[str, list[str]] = {}
        for row in rows.to_dict("records"):
            if settings(row["variant"]):
                setting = " · ".join(row[f"{part}_label"] for part in IDS[:3])
                picks.setdefault(told(settings(row["variant"])), []).append(setting)
        several = len(picks) > 1
        where = [f"{values} on {'; '.join(on)}" if several else values for values, on in picks.items()]
        said += [f"{rows['method_label'].iloc[0]}: {', '.join(where)}"] if where else []
    rule = "Each method at its variant with the highest accuracy on the clients' noisy validation labels, last round"
    return f"{rule}. {'. '.join(said)}." if said else f"{rule}; none has several."
