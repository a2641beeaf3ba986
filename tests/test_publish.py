"""publish: what a study found, in its own order, with captions, limits and words for those who see no picture."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report.fake_runs import METHODS, write_study

from fednoise_core.io import ArtifactError
from fednoise_core.report.headline import closing
from fednoise_core.report.runs import RecordedRun, listed_runs, load
from fednoise_core.report.style import words_of
from workflow_scripts import make_figure, make_table, publish

Published = tuple[Path, dict[str, Any], list[RecordedRun]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Published:
    root = tmp_path_factory.mktemp("results") / "quick"
    root.mkdir()
    grid = [{"noises": ["sym40"], "partitions": ["iid"], "methods": list(METHODS)}]
    study = write_study(root, grid=grid, rounds=4)
    study |= {
        "tables": {"main": {"kind": "accuracy", "title": "Mean accuracy"}, "cost": {"kind": "cost"}},
        "figures": {"pareto": {"kind": "pareto", "title": "Time"}, "bytes": {"kind": "bytes"}},
    }
    for key, module in (("tables", make_table), ("figures", make_figure)):
        for name, spec in study[key].items():
            where = ["--root", str(root), "--runs-list", str(root / "runs.json")]
            assert module.main(["--spec", json.dumps(spec), *where, "--out-prefix", str(root / key / name)]) == 0
    (root / "metrics.json").write_text("{}")
    return root, study, load(listed_runs(root / "runs.json"))


def test_the_page_has_the_studys_order_captions_and_alternative_texts(finished: Published, tmp_path: Path) -> None:
    root, study, runs = finished
    made = publish.publish(root, tmp_path, study, runs)
    names = {path.name for path in made}
    assert names == {
        "main.md",
        "main.csv",
        "cost.md",
        "cost.csv",
        "pareto.png",
        "bytes.png",
        "metrics.json",
        "README.md",
    }
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    bytes_title = words_of(root / "figures/bytes.svg")[0]
    assert heads == [study["title"], "Notes and limits", "Mean accuracy", "Cost", "Time", bytes_title]
    for name in ("pareto", "bytes"):
        _, caption, alt = words_of(root / f"figures/{name}.svg")
        assert f"![{alt}]({name}.png)" in page
        assert f"*{caption}*" in page
    assert f"\n- {closing(runs)[0]}\n" in page
    assert "† marks a method that was told the true noise rate" in page
    assert "2 seeds: a standard deviation of so few values is itself rough" in page


def test_own_words_stay(finished: Published, tmp_path: Path) -> None:
    root, study, runs = finished
    publish.publish(root, tmp_path, study, runs)
    page = tmp_path / "README.md"
    own = "<!-- written by hand -->\nA busy machine.\n<!-- end of what is written by hand -->\n"
    page.write_text(page.read_text(encoding="utf-8").replace("## Notes", f"{own}\n## Notes"), encoding="utf-8")
    publish.publish(root, tmp_path, study, runs)
    assert page.read_text(encoding="utf-8").count(own) == 1


def test_what_is_missing_is_named(finished: Published, tmp_path: Path) -> None:
    root, study, runs = finished
    more = {**study, "figures": {**study["figures"], "curves": {"kind": "curves"}}}
    with pytest.raises(ArtifactError, match=r"curves\.png: no such file; the study is not finished"):
        publish.publish(root, tmp_path / "out", more, runs)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_no_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.main(["--root", "results/nothing"]) == 2
    assert "results/nothing: the results of no study at scale paper" in capsys.readouterr().err


def test_a_setting_without_a_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.main(["--root", "results/quick", "--config", "scale"]) == 2
    assert "--config: expected KEY=VALUE, got 'scale'." in capsys.readouterr().err
