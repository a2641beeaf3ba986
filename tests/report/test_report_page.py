"""Pages are single files that need no network and escape all texts; and the commands that write them."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_runs import METHODS, shown_files, write_study
from html_page import Page

from fednoise_core.io import ArtifactError
from workflow_scripts.report.pages.study_page import study_page
from workflow_scripts.report.runs.run import listed_runs
from workflow_scripts.report.tables import registry
from workflow_scripts.steps import figure as figure_step
from workflow_scripts.steps import metrics as metrics_step
from workflow_scripts.steps import setting_page as setting_page_step
from workflow_scripts.steps import study_page as study_page_step
from workflow_scripts.steps import table as table_step

GRID = [
    {"noises": ["sym40"], "partitions": ["iid"], "methods": list(METHODS)},
    {"noises": ["clean"], "partitions": ["iid"], "methods": ["fedavg"]},
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("quick"))


def make_study(path: Path, title: str = "A <script>alert(1)</script> & more", **options: Any) -> Path:
    """A study with tables, figures and page, made by the commands."""
    study = write_study(path, grid=options.pop("grid", GRID), rounds=12, **options)
    study |= {"title": title, "text": "First\nparagraph.\n\nSecond <b>paragraph</b>."}
    study["blocks"] = [{"datasets": ["digits"], **GRID[1], "train": {"lr": 0.25, "rounds": 7}}]
    study["figures"] = {"curves": {"kind": "curves"}, "gains": {"kind": "paired_gains", "title": "Gains & co"}}
    (path / "study.json").write_text(json.dumps(study), encoding="utf-8")
    shared = ["--runs-list", str(path / "runs.json")]
    for name, spec in study["tables"].items():
        prefix = ["--out-prefix", str(path / "tables" / name)]
        assert table_step.main(["--spec", json.dumps(spec), *shared, *prefix]) == 0
    for name, spec in study["figures"].items():
        prefix = ["--out-prefix", str(path / "figures" / name)]
        assert figure_step.main(["--spec", json.dumps(spec), *shared, *prefix]) == 0
    files = ["--shown", shown_files(path), "--out", str(path / "report.html")]
    assert study_page_step.main(["--study", str(path / "study.json"), *shared, *files]) == 0
    return path


def test_the_page_needs_nothing_from_outside(root: Path) -> None:
    text = (root / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert all(ref.startswith(("#", "data:")) for ref in page.refs)
    outside = re.sub(r'"data:[^"]*"', "", text).replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert "http" not in outside
    assert "url(" not in outside.replace("url(#", "")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    allowed = dict(part.split(" ", 1) for part in policy[1].split("; "))
    assert allowed["default-src"] == allowed["base-uri"] == allowed["form-action"] == "'none'"
    assert allowed["img-src"] == "data:"
    for kind, tag in (("script-src", "<script>"), ("style-src", "<style>")):
        inside = text.split(tag)[1].split(tag.replace("<", "</"))[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert allowed[kind] == f"'sha256-{digest}'"
    assert page.tags.count("script") == 2  # the one that runs, and data
    assert not re.search(r'<[^>]*\s(?:on\w+|style)="', re.sub(r"<script.*", "", text, flags=re.DOTALL))


def test_internal_links_have_targets_and_ids_are_unique(root: Path) -> None:
    page = Page((root / "report.html").read_text(encoding="utf-8"))
    assert len(page.ids) == len(set(page.ids))
    assert {ref[1:] for ref in page.refs if ref.startswith("#")} <= set(page.ids)
    assert {"table-accuracy", "table-diagnostics", "figure-curves", "figure-gains", "setting-digits-sym40-iid"} <= set(
        page.ids
    )


def test_text_from_the_config_is_escaped(root: Path) -> None:
    page = Page((root / "report.html").read_text(encoding="utf-8"))
    assert "A <script>alert(1)</script> & more" in page.text
    assert "First paragraph." in page.text
    assert "Second <b>paragraph</b>." in page.text
    assert "b" not in page.tags


def test_a_table_and_a_figure_without_data_are_marked_not_run(root: Path) -> None:
    """As for Clothing1M's tables on the page of a paper whose other data sets are available."""
    numbers = root / "printed.csv"
    numbers.write_text("table,dataset,noise,partition,method,member,mean,std,note\n12,big,web,iid,sce,,70,1,\n")
    spec = {"kind": "reproduction", "title": "Absent", "reference": {"file": str(numbers), "table": 12}}
    spec |= {"datasets": ["big"], "absent": ["big"], "cells": [["big", "web", "iid", "fedavg"]], "scale": "smoke"}
    shared = ["--runs-list", str(root / "runs.json")]
    prefix = ["--out-prefix", str(root / "tables/clothes")]
    assert table_step.main(["--spec", json.dumps(spec), *shared, *prefix]) == 0
    study = {"id": "x", "tables": {"clothes": spec}, "left_out": {"Figure 9: clothes": "not run (data absent)"}}
    text = study_page(study, listed_runs(root / "runs.json"), root)
    cells = re.findall(r"<td>(.*?)</td>", text)
    assert cells.count("not run (data absent)") == 2  # of two methods; without a run there is no line of verdicts
    assert "70.00 ± 1.00" in cells
    assert '<h3>Figure 9: clothes</h3>\n<p class="caption">not run (data absent)</p>' in text


