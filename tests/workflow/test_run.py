"""Running: bad input stops before any job, a kill is survived, every step's code hash is complete."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_runs import shown_files
from toy_workflow import ENV, REAL, ROOT, Workflow

from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.provenance.code_hash import BOOKKEEPING, PACKAGES, read_modules
from workflow_scripts.provenance.step_code import StepCode, read_registry
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.study.study import Study

pytestmark = pytest.mark.workflow

# The command line around training.py: it reads arguments, claims a GPU and passes the spec on.
AROUND_TRAINING = {
    f"workflow_scripts/{name}.py" for name in ("steps/train", "machine/device", "config/nets", "config/__init__")
}
TOY, CONFIG = "config/studies/toy.yaml", "config/config.yaml"


@pytest.mark.parametrize(
    ("arguments", "file", "old", "new", "message"),
    [
        (
            (),
            TOY,
            "beta: 1.0",
            "betta: 1.0",
            "config/studies/toy.yaml: methods.feddpcont.betta: unknown key; did you mean 'beta'?",
        ),
        (
            ("--config", "device=tpu"),
            TOY,
            "",
            "",
            'config: device: expected "auto" | "cpu" | "cuda", got "tpu"; did you mean \'cpu\'?',
        ),
        (
            (),
            CONFIG,
            "scale: paper",
            "scale: [paper",
            "config/config.yaml: line 5: did not find expected ',' or ']'",
        ),
        (
            ("--config", "subset=frst"),
            TOY,
            "grid:\n",
            "subsets: {first: [{noises: [sym40]}]}\ngrid:\n",
            "subset: 'frst' is no subset of config/studies/toy.yaml; did you mean 'first'?",
        ),
        (("-n", "tyo_runs"), TOY, "", "", "unknown target 'tyo_runs'; did you mean 'toy_runs'?"),
        ((), CONFIG, "data_root:", "data_rot:", "config/config.yaml: data_rot: unknown key; did you mean 'data_root'?"),
    ],
)
def test_bad_input_is_one_message(
    workflow: Workflow, arguments: tuple[str, ...], file: str, old: str, new: str, message: str
) -> None:
    with workflow.edited(file, old, new):
        command = ["snakemake", "--cores", "1", *arguments]
        done = subprocess.run(command, cwd=workflow.folder, env=ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    usual = ("Using workflow", "Config file", "Building DAG")
    lines = [line for line in done.stderr.splitlines() if not line.startswith(usual)]
    assert lines == [message]


def test_the_log_of_a_failed_job_is_shown(workflow: Workflow) -> None:
    rule = "    def list_phases(self, fed: Federation) -> list[Phase]:\n"
    message = "study.yaml: beta: expected 1, got 2"
    defect = f"{rule}        from fednoise_core.io import SpecError\n        raise SpecError({message!r})\n"
    with workflow.edited("fednoise_core/methods/feddpcont.py", rule, defect):
        target = re.findall(r"store/runs/\S*feddpcont\S*/SHA256SUMS", workflow("snakemake", "-n", "toy_runs"))[0]
        command = ["snakemake", "--cores", "1", target]
        done = subprocess.run(command, cwd=workflow.folder, env=ENV, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"train: {message}" in done.stderr.splitlines()


def test_ctrl_c_ends_with_what_to_do(workflow: Workflow) -> None:
    with workflow.edited(TOY, "train: {net: mlp, rounds: 2,", "train: {net: mlp, rounds: 3000,"):
        target = re.findall(r"store/runs/digits/random-\S+/SHA256SUMS", workflow("snakemake", "-n", "toy_runs"))[0]
        command = [sys.executable, "-m", "workflow_scripts.commands.main", "run", "--cores", "1", target]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=workflow.folder, env=REAL, stderr=pipe, text=True, start_new_session=True
        ) as running:
            progress = workflow.path(f"work/{Path(target).parent}/progress.jsonl")
            while not (progress.is_file() and progress.read_text().count("\n") > 3):
                assert running.poll() is None, "the run ended before it could be interrupted"
                time.sleep(0.05)
            os.killpg(running.pid, signal.SIGINT)
            stderr = running.communicate(timeout=60)[1]
    assert stderr.rstrip().endswith("repeat the command to go on.")


@pytest.mark.parametrize("again", ["snakemake", "fednoise run"])
def test_kill_of_snakemake_and_its_job(workflow: Workflow, again: str) -> None:
    """After `kill -9` of everything, `snakemake --unlock && snakemake` or `fednoise run` continues the run."""
    edit = ("train: {net: mlp, rounds: 2,", "train: {net: mlp, rounds: 120,")
    with workflow.edited(TOY, *edit):
        planned = workflow("snakemake", "-n", "toy_runs")
        target = re.findall(r"store/runs/digits/random-\S+/SHA256SUMS", planned)[0]
        summary = workflow.path(f"{Path(target).parent}/summary.json")
        command = ["snakemake", "--cores", "1", target]
        running = subprocess.Popen(
            command,
            cwd=workflow.folder,
            env=REAL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        progress = workflow.path(f"work/{Path(target).parent}/progress.jsonl")
        end = time.monotonic() + 60
        while not (progress.is_file() and progress.read_text().count("\n") > 3):
            assert running.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < end, "no progress line"
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        assert not summary.exists()
        assert "--unlock" in workflow("snakemake", "--cores", "1", target, check=False)
        if again == "snakemake":
            workflow("snakemake", "--unlock")
            assert workflow.snakemake(target) == {"train": 1}
        else:
            command = [sys.executable, "-m", "workflow_scripts.commands.main", "run", "--cores", "1", target]
            assert "was killed and left a lock" in workflow(*command)
        assert '"rounds": 120' in summary.read_text()
        assert workflow.stale(target) == {}


def test_code_hash_covers_what_a_step_imports(workflow: Workflow) -> None:
    """Every project module that a step has loaded at its end lies in the closure that its hash is made from."""
    steps, project = StepCode(workflow.folder), Project(read_yaml(workflow.path(CONFIG)), workflow.folder)
    study = Study(project, "toy")
    kinds, figures = ([spec["kind"] for spec in specs.values()] for specs in (study.tables, study.figures))
    run = workflow.path(workflow.run("fedcorr"))
    row = workflow.rows()[0]
    arrays, labels, partition = row["arrays"], row["labels"], row["partition_file"]
    setting = ["--arrays", arrays, "--labels", labels, "--partition", partition]
    report = ["--runs-list", "results/toy"]
    copies = ["--shown", shown_files(workflow.path("results/toy"))]
    metrics = [f"--{key}=build/{key}" for key in ("out", "headline", "accuracy", "curves")]
    commands = {
        "download": (
            steps.step_entries("download", dataset=["digits"]),
            ["--spec", '{"source": "digits"}', "--out", "build/a.npz"],
        ),
        "noise": (
            steps.step_entries("noise", noise=["pair"]),
            ["--spec", '{"kind": "pair", "rate": 0.1}', "--seed", "0", "--arrays", arrays, "--out", "build/l.npz"],
        ),
        "partition": (
            steps.step_entries("partition", partition=["iid"]),
            ["--spec", '{"kind": "iid", "clients": 3}', "--seed", "0", "--arrays", arrays, "--out", "build/p.npz"],
        ),
        "table": (
            steps.step_entries("table", table=["accuracy"]),
            ["--spec", '{"kind": "accuracy"}', *report, "--out-prefix", "build/t"],
        ),
        "figure": (
            steps.step_entries("figure", figure=["curves"]),
            ["--spec", '{"kind": "curves"}', *report, "--out-prefix", "build/f"],
        ),
        "metrics": (steps.step_entries("metrics"), [*report, *metrics]),
        "study_page": (
            steps.step_entries("study_page", figure=[*SETTING_FIGURES, *figures], table=kinds),
            ["--study", json.dumps(study.page_metadata()), *report, *copies, "--out", "build/r.html"],
        ),
        "setting_page": (
            steps.step_entries("setting_page", figure=SETTING_FIGURES),
            [*setting, "--out", "build/d.html"],
        ),
        "train": (
            steps.step_entries("training_run", method=["fedcorr"], net=["mlp"]),
            ["--spec", spec_of(run), *setting, "--out", "build/run", "--work", "build/work", "--device", "cpu"],
        ),
    }
    upstream: set[str] = set()  # the code of what a report names: it is in the addresses of the runs that are shown
    for planned in study.runs:
        upstream |= {
            *steps.step_entries("noise", noise=[planned.spec["noise"]["kind"]]),
            *steps.step_entries("download", dataset=[planned.spec["dataset"]["source"]]),
        }
        upstream |= {*steps.step_entries("partition", partition=[planned.spec["partition"]["kind"]])}
    for script, (entries, arguments) in commands.items():
        named = upstream if script in ("table", "figure", "metrics", "study_page", "setting_page") else set()
        hashed = set(read_modules(workflow.folder, [*entries, *named]))
        loaded = modules_after(workflow, script, arguments)
        assert f"workflow_scripts/steps/{script}.py" in loaded
        extra = {file for file in loaded - hashed if not file.startswith(BOOKKEEPING)}
        extra -= AROUND_TRAINING if script == "train" else set()
        assert not extra, f"{script}: {sorted(extra)}"


def spec_of(run: Path) -> str:
    """The run spec alone, as the training command takes it."""
    return json.dumps(json.loads((run / "spec.json").read_text())["spec"])


def modules_after(workflow: Workflow, script: str, arguments: list[str]) -> set[str]:
    """Project files that are loaded in a fresh interpreter after the step has run."""
    code = (
        "import importlib, json, os, sys\n"
        "status = importlib.import_module(f'workflow_scripts.steps.{sys.argv[1]}').main(sys.argv[2:])\n"
        "files = {getattr(module, '__file__', None) for module in list(sys.modules.values())}\n"
        "files = [os.path.relpath(file) for file in files if file]\n"
        "print('LOADED', json.dumps([file for file in files if file.startswith(('fednoise_core', 'workflow_'))]))\n"
        "sys.exit(status)\n"
    )
    output = workflow(sys.executable, "-c", code, script, *arguments)
    return set(json.loads(output.rsplit("LOADED ", 1)[1].splitlines()[0]))


def test_only_registries_import_by_computed_names() -> None:
    """Such imports are invisible to the code hash; `Steps` names what these registries may import."""
    users = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.parent.name != "testing"  # of no step's code
        and ("import_module" in path.read_text(encoding="utf-8") or "__import__" in path.read_text(encoding="utf-8"))
    }
    assert users <= {
        "workflow_scripts/machine/fork_server.py",  # packages, not the project's code
        "fednoise_core/loggers.py",  # packages of trackers, not the project's code
        "fednoise_core/__init__.py",  # public names, imported on use by whoever asks for them
        "fednoise_core/data/sources.py",
        "fednoise_core/methods/__init__.py",
        "fednoise_core/nets/__init__.py",
        "fednoise_core/nets/module.py",  # a user's own factory, whose file is hashed by name
        "fednoise_core/settings/functions.py",  # kinds of noise, partitions, tables, figures
        "workflow_scripts/commands/main.py",  # the verbs of `fednoise`; of no step's code
        "workflow_scripts/steps/__main__.py",  # one of the steps, whose module is the entry of its code
        "workflow_scripts/docgen/config_schema.py",  # writes config/schema; of no step's code
        "workflow_scripts/docgen/python_api.py",  # writes docs/api; of no step's code
    }


def test_dvc_stages_depend_on_all_code_behind_them() -> None:
    """All files that a stage's code hashes cover lie under its `deps`."""
    stages, steps = read_yaml(ROOT / "dvc.yaml")["stages"], StepCode(ROOT)
    reports = ("table", "figure", "study_page", "metrics")
    sources = read_registry(ROOT, "fednoise_core/data/__init__.py", "SOURCES")
    methods = read_registry(ROOT, "fednoise_core/methods/__init__.py", "METHODS")
    nets = read_registry(ROOT, "fednoise_core/nets/__init__.py", "NETS")
    behind = {
        "store": [
            *(steps.step_entries("download", dataset=[source]) for source in sources),
            *(steps.step_entries("pretrained", net=[net]) for net in nets),
            *(steps.step_entries("noise", noise=["none"]), steps.step_entries("partition", partition=["iid"])),
            *(steps.step_entries("training_run", method=[method], net=nets) for method in methods),
            *(steps.step_entries(script) for script in reports),
        ],
    }
    for stage, entries in behind.items():
        deps = stages[stage].get("do", stages[stage])["deps"]
        for file in {file for entry in entries for file in read_modules(ROOT, entry) if ":" not in file}:
            assert any(file == dep or file.startswith(f"{dep}/") for dep in deps), f"{stage}: {file}"
