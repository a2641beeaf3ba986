"""The store: valid by existing, shared by studies, audited, pruned, and usable from another workflow."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_workflow import ENV, ROOT, TOY, Workflow

import fednoise_core as fn
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.store import store_of
from workflow_scripts.study.targets import Targets

pytestmark = pytest.mark.workflow

STUDY, CONFIG = "config/studies/toy.yaml", "config/config.yaml"
AUDIT = ("python", "-m", "workflow_scripts.commands.main", "audit")
RECORD = ("python", "-m", "workflow_scripts.commands.main", "record")
PRUNE = ("python", "-m", "workflow_scripts.commands.main", "prune")
MADE_AGAIN = "is not what was recorded: cost.json (a run made again has other times)"
BARE = ("--workflow-profile", "none")  # without profiles/default: every trigger of Snakemake counts


def flip_a_byte(path: Path) -> None:
    """Change one byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def planned(workflow: Workflow, monkeypatch: pytest.MonkeyPatch, **config: object) -> Targets:
    """Targets of the toy project, in its folder."""
    monkeypatch.chdir(workflow.folder)
    return Targets(Project({**read_yaml(CONFIG), "device": "cpu", **config}))


def test_the_address_is_known_while_planning(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder of the store is named by a plan, and every planned folder exists."""
    targets = planned(workflow, monkeypatch)
    named = {plan.folder for plan in targets.study_plans(targets.load_study("toy"))}
    there = {path.parent.as_posix() for path in Path("store").rglob("SHA256SUMS")}
    assert named == there
    assert len(there) == 15
    assert not any(Path(folder).exists() for folder in ("work/lists", "work/outdated"))  # only for commands
    for folder in there:
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=True)


def test_a_clone_has_nothing_to_do(workflow: Workflow, elsewhere: Callable[[Workflow], Workflow]) -> None:
    """Nothing is restored: the files that DVC brings are enough, also when every trigger of Snakemake counts."""
    clone = elsewhere(workflow)
    shutil.move(clone.path("store"), clone.path("away"))  # as before `dvc pull`
    assert "nothing is here yet. `dvc pull` brings recorded results" in clone(*AUDIT)
    clone("dvc", "repro", "--dry", "--allow-missing")
    shutil.move(clone.path("away"), clone.path("store"))
    assert not clone.path(".snakemake/metadata").exists()
    assert clone.audit() == []
    assert clone.stale() == {}
    assert clone.stale(*BARE) == {}
    assert clone.status("dvc", "status", "-q") == 0
    lines = clone("dvc", "metrics", "show").splitlines()
    assert lines[0].split() == ["Path", "fedavg", "fedcorr", "feddpcont"]
    clone("dvc", "plots", "show")
    clone("dvc", "plots", "diff")
    with clone.edited(STUDY, "beta: 1.0", "beta: 0.5"):
        assert clone.stale()["train"] == 1
        assert clone.status(*RECORD) == 1  # there is work left to do
    model = clone.path(clone.run("fedcorr")) / "model.safetensors"
    content = model.read_bytes()
    flip_a_byte(model)
    assert clone.status(*RECORD) == 1
    assert clone.status("dvc", "repro") != 0
    assert model.exists()
    clone(*AUDIT, "--remove")
    clone("dvc", "repro")
    assert model.read_bytes() == content
    assert clone.finished("train") == 1
    assert clone.status("dvc", "status", "-q") == 0


def test_damage_is_named_and_only_that_is_made_again(workflow: Workflow) -> None:
    """One file of each kind is damaged. Results that depend on it stay."""
    row = workflow.rows()[0]
    picture = next(path.relative_to(workflow.folder).as_posix() for path in workflow.path("store").rglob("figure.png"))
    damaged = (row["labels"], row["partition_file"], row["arrays"], f"{row['dir']}/metrics.parquet", picture)
    contents = {file: workflow.path(file).read_bytes() for file in damaged}
    for file in damaged:
        flip_a_byte(workflow.path(file))
    assert sorted(workflow.audit()) == sorted(f"{file}: changed" for file in damaged)
    workflow(*AUDIT, "--remove")
    assert workflow.snakemake() == {"download": 1, "figure": 1, "noise": 1, "partition": 1, "train": 1}
    assert {file: workflow.path(file).read_bytes() for file in damaged} == contents
    assert workflow.audit() == [f"{row['dir']}: {MADE_AGAIN}"]
    workflow("dvc", "checkout", "--force", row["dir"])
    assert workflow.audit() == []
    assert workflow.stale() == {}


def test_a_cell_made_by_itself_is_recorded(workflow: Workflow) -> None:
    run = workflow.run("fedcorr")
    shutil.rmtree(workflow.path(run))
    cell = ("python", "-m", "workflow_scripts.commands.main", "cell", "--paper=toy", "--table=main")
    message = f"train {run.removeprefix('store/runs/')}: 4000 MB, 720 minutes\n"
    assert message in workflow(*cell, "--method=fedcorr")
    assert workflow.audit() == [f"{run}: {MADE_AGAIN}"]
    assert workflow.status(*RECORD) == 1
    workflow(*RECORD, "--accept", run)
    assert workflow.audit() == []
    assert workflow.stale() == {}


def test_missing_extra_and_unfinished(workflow: Workflow) -> None:
    run, unfinished = workflow.path(workflow.run("fedcorr")), workflow.path(workflow.run("feddpcont"))
    (run / "suspects.csv").unlink()
    (run / "more.txt").write_text("mine")
    (unfinished / "SHA256SUMS").unlink()
    copy = workflow.path("results/toy/tables/main.md")
    copy.write_text("other numbers")
    name = run.relative_to(workflow.folder).as_posix()
    assert sorted(workflow.audit()) == sorted(
        [
            f"{name}/suspects.csv: missing",
            f"{name}/more.txt: not made by the workflow",
            f"{unfinished.relative_to(workflow.folder).as_posix()}: has no SHA256SUMS: its step did not end",
            "results/toy/tables/main.md: not a copy of a file in the store",
        ]
    )
    assert workflow.status(*AUDIT) == 1
    workflow(*AUDIT, "--remove")
    assert workflow.snakemake() == {"train": 2}
    assert copy.read_text() != "other numbers"
    remade = sorted(workflow.audit())
    assert remade == sorted(f"{path.relative_to(workflow.folder)}: {MADE_AGAIN}" for path in (run, unfinished))


def test_copies_are_those_of_the_plan(workflow: Workflow) -> None:
    """The same holds for a plan from before: only the copying is left to do, and it is done."""
    table = workflow.path("results/toy/tables/main.csv")
    before = table.read_bytes()
    with workflow.edited(STUDY, "kind: accuracy}", "kind: accuracy, metric: last}"):
        workflow("snakemake", "--cores", "1")
        after = table.read_bytes()
        assert after != before
    assert workflow.stale() == {}
    workflow("snakemake", "--cores", "1")
    assert table.read_bytes() == before
    assert "Nothing to be done" in workflow("snakemake", "-n")
    shutil.rmtree(workflow.path("results"))
    files = [f"results/toy/tables/{name}.csv" for name in ("main", "plain")]  # two in one folder, by their paths
    workflow("snakemake", "--cores", "1", *files)
    assert all(map(os.path.isfile, map(workflow.path, files)))
    assert workflow.snakemake() == {}
    assert table.read_bytes() == before


def test_a_run_takes_nothing_from_one_beside_it(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """While planning, an outdated copy gets a newer file as input, one for each process."""
    with workflow.edited(STUDY, "title: Toy", "title: Another toy"):
        targets = planned(workflow, monkeypatch)
        targets.load_study("toy")
        ours = [file for file in targets.copy_inputs("toy", "study") if file.startswith("work/")]
        assert len(ours) == 1
        ours += re.findall(r"work/lists/\S+", targets.copy_command("toy", "study"))
        assert len(ours) == 2
        workflow("snakemake", "-n")
        table = workflow.path("results/toy/tables/plain.md")
        table.unlink()
        workflow("snakemake", "--cores", "1", "results/toy/tables/plain.md")
        assert table.is_file()
        assert all(map(os.path.isfile, ours))
        targets.remove_lists()
        assert not Path("work/lists").exists()
        targets.copy_command("toy", "study")
        assert os.path.isfile(ours[1])
        targets.remove_lists()


def test_studies_share_runs(workflow: Workflow) -> None:
    """Another study under other names, with one run more."""
    text = TOY.replace("feddpcont", "dp").replace("name: dp", "name: feddpcont").replace("even", "level")
    text = text.replace("methods: [fedavg]}\ntables", "methods: [fedavg, fedcorr]}\ntables")
    workflow.path("config/studies/other.yaml").write_text(text)
    jobs = workflow.stale("other")
    assert jobs["train"] == 1
    assert not jobs.keys() & {"noise", "partition", "download"}
    runs = "other_runs", "toy_runs"
    with workflow.edited(STUDY, "rounds: 2", "rounds: 3"):
        workflow.path("config/studies/other.yaml").write_text(text.replace("rounds: 2", "rounds: 3"))
        assert workflow.stale(*runs)["train"] == 5  # 4 + 5, 4 of them shared


def test_nothing_is_deleted_for_a_job_that_fails(workflow: Workflow) -> None:
    """A GPU that is not there is refused before any job, and a forced job that fails leaves the results."""
    target = f"{workflow.run('fedcorr')}/SHA256SUMS"
    before = {path: path.read_bytes() for path in workflow.path(workflow.run("fedcorr")).iterdir()}
    env = {**ENV, "CUDA_VISIBLE_DEVICES": ""}
    command = ["snakemake", "--cores", "2", target, "--force", "--config", "device=cuda"]
    done = subprocess.run(command, cwd=workflow.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "device: cuda was asked for, but no GPU is visible" in done.stderr
    assert workflow.finished("train") == 4
    assert workflow.snakemake("--forceall") == {}  # finished results are no targets
    with workflow.edited("fednoise_core/methods/fedcorr.py", "def init_state(self", "def init_state(self, nobody"):
        assert workflow.status("snakemake", "--cores", "1", "--force", target) == 1
    assert {path: path.read_bytes() for path in workflow.path(workflow.run("fedcorr")).iterdir()} == before
    assert workflow.audit() == []


def test_a_users_error_is_not_tried_again(workflow: Workflow) -> None:
    with (
        workflow.edited(
            "workflow_scripts/steps/noise.py", "labels.save(", "raise common.SpecError('no'); labels.save("
        ),
        workflow.edited("config/catalogue.yaml", "random, rate: 0.2}", "random, rate: 0.3}"),
    ):
        assert workflow.status("snakemake", "--cores", "1", "toy_settings") == 1
    logs = "".join(path.read_text() for path in workflow.path("logs/noise").rglob("*.log"))
    assert logs.count("noise: no\n") == 2  # of two noises, each once
    assert "retries" not in "".join(path.read_text() for path in workflow.path("rules").iterdir())


def test_an_error_in_a_kind_names_the_part_of_the_study_and_the_line(workflow: Workflow) -> None:
    """The study's tables share a kind, as may those of several studies, and addresses do not name them."""
    table, figure = (f"workflow_scripts/report/{file}.py" for file in ("tables/accuracy", "figures/results/curves"))
    with (
        workflow.edited(table, "    return Grid(", "    frame['nothing']\n    return Grid("),
        workflow.edited(figure, "    x = settings.x\n", "    x = settings.y\n"),
    ):
        lines = [
            f"{path}, line {1 + workflow.path(path).read_text().split(text)[0].count(chr(10))}"
            for path, text in ((table, "frame['nothing']"), (figure, "settings.y"))
        ]
        output = workflow("snakemake", "--cores", "2", "toy", check=False)
    reasons = [line for line in output.splitlines() if line.startswith(("table: ", "figure: "))]
    missing = "AttributeError: 'CurvesSettings' object has no attribute 'y'"
    assert sorted(reasons) == [
        f"figure: {STUDY}: figures.curves: {missing} ({lines[1]})",
        f"table: {STUDY}: tables.main: KeyError: 'nothing' ({lines[0]})",
        f"table: {STUDY}: tables.plain: KeyError: 'nothing' ({lines[0]})",
    ]


def test_versions_are_part_of_the_address(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another torch all runs are new; results of accepted versions stay, and the table says which they are."""
    targets = planned(workflow, monkeypatch)
    versions = dict(store_of(targets.project).versions[0])
    runs = {run.folder for run in targets.load_study("toy").runs}
    monkeypatch.setattr(
        "workflow_scripts.study.store.installed_versions", lambda: (("numpy", versions["numpy"]), ("torch", "99.0"))
    )
    new = planned(workflow, monkeypatch)
    assert not runs & {run.folder for run in new.load_study("toy").runs}
    assert len(new.missing_runs("toy")) == 4
    accepting = planned(workflow, monkeypatch, accept_versions=[versions])
    assert {run.folder for run in accepting.load_study("toy").runs} == runs
    shutil.rmtree(workflow.run("fedcorr"))
    accepting = planned(workflow, monkeypatch, accept_versions=[versions])
    assert len({run.folder for run in accepting.load_study("toy").runs} - runs) == 1
    record = json.loads(Path(workflow.run("feddpcont"), "spec.json").read_text())
    assert record["versions"] == f"numpy {versions['numpy']}, torch {versions['torch']}"


def test_prune(workflow: Workflow) -> None:
    assert "every result is named by a config" in workflow(*PRUNE)
    run = workflow.run("fedcorr")
    recorded = {path.parent.relative_to(workflow.folder) for path in workflow.path("store").rglob("SHA256SUMS")}
    shutil.copytree(workflow.path("results/toy"), workflow.path("results/gone"))
    with workflow.edited(STUDY, "methods: [fedavg, feddpcont, fedcorr]", "methods: [fedavg, feddpcont]"):
        workflow.snakemake()
        listed = workflow(*PRUNE).splitlines()
        assert run in listed
        assert "results/gone" in listed
        assert workflow.path(run).exists()
        workflow(*PRUNE, "--yes")
        assert not workflow.path(run).exists()
        assert not workflow.path("results/gone").exists()
        assert [path for path in workflow.path(".discarded").glob(f"*/{run}")]
        assert "train" not in workflow.stale()
        assert workflow.audit() == []
        gone = sorted(folder for folder in recorded if not workflow.path(str(folder)).exists())
        assert Path(run) in gone
        message = f"{len(gone)} recorded folders are not here, such as {gone[0]}."
        assert message in workflow(*AUDIT)
        assert message in workflow(*RECORD, check=False)
        forged = workflow.path(workflow.run("feddpcont")) / "SHA256SUMS"
        content = forged.read_text()
        forged.write_text("".join(reversed(content.splitlines(keepends=True))))  # a valid list, but another one
        assert "is not what was recorded: SHA256SUMS" in workflow(*RECORD, "--accept", "store", check=False)
        forged.write_text(content)
        workflow(*RECORD, "--accept", "store")
        assert "not here" not in workflow(*AUDIT)


def test_runs_are_found_by_their_ids(workflow: Workflow) -> None:
    root = workflow.path("results/toy")
    run = fn.load(root, method="fedcorr")
    assert run.folder == workflow.path(workflow.run("fedcorr"))
    assert run.summary["run"] == {"method": "fedcorr", "seed": 0}
    with pytest.raises(fn.io.SpecError, match=r"expected one run .*, got 2\. There are noise: random20, sym40"):
        fn.load(root / "index.csv", method="fedavg")
    with pytest.raises(fn.io.SpecError, match="no such run has seed 7; known: 0"):
        fn.load(root / "index.csv", method="fedavg", seed=7)


def test_as_a_module_of_another_workflow(workflow: Workflow, tmp_path: Path) -> None:
    """The Snakefile of the page, with a study of its own; the clone is left as it is."""
    text = (ROOT / "docs/write_a_study.md").read_text(encoding="utf-8")
    (snakefile,) = re.findall(r"```text\n(module noise:.*?)```", text, re.DOTALL)
    importing = Workflow(tmp_path / "more")
    importing.folder.mkdir()
    importing.path("fednoise").symlink_to(workflow.folder)
    importing.path("Snakefile").write_text(snakefile.replace('"auto"', '"cpu"'))
    study = workflow.path(STUDY).read_text().replace("title: Toy", "title: Ours")
    importing.path("mine.yaml").write_text(study)
    shutil.copytree(workflow.path("store"), importing.path("store"))
    ran = importing.snakemake("--rerun-triggers", "mtime")
    assert ran["best"] == 1
    assert "noise_train" not in ran  # the study's runs are in the store, under any name of the study
    assert importing.path("best.txt").read_text().count("\n") == 2
    listed = importing("snakemake", "--list")
    assert "\nnoise_mine (Ours)\n" in listed
    assert "noise_toy" not in listed  # the clone's own study
    importing.path("mine.yaml").write_text(study.replace("beta: 1.0", "betta: 1.0"))
    message = f"{importing.path('mine.yaml')}: methods.feddpcont.betta: unknown key; did you mean 'beta'?"
    assert message in importing("snakemake", "-n", check=False)


def test_touch_and_lost_records_change_nothing(workflow: Workflow) -> None:
    shutil.rmtree(workflow.path(".snakemake"))
    for path in workflow.path("store").rglob("*"):
        path.touch()
    assert workflow.stale() == {}
    assert workflow.stale(*BARE) == {}


def test_image_folders_count_by_their_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One image is replaced by another one of equal size, one is only touched."""
    from workflow_scripts.config.file_contents import hash_contents

    monkeypatch.chdir(tmp_path)
    (tmp_path / "images/a").mkdir(parents=True)
    image = tmp_path / "images/a/1.png"
    image.write_bytes(b"one")
    before = hash_contents(tmp_path / "images")
    image.touch()
    assert hash_contents(tmp_path / "images") == before
    image.write_bytes(b"two")
    assert hash_contents(tmp_path / "images") != before
    read: list[Path] = []
    monkeypatch.setattr("workflow_scripts.config.file_contents.sha256_file", read.append)
    hash_contents(tmp_path / "images")
    assert read == []
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    after = hash_contents(tmp_path / "images")
    (tmp_path / "build/contents.json").write_text("{")  # as after a crash of the file system
    assert hash_contents(tmp_path / "images") == after


def test_report_needs_no_network(workflow: Workflow) -> None:
    """Snakemake's own report: one file, every table and figure in it, nothing fetched from elsewhere."""
    workflow("snakemake", "--report", "report.html")
    page = workflow.path("report.html").read_text(encoding="utf-8")
    for name in ("main.csv", "plain.csv", "curves.svg", "classes.svg"):
        assert name in page
    assert 'src="http' not in page
    assert '<link href="http' not in page