def test_a_study_links_its_pages_of_suspect_labels(root: Path) -> None:
    study = json.loads((root / "study.json").read_text()) | {"label_pages": {"A & B": "../../build/labels/a.html"}}
    text = study_page(study, listed_runs(root / "runs.json"), root)
    assert [ref for ref in Page(text).refs if not ref.startswith(("#", "data:"))] == ["../../build/labels/a.html"]
    assert ">A &amp; B</a>" in text


def test_every_picture_has_words_and_a_size(root: Path) -> None:
    page = Page((root / "report.html").read_text(encoding="utf-8"))
    pictures = [image for image in page.images if image["alt"]]  # thumbnails have none, as a name is beside them
    assert len(pictures) == 2 + 4 + 3  # figures, pictures of the noisy setting, of the clean one (nothing flipped)
    assert len({image["src"] for image in pictures}) == len(pictures)
    for image in pictures:
        assert len(image["alt"] or "") > 30
        assert int(image["width"] or 0) > 100
        assert int(image["height"] or 0) > 50
    svg = base64.b64decode(str(pictures[0]["src"]).split(",", 1)[1])
    assert svg == (root / "figures/gains.svg").read_bytes()


def test_downloads_equal_the_files(root: Path) -> None:
    text = (root / "report.html").read_text(encoding="utf-8")
    for name in ("accuracy.csv", "accuracy.md", "accuracy.tex", "curves.csv"):
        match = re.search(rf'href="data:[^,]*,([^"]*)" download="{re.escape(name)}"', text)
        assert match is not None, name
        kind = "figures" if name.startswith("curves") else "tables"
        assert base64.b64decode(match[1]) == (root / kind / name).read_bytes()


def test_the_page_says_what_limits_the_numbers(root: Path) -> None:
    page = Page((root / "report.html").read_text(encoding="utf-8"))
    for text in (
        "The best round is chosen by test accuracy",
        "2 seeds: a standard deviation of so few values",
        "† marks a method that was told the true noise rate",
        "Label differential privacy (ε = 0.81; FedDPCont)",
        "Not above the accuracy before training: Local only in",
        "Local only is the mean over the clients' own models, not that of one global model.",
        "is the mean over its two networks.",
        "SHA256SUMS",
        "torch",
        "20 runs",
    ):
        assert text in page.text, text


def test_a_page_of_given_labels_says_so(tmp_path: Path) -> None:
    grid = [{"noises": ["as-given"], "partitions": ["iid"], "methods": ["fedavg", "fedcorr", "local"]}]
    root = make_study(tmp_path, grid=grid, clean_known=False, test_known=False, seeds=(0,))
    page = Page((root / "report.html").read_text(encoding="utf-8"))
    sentence = "There are no trusted test labels of digits: accuracy there is agreement with given labels"
    assert page.text.count(sentence) >= 5  # first sentence, table, figures, limits
    assert "How many of the labels are wrong, nobody knows." in page.text
    assert "Nobody knows the clean labels of digits" in page.text
    assert "unknown: nobody knows the clean labels of digits" in page.text
    assert "One seed: no spread is known." in page.text


