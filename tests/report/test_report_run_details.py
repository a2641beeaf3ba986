"""The details of a run on a study's page, with untrusted test labels and with missing parts."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_runs import confusion, diverge, write_study

from fednoise_core.rng import stream
from workflow_scripts.report.pages.page_data import page_data
from workflow_scripts.report.pages.run_details import CLASSES, CLIENTS, clients_of, confusion_of
from workflow_scripts.report.runs.run import listed_runs, load

SITES = "client,site,samples,wrong,wrong_low,wrong_high,share,verdict_wrong,verdict_check,estimated\n"
GRID = [{"noises": ["sym40"], "partitions": ["iid"], "methods": ["fedavg", "local"]}]


def run_in(folder: Path, classes: int = 10) -> Any:
    return SimpleNamespace(listed=SimpleNamespace(dir=folder), summary={"classes": classes})


@pytest.mark.parametrize(
    ("classes", "rows", "reason"),
    [
        (CLASSES, True, ""),
        (100, True, "100 classes are too many for a page: see confusion.csv"),
        (10, False, "no finite numbers"),
    ],
)
def test_a_missing_confusion_matrix_has_a_reason(tmp_path: Path, classes: int, rows: bool, reason: str) -> None:
    assert "has no confusion.csv" in confusion_of(run_in(tmp_path, classes))["no_confusion"]
    text = confusion(0.8, classes, stream(0, "details"))
    (tmp_path / "confusion.csv").write_text(text if rows else text.splitlines()[0] + "\n", encoding="utf-8")
    details = confusion_of(run_in(tmp_path, classes))
    assert reason in details.get("no_confusion", "")
    assert len(details.get("names", [])) == len(details.get("confusion", [])) == (0 if reason else classes)


@pytest.mark.parametrize(
    ("clients", "reason"), [(CLIENTS, ""), (CLIENTS + 1, "501 clients are too many"), (0, "judged")]
)
def test_missing_clients_have_a_reason(tmp_path: Path, clients: int, reason: str) -> None:
    assert "has no sites.csv" in clients_of(run_in(tmp_path))["no_clients"]
    rows = "".join(f"{client},{client},10,1.0,0.0,2.0,0.1,1,0,1\n" for client in range(clients))
    (tmp_path / "sites.csv").write_text(SITES + rows, encoding="utf-8")
    details = clients_of(run_in(tmp_path))
    assert reason in details.get("no_clients", "")
    assert len(details.get("clients", [])) == (0 if reason else clients)


def test_scores_and_curves_of_each_run(tmp_path: Path) -> None:
    """Untrusted test labels are marked. A finite seed is drawn to its end although another seed diverged."""
    study = write_study(tmp_path, grid=GRID, rounds=12)
    diverge(tmp_path / "runs/digits/sym40/iid/fedavg/seed1", 5)
    for path in tmp_path.glob("runs/**/summary.json"):
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"test_known": False}))
    data = page_data(study, load(listed_runs(tmp_path / "runs.json")), "unknown")
    setting = data["settings"][0]
    assert (setting["score"], setting["known"]) == ("Agreement with given labels", False)
    finite, diverged = (run["v"] for run in data["runs"][:2])
    assert None not in finite
    assert diverged.index(None) == 5
    assert [run["personal"] for run in data["runs"]] == [False, False, True, True]
    assert data["whys"][data["runs"][0]["no_clients"]].endswith("no sites.csv.")
