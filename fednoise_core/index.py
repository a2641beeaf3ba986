"""The runs of a study, as results/<study>/index.csv lists them with their ids and files, and their JSON files."""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from fednoise_core.settings.declare import did_you_mean

INDEX = "index.csv"
FLAGS = ("oracle_rate", "as_told", "pooled", "own")
SHOWN = ("label", "name", "family", *FLAGS)
"""Columns for the display of a run's method. They decide no number."""
FAMILIES = ("server-side", "loss", "selection", "correction", "transition", "personal")
"""Groups of methods by what they do about noise. A group has a colour."""
KEYS = ("dataset", "noise", "partition", "method", "seed")
FILES = ("dir", "labels", "partition_file", "arrays", "donor")


def is_index(path: str | os.PathLike[str]) -> bool:
    """Check whether a path is an index or the folder of one.

    Args:
        path: File or folder.

    Returns:
        Whether it is.
    """
    return Path(path).name == INDEX or Path(path, INDEX).is_file()


def read_runs(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the runs of an index or of a JSON list.

    Args:
        path: File of the index, its folder, or a JSON file.

    Returns:
        A dict for each run. The paths of an index begin at the folder that contains results/.

    Raises:
        ArtifactError: The file is missing or damaged.
    """
    path = Path(path)
    path = path / INDEX if path.is_dir() else path
    try:
        if path.suffix != ".csv":
            return list(json.loads(path.read_text(encoding="utf-8")))
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, Any]] = list(csv.DictReader(file))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file; a study's results are in a folder such as results/quick") from error
    except ValueError as error:
        raise ArtifactError(f"{path}: not a JSON list of runs ({error})") from error
    base = Path(os.path.normpath(path.parent / ".." / ".."))
    for row in rows:
        row |= {key: base / row[key] for key in FILES if row.get(key)}
        row |= {key: row.get(key) == "True" for key in FLAGS}
    return rows


def find_run(path: str | os.PathLike[str], ids: Mapping[str, object]) -> Path:
    """Find the one run of an index that has the given ids.

    Args:
        path: File of the index, or its folder.
        ids: Ids by `dataset`, `noise`, `partition`, `method` and `seed`, as many as are needed.

    Returns:
        The folder of the run.

    Raises:
        SpecError: A key is unknown, or not exactly one run has these ids.
    """
    matches = read_runs(path)
    for key, value in ids.items():
        if key not in KEYS:
            raise SpecError(f"{key}: a run is named by dataset, noise, partition, method and seed")
        values = {str(row[key]) for row in matches}
        if str(value) not in values:
            raise SpecError(f"{path}: no such run has {key} {value!r}{did_you_mean(value, values)}")
        matches = [row for row in matches if str(row[key]) == str(value)]
    if len(matches) == 1:
        return Path(matches[0]["dir"])
    choices = {key: sorted({str(row[key]) for row in matches}) for key in KEYS}
    text = "; ".join(f"{key}: {', '.join(values)}" for key, values in choices.items() if len(values) > 1)
    raise SpecError(f"{path}: expected one run with these ids, got {len(matches)}. There are {text}")


def read_json(path: Path, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Read a JSON object of a run.

    Args:
        path: The file.
        keys: Keys that it must have.

    Raises:
        ArtifactError: The file is missing or damaged, or a key is missing.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file; name the folder of a finished run") from error
    except (OSError, ValueError, RecursionError) as error:  # also bad UTF-8
        raise ArtifactError(f"{path}: damaged, not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ArtifactError(f"{path}: damaged, not a JSON object")
    if missing := [key for key in keys if key not in value]:
        raise ArtifactError(f"{path}: has no {missing[0]!r}")
    return value
