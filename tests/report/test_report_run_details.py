"""What a run opens to on a study's page: its words where test labels are not trusted, and why a part is not there."""

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
    ("classes", "rows", "why"),
    [
        (CLASSES, True, ""),
        (100, True, "100 classes are too many for a page: see confusion.csv"),
        (10, False, "no finite numbers"),
    ],
)
def test_a_confusion_matrix_or_why_there_is_none(tmp_path: Path, classes: int, rows: bool, why: str) -> None:
    assert "has no confusion.csv" in confusion_of(run_in(tmp_path, classes))["no_confusion"]
    text = confusion(0.8, classes, stream(0, "details"))
    (tmp_path / "confusion.csv").write_text(text if rows else text.splitlines()[0] + "\n", encoding="utf-8")
    made = confusion_of(run_in(tmp_path, classes))
    assert why in made.get("no_confusion", "")
    assert len(made.get("names", [])) == len(made.get("confusion", [])) == (0 if why else classes)


@pytest.mark.parametrize(("clients", "why"), [(CLIENTS, ""), (CLIENTS + 1, "501 clients are too many"), (0, "judged")])
def test_clients_or_why_there_are_none(tmp_path: Path, clients: int, why: str) -> None:
    assert "has no sites.csv" in clients_of(run_in(tmp_path))["no_clients"]
    rows = "".join(f"{client},{client},10,1.0,0.0,2.0,0.1,1,0,1\n" for client in range(clients))
    (tmp_path / "sites.csv").write_text(SITES + rows, encoding="utf-8")
    made = clients_of(run_in(tmp_path))
    assert why in made.get("no_clients", "")
    assert len(made.get("clients", [])) == (0 if why else clients)


def test_words_and_ends_of_each_run(tmp_path: Path) -> None:
    """Data without trusted test labels are said to be so; a finite seed is drawn to its end where another diverged."""
    study = write_study(tmp_path, grid=GRID, rounds=12)
    diverge(tmp_path / "runs/digits/sym40/iid/fedavg/seed1", 5)
    for path in tmp_path.glob("runs/**/summary.json"):
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"test_known": False}))
    made = page_data(study, load(listed_runs(tmp_path / "runs.json")), "unknown")
    setting = made["settings"][0]
    assert (setting["score"], setting["known"]) == ("Agreement with given labels", False)
    whole, lost = (run["v"] for run in made["runs"][:2])
    assert None not in whole
    assert lost.index(None) == 5
    assert [run["personal"] for run in made["runs"]] == [False, False, True, True]
    assert made["whys"][made["runs"][0]["no_clients"]].endswith("no sites.csv.")
