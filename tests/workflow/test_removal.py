"""The folders that audit and prune remove, and those that count as finished or absent. No study is run."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from toy_workflow import lay_out

from fednoise_core.io import SpecError
from workflow_scripts.commands import audit, main, prune
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.machine.locks import acquire_lock
from workflow_scripts.provenance.checksums import write_sums
from workflow_scripts.study.targets import Targets

STUDY = Path("config/studies/toy.yaml")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a project whose only study is the toy study."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def finished(folder: str) -> Path:
    """A finished folder of the store that no config names."""
    path = Path(folder)
    path.mkdir(parents=True)
    (path / "SHA256SUMS").write_text("")
    return path


@contextlib.contextmanager
def training(folder: str) -> Iterator[None]:
    """Within the block, a training holds the lock of this folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    lock = acquire_lock(Path(folder, "lock"))
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


def test_prune_removes_nothing_while_a_study_cannot_be_planned(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The study has no results/: its runs lie in the store."""
    run, text = finished("store/runs/digits/x/y/fedavg/seed0/0123456789abcdef"), STUDY.read_text()
    STUDY.write_text(text.replace("rounds: 2", "round: 2"))
    assert main.main(["prune", "--yes"]) == 2
    why = f"prune: {STUDY}: train.round: unknown key; did you mean 'rounds'?"
    assert capsys.readouterr().err == f"{why}. Nothing is removed until this is fixed\n"
    assert run.exists()
    STUDY.write_text(text)
    with training("work/x"):
        assert prune.main(["--yes"]) == 1
    assert capsys.readouterr().err == "prune: work/x: a process trains here. Wait for it\n"
    assert run.exists()
    assert prune.main(["--yes"]) == 0
    assert not run.exists()


def test_links_and_a_subset_cost_nothing(project: Path) -> None:
    """Runs that the config's subset leaves out still count as named. Links are not followed."""
    STUDY.write_text(STUDY.read_text() + "subsets: {plain: [{noises: [random20]}]}\n")
    config = Path("config/config.yaml")
    config.write_text(config.read_text().replace("subset: null", "subset: plain"))
    of_all = Targets(Project({**read_yaml(config), "subset": None})).load_study("toy").runs
    runs = [finished(run.folder) for run in of_all]
    assert len(runs) > len(Targets(Project(read_yaml(config))).load_study("toy").runs)
    theirs = project.parent / f"{project.name}-theirs" / "main.csv"
    theirs.parent.mkdir()
    theirs.write_text("text")
    for link in ("results/toy/tables", "results/gone", "results/toy/gone"):
        Path(link).parent.mkdir(parents=True, exist_ok=True)
        Path(link).symlink_to(theirs.parent)
    assert prune.main(["--yes"]) == 0
    assert all(run.exists() for run in runs)
    assert audit.main(["--remove"]) == 0
    assert theirs.read_text() == "text"
    assert Path("results/toy/tables").is_symlink()
    assert not any(os.path.lexists(link) for link in ("results/gone", "results/toy/gone"))


def test_audit_moves_only_what_the_workflow_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own files stay, in results/ and beside folders of the store; the rest can be moved back."""
    monkeypatch.chdir(tmp_path)
    names = ("results/notes.txt", "results/toy/talk.pdf", "store/runs/README", "store/x.csv")
    user_files = [Path(name) for name in names]
    damaged = Path("store/runs/a/seed0/0123456789abcdef")
    made_files = [damaged / "summary.json", Path("results/toy/tables/main.csv"), Path("results/toy/plots/curves.csv")]
    for path in (*user_files, *made_files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    intact = finished("store/runs/a/seed1/0123456789abcdef")
    (intact / "cost.json").write_text("{}")
    write_sums(intact)
    assert audit.main([]) == 1
    assert all(path.exists() for path in (*user_files, *made_files))
    assert audit.main(["--remove"]) == 0
    assert all(path.exists() for path in (*user_files, intact / "cost.json"))
    assert not any(path.exists() for path in (damaged, *made_files))
    (now,) = Path(".discarded").iterdir()
    assert all((now / path).read_text() == "text" for path in made_files)
    assert audit.main([]) == 0


def test_audit_removes_nothing_while_something_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same holds for a process that began, or finished a folder, while the audit was reading."""
    monkeypatch.chdir(tmp_path)
    unfinished = Path("store/runs/a/seed0/0123456789abcdef/summary.json")
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("{}")
    with training("work/x"):
        assert audit.main(["--remove"]) == 1
    assert capsys.readouterr().err == "audit: work/x: a process trains here. Wait for it\n"
    lock = Path(".snakemake/locks/0.output.lock")
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    assert audit.main(["--remove"]) == 1
    assert "Snakemake's lock is held" in capsys.readouterr().err
    lock.unlink()

    def ended() -> str:
        write_sums(unfinished.parent)
        return ""

    monkeypatch.setattr(audit, "running_process", ended)
    audit.main(["--remove"])
    assert unfinished.exists()


def test_dvc_removes_nothing_by_itself() -> None:
    assert "--remove" not in (Path(__file__).parents[2] / "dvc.yaml").read_text()


def test_broken_image_folders_are_an_error(project: Path) -> None:
    """The recorded contents count only if the path does not exist, as in a clone."""
    with Path("config/datasets.yaml").open("a", encoding="utf-8") as file:
        file.write("\nphotos: {source: imagefolder, path: photos, size: 8}\n")
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            Path("photos", part, name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(Path("photos", part, name, "1.png"))

    def found() -> Project:
        return Project(read_yaml("config/config.yaml"))

    before, where = found().dataset_fingerprint("photos"), Path(found().contents_folder("photos"))
    where.mkdir(parents=True)
    (where / "contents.json").write_text(json.dumps(before))
    assert found().facts("photos") == (2, 2, 8)
    Path("photos/test").rename("elsewhere")
    for asked in (found().dataset_fingerprint, found().facts):
        with pytest.raises(SpecError, match=r"config/datasets.yaml: photos: .*photos has no folder test/"):
            asked("photos")
    Path("photos").rename("nowhere")
    assert found().dataset_fingerprint("photos") == before
    assert found().facts("photos") == (None, None, None)
    assert not found().is_absent("photos")
    (where / "contents.json").unlink()
    assert found().is_absent("photos")
