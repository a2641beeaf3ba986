"""Cells of a paper's tables: all cells of the paper or the study, whether they were run or not.

Tables of kind `reproduction` and `setup` are made from their spec and the paper's numbers. This module adds facts of
the whole study to the spec. A scale may leave out runs or use smaller data (`dataset_substitutes`). The tables keep the
cells of the paper.
"""

import csv
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError
from fednoise_core.settings.declare import did_you_mean
from fednoise_core.settings.variants import index_of
from workflow_scripts.config.yaml_file import ConfigPath
from workflow_scripts.study.file_at_scale import AXES
from workflow_scripts.study.grid import StudyGrid

GridCell = tuple[str, str, str, str]  # data set, noise, partition, method
CLAIM_AXES: dict[str, tuple[str, ...]] = {  # key of a claim → lists of the grid that have its ids
    **dict.fromkeys(("best", "among", "above", "within", "costs", "leads", "widens", "declines"), ("methods",)),
    **{axis: (axis,) for axis in AXES[:3]},
    "along": ("noises", "partitions"),
}


def paper_cells(study: StudyGrid, spec: Mapping[str, Any]) -> list[GridCell]:
    """List the cells of a table in the study as it is written, which do not depend on the scale.

    Args:
        study: The study.
        spec: The table's settings.

    Returns:
        (data set, noise, partition, method), as ids of the grid, in the order of the table's lists.
    """
    allowed, written = [spec.get(axis) for axis in AXES], study.files["paper"]
    cells: dict[GridCell, None] = {}
    for block in written.data["grid"]:
        methods = [variant for name in block["methods"] for variant in written.expand_method(name)]
        for cell in product(*(block[axis] for axis in AXES[:3]), methods):
            if all(
                names is None or index_of(names, value) is not None for names, value in zip(allowed, cell, strict=True)
            ):
                cells[cell] = None
    return sorted(
        cells, key=lambda cell: [index_of(names or [], value) or 0 for names, value in zip(allowed, cell, strict=True)]
    )


def with_study_context(study: StudyGrid, spec: Mapping[str, Any], place: ConfigPath) -> dict[str, Any]:
    """Add to the spec of a paper's table what its step needs to know of the study.

    Args:
        study: The study.
        spec: The table's settings.
        place: Where they stand.

    Returns:
        The spec with `scale`. For `setup` it has `ours`, the study's own values by row and column. For `reproduction`
        it has `cells`, a list of ids for each cell; `labels` of methods; `parts`, the settings of data sets, noises and
        partitions by their ids; `dataset_substitutes`; and `absent`, the missing data sets.
    """
    if study.project.schemas.kind_flags(spec).get("without_runs"):
        return {**spec, "scale": study.project.scale, "ours": _study_values(study, spec, place)}
    cells = paper_cells(study, spec)
    used = [dict.fromkeys(column) for column in zip(*cells, strict=True)]
    methods = {name: study.files["paper"].find_definition("methods", name)[1] for name in used[3]}
    return {
        **spec,
        "scale": study.project.scale,
        "void": study.data.get("void", ""),
        "dataset_substitutes": {key: value for key, value in study.dataset_substitutes.items() if key in used[0]},
        "absent": [name for name in used[0] if name in study.absent],
        "cells": [list(cell) for cell in cells],
        "labels": {name: str(methods[name].get("label", name)) for name in used[3]},
        "parts": {
            "dataset": {name: study.project.normalize_dataset(name) for name in used[0]},
            "noise": {name: study.normalize_definition("noises", name) for name in used[1]},
            "partition": {name: study.normalize_definition("partitions", name) for name in used[2]},
        },
    }


def with_source_tables(tables: Mapping[str, Any], spec: Mapping[str, Any], place: ConfigPath) -> dict[str, Any]:
    """Add to the spec of a figure the paper's tables that it is made of.

    Args:
        tables: The checked tables of the study.
        spec: The figure's settings.
        place: Where they stand.

    Returns:
        The spec with the tables under `of`. A figure of one table has that table's lists, too.

    Raises:
        SpecError: An id is not the id of a table of a paper.
    """
    reproductions = {name: table for name, table in tables.items() if table["kind"] == "reproduction"}
    name = spec.get("table")
    if name and name not in reproductions:
        raise (place / "table").error(
            f"expected a table of kind reproduction, got {name!r}{did_you_mean(name, reproductions)}"
        )
    asked, lists = ([name], reproductions[name]) if name else (list(reproductions), {})
    lists_of_table = {key: lists[key] for key in (*AXES, "seeds") if lists.get(key) and not spec.get(key)}
    return {**spec, **lists_of_table, "of": {name: reproductions[name] for name in asked}}


