"""`fednoise flower-app`: a planned run as folders of a real federation."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from fednoise_core.flower.folders import RunSettings
from fednoise_core.io import SpecError
from fednoise_core.testing import world
from workflow_scripts import paths
from workflow_scripts.commands import flower_app, main
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.study.plan import Plan

ROOT = Path(__file__).parents[2]


def plan_toy_run(folder: Path, method: str) -> SimpleNamespace:
    """A planned run of the small world, whose inputs are made."""
    plans = {}
    for kind, name in (("arrays", paths.ARRAYS), ("labels", paths.LABELS), ("partition", paths.PARTITION)):
        place = folder / kind
        place.mkdir()
        {"arrays": world.arrays, "labels": world.toy_labels, "partition": world.toy_partition}[kind]().save(
            place / name
        )
        write_sums(place)
        plans[kind] = Plan(str(place), "")
    spec = {"method": {"name": method}, "train": dict(world.TRAIN)}
    return SimpleNamespace(files=SimpleNamespace(**plans), spec=spec, seed=7, noise="toy")


def test_it_writes_the_app_and_a_folder_for_each_process(tmp_path: Path):
    out = tmp_path / "federation"
    flower_app.write_run(plan_toy_run(tmp_path, "fedavg"), out, "/srv/fl/server")
    assert {path.name for path in out.iterdir()} == {"app", "server", *(f"site-{c}" for c in range(len(world.SIZES)))}
    app = tomllib.loads((out / "app/pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"] == {"folder": "/srv/fl/server", "deadline": 600.0, "wait": 600.0, "strict": False, "nodes": ""}
    assert app["components"]["clientapp"] == "fednoise_core.flower.apps:client_app"
    settings = RunSettings.load(out / "site-3")
    assert settings == RunSettings.load(out / "server")
    assert (settings.seed, settings.method, settings.train) == (7, {"name": "fedavg"}, world.TRAIN)


def test_it_refuses_what_sites_cannot_run_and_a_folder_that_exists(tmp_path: Path):
    run = plan_toy_run(tmp_path, "centralised")
    with pytest.raises(SpecError, match="centralised needs all samples in one place"):
        flower_app.write_run(run, tmp_path / "federation", "")
    with pytest.raises(SpecError, match="--out: expected a folder that does not exist"):
        flower_app.write_run(run, tmp_path, "")


def test_it_names_the_inputs_to_make(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(Plan, "is_finished", False)
    named = ["--method=fedavg", "--noise=sym40", "--partition=iid", "--seed=0", f"--out={tmp_path / 'out'}"]
    assert main.main(["flower-app", "--study=quick", *named]) == 2
    said = capsys.readouterr().err
    assert "Make them: snakemake --cores 1 store/arrays/digits/" in said
    assert not (tmp_path / "out").exists()
