"""Outgrowing one machine, on a stand-in for a scheduler: profiles, groups, sizes, GPUs, and no shared files."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from toy_workflow import REAL, Workflow

pytestmark = pytest.mark.workflow

TOY = "config/studies/toy.yaml"
PLUGINS = Path(__file__).parent / "plugins"
QUICKLY = ("--seconds-between-status-checks", "1", "--latency-wait", "20")
# the environment that a job of a cluster gets
BARE = {key: value for key, value in REAL.items() if not key.startswith(("CUDA", "SLURM", "FEDNOISE_GPU", "GPU_"))}


def stand_in(workflow: Workflow, tmp_path: Path, *arguments: str, **env: str) -> list[dict[str, Any]]:
    """Submit through profiles/slurm, with the stand-in in Slurm's place; return what each submission asked for."""
    profile, log = tmp_path / "profile", tmp_path / "asked.jsonl"
    profile.mkdir(exist_ok=True)
    text = (workflow.folder / "profiles/slurm/config.yaml").read_text(encoding="utf-8")
    (profile / "config.yaml").write_text(text.replace("executor: slurm", "executor: stand-in"))
    log.unlink(missing_ok=True)
    path = os.pathsep.join([str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**BARE, "STAND_IN_LOG": str(log), "PYTHONPATH": path, **env}
    command = ["snakemake", *arguments, "--profile", str(profile), *QUICKLY]
    done = subprocess.run(command, cwd=workflow.folder, env=env, capture_output=True, text=True, check=False)
    errors = log.with_suffix(".err")
    output = done.stdout + done.stderr + (errors.read_text() if errors.exists() else "")
    assert (done.returncode == 0) == ("STAND_IN_FAILS" not in env), output[-10000:]
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def nvidia_smi(folder: Path, count: int) -> str:
    """PATH with a stand-in for nvidia-smi that lists `count` GPUs."""
    folder.mkdir()
    lines = "\n".join(f"GPU {k}: Some GPU (UUID: GPU-{k}a)" for k in range(count))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<END\n{lines}\nEND\n")
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}{os.pathsep}{BARE['PATH']}"


def test_through_the_slurm_profile(workflow: Workflow, tmp_path: Path) -> None:
    """A study of two settings and more noise: small jobs go as one that fits a node, runs side by side."""
    noises = "noises: [sym40, random20, random40, sym20, clean]"
    with workflow.edited(TOY, "noises: [random20]", noises), workflow.edited(TOY, "seeds: [0]", "seeds: [1, 2]"):
        submissions = stand_in(workflow, tmp_path, "toy_settings", "--config", "device=cpu")
        groups = [entry for entry in submissions if "noise" in entry["rules"] or "partition" in entry["rules"]]
        jobs = sum(len(entry["rules"]) for entry in groups)
        assert (jobs, len(groups)) == (14, 1)
        resources = groups[0]["asked"]
        assert resources["_cores"] == 2
        assert resources["mem_mb"] <= 4000
        assert resources["runtime"] <= 10 * jobs


def test_runs_are_submitted_side_by_side(workflow: Workflow, tmp_path: Path) -> None:
    """Each asks for memory and time, and for twice as much at the second try."""
    with workflow.edited(TOY, "rounds: 2", "rounds: 3"):
        arguments = ("toy_runs", "--retries", "1", "--config", "device=cpu")
        submissions = stand_in(workflow, tmp_path, *arguments, STAND_IN_FAILS="1")
    assert [entry["rules"] for entry in submissions] == [["train"]] * 8
    assert [entry["beside"] for entry in submissions[:4]] == [0, 1, 2, 3]  # nothing but `jobs` and `gpu` limits them
    sizes = sorted((entry["asked"]["mem_mb"], entry["asked"]["runtime"]) for entry in submissions)
    assert sizes == [(4000, 720)] * 4 + [(8000, 1440)] * 4
    assert not any("gpu" in entry["asked"] for entry in submissions)


