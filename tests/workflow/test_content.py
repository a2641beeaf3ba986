"""Content is bound to its address and to DVC's record: exchanged, forged and damaged folders."""

import hashlib
import random
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_workflow import Workflow

import fednoise_core as fn
from fednoise_core.io import ArtifactError
from workflow_scripts.commands import audit
from workflow_scripts.docgen.publish import refuse_damage
from workflow_scripts.provenance.checksums import read_sums
from workflow_scripts.provenance.dvc_record import read_record

pytestmark = pytest.mark.workflow

COMMAND = ("python", "-m", "workflow_scripts.commands.main")
ROUNDS = 2  # of fifteen damages each


def exchange(first: Path, second: Path) -> None:
    """Give two folders each other's files."""
    away = first.with_name("away")
    first.rename(away)
    second.rename(first)
    away.rename(second)


def flip(folder: Path, draw: random.Random) -> None:
    file = draw_file(folder, draw)
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)


def truncate(folder: Path, draw: random.Random) -> None:
    file = draw_file(folder, draw)
    file.write_bytes(file.read_bytes()[: draw.randrange(file.stat().st_size)])


def remove(folder: Path, draw: random.Random) -> None:
    draw_file(folder, draw).unlink()


def remove_list(folder: Path, draw: random.Random) -> None:
    (folder / "SHA256SUMS").unlink()


def damage_list(folder: Path, draw: random.Random) -> None:
    file = folder / "SHA256SUMS"
    file.write_bytes(file.read_bytes()[: -draw.randrange(1, 60)])


def add(folder: Path, draw: random.Random) -> None:
    (folder / "more.csv").write_text("mine")


def forge(folder: Path, draw: random.Random) -> None:
    """Change a file together with its line in the list."""
    file, sums = draw_file(folder, draw), folder / "SHA256SUMS"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_bytes(file.read_bytes() + b" ")
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(file.read_bytes()).hexdigest()))


def readdress(folder: Path, draw: random.Random) -> None:
    """Write the address of another folder, with its line in the list."""
    file, sums = folder / "address.txt", folder / "SHA256SUMS"
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    file.write_text("store/runs/x/0123456789abcdef\n")
    sums.write_text(sums.read_text().replace(before, hashlib.sha256(file.read_bytes()).hexdigest()))


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    flip,
    truncate,
    remove,
    remove_list,
    damage_list,
    add,
    forge,
    readdress,
]


def draw_file(folder: Path, draw: random.Random) -> Path:
    return folder / draw.choice(sorted(name for name in read_sums(folder) if (folder / name).stat().st_size))


