"""docs/results_files.md lists exactly the contents of every file of a run."""

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import toy
from safetensors import safe_open

TEXT = (Path(__file__).parents[2] / "docs/results_files.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+\.\w+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
SOMETIMES = {  # documented as absent in some runs
    "summary.json": {"valid_accuracy", "diverged", "dropped_updates", "epsilon_a_release", "releases_of_a_label"},
    "spec.json": {"digest", "code", "versions", "inputs"},
    "cost.json": set(),
}
SOMETIMES["summary.json"] |= {"at_chance", "left_out"}
METHODS = ["fedavg", "cross_fitted", "fedcorr", "feddpcont", "local", "ditto_efc", "lc"]  # fill all files


def tables(name: str) -> list[list[list[str]]]:
    """The tables of a file's section, without their heads: the cells of each row."""
    bodies = re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", SECTIONS[name], re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in body.splitlines()] for body in bodies]


def names_in(name: str, table: int = 0) -> list[str]:
    """The names in the first column of a table of the page."""
    return [word for row in tables(name)[table] for word in re.findall(r"`([^`]+)`", row[0])]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders, partition = {}, toy.toy_partition()
    with_validation = dataclasses.replace(partition, valid=np.arange(len(partition.index)) % 5 == 4)
    for name in METHODS:
        folders[name] = tmp_path_factory.mktemp(name)
        toy.play(name, out=folders[name], split=with_validation if name == "lc" else partition)
    return folders


def test_every_file_has_its_section(runs):
    for folder in runs.values():
        assert {path.name for path in folder.iterdir()} == set(SECTIONS)


@pytest.mark.parametrize("name", ["metrics.parquet", "diagnostics.parquet"])
def test_columns_and_types_of_the_tables(runs, name):
    for folder in runs.values():
        schema = pq.read_schema(folder / name)
        assert [[f"`{f.name}`", str(f.type)] for f in schema] == [row[:2] for row in tables(name)[0]]


def test_every_metric_is_documented(runs):
    seen: dict[str, set[str]] = {"metrics.parquet": set(), "diagnostics.parquet": set()}
    for folder in runs.values():
        for row in pq.read_table(folder / "metrics.parquet").to_pylist():
            if row["view"] or row["metric"] in names_in("metrics.parquet", 1):  # others are the method's own
                metric = re.sub(r"_class_\d+", "_class_<k>", row["metric"])
                seen["metrics.parquet"].add(metric)
                scope = next(cells[1] for cells in tables("metrics.parquet")[1] if f"`{metric}`" in cells[0])
                assert (scope == "view") is bool(row["view"]), metric
        rows = pq.read_table(folder / "diagnostics.parquet").to_pylist()
        seen["diagnostics.parquet"] |= {row["metric"] for row in rows}
    assert seen["metrics.parquet"] == set(names_in("metrics.parquet", 1)) - {"dropped_updates"}
    assert seen["diagnostics.parquet"] == set(names_in("diagnostics.parquet", 1))


@pytest.mark.parametrize("name", ["suspects.csv", "sites.csv"])
def test_columns_of_the_lists_of_labels(runs, name):
    for method, folder in runs.items():
        optional = {"out_of_scope", "near_copy", "predicted"} if method != "cross_fitted" else set()
        with open(folder / name, encoding="utf-8", newline="") as file:
            assert next(csv.reader(file)) == [column for column in names_in(name) if column not in optional]


def test_columns_of_the_confusion_matrix(runs):
    for folder in runs.values():
        with open(folder / "confusion.csv", encoding="utf-8", newline="") as file:
            columns = next(csv.reader(file))
        assert list(dict.fromkeys(re.sub(r"_\d+$", "_<k>", name) for name in columns)) == names_in("confusion.csv")


@pytest.mark.parametrize("name", list(SOMETIMES))
def test_keys_of_the_json_files(runs, name):
    all_keys: set[str] = set()
    for folder in runs.values():
        keys = set(json.loads((folder / name).read_text(encoding="utf-8")))
        assert set(names_in(name)) - SOMETIMES[name] <= keys
        all_keys |= keys
    assert all_keys <= set(names_in(name))


def test_the_summarys_parts(runs):
    summary = json.loads((runs["lc"] / "summary.json").read_text(encoding="utf-8"))
    assert "valid_accuracy" in summary
    (row,) = [row for row in tables("summary.json")[0] if row[0] == "`accuracy`"]
    assert set(re.findall(r"`(\w+)`", row[1])) == set(summary["accuracy"])
    for view in summary["views"].values():
        assert view.keys() == summary["accuracy"].keys()
    versions = json.loads((runs["lc"] / "cost.json").read_text(encoding="utf-8"))["versions"]
    (row,) = [row for row in tables("cost.json")[0] if row[0] == "`versions`"]
    assert set(re.findall(r"`(\w+)`", row[1])) == set(versions)


def test_the_models_metadata(runs):
    def facts(folder: Path) -> dict[str, Any]:
        with safe_open(folder / "model.safetensors", "pt") as file:
            (key,) = file.metadata()
            assert key == "fednoise"
            return json.loads(file.metadata()[key])

    for name, folder in runs.items():
        metadata = facts(folder)
        assert set(metadata) == set(names_in("model.safetensors")) - {"left_out"}
        (row,) = [row for row in tables("model.safetensors")[0] if row[0] == "`nets`"]
        entries = set(re.findall(r"`(\w+)`", row[1]))
        for net in metadata["nets"].values():
            assert set(net) == entries
        personal = any(prefix.startswith("client") for prefix in metadata["nets"])
        assert personal is (name == "local")
        data = toy.arrays()
        assert (metadata["mean"], metadata["std"]) == (list(data.mean), list(data.std))


def test_keys_that_only_the_workflow_writes(inputs, tmp_path):
    """The keys of spec.json that need a planned job."""
    from workflow_scripts.steps.training_run import RunFiles, TrainingOptions, train_job

    method, train = toy.settings("fedavg", rounds=1)
    files = {name: Path(file) for name, file in inputs.items()}
    spec = {"method": method, "train": train, "seed": 0}
    places = RunFiles(**files, out=tmp_path / "run", work=tmp_path / "work")
    train_job(spec, places, TrainingOptions(code="c"), lambda: False)
    assert set(json.loads((tmp_path / "run/spec.json").read_text(encoding="utf-8"))) == set(names_in("spec.json"))