def test_runs_ask_for_a_gpu_where_the_submitting_machine_has_none(workflow: Workflow, tmp_path: Path) -> None:
    with workflow.edited(TOY, "rounds: 2", "rounds: 3"):
        arguments = ("toy_runs", "--set-resources", "train:mem_mb=777", "--config", "device=cuda")
        submissions = stand_in(workflow, tmp_path, *arguments, STAND_IN_FAILS="1")
    assert {(entry["asked"]["gpu"], entry["asked"]["gpu_manufacturer"]) for entry in submissions} == {(1, "nvidia")}
    assert [entry["beside"] for entry in submissions[:4]] == [0, 1, 2, 3]
    assert {entry["asked"]["mem_mb"] for entry in submissions} == {777}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES=0 names a GPU, but "),
        ("FEDNOISE_GPU_SLOTS", "FEDNOISE_GPU_SLOTS: expected a whole number from 1 on, got '0'"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_one_message(
    workflow: Workflow, tmp_path: Path, variable: str, message: str
) -> None:
    env = {**BARE, variable: "0"}
    if variable != "CUDA_VISIBLE_DEVICES":
        env["PATH"] = nvidia_smi(tmp_path / "bin", 1)
    command = ["snakemake", "-n", "toy_runs"]
    done = subprocess.run(command, cwd=workflow.folder, env=env, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("Using workflow", "Config file"))]
    assert (done.returncode, len(lines)) == (1, 1)
    assert lines[0].startswith(message)


def test_a_dry_run_writes_nothing(workflow: Workflow) -> None:
    def seen() -> dict[str, int]:
        files = [path for path in workflow.folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts]
        return {str(path): path.stat().st_mtime_ns for path in files}

    with workflow.edited(TOY, "title: Toy", "title: Another"):
        before = seen()
        assert workflow.stale() == {"study_page": 1}
        assert seen() == before


def test_code_in_one_folder_and_results_in_another(workflow: Workflow, tmp_path: Path) -> None:
    elsewhere = Workflow(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    target = f"{workflow.run('fedavg', 'random20')}/SHA256SUMS"  # the address does not depend on the folder
    snakefile = ("--snakefile", str(workflow.path("Snakefile")), "--directory", str(elsewhere.folder))
    workflow("snakemake", target, "--cores", "2", *snakefile, "--config", "device=cpu")
    metrics = target.replace("SHA256SUMS", "metrics.parquet")
    assert elsewhere.path(metrics).read_bytes() == workflow.path(metrics).read_bytes()
    assert "Nothing to be done" in workflow("snakemake", "-n", target, *snakefile, "--config", "device=cpu")
    assert workflow.stale(target, "--config", "device=cpu") == {}
    with workflow.edited(TOY, "beta: 1.0", "betta: 1.0"):
        output = workflow("snakemake", "-n", target, *snakefile, check=False)
        assert "config/studies/toy.yaml: methods.feddpcont.betta: unknown key" in output


def test_names_run_no_commands_and_match_nothing_else(workflow: Workflow) -> None:
    study = workflow.path(TOY).read_text(encoding="utf-8")
    name = "x$(touch PWNED);touch PWNED;y"
    workflow.path(f"config/studies/{name}.yaml").write_text(study)
    workflow("snakemake", "--cores", "2", f"results/{name}/report.html", check=False)
    assert not workflow.path("PWNED").exists()
    workflow.path(f"config/studies/{name}.yaml").unlink()
    workflow.path("config/studies/a+b.yaml").write_text(study)  # + has a meaning in a pattern
    output = workflow("snakemake", "-n", "results/a+b/report.html", check=False)
    assert "config/studies/a+b.yaml: the file's name: expected an id" in output


def test_tables_of_every_study_have_a_name(workflow: Workflow) -> None:
    """A broken study matters only if it is a target; then its error is shown."""
    workflow.path("config/studies/other.yaml").write_text(workflow.path(TOY).read_text(encoding="utf-8"))
    workflow.path("config/studies/broken.yaml").write_text("tables: [")
    workflow.path("config/studies/odd.yaml").write_text("figures: [{a: 1}]\ntables: {main: accuracy}\n")
    workflow.path("config/studies/list.yaml").write_text("[1, 2]\n")
    assert "results/other/tables/plain.tex" in workflow("snakemake", "-n", "other_plain")
    assert "results/other/figures/curves.svg" in workflow("snakemake", "-n", "other_curves")
    message = workflow("snakemake", "-n", "results/toy/tables/mian.csv", check=False)
    assert "config/studies/toy.yaml: tables: none is named 'mian'" in message


def test_other_settings_are_about_the_studies_that_are_asked_for(workflow: Workflow) -> None:
    """Another configured study need not have the ids of `--set`."""
    study = workflow.path(TOY).read_text(encoding="utf-8")
    changed = study.replace("methods:\n", "methods:\n  own: {name: fedprox, mu: 0.1}\n")
    workflow.path("config/studies/other.yaml").write_text(changed)
    settings = ("--config", 'set=["methods.own.mu=1"]')
    assert "results/other@methods.own.mu=1/" in workflow("snakemake", "-n", "other", *settings)
    output = workflow("snakemake", "-n", *settings, check=False)
    assert "toy.yaml with methods.own.mu=1: methods.own: the key 'name' is missing" in output
