"""What a study shows: its tables and figures, checked, and its settings as its page tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fednoise_core.io import SpecError
from fednoise_core.settings.declare import did_you_mean as hint
from fednoise_core.settings.variants import base_method, swept_field
from workflow_scripts.config.definitions import variants
from workflow_scripts.config.project import PARTS
from workflow_scripts.config.yaml_file import Place
from workflow_scripts.study import paper_settings, paper_tables
from workflow_scripts.study.grid import SELECTORS, StudyGrid
from workflow_scripts.study.planned_run import PlannedRun


def described(study: StudyGrid, tables: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """The study as its page tells it: every id that its runs use, with its settings."""
    used = {field: dict.fromkeys(getattr(run, field) for run in study.runs) for field in SELECTORS}
    return {
        "id": study.name,
        "title": study.data["title"],
        "text": study.data.get("text", ""),
        "scale": study.project.scale,
        "datasets": {name: study.project.datasets[name] for name in used["dataset"]},
        "noises": {name: study.define("noises", name)[1] for name in used["noise"]},
        "partitions": {name: study.define("partitions", name)[1] for name in used["partition"]},
        "methods": {name: study.define("methods", name)[1] for name in used["method"]},
        "train": study.data["train"],
        **({"blocks": own} if (own := _own_training(study)) else {}),
        "tables": tables,
        "figures": {name: {key: one[key] for key in one if key != "of"} for name, one in figures.items()},
        "left_out": paper_tables.left_out(study, figures),
        **({"paper": paper_settings.told(study)} if study.name in study.project.papers else {}),
    }


def _own_training(study: StudyGrid) -> list[dict[str, Any]]:
    """The grid's blocks that have training settings of their own, with these as their runs have them."""
    found = []
    for number, block in enumerate(study.data["grid"]):
        if block.get("train"):
            made = study.train_of(number)
            found.append({**block, "train": {key: made[key] for key in block["train"]}})
    return found


def shown(study: StudyGrid, key: str, tables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Tables or figures that have a run at this scale. Naming what no scale has, or having no run, is a mistake."""
    blocks = [
        *study.data["grid"],
        *study.full["grid"],
        *({"seeds": data["seeds"]} for data in (study.data, study.full)),
    ]
    known = {field: {one for block in blocks for one in block.get(f"{field}s", ())} for field in SELECTORS}
    known["method"] |= {variant for data in (study.data, study.full) for variant in _known_variants(study, data)}
    found = {}
    for name, spec in study.data.get(key, {}).items():
        place = study.place / key / name
        taken = name in PARTS or f"{study.name}_{name}" in study.project.names
        if taken or (key == "figures" and name in study.data.get("tables", {})):
            raise place.error(f"{study.name}_{name} is a target already; give it another id")
        study.project.schemas.check_kind(key.removesuffix("s"), spec, place)
        for field in SELECTORS:
            for number, wanted in enumerate(spec.get(f"{field}s") or []):
                if wanted not in known[field]:
                    raise (place / f"{field}s" / number).error(f"no run has {wanted!r}{hint(wanted, known[field])}")
        if key == "figures" and spec["kind"] in paper_tables.FIGURES:
            spec = paper_tables.with_tables(tables or {}, spec, place)
        stood = _stood_in(study, spec)
        runs = study.select(stood)
        if runs:
            check_compared(spec, runs, place)
        if key == "tables" and study.project.schemas.flags(spec).get("of_a_paper"):
            own = {"datasets": stood["datasets"]} if "datasets" in stood else {}
            found[name] = paper_tables.completed(study, spec, place) | own
        elif runs:
            found[name] = stood
        elif study.data is study.full and not study.project.part and not paper_tables.wholly_absent(study, spec):
            raise place.error("no run has all that it asks for")
    return found


def _stood_in(study: StudyGrid, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a table or figure with the data sets of this scale."""
    named = spec.get("datasets")
    used = dict.fromkeys(study.stand_ins.get(one, one) for one in named or ())
    return {**spec, "datasets": list(used)} if named else dict(spec)


def _known_variants(study: StudyGrid, data: Mapping[str, Any]) -> Iterator[str]:
    """Ids of the variants of every method in the grid of `data`, this study at its scale or as it is written."""
    defined = {**study.project.catalogue.get("methods", {}), **data.get("methods", {})}
    for name in {base_method(method) for block in data["grid"] for method in block["methods"]} & defined.keys():
        yield from variants(name, defined[name], study.place / "methods" / name)


def check_compared(spec: Mapping[str, Any], runs: Sequence[PlannedRun], place: Place) -> None:
    """Whether a figure that compares variants has some. Raises SpecError, before anything is trained."""
    if spec["kind"] == "sweep":
        try:
            swept_field([run.method for run in runs], spec.get("field"))
        except SpecError as error:
            raise place.error(str(error)) from error