def test_thirty_damages_are_named_refused_and_mended(workflow: Workflow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders and damages are drawn from all kinds. The command that the audit prints restores everything."""
    monkeypatch.chdir(workflow.folder)
    draw, record = random.Random(20261128), read_record()
    folders = sorted(audit.find_folders())
    contents = {file: file.read_bytes() for folder in folders for file in folder.iterdir()}
    assert {folder.parts[1] for folder in folders} >= {"arrays", "labels", "partitions", "runs", "tables", "figures"}
    for _ in range(ROUNDS):
        damaged = draw.sample(folders, 15)
        for folder in damaged:
            draw.choice(DAMAGES)(folder, draw)
        assert sorted(audit.audit_store(copies=False, record=record)) == sorted(damaged)
        for folder in damaged:
            if (folder / "SHA256SUMS").exists():  # without it a run is not finished, and publish leaves it out
                with pytest.raises(ArtifactError, match=str(folder)):
                    refuse_damage([folder])
        line = workflow(*COMMAND, "audit", check=False).splitlines()[-1]
        workflow(*shlex.split(line.partition("recorded: ")[2]))
        assert {file: file.read_bytes() for folder in folders for file in folder.iterdir()} == contents


def test_two_runs_exchanged_show_under_neither_name(workflow: Workflow) -> None:
    first, second = (workflow.path(workflow.run(method)) for method in ("fedcorr", "feddpcont"))
    exchange(first, second)
    names = [path.relative_to(workflow.folder).as_posix() for path in (first, second)]
    assert sorted(workflow.audit()) == sorted(
        f"{a}/address.txt: holds what was made for {b}" for a, b in (names, names[::-1])
    )
    with pytest.raises(ArtifactError, match=f"{names[0]}: holds what was made for {names[1]}"):
        fn.load(first)
    for kind in ("tables", "figures", "summaries", "pages"):
        shutil.rmtree(workflow.path(f"store/{kind}"))
    output = workflow("snakemake", "--cores", "2", check=False)
    assert any(f"{a}: holds what was made for {b}" in output for a, b in (names, names[::-1]))
    assert len(list(workflow.path("store/tables").rglob("table.csv"))) == 1  # of FedAvg alone
    assert not list(workflow.path("store/pages").rglob("report.html"))
    published = workflow(*COMMAND, "publish", "--root", "results/toy", "--out", "build/published", check=False)
    assert "holds what was made for" in published
    assert not workflow.path("build/published/README.md").exists()
    exchange(first, second)
    assert workflow.snakemake().keys() <= {"table", "figure", "metrics", "study_page"}


def test_a_step_reads_no_input_of_another_plan(workflow: Workflow) -> None:
    """Labels and partitions exchanged: the training that reads them is refused."""
    rows = {(row["method"], row["noise"]): row for row in workflow.rows()}
    for key in ("labels", "partition_file"):
        first, second = (workflow.path(rows[ids][key]).parent for ids in (("fedavg", "sym40"), ("fedavg", "random20")))
        exchange(first, second)
        run = workflow.run("fedcorr")
        shutil.move(workflow.path(run), workflow.path("away"))
        output = workflow("snakemake", "--cores", "1", f"{run}/SHA256SUMS", check=False)
        assert f"{first.relative_to(workflow.folder)}: holds what was made for" in output, output
        assert not workflow.path(f"{run}/SHA256SUMS").exists()
        shutil.rmtree(workflow.path(run), ignore_errors=True)
        shutil.move(workflow.path("away"), workflow.path(run))
        exchange(first, second)
    assert workflow.audit() == []


def test_copies_that_are_missing_are_named_and_copied_again(workflow: Workflow) -> None:
    gone = [workflow.path(f"results/toy/{name}") for name in ("tables/main.md", "figures/curves.png", "report.html")]
    for file in gone:
        file.unlink()
    assert sorted(workflow.audit()) == sorted(
        f"{file.relative_to(workflow.folder)}: missing from results/" for file in gone
    )
    assert workflow.snakemake() == {}
    assert workflow.audit() == []


def test_a_broken_study_hides_no_missing_copy_of_another(workflow: Workflow) -> None:
    gone = workflow.path("results/toy/tables/main.md")
    gone.unlink()
    workflow.path("config/studies/broken.yaml").write_text("grid: 1\n")
    with workflow.edited("config/config.yaml", "studies: [toy]", "studies: [broken, toy]"):
        assert workflow.audit() == ["results/toy/tables/main.md: missing from results/"]
    workflow.path("config/studies/broken.yaml").unlink()
    workflow.snakemake()
    assert workflow.audit() == []


def test_recorded_folders_that_are_gone_or_empty_are_counted_and_not_left_out_of_a_record(workflow: Workflow) -> None:
    with workflow.edited(
        "config/studies/toy.yaml", "methods: [fedavg, feddpcont, fedcorr]", "methods: [fedavg, feddpcont]"
    ):
        workflow.snakemake()
        workflow(*COMMAND, "record")
        runs = [workflow.path(row["dir"]) for row in workflow.rows() if row["method"] == "feddpcont"]
    with workflow.edited("config/studies/toy.yaml", "methods: [fedavg, feddpcont, fedcorr]", "methods: [fedavg]"):
        workflow.snakemake()
        workflow(*COMMAND, "record")
        folder = runs[0].relative_to(workflow.folder)
        for file in runs[0].iterdir():
            file.unlink()
        message = f"1 recorded folder is not here, such as {folder}. `dvc pull` brings them back."
        assert workflow.audit() == []
        assert message in workflow(*COMMAND, "audit")
        assert message in workflow(*COMMAND, "record", check=False)
        workflow(*COMMAND, "record", "--accept", str(folder.parent))
        assert "not here" not in workflow(*COMMAND, "audit")


def test_a_record_that_is_not_here_is_no_reason_to_record_again(workflow: Workflow) -> None:
    """As in a clone without DVC's cache."""
    lock = workflow.path("dvc.lock")
    lock.write_text(re.sub(r"\w{32}\.dir", f"{'0' * 32}.dir", lock.read_text()))
    before = lock.read_bytes()
    forge(workflow.path(workflow.run("fedcorr")), random.Random(0))
    output = workflow(*COMMAND, "audit", "--store")
    assert "`dvc fetch` brings it" in output
    assert "fednoise record" not in output
    assert "`dvc fetch` brings it" in workflow(*COMMAND, "record", check=False)
    assert lock.read_bytes() == before


def test_without_a_record_the_audit_says_what_it_cannot_find(workflow: Workflow) -> None:
    workflow.path("dvc.lock").unlink()
    forge(workflow.path(workflow.run("fedcorr")), random.Random(0))
    output = workflow(*COMMAND, "audit")
    assert "every file is what its step wrote" in output
    assert "DVC has no record of results, so only accidents are found" in output
