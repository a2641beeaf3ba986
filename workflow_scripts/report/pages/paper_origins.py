"""Origin of each number in a paper's tables, and the command that makes a cell again."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from workflow_scripts.report.runs import frames
from workflow_scripts.report.runs.run import RecordedRun
from workflow_scripts.report.tables.registry import select_table_runs

COLUMNS = ("table", *frames.RUN, "accuracy", "run", "digest", "code", "device", "versions", "seconds", "command")


def trace_origins(study: Mapping[str, Any], runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """One row a table and run of it, with what is needed to make the number again.

    The row has the run's ids, the accuracy that enters the table (in %, NaN if it diverged), its folder, digest of its
    spec, code hash, device, versions, seconds, and the command.

    Args:
        study: As the page gets it, with completed tables; only its reproduction tables have rows.
        runs: Those of the study.
    """
    rows = []
    by_listed = {run.listed: run for run in runs}
    for name, spec in study["tables"].items():
        if spec["kind"] != "reproduction":
            continue
        table_runs = [by_listed[run_listed] for run_listed in select_table_runs(by_listed, spec)]
        metric = spec["metric"]
        values = frames.tabulate_results(table_runs, spec["view"])[metric] if table_runs else []
        for run, value in zip(table_runs, values, strict=True):
            listed, versions = run.listed, run.cost.get("versions", {})
            rows.append(
                {
                    "table": name,
                    **{key: getattr(listed, key) for key in frames.RUN},
                    "accuracy": value,
                    "run": f"{listed.folder}/spec.json",
                    "digest": run.summary["spec_digest"],
                    "code": str(run.record.get("code", "unknown")),
                    "device": str(run.cost.get("device", "unknown")),
                    "versions": ", ".join(f"{key} {value}" for key, value in sorted(versions.items())),
                    "seconds": float(run.cost["seconds"]),
                    "command": _cell_command(study, name, spec, run),
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def _cell_command(study: Mapping[str, Any], name: str, spec: Mapping[str, Any], run: RecordedRun) -> str:
    """The line for a shell that trains the run of a table again, in the paper's ids.

    It has data set and partition only where method and noise alone name several cells.
    """
    listed = run.listed
    stands_for = [paper for paper, used in spec["dataset_substitutes"].items() if used == listed.dataset]
    cells = [cell for cell in spec["cells"] if (cell[1], cell[3]) == (listed.noise, listed.method)]
    matching = [cell for cell in cells if cell[0] in (stands_for or [listed.dataset]) and cell[2] == listed.partition]
    dataset = matching[0][0] if matching else listed.dataset
    options = {
        "paper": study["id"],
        "table": name.removeprefix("table"),
        "method": listed.method,
        "noise": listed.noise,
        **({"dataset": dataset} if len({cell[0] for cell in cells}) > 1 else {}),
        **({"partition": listed.partition} if len({cell[2] for cell in cells}) > 1 else {}),
        "seed": str(listed.seed),
        **({"scale": study["scale"]} if study.get("scale", "paper") != "paper" else {}),
    }
    return " ".join(["fednoise cell", *(f"--{key} {shlex.quote(value)}" for key, value in options.items())])
