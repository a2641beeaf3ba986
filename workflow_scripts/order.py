"""In which order a driver works through the runs of studies: a file of blocks, each a study and what of it."""

from __future__ import annotations

from typing import Any

from workflow_scripts.config_file import Place, hint, read_yaml
from workflow_scripts.project import Project
from workflow_scripts.runs import PlannedRun
from workflow_scripts.study import Study

__all__ = ["ordered"]

LISTS = ("datasets", "noises", "partitions", "methods", "seeds")


def ordered(project: Project, file: str) -> list[tuple[Study, PlannedRun]]:
    """Every run that a block of `file` names, once, in the order of the blocks, and of a block's own methods.

    The file: {blocks: [{study, and if wanted LISTS of ids}, …]}, ids as in the study, data sets by the paper's ids at
    every scale. Raises SpecError, naming file and key, for an unknown key or study, and at scale paper for an id of
    which the study has no run; another scale may lack it.
    """
    data, place = read_yaml(project.folder / file), Place(file)
    blocks = data.get("blocks")
    if list(data) != ["blocks"] or not isinstance(blocks, list):
        raise place.error("expected one key, blocks, with a list")
    found: dict[str, tuple[Study, PlannedRun]] = {}
    studies: dict[str, Study] = {}
    for number, block in enumerate(blocks):
        for run in _runs(project, studies, block, place / "blocks" / number):
            found.setdefault(run.folder, (studies[block["study"]], run))
    return list(found.values())


def _runs(project: Project, studies: dict[str, Study], block: Any, place: Place) -> list[PlannedRun]:
    if not isinstance(block, dict) or "study" not in block:
        raise place.error("expected keys and values, `study` among them")
    for key, value in block.items():
        if key not in ("study", *LISTS):
            raise (place / key).error(f"unknown key{hint(key, ('study', *LISTS))}")
        if key != "study" and not isinstance(value, list):
            raise (place / key).error("expected a list")
    name = block["study"]
    if name not in project.names:
        raise (place / "study").error(f"unknown study {name!r}{hint(name, project.names)}")
    study = studies.setdefault(name, Study(project, name))
    stood = (
        {**block, "datasets": [study.stand_ins.get(one, one) for one in block["datasets"]]}
        if "datasets" in block
        else block
    )
    runs = study.select(stood)
    for key in LISTS if project.scale == "paper" else ():
        for value in stood.get(key, ()):
            if not any(study.select({**stood, key: [value]})):
                known = {getattr(run, key.removesuffix("s")) for run in study.runs}
                raise (place / key).error(f"no run has {value!r}{hint(value, known)}")
    methods = block.get("methods")
    return sorted(runs, key=lambda run: methods.index(run.method) if methods and run.method in methods else 0)
