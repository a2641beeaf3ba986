"""docs/papers.md lists every table and figure of the papers with its target, and the runs that it needs."""

import re
from pathlib import Path

import pytest

from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
IN_THE_PAPERS = {  # paper → its tables and figures, by number
    "FedDPCont": (range(1, 13), range(1, 5)),
    "FedEFC": (range(1, 4), range(1, 4)),
    "FedHNL": (range(1, 4), range(1, 3)),
    "FedMixCon": (range(1, 5), range(1, 8)),
}
ROW = re.compile(r"^\| (\w+), (table|figure) (\d+) \| `(\w+)`(?:, `[\w-]+`)* \| [^|]+ \| (\d+|–) \|$", re.M)


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project of somebody who has Clothing1M."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    read_facts = Project._read_facts
    monkeypatch.setattr(Project, "is_absent", lambda self, dataset: False)
    monkeypatch.setattr(
        Project,
        "_read_facts",
        lambda self, dataset: (1_000_000, 14, 224) if dataset.startswith("clothing1m") else read_facts(self, dataset),
    )
    return Project(read_yaml("config/config.yaml"))


def test_every_table_and_figure_is_a_target_or_listed_without_one(project: Project) -> None:
    text = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    studies = {name: Study(project, name) for name in project.paper_names}
    listed = ROW.findall(text)
    for paper, kind, which, target, runs in listed:
        study, part = studies[paper.lower()], f"{kind}{which}"
        assert target == f"{study.name}_{part}"
        spec = {**study.tables, **study.figures}[part]
        study.check_present(part)
        if runs != "–":
            assert len(study.select_runs(spec)) == int(runs), target
    without = " ".join(text[text.index("Without a target") :].split("##")[0].split())
    for name, (tables, figures) in IN_THE_PAPERS.items():
        rows = {(kind, int(which)) for paper, kind, which, *_ in listed if paper == name}
        expected = {*(("table", number) for number in tables), *(("figure", number) for number in figures)}
        assert rows <= expected
        for kind, which in expected - rows:
            assert drawn(without, name, kind, which), (name, kind, which)
    assert {target for *_, target, _ in listed} == {
        f"{name}_{part}"
        for name, study in studies.items()
        for part in (*study.tables, *study.figures)
        if re.fullmatch(r"(table|figure)\d+", part)
    }


def drawn(text: str, paper: str, kind: str, number: int) -> bool:
    """True if the sentence about parts without a target names this one, as in "FedDPCont figures 1 and 2"."""
    for match in re.finditer(rf"{paper} {kind}s? (\d+)(?: (and|to) (\d+))?", text):
        first, word, last = int(match[1]), match[2], int(match[3] or match[1])
        if number in (first, last) or (word == "to" and first <= number <= last):
            return True
    return False
