"""The page of a paper: made of the runs that there are; what it says of settings, deviations, origins; the README."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report.fake_runs import write_run

from fednoise_core.io import ArtifactError, digest
from fednoise_core.report.csv_files import read_csv, read_texts
from fednoise_core.report.marks import MARKS, together
from fednoise_core.report.scorecard import score
from workflow_scripts import readme_papers, readme_table
from workflow_scripts.config_file import read_yaml
from workflow_scripts.paper_settings import told
from workflow_scripts.project import Project
from workflow_scripts.publish_paper import paper_of, publish_paper
from workflow_scripts.study import Study

ROOT = Path(__file__).parents[1]
CONFIG = read_yaml(ROOT / "config/config.yaml")
PARTS = ("dataset", "noise", "partition", "method", "seed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the config, as the working folder."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "fednoise_core").symlink_to(ROOT / "fednoise_core")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    return tmp_path


def ran(root: str, figures: tuple[str, ...] = (), **chosen: Any) -> Study:
    """The paper with made-up results of the chosen runs, and with these figures alone: to draw takes seconds."""
    study = paper_of(root)
    assert study is not None
    study.figures = {name: study.figures[name] for name in figures}
    for run in study.runs:
        if all(getattr(run, key) in values for key, values in chosen.items()):
            ids = {"study": study.name} | {key: getattr(run, key) for key in PARTS}
            write_run(Path(run.folder), ids, dict(run.spec), rounds=12)
    return study


THREE = {"noise": ["sym40-exact"], "partition": ["classes3"], "method": ["fedavg", "sce", "fedlsr"], "seed": [0]}


def section(text: str, head: str) -> str:
    return text.split(f"\n## {head}\n", 1)[1].split("\n## ", 1)[0]


def test_a_paper_is_published_as_far_as_it_was_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = ran("fedmixcon-cpu", ("figure6", "figure7"), **THREE)
    out = folder / "out"
    with pytest.raises(ArtifactError, match="no run of the study was made"):
        publish_paper(paper_of("fedmixcon"), out)
    publish_paper(study, out, folder / "page.html")
    text = (out / "README.md").read_text(encoding="utf-8")
    table3 = next(line for line in section(text, "Reproduction").splitlines() if line.startswith("| Table 3"))
    assert [cell.strip() for cell in table3.split("|")[2:5]] == ["60", "6", "54"]
    assert "±" not in section(text, "Tables").split("**Table 3")[1].splitlines()[4]  # one seed has no spread
    assert "within 2 points" not in text  # no verdict but at the paper's scale
    assert f"6 of {len(study.runs)} runs so far" in text
    assert "Nothing of these was run: Table 1: augmentation under noise, FedAvg on Fashion-MNIST." in text
    figure6 = section(text, "Figures").split("### Figure 6: MNIST over rounds")[1]
    assert "](figure6.png)" in figure6
    assert "Highest" in figure6.split("](")[0]  # the picture in words, for those who cannot see it
    assert "figure7" not in text
    assert (out / "figure6.png").is_file()
    html = (folder / "page.html").read_text(encoding="utf-8")
    assert (
        html.count("make cell PAPER=fedmixcon TABLE=3 METHOD=sce NOISE=sym40-exact DATASET=mnist") == 1
    )  # in the list
    assert '<h2 id="sources">' in html
    assert "t_w is a fifth of all rounds" in html

    rows = read_texts(out / "origins.csv").to_dict("records")
    assert len(rows) == 6 + 2  # table 4 shows FedAvg, too
    record = json.loads(Path(rows[0]["run"]).read_text())
    assert rows[0]["digest"] == digest(record["spec"])
    assert rows[0]["code"] == record["code"]
    assert (rows[0]["device"], rows[0]["versions"]) == ("cpu", "numpy 2.3.0, python 3.11.9, torch 2.14.1")
    cells = read_csv(out / "table3.csv")
    own = cells[(cells["dataset"] == "mnist") & (cells["method"] == "fedavg") & (cells["seeds"] == 1)]
    assert float(rows[0]["accuracy"]) == pytest.approx(own["ours_mean"].iloc[0], abs=1e-3)
    assert capsys.readouterr().err == ""


def test_what_is_written_by_hand_stays_and_runs_of_other_settings_do_not_count(folder: Path) -> None:
    ran("fedmixcon-cpu", **THREE)
    page = folder / "docs/results/fedmixcon-cpu/README.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- written by hand -->\nSCE helps.\n<!-- end of what is written by hand -->\n")
    file = folder / "config/papers/fedmixcon.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("  - datasets: [mnist]\n", "  - datasets: [mnist]\n    train: {lr: 0.1}\n", 1))
    changed = paper_of("fedmixcon-cpu")
    assert changed is not None
    changed.figures = {}
    publish_paper(changed, page.parent)
    text = page.read_text(encoding="utf-8")
    assert "SCE helps." in text
    assert text.count("written by hand") == 2
    assert f"3 of {len(changed.runs)} runs so far" in text


def test_what_has_no_run_any_more_is_no_longer_published(folder: Path) -> None:
    study = ran("fedmixcon-cpu", **THREE)
    out = folder / "docs/results/fedmixcon-cpu"
    publish_paper(study, out)
    old = [out / "table1.csv", out / "table1.md", out / "figure1.png", out / "notes.txt"]
    for path in old:  # table 1 and figure 1 have no run now
        path.write_text("of an earlier publication")
    again = paper_of("fedmixcon-cpu")
    assert again is not None
    again.figures = {"figure1": again.figures["figure1"]}
    publish_paper(again, out)
    assert [path.exists() for path in old] == [False, False, False, True]
    assert (out / "table3.csv").is_file()


def test_at_paper_scale_every_cell_that_was_run_has_a_verdict(folder: Path) -> None:
    study = ran("fedmixcon", noise=["sym40-exact"], partition=["classes3"], method=["fedavg", "sce", "fedlsr"])
    out = folder / "docs/results/fedmixcon"
    publish_paper(study, out)
    shown = score(read_csv(out / "table3.csv"), study.tables["table3"])
    assert sum(shown.judged) == shown.ran == 6
    line = next(line for line in (out / "README.md").read_text().splitlines() if line.startswith("| Table 3"))
    cells = [cell.strip() for cell in line.split("|")[2:]]
    assert cells[:2] == ["60", "6"]
    assert [int(cell) for cell in cells[2:5]] == shown.judged
    assert "What scale" not in (out / "README.md").read_text()
    table = readme_papers.table(folder)
    mine = next(line for line in table.splitlines() if line.startswith("| `fedmixcon`"))
    both = score(read_csv(out / "table4.csv"), study.tables["table4"]) + shown
    assert [cell.strip() for cell in mine.split("|")[2:8]] == ["paper", "78", str(both.ran), *map(str, both.judged)]
    assert "[page](docs/results/fedmixcon/README.md)" in mine


def test_the_readme_counts_other_scales_apart_and_a_cell_once(folder: Path) -> None:
    study = ran("fedmixcon-cpu", **THREE)
    publish_paper(study, folder / "docs/results/fedmixcon-cpu")
    before = readme_papers.table(folder)
    publish_paper(study, folder / "docs/results/gpu/fedmixcon-cpu")
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in readme_papers.table(folder).splitlines()
        if line.startswith("| `fedmixcon`")
    ]
    assert [line[1:4] for line in lines] == [["paper", "78", "0"], ["cpu", "78", "8"]]
    assert lines[1][4:7] == ["–", "–", "–"]  # no verdicts
    again = readme_papers.table(folder).replace(", [page](docs/results/gpu/fedmixcon-cpu/README.md)", "")
    assert again == before


def test_the_readme_is_as_docs_results_has_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_table.filled(text, ROOT) == text
    block = readme_table.BLOCK.search(text)
    assert block is not None
    marks = together([line for line in block[0].splitlines() if line.startswith("| ")])
    assert marks
    explained = [line for line in block[0].splitlines() if line[:1] in MARKS]
    assert together([line[0] for line in explained]) == marks  # each mark is said below the table
    assert "(ε = " in "".join(explained)
    assert all(f"| `{paper}`" in text for paper in ("feddpcont", "fedefc", "fedhnl", "fedmixcon"))


def test_who_says_so_is_read_from_the_comments(folder: Path) -> None:
    project = {scale: Project({**CONFIG, "scale": scale}, folder) for scale in ("paper", "cpu")}
    study = Study(project["cpu"], "fedmixcon")
    rows = {(row["part"], row["name"]): row for row in told(study)["settings"]}
    assert rows["train", "net"] | {"note": ""} == {
        "part": "train",
        "name": "net",
        "value": "cnn9",
        "says": "paper",
        "note": "",
        "scaled": "small_cnn",
    }
    assert rows["train", "rounds"]["says"] == "our choice"
    assert rows["train", "rounds"]["note"].startswith("t_w is a fifth")
    assert rows["train", "lr"]["scaled"] == ""
    assert rows["mnist", "settings"]["scaled"] == f"fedmixcon: {{ramp: {study.data['settings']['fedmixcon']['ramp']}}}"
    assert rows["partitions", "classes3"]["says"] == "paper, code"
    assert rows["noises", ""]["says"] == "paper, code"
    whole = {paper: told(Study(project["paper"], paper)) for paper in project["paper"].papers}
    for paper, found in whole.items():
        assert found["changes"] == []
        assert all(row["scaled"] == "" for row in found["settings"]), paper
        untold = [row["name"] for row in found["settings"] if row["part"] == "train" and not row["says"]]
        assert untold == [], paper  # every training setting of a paper says whose it is
        assert not any("[" in row["note"] for row in found["settings"]), paper
    assert whole["feddpcont"]["absent"] == ["clothing1m-public"]


def test_changes_of_a_scale_are_told(folder: Path) -> None:
    found = told(Study(Project({**CONFIG, "scale": "smoke"}, folder), "fedmixcon"))["changes"]
    changes = {row["name"]: (row["value"], row["scaled"]) for row in found if row["name"] != "data"}
    assert changes["train.rounds"] == ("100", "2")
    assert changes["partitions.iid.clients"] == ("100", "10")
    assert changes["settings.fedmixcon.ramp"] == ("by block", "1")
    assert "classes5" not in str(changes)
    assert ("mnist", "digits") in [(row["value"], row["scaled"]) for row in found if row["name"] == "data"]


def test_scores_add_up() -> None:
    rows = [
        ("a", 90.0, 91.0, "within 2 points"),
        ("b", 80.0, 85.0, "apart"),
        ("c", 70.0, 60.0, "apart"),
        ("d", float("nan"), 50.0, "not run"),
    ]
    frame = pd.DataFrame(rows, columns=["method", "ours_mean", "paper_mean", "verdict"]).assign(
        dataset="x", noise="y", partition="z", member="", ceiling=0, scale="paper"
    )
    one = score(frame, {"claims": [{"says": "a leads", "best": "a"}, {"says": "b over c", "above": ["b", "c"]}]})
    assert (one.ran, one.judged, one.ranks, one.held) == (3, [0, 1, 2], [1.0], (1, 0, 1))
    both = one + one
    assert (both.ran, both.judged, len(both.ranks), both.held) == (6, [0, 2, 4], 2, (2, 0, 2))
    assert one.cells_words() == "1 within 2 points, 2 apart, 1 not run"