def test_a_table_of_several_versions_of_torch_says_so(tmp_path: Path) -> None:
    """A note lists the versions under tables that mix them, and under no other table."""
    grid = [{"noises": ["sym40", "clean"], "partitions": ["iid"], "methods": ["fedavg", "fedcorr"]}]
    root = make_study(tmp_path, grid=grid, seeds=(0,))
    assert "versions of torch" not in Page((root / "report.html").read_text(encoding="utf-8")).text
    for path in root.rglob("spec.json"):
        old = "clean/iid/fedcorr" in path.as_posix()
        versions = f"numpy 2.3.1, torch {'2.13.0' if old else '2.14.1'}"
        path.write_text(json.dumps({**json.loads(path.read_text()), "versions": versions}))
    runs = listed_runs(root / "runs.json")
    notes = {
        noise: registry.lay_out_table(
            registry.build_table(runs, spec := {"kind": "accuracy", "noises": [noise]}), spec
        ).notes
        for noise in ("clean", "sym40")
    }
    ending = "2.13.0: FedCorr (1); numpy 2.3.1, torch 2.14.1: FedAvg (1)."
    assert [any(note.endswith(ending) for note in notes[noise]) for noise in ("clean", "sym40")] == [True, False]


def test_missing_or_damaged_inputs_are_named(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = json.loads((root / "study.json").read_text())
    runs = listed_runs(root / "runs.json")
    study["tables"] = {"absent": {"kind": "accuracy"}}
    with pytest.raises(ArtifactError, match=r"tables/absent\.csv: no such file"):
        study_page(study, runs, root)
    shared = ["--runs-list", str(root / "runs.json"), "--shown", "{}", "--out", str(tmp_path / "r.html")]
    capsys.readouterr()
    assert study_page_step.main(["--study", str(root / "study.json"), *shared]) == 2
    assert "study_page: " in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
    with pytest.raises(SystemExit):
        study_page_step.main(["--study", "{", *shared])
    assert "neither JSON nor a JSON file" in capsys.readouterr().err


def test_a_settings_page_needs_artifacts_only(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--arrays", str(root / "raw/digits.npz"), "--labels", str(root / "labels/digits/sym40/any/seed1.npz")]
    arguments += ["--partition", str(root / "partitions/digits/sym40/iid/seed1.npz")]
    out = ["--out", str(tmp_path / "s.html")]
    assert setting_page_step.main([*arguments, "--ids", "digits/sym40/iid", *out]) == 0
    page = Page((tmp_path / "s.html").read_text(encoding="utf-8"))
    assert len(page.images) == 4
    assert "digits · 40 % of labels wrong · classes spread evenly" in page.text
    assert "noise rate, realised" in page.text
    assert all(ref.startswith(("#", "data:")) for ref in page.refs)
    (tmp_path / "cut.npz").write_bytes((root / "raw/digits.npz").read_bytes()[:1000])
    arguments[1] = str(tmp_path / "cut.npz")
    capsys.readouterr()
    assert setting_page_step.main([*arguments, "--out", str(tmp_path / "t.html")]) == 2
    assert re.search(r"setting_page: .*cut\.npz: damaged", capsys.readouterr().err)


def test_the_summary_is_small_sorted_and_repeats(root: Path, tmp_path: Path) -> None:
    shared = ["--runs-list", str(root / "runs.json")]
    for name in ("a", "b"):
        plots = ["--accuracy", str(tmp_path / f"{name}.csv"), "--curves", str(tmp_path / f"{name}-curves.csv")]
        out = ["--out", str(tmp_path / f"{name}.json"), "--headline", str(tmp_path / f"{name}-headline.json")]
        assert metrics_step.main([*shared, *out, *plots]) == 0
    for ending in (".json", ".csv", "-curves.csv", "-headline.json"):
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
    summary = json.loads((tmp_path / "a.json").read_text())
    assert list(summary) == sorted(METHODS)
    folders = [root / "runs/digits/sym40/iid/fedavg" / f"seed{seed}" / "summary.json" for seed in (0, 1)]
    mean = sum(json.loads(path.read_text())["accuracy"]["last"] for path in folders) / 2
    assert summary["fedavg"]["digits/sym40/iid"]["last"] == round(mean, 5)
    assert set(summary["fedavg"]) == {"digits/clean/iid", "digits/sym40/iid"}
    assert (
        (tmp_path / "a.csv").read_text().splitlines()[0].startswith("setting,dataset,noise,partition,method,seeds,best")
    )


def test_report_commands_never_import_torch() -> None:
    names = ["table", "figure", "study_page", "metrics", "setting_page"]
    code = f"import sys\nfor n in {names}: __import__('workflow_scripts.steps.' + n)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
