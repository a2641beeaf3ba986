"""Outputs of a study: its tables and figures, checked."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fednoise_core.io import Problems, SpecError
from fednoise_core.settings.declare import did_you_mean
from fednoise_core.settings.variants import base_method, swept_field
from workflow_scripts.config.project import TARGET_SUFFIXES
from workflow_scripts.config.yaml_file import ConfigPath
from workflow_scripts.study import paper_tables
from workflow_scripts.study.grid import SELECTORS, StudyGrid
from workflow_scripts.study.planned_run import PlannedRun


def check_outputs(study: StudyGrid, key: str, tables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Check the tables or figures of a study.

    Args:
        study: The study, whose runs are known.
        key: "tables" or "figures".
        tables: For figures: the checked tables. Figures of a paper are made from them, and are left out without them.

    Returns:
        Id → spec of each table or figure that has a run at this scale, with the data sets of the scale.

    Raises:
        SpecError: A table or figure names an id that no scale has, or has no run at the paper's scale.
    """
    ids, problems = _known_ids(study), Problems()
    checked: dict[str, Any] = {}
    for name, spec in study.data.get(key, {}).items():
        with problems.catch():
            _check_output(study, key, name, spec, ids)
            completed = _complete_output(study, key, name, spec, tables)
            checked |= {} if completed is None else {name: completed}
    problems.raise_all()
    return checked


def _complete_output(
    study: StudyGrid, key: str, name: str, spec: Mapping[str, Any], tables: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Add facts of the study to the spec of a table or figure. None if it has nothing to show at this scale."""
    place, of_a_paper = study.place / key / name, study.project.schemas.kind_flags(spec).get("of_a_paper")
    if key == "figures" and of_a_paper:
        if tables is None:
            return None
        spec = paper_tables.with_source_tables(tables, spec, place)
    substituted = _with_substitutes(study, spec)
    runs = study.select_runs(substituted)
    if runs and not _has_comparison(study, spec, runs, place):
        return None
    if key == "tables" and of_a_paper:
        substitutes = {"datasets": substituted["datasets"]} if "datasets" in substituted else {}
        return paper_tables.with_study_context(study, spec, place) | substitutes
    complete = study.data is study.full and not study.project.subset
    if not runs and complete and not paper_tables.missing_datasets(study, spec):
        raise place.error("no run of the grid is in all of its lists")
    return substituted if runs else None


def _known_ids(study: StudyGrid) -> dict[str, set[Any]]:
    """Map each field of a run to the ids in the grid at this scale or at the paper's."""
    ids: dict[str, set[Any]] = {field: set() for field in SELECTORS}
    for file in (study, study.files["paper"]):
        ids["seed"].update(file.data["seeds"])
        for block in file.data["grid"]:
            for field in SELECTORS:
                ids[field].update(block.get(f"{field}s", ()))
            for method in set(map(base_method, block["methods"])):
                ids["method"].update(file.expand_method(method))
    return ids


def _check_output(study: StudyGrid, key: str, name: str, spec: Mapping[str, Any], ids: Mapping[str, set[Any]]) -> None:
    """Check the name of a table or figure, and the ids in its lists."""
    place, problems = study.place / key / name, Problems()
    taken = name in TARGET_SUFFIXES or f"{study.name}_{name}" in study.project.study_files
    if taken or (key == "figures" and name in study.data.get("tables", {})):
        problems.append(str(place.error(f"{study.name}_{name} is already a target. Give it another id")))
    named = [
        (value, ids[field], place / f"{field}s" / number)
        for field in SELECTORS
        for number, value in enumerate(spec.get(f"{field}s") or [])
    ]
    if spec.get("baseline") is not None:
        named.append((spec["baseline"], ids["method"], place / "baseline"))
    if spec["kind"] == "reproduction":
        setting_ids = ids["dataset"] | ids["noise"] | ids["partition"]
        named += [(head, setting_ids, place / "heads") for head in spec.get("heads", {})]
    for value, choices, where in named:
        with problems.catch():
            _check_id(value, choices, where)
    problems.raise_all()


def _check_id(value: Any, ids: Collection[Any], place: ConfigPath) -> None:
    if value not in ids:
        raise place.error(f"no run has {value!r}{did_you_mean(value, ids)}")


def _with_substitutes(study: StudyGrid, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a table or figure with the data sets of this scale."""
    named = spec.get("datasets")
    used = dict.fromkeys(study.dataset_substitutes.get(dataset, dataset) for dataset in named or ())
    return {**spec, "datasets": list(used)} if named else dict(spec)


def _has_comparison(study: StudyGrid, spec: Mapping[str, Any], runs: Sequence[PlannedRun], place: ConfigPath) -> bool:
    """Return True if a figure has runs to compare.

    A subset of the runs, or a small scale, may have none. Raises SpecError if the complete study has none.
    """
    complete = not study.project.subset
    if spec["kind"] == "sweep":
        try:
            swept_field([run.method for run in runs], spec.get("field"))
        except SpecError as error:
            if complete and study.data is study.full:
                raise place.error(str(error)) from error
            return False
    if spec["kind"] == "paired_gains" and complete:
        asked = spec.get("baseline")
        methods = {run.method if asked else run.spec["method"]["name"] for run in runs}
        _check_id(asked or "fedavg", methods, place / "baseline")
    return True
