"""publish writes a study's results so far, with captions, limits and alternative texts."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_runs import finish_run

from fednoise_core.io import ArtifactError, json_digest
from workflow_scripts.commands import main
from workflow_scripts.docgen import publish

ROOT = Path(__file__).parents[2]


def test_a_study_is_published_as_far_as_it_was_run(config_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, out = publish.find_study("quick"), config_copy / "out"
    study.figures = {"dots": study.figures["dots"]}
    for run in study.runs:
        if (run.noise, run.partition) == ("sym40", "iid") and run.method in ("fedavg", "scaffold"):
            finish_run(study.name, run)
    hand_written = "<!-- written by hand -->\nA busy machine.\n<!-- end of what is written by hand -->\n"
    out.mkdir()
    (out / "README.md").write_text(f"# Earlier\n\n{hand_written}", encoding="utf-8")
    monkeypatch.setattr(publish, "software_commit", lambda: "dirty" if (out / "metrics.json").exists() else "clean")
    files = publish.publish_study(study, out)
    assert set(files) == set(out.iterdir())
    page = (out / "README.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {study.data['title']}\n")
    assert page.index("Accuracy: ") < page.index("Run so far: ")  # results come first
    assert page.count(hand_written) == 1
    assert (
        f"Run so far: 4 of {len({run.folder for run in study.runs})} runs; `snakemake --cores 2 quick` makes all."
        in page
    )
    assert "Published at commit `clean`." in page  # the page's own files do not count as changes
    assert {"Notes and limits", "Tables", "Figures"} <= set(re.findall(r"^## (.*)$", page, re.M))
    assert "2 seeds: a standard deviation of so few values is itself rough" in page
    (figure,) = study.figures
    assert re.search(rf"### .+\n\n!\[.+\]\({figure}\.png\)\n\n\*.+\*\n", page)  # its title, itself, its caption
    shutil.rmtree("store")  # another machine goes on with the study
    added = next(run for run in study.runs if (run.noise, run.partition, run.method) == ("sym40", "iid", "sce"))
    finish_run(study.name, added)
    publish.publish_study(study, out)
    assert "Run so far: 5 of " in (out / "README.md").read_text(encoding="utf-8")
    assert (out / f"{figure}.png").exists()


def test_a_table_without_a_run_is_left_out(config_copy: Path) -> None:
    study, out = publish.find_study("quick"), config_copy / "out"
    study.figures, study.tables = {}, {"main": {"kind": "accuracy"}, "other": {"kind": "cost", "noises": ["random40"]}}
    run = next(run for run in study.runs if (run.noise, run.method) == ("sym40", "fedavg"))
    finish_run(study.name, run, rounds=3)
    publish.publish_study(study, out, config_copy / "page.html")
    assert (out / "main.md").is_file()
    assert not (out / "other.md").exists()
    assert "table-other" not in (config_copy / "page.html").read_text(encoding="utf-8")


def test_files_that_cannot_be_made_again_are_never_removed(config_copy: Path) -> None:
    """A clone without data cannot draw pictures of clients; the published ones and their page stay."""
    study, out = publish.find_study("quick"), config_copy / "out"
    study.figures, study.tables = {"samples": study.figures["samples"]}, {"main": {"kind": "accuracy"}}
    run = next(run for run in study.runs if (run.noise, run.method) == ("sym40", "fedavg"))
    finish_run(study.name, run, rounds=3)
    out.mkdir()
    for name in ("samples.png", "README.md"):
        (out / name).write_text("published")
    with pytest.raises(ArtifactError, match="samples: published before, and cannot be made here"):
        publish.publish_study(study, out)
    assert {path.name: path.read_text() for path in out.iterdir()} == dict.fromkeys(
        ("samples.png", "README.md"), "published"
    )


def test_a_whole_study_keeps_a_run_whose_folder_is_gone(config_copy: Path) -> None:
    study, out = publish.find_study("quick"), config_copy / "out"
    study.figures, study.tables = {"dots": study.figures["dots"]}, {"main": {"kind": "accuracy"}}
    planned = {run.folder: run for run in study.runs}
    for run in planned.values():
        finish_run(study.name, run, rounds=3)
    publish.publish_study(study, out)
    first = (out / "main.csv").read_bytes()
    shutil.rmtree(next(iter(planned)))
    publish.publish_study(study, out)
    assert f"Run so far: {len(planned)} of {len(planned)} runs" in (out / "README.md").read_text(encoding="utf-8")
    assert (out / "main.csv").read_bytes() == first


def test_an_entry_keeps_its_own_runs_if_the_same_runs_are_published(config_copy: Path) -> None:
    study = publish.find_study("quick")
    run = study.runs[0]
    finish_run(study.name, run)
    entry, published = replace(run, method="my-own"), {json_digest(run.spec): config_copy / run.folder}
    listed = publish.finished_runs(SimpleNamespace(runs=[run, entry]), published, {run.method, "my-own"})
    assert [listed_run.dir for listed_run in listed] == [config_copy / run.folder, Path(run.folder)]


def test_a_folder_of_no_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["publish", "--root", "results/nothing"]) == 2
    assert capsys.readouterr().err == "publish: results/nothing: no study has this results folder\n"


def test_a_leaderboard_lists_missing_runs_and_is_made_again_from_its_published_runs(config_copy: Path) -> None:
    Path("config/tuned/leaderboard.yaml").write_text(
        "fmnist-6k: {fedavg: {train: {lr: 0.03}}, gce: {train: {lr: 0.3}}}\n"
    )
    study, out = publish.find_study("leaderboard"), config_copy / "out"
    settings = {("sym40", "iid"), ("clean", "iid")}
    for run in study.runs:
        if run.dataset == "fmnist-6k" and (run.noise, run.partition) in settings and not run.method.startswith("sce"):
            finish_run(study.name, run)
    publish.publish_study(study, out, config_copy / "page.html")
    page = (out / "README.md").read_text(encoding="utf-8")
    planned = [run for run in study.runs if run.dataset == "fmnist-6k"]
    missing = sum((run.noise, run.partition) not in settings or run.method.startswith("sce") for run in planned)
    assert f"Not run yet: {missing} of {len(planned)} on Fashion-MNIST, 6,000 images; " in page
    assert {"main.csv", "main.tex", "gains.tex", "ranks.png", "runs.json.xz", "runs.json.xz.sha256"} <= {
        file.name for file in out.iterdir()
    }
    assert r"\begin{tabular}" in (out / "main.tex").read_text(encoding="utf-8")
    first = {name: (out / name).read_bytes() for name in ("main.csv", "gains.csv", "ranks.png", "runs.json.xz")}
    shutil.rmtree("store")  # another machine
    publish.publish_study(publish.find_study("leaderboard"), out)
    assert {name: (out / name).read_bytes() for name in first} == first
