"""Write suspects.csv, sites.csv and confusion.csv.

Classes and sites have the names of the user's own data.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fednoise_core.data.arrays import Arrays
from fednoise_core.io import open_atomic, safe_cell
from fednoise_core.label_errors.estimate import SiteLabels, classify_labels
from fednoise_core.label_errors.image_checks import find_blank, find_contradictions

SUSPECTS = (
    *("sample", "source", "client", "site", "given", "given_name", "proposed", "proposed_name"),
    *("p_wrong", "p_proposed", "verdict", "contradicts", "blank"),
)
SITES = (
    *("client", "site", "samples", "wrong", "wrong_low", "wrong_high", "share"),
    *("verdict_wrong", "verdict_check", "estimated"),
)


def write_suspects(
    path: Path, judged: Sequence[SiteLabels], arrays: Arrays, labels: np.ndarray, sites: Sequence[str]
) -> None:
    """Write one row per sample with an estimate, the most suspect first.

    A sample that several sites hold has a row for each site. docs/wrong_labels.md explains the columns.

    Args:
        path: The file, written whole or not at all.
        judged: Estimates of each site.
        arrays: The data set, for class names and sources of samples.
        labels: Given labels [n].
        sites: The user's name of each client.
    """
    with open_atomic(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(list_columns(judged))
        for row in list_suspects(judged, arrays, labels, sites):
            table.writerow(map(_format_cell, row))


def list_columns(judged: Sequence[SiteLabels]) -> list[str]:
    """List the columns of suspects.csv for these estimates."""
    return [*SUSPECTS, *(judged[0].columns if judged else ())]


def list_suspects(
    judged: Sequence[SiteLabels], arrays: Arrays, labels: np.ndarray, sites: Sequence[str]
) -> Iterator[list[Any]]:
    """The rows of suspects.csv as values. The arguments are those of `write_suspects`."""
    names = list(arrays.names) or [str(label) for label in range(arrays.classes)]
    sample = _join_column(judged, "samples", np.int64)
    site = np.repeat(
        np.array([site_labels.site for site_labels in judged], np.int64),
        [len(site_labels.samples) for site_labels in judged],
    )
    p_wrong, p_proposed = (_join_column(judged, name, np.float64) for name in ("p_wrong", "p_proposed"))
    proposed, verdict = _join_column(judged, "proposed", np.int64), classify_labels(p_wrong)
    contradicts, blank = _check_images(arrays, np.unique(sample), labels)
    extra_values = [
        np.concatenate([site_labels.columns[name] for site_labels in judged])
        for name in list_columns(judged)[len(SUSPECTS) :]
    ]
    for k in np.lexsort((site, sample, -p_wrong)).tolist():
        i, c, y, proposal = int(sample[k]), int(site[k]), int(labels[sample[k]]), int(proposed[k])
        numbers = [float(p_wrong[k]), float(p_proposed[k])]
        row = [i, arrays.source(i), c, sites[c], y, names[y], proposal, names[proposal], *numbers, str(verdict[k])]
        yield [*row, bool(contradicts[i]), bool(blank[i]), *(values[k].item() for values in extra_values)]


def _check_images(arrays: Arrays, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find samples that equal a sample with another label, and blank samples, bool [n] each."""
    contradicts, blank = np.zeros(arrays.n, bool), np.zeros(arrays.n, bool)
    contradicts[rows] = find_contradictions((np.asarray(arrays.x_train[row]) for row in rows), labels[rows])
    blank[rows] = find_blank(np.asarray(arrays.x_train[row]) for row in rows)
    return contradicts, blank


def write_sites(path: Path, judged: Sequence[SiteLabels], sites: Sequence[str]) -> None:
    """Write one row per site with its number of wrong labels, by estimate and by verdict.

    Args:
        path: The file, written whole or not at all.
        judged: Estimates of each site.
        sites: The user's name of each client.
    """
    with open_atomic(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(SITES)
        for client, site, n, *counts, share, n_wrong, n_check, estimated in list_sites(judged, sites):
            numbers = [*(f"{value:.1f}" for value in counts), f"{share:.4f}"]
            table.writerow([client, safe_cell(site), n, *numbers, n_wrong, n_check, int(estimated)])


def list_sites(judged: Sequence[SiteLabels], sites: Sequence[str]) -> Iterator[list[Any]]:
    """The rows of sites.csv as values. The arguments are those of `write_sites`."""
    for site_labels in judged:
        n, verdict = len(site_labels.samples), classify_labels(site_labels.p_wrong)
        counts = [
            float(value) for value in (site_labels.wrong, site_labels.low, site_labels.high, site_labels.wrong / n)
        ]
        by_verdict = [int((verdict == word).sum()) for word in ("wrong", "check")]
        yield [site_labels.site, sites[site_labels.site], n, *counts, *by_verdict, site_labels.estimated]


def write_confusion(path: Path, counts: Tensor | None, arrays: Arrays) -> None:
    """Write one row for each class of the test images, with one column for each predicted class.

    Args:
        path: The file, written whole or not at all.
        counts: int64 [K, K]. If it is None, because predictions are not finite, there are no rows.
        arrays: The data set, for class names.
    """
    names = _name_classes(arrays)
    with open_atomic(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["class", "name", *(f"predicted_{k}" for k in range(arrays.classes))])
        for k, row in enumerate([] if counts is None else counts.tolist()):
            table.writerow([k, names[k], *row])


def _format_cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6f}"
    return int(value) if isinstance(value, bool) else safe_cell(value) if isinstance(value, str) else value


def _name_classes(arrays: Arrays) -> list[str]:
    return [safe_cell(name) for name in arrays.names or map(str, range(arrays.classes))]


def _join_column(judged: Sequence[SiteLabels], name: str, dtype: type) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *(getattr(site_labels, name) for site_labels in judged)])
