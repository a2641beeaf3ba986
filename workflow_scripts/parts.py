"""Parts of a study: `--config part=NAME` runs only the runs of the grid that lie in one of the part's boxes.

Runs keep their folder, so that the same command without `part` makes the rest. Tables say "not run" of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fednoise_core.settings import nearest as hint
from fednoise_core.variants import family, position

if TYPE_CHECKING:
    from workflow_scripts.runs import PlannedRun
    from workflow_scripts.study import Study

Runs = dict[tuple[str, str, str, str, int], "PlannedRun"]


def kept(study: Study, runs: Runs) -> Runs:
    """Those of `runs` that the project's part asks for; all, if it asks for no part, or the study has none.

    Raises SpecError for a part that is none of the study's, for an id that its grid does not have, and if no run is
    left.
    """
    name, known = study.project.part, study.data.get("parts", {})
    if name is None or not known:
        return runs
    if name not in known:
        raise (study.place / "parts").error(f"--config part asks for {name!r}, which is not there{hint(name, known)}")
    boxes = [_checked(study, name, number, box) for number, box in enumerate(known[name])]
    found = {ids: run for ids, run in runs.items() if any(_within(run, box) for box in boxes)}
    if not found:
        raise (study.place / "parts" / name).error("no run of the grid lies in it")
    return found


def _checked(study: Study, name: str, number: int, box: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A box with the data sets of the scale, by the names of a run's fields."""
    place = study.place / "parts" / name / number
    for key, wanted in box.items():
        if key == "seeds":
            continue
        used = dict.fromkeys(one for block in study.data["grid"] for one in block[key])
        for index, one in enumerate(wanted):
            if family(str(one)) not in used and one not in used:
                raise (place / key / index).error(f"the grid has no {one!r}{hint(one, used)}")
    datasets = {"datasets": [study.stand_ins.get(one, one) for one in box["datasets"]]} if "datasets" in box else {}
    return {key.removesuffix("s"): list(wanted) for key, wanted in {**box, **datasets}.items()}


def _within(run: PlannedRun, box: Mapping[str, list[Any]]) -> bool:
    return all(position(allowed, getattr(run, field)) is not None for field, allowed in box.items())