def check_claims(study: StudyGrid, tables: Mapping[str, Any]) -> None:
    """Check the claims of a paper's tables.

    Args:
        study: The study.
        tables: Its checked tables.

    Raises:
        SpecError: Two claims of a table have the same id, a claim names an id that its table does not have, or `why`
            names an unknown claim.
    """
    claim_ids: dict[str, list[str]] = {}
    for name, spec in tables.items():
        if spec["kind"] != "reproduction":
            continue
        claim_ids[name] = []
        for number, claim in enumerate(spec.get("claims", ())):
            place = study.place / "tables" / name / "claims" / number
            if claim["id"] in claim_ids[name]:
                raise (place / "id").error(f"{claim['id']!r} is repeated in the table. Give one claim another id")
            claim_ids[name].append(claim["id"])
            names = {name, claim.get("beside", name)}
            cells = [cell for table in names for cell in tables.get(table, {}).get("cells", ())]
            ids = {axis: {cell[column] for cell in cells} for column, axis in enumerate(AXES)}
            for key, value in claim.items():
                allowed = set().union(*(ids[axis] for axis in CLAIM_AXES.get(key, ())))
                for entry in [value] if key == "best" else value if allowed else ():
                    if entry not in allowed:
                        problem = f"expected an id of the table's cells, got {entry!r}{did_you_mean(entry, allowed)}"
                        raise (place / key).error(problem)
    for place, reasons_by_table in [(file.place / "why", file.data.get("why", {})) for file in study.files.values()]:
        for name, reasons in reasons_by_table.items():
            if name not in claim_ids:
                raise (place / name).error(f"expected a table with claims, got {name!r}{did_you_mean(name, claim_ids)}")
            for claim_id in reasons:
                if claim_id not in claim_ids[name]:
                    hint = did_you_mean(claim_id, claim_ids[name])
                    raise (place / name / claim_id).error(
                        f"expected the id of a claim of {name}, got {claim_id!r}{hint}"
                    )


def missing_datasets(study: StudyGrid, spec: Mapping[str, Any]) -> list[str]:
    """Find out whether a table or figure shows only data sets that are missing.

    Args:
        study: The study.
        spec: Its settings.

    Returns:
        Its data sets if all of them are missing. Otherwise nothing, since the table or figure can be made in part.
    """
    if study.project.schemas.kind_flags(spec).get("without_runs"):
        return []
    datasets = list(dict.fromkeys(cell[0] for cell in spec.get("cells") or paper_cells(study, spec)))
    return datasets if set(datasets) <= set(study.absent) else []


def skipped_figures(study: StudyGrid, figures: Mapping[str, Any]) -> dict[str, str]:
    """List the figures that were not made. Tables are always made, and their cells say why they are empty.

    Args:
        study: The study.
        figures: The figures that are made.

    Returns:
        Title of a figure → why it was not made.
    """
    missing = {name: spec for name, spec in study.full.get("figures", {}).items() if name not in figures}
    why = {True: "not run (data absent)", False: "not run at this scale"}
    return {str(spec.get("title", name)): why[bool(missing_datasets(study, spec))] for name, spec in missing.items()}


def _study_values(study: StudyGrid, spec: Mapping[str, Any], place: ConfigPath) -> list[dict[str, Any]]:
    """Map, for each row of the paper's table, the columns (data sets) to the study's values of the row's `key`.

    A key is `classes` or a path in a run's spec, such as `train.rounds` or `partition.clients`. The columns `noise` and
    `method` select runs, and the value is multiplied by `factor`.
    """
    values = []
    for row in _read_numbers(study, spec["file"], place / "file"):
        picked = {
            dataset: _study_value(study, row, study.dataset_substitutes.get(dataset, dataset))
            for dataset in row
            if row.get("key") and dataset in study.project.datasets
        }
        values.append({key: value for key, value in picked.items() if value is not None})
    return values


def _read_numbers(study: StudyGrid, file: str, place: ConfigPath) -> list[dict[str, str]]:
    try:
        with Path(study.project.folder, file).open(encoding="utf-8", newline="") as opened:
            return list(csv.DictReader(opened))
    except (OSError, ArtifactError, ValueError) as error:
        raise place.error(f"{file}: cannot be read ({error})") from error


def _study_value(study: StudyGrid, row: Mapping[str, str], dataset: str) -> Any:
    """Return the value of a row's key in the study's runs on a data set. None if there is no value, or several."""
    values = {}
    for run in study.runs:
        ids = (row.get("noise") or run.noise, row.get("method") or run.method)
        if run.dataset == dataset and (run.noise, run.method) == ids:
            value = _spec_value(study, run.spec, row["key"], dataset)
            values[str(value)] = value
    if len(values) != 1:
        return None
    value = next(iter(values.values()))
    return value * float(row["factor"]) if row.get("factor") and isinstance(value, int | float) else value


def _spec_value(study: StudyGrid, spec: Mapping[str, Any], key: str, dataset: str) -> Any:
    if key == "classes":
        return study.project.facts(dataset)[1]
    part, _, name = key.partition(".")
    if name in spec[part]:
        value = spec[part][name]
        return value["name"] if isinstance(value, Mapping) and "name" in value else value
    schema = study.project.schemas.load(part)
    kind = spec[part].get("kind") or spec[part].get("name")
    properties = schema["properties"] if part == "train" else schema[kind]["properties"]
    return properties.get(name, {}).get("default")
