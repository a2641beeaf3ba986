"""`fednoise flower-app`: a planned run as folders of a real federation."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from fednoise_core.flower.folders import RunSettings
from fednoise_core.io import SpecError
from fednoise_core.testing import world
from workflow_scripts.commands import flower_app, main
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.study.plan import Plan

ROOT = Path(__file__).parents[2]


def plan_toy_run(method: str) -> SimpleNamespace:
    """A planned run of the small world, whose inputs are made in the working folder."""
    artifacts = {"arrays": world.arrays, "labels": world.toy_labels, "partitions": world.toy_partition}
    plans = [Plan(f"store/{kind}/x", "") for kind in artifacts]
    for plan, make in zip(plans, artifacts.values(), strict=True):
        Path(plan.folder).mkdir(parents=True)
        make().save(Path(plan.main_file))
        write_sums(plan.folder)
    spec = {"method": {"name": method}, "train": dict(world.TRAIN)}
    return SimpleNamespace(plan=Plan("store/runs/x", "", tuple(plans)), spec=spec, seed=7, noise="toy")


def test_it_writes_the_app_and_a_folder_for_each_process(monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "federation"
    flower_app.write_run(plan_toy_run("fedavg"), out, "/srv/fl/server")
    assert {path.name for path in out.iterdir()} == {"app", "server", *(f"site-{c}" for c in range(len(world.SIZES)))}
    app = tomllib.loads((out / "app/pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"] == {"folder": "/srv/fl/server", "deadline": 600.0, "wait": 600.0, "strict": False, "nodes": ""}
    assert app["components"]["clientapp"] == "fednoise_core.flower.apps:client_app"
    settings = RunSettings.load(out / "site-3")
    assert settings == RunSettings.load(out / "server")
    assert (settings.seed, settings.method, settings.train) == (7, {"name": "fedavg"}, world.TRAIN)


def test_it_refuses_what_sites_cannot_run_and_a_folder_that_exists(monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    run = plan_toy_run("centralised")
    with pytest.raises(SpecError, match="centralised needs all samples in one place"):
        flower_app.write_run(run, tmp_path / "federation", "")
    with pytest.raises(SpecError, match="--out: expected a folder that does not exist"):
        flower_app.write_run(run, tmp_path, "")


def test_it_names_the_inputs_to_make(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(Plan, "is_finished", False)
    named = ["--method=fedavg", "--noise=sym40", "--partition=iid", "--seed=0", f"--out={tmp_path / 'out'}"]
    assert main.main(["flower-app", "--study=quick", *named]) == 2
    message = capsys.readouterr().err
    assert "Make them: snakemake --cores 1 store/arrays/digits/" in message
    assert not (tmp_path / "out").exists()
