"""Every table and figure of the papers, end to end at test size; a further method; data that are not here."""

import csv
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_workflow import ENV, FINISHED, Workflow, lay_out

from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.machine.fork_client import ADDRESS
from workflow_scripts.study.study import Study

pytestmark = pytest.mark.workflow

SMALL = ("--config", "scale=smoke", "device=cpu")
RUNS = 40  # at most
CPU_SECONDS = 2 * 5 * 60  # two cores for five minutes; wall time would depend on other processes


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """An empty project without the user's data."""
    folder = tmp_path_factory.mktemp("papers")
    lay_out(folder, papers=True)
    return Workflow(folder)


@pytest.fixture
def studies(smoke: Workflow, monkeypatch: pytest.MonkeyPatch) -> dict[str, Study]:
    monkeypatch.chdir(smoke.folder)
    return planned(smoke.folder)


def planned(folder: Path, names: list[str] | None = None) -> dict[str, Study]:
    """The papers' studies as the workflow in this folder plans them."""
    project = Project({**read_yaml(folder / "config/config.yaml"), "scale": "smoke"}, folder)
    return {name: Study(project, name) for name in names or project.paper_names}


def cpu_seconds() -> float:
    """Seconds of all commands so far: this process's children, and those that the preloaded server forked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    forked = Path(ENV.get(ADDRESS, os.devnull)).parent / "cpu"
    return used.ru_utime + used.ru_stime + sum(map(float, forked.read_text().split() if forked.exists() else ()))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def tables(smoke: Workflow) -> Iterator[Path]:
    return smoke.path("results").glob("*-smoke/tables/*.*")


def test_papers_go_through_end_to_end(smoke: Workflow, studies: dict[str, Study]) -> None:
    before = cpu_seconds()
    output = smoke("snakemake", "--cores", "2", "papers", *SMALL)
    assert 1 < cpu_seconds() - before < CPU_SECONDS
    runs = {run.folder for study in studies.values() for run in study.runs}
    assert FINISHED.findall(output).count("train") == len(runs) <= RUNS
    assert output.count("missing data sets: clothing1m-public") == 1
    verdicts = set()
    for name, study in studies.items():
        assert smoke.path(f"{study.root}/report.html").is_file()
        for figure in study.full["figures"]:
            assert smoke.path(f"{study.root}/figures/{figure}.svg").is_file(), (name, figure)
        for table, spec in study.tables.items():
            table_rows = rows(smoke.path(f"{study.root}/tables/{table}.csv"))
            assert table_rows, (name, table)
            if spec["kind"] == "reproduction":
                assert len(table_rows) >= len(spec["cells"])
                verdicts |= {row["verdict"] for row in table_rows}
    assert verdicts == {"run", "not run", "not run (data absent)"}
    page = smoke.path("results/feddpcont-smoke/report.html").read_text(encoding="utf-8")
    assert "<td>not run (data absent)</td>" in page
    assert smoke.stale("papers", *SMALL) == {}


def test_a_table_of_absent_data_is_an_error_by_its_own_name(smoke: Workflow) -> None:
    output = smoke("snakemake", "-n", "feddpcont_table12", *SMALL, check=False)
    assert "config/papers/feddpcont.yaml at scale smoke: tables.table12: shows only clothing1m-public" in output
    assert smoke.status("snakemake", "-n", "feddpcont_table12", *SMALL) == 1


def test_a_further_method_is_one_word_and_runs_only_itself(smoke: Workflow) -> None:
    """Of all jobs of `papers` only its run, its table, and the figures, page and numbers of its paper are new."""
    assert smoke.path("results/fedmixcon-smoke/report.html").is_file(), "made by the first test"
    before = {path: path.stat().st_mtime_ns for path in tables(smoke)}
    with smoke.edited(
        "config/papers/fedmixcon.yaml", "methods: [fedavg, fedmixcon]}", "methods: [fedavg, fedmixcon, sce]}"
    ):
        (study,) = planned(smoke.folder, ["fedmixcon"]).values()
        changed_parts = {
            kind: [
                name
                for name, spec in getattr(study, kind).items()
                if any(run.method == "sce" for run in study.select_runs(spec))
            ]
            for kind in ("tables", "figures")
        }
        jobs = smoke.snakemake("papers", *SMALL)
        assert jobs.pop("papers") == 1
        assert jobs == {
            "figure": len(changed_parts["figures"]),
            "study_page": 1,
            "metrics": 1,
            "table": len(changed_parts["tables"]),
            "train": 1,
        }
        changed = {path for path in tables(smoke) if before.get(path) != path.stat().st_mtime_ns}
        assert "table3" in changed_parts["tables"]
        assert "table4" not in changed_parts["tables"]
        folder = smoke.path("results/fedmixcon-smoke/tables")
        assert {path.with_suffix("") for path in changed} == {folder / name for name in changed_parts["tables"]}
        table_rows = rows(smoke.path("results/fedmixcon-smoke/tables/table3.csv"))
        sce = {row["verdict"] for row in table_rows if row["method"] == "sce" and row["noise"] == "sym40-exact"}
        assert "run" in sce  # before the edit it was "not run"
