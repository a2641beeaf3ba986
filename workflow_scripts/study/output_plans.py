"""Plans of a study's outputs, made from its runs: tables, figures, numbers and the page."""

import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any

from fednoise_core.index import SHOWN
from fednoise_core.io import json_digest, sha256_file
from workflow_scripts import paths
from workflow_scripts.provenance.step_code import ROOT
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.study.plan import Plan
from workflow_scripts.study.planned_run import PlannedRun
from workflow_scripts.study.store import as_whole_numbers, hash_step
from workflow_scripts.study.study import Study

TEMPLATES = ("workflow_scripts/report/pages/assets", "fednoise_core/html")  # of a study's page
LABEL_TEMPLATES = ("fednoise_core/label_errors", "fednoise_core/html")  # of a page of suspect labels


@functools.cache
def plan_tables(study: Study) -> dict[str, Plan]:
    """Plan the tables of a study.

    Returns:
        Id of a table → its plan.
    """
    plans = {}
    for name, spec in study.tables.items():
        code = hash_step("table", table=(spec["kind"],))
        chosen, step_spec = study.select_runs(spec), {"name": name, "spec": as_whole_numbers(spec)}
        mark = json_digest(step_spec, code, _reference_digests(spec), _row_digests(chosen))
        folder = f"store/tables/{spec['kind']}/{mark}"
        step_spec |= {"runs": [run.row for run in chosen], "place": str(study.place / "tables" / name)}
        plans[name] = Plan(folder, code, _run_plans(chosen), spec=step_spec)
    return plans


@functools.cache
def plan_figures(study: Study) -> dict[str, Plan]:
    """Plan the figures of a study. A figure of settings shows each setting once, not once per method.

    Returns:
        Id of a figure → its plan.
    """
    plans = {}
    for name, spec in study.figures.items():
        code = hash_step("figure", figure=(spec["kind"],))
        chosen, step_spec = study.select_runs(spec), {"spec": as_whole_numbers(spec)}
        rows, inputs = [run.row for run in chosen], _run_plans(chosen)
        marks: list[Any] = _row_digests(chosen)
        if spec["kind"] in SETTING_FIGURES:
            first: dict[tuple[str, str], PlannedRun] = {}
            for run in chosen:
                first.setdefault((run.row["labels"], run.row["partition_file"]), run)
            rows = [  # without the facts about the method
                {key: value for key, value in run.row.items() if key not in SHOWN} | {"dir": "", "method": ""}
                for run in first.values()
            ]
            marks = [[row, run.display_names] for row, run in zip(rows, first.values(), strict=True)]
            inputs = _input_plans(chosen)
            step_spec["spec"].pop("methods", None)
        folder = f"store/figures/{spec['kind']}/{json_digest(step_spec, code, _reference_digests(spec), marks)}"
        step_spec |= {"runs": rows, "place": str(study.place / "figures" / name)}
        plans[name] = Plan(folder, code, inputs, spec=step_spec)
    return plans


@functools.cache
def plan_summary(study: Study) -> Plan:
    """Plan the few numbers of a study that git keeps, and the CSVs that `dvc plots` draws."""
    code = hash_step("metrics")
    folder = f"store/summaries/{json_digest(_row_digests(study.runs), code)}"
    return Plan(folder, code, _run_plans(study.runs), spec={"runs": [run.row for run in study.runs]})


@functools.cache
def plan_page(study: Study) -> Plan:
    """Plan the page of a study."""
    figures = (*SETTING_FIGURES, *(spec["kind"] for spec in study.figures.values()))
    code = hash_step("study_page", figure=figures, table=tuple(spec["kind"] for spec in study.tables.values()))
    sources = list_shown(study)
    step_spec = {"study": as_whole_numbers(study.page_metadata()), "shown": sources}
    if study.data.get("labels"):
        links = {run.labels_title: os.path.relpath(run.labels_page, study.root) for run in study.runs}
        step_spec["study"]["label_pages"] = links
    plans = [*plan_tables(study).values(), *plan_figures(study).values()]
    order = [[list(step_spec["study"][key]) for key in ("tables", "figures")], list(sources)]
    folder = f"store/pages/{json_digest(step_spec, order, code, template_digest(*TEMPLATES), _row_digests(study.runs))}"
    rows = [run.row for run in study.runs]
    return Plan(
        folder, code, (*plans, *_run_plans(study.runs), *_input_plans(study.runs)), spec=step_spec | {"runs": rows}
    )


def list_shown(study: Study, name: str = "") -> dict[str, str]:
    """List the files of a study's tables and figures, with their paths below its results folder.

    Args:
        study: The study.
        name: Id of a table or figure. "" lists all.

    Returns:
        File → the file of the store.
    """
    kinds = (
        ("tables", plan_tables(study), paths.TABLE_SUFFIXES),
        ("figures", plan_figures(study), paths.FIGURE_SUFFIXES),
    )
    return {
        f"{key}/{id_}.{suffix}": f"{plan.folder}/{key.removesuffix('s')}.{suffix}"
        for key, plans, suffixes in kinds
        for id_, plan in plans.items()
        if name in ("", id_)
        for suffix in suffixes
    }


@functools.cache
def template_digest(*folders: str) -> str:
    """Hash the templates of pages.

    Args:
        folders: The folders of templates, relative to the project's.
    """
    files = (path for folder in folders for end in ("html", "css", "js") for path in ROOT.glob(f"{folder}/*.{end}"))
    return json_digest({path.name: sha256_file(path) for path in files})


def _run_plans(runs: Iterable[PlannedRun]) -> tuple[Plan, ...]:
    """The runs' own plans, each once."""
    return tuple({run.folder: run.plan for run in runs}.values())


def _input_plans(runs: Iterable[PlannedRun]) -> tuple[Plan, ...]:
    """Plans of the arrays, labels and partitions of runs, each once."""
    return tuple({plan.folder: plan for run in runs for plan in run.plan.inputs}.values())


def _row_digests(runs: Iterable[PlannedRun]) -> list[str]:
    return [run.row_digest for run in runs]


def _reference_digests(spec: Mapping[str, Any]) -> list[str]:
    """Digests of the files of a paper's numbers that a table or figure is made from."""
    files = map(paths.resolve_user_file, paths.reference_files(spec))
    return [sha256_file(file) for file in files if file.is_file()]
