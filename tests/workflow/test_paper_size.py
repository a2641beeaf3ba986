"""A study's runs are packed, trained elsewhere without Snakemake, and taken back into the store."""

import json
import shutil

from toy_workflow import ROOT


def test_runs_trained_elsewhere_are_those_that_the_workflow_plans(workflow):
    shutil.copytree(ROOT / "benchmarks", workflow.path("benchmarks"))
    before = {path.parent.parent.parent: path.read_bytes() for path in workflow.folder.rglob("store/runs/**/sites.csv")}
    shutil.rmtree(workflow.path("store/runs"))
    queue = ("python", "-m", "benchmarks.paper_size")
    workflow(*queue, "pack", "--study", "toy", "--folder", "pack")
    jobs = json.loads(workflow.path("pack/jobs.json").read_text())
    assert len(jobs) == 4
    shutil.rmtree(workflow.path("store"))

    workflow(*queue, "run", "--folder", "pack", "--processes", "2", "--out", "out")
    assert json.loads(workflow.path("out/run.json").read_text())["written"] == [job["folder"] for job in jobs]
    trained = {job["folder"]: workflow.path(f"{job['folder']}/model.safetensors").read_bytes() for job in jobs}
    shutil.rmtree(workflow.path("store/runs"))
    workflow(*queue, "unpack", "--folder", "out")

    assert {folder: workflow.path(f"{folder}/model.safetensors").read_bytes() for folder in trained} == trained
    after = {path.parent.parent.parent: path.read_bytes() for path in workflow.folder.rglob("store/runs/**/sites.csv")}
    assert after == before
    assert "train" not in workflow.stale("toy_runs", "--config", "device=cuda")
    assert "changed" not in workflow("python", "-m", "workflow_scripts.commands.main", "audit", check=False)


def test_small_nets_are_refused(workflow):
    shutil.copytree(ROOT / "benchmarks", workflow.path("benchmarks"))
    shutil.copytree(ROOT / "config/scales", workflow.path("config/scales"), dirs_exist_ok=True)
    command = ("python", "-m", "benchmarks.paper_size", "pack", "--study", "toy", "--folder", "pack")
    output = workflow(*command, "--config", '{"scale": "cpu"}', check=False)
    assert "scale cpu: small nets train on a CPU. Expected scale paper" in output
    assert not workflow.path("pack/jobs.json").exists()
