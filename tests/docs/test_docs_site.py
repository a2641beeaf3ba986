"""The documentation as a site: links lead to files, every public name has its place, and `make docs` builds it.

The strict build runs only with FEDNOISE_DOCS=1, as it needs the tools of requirements-docs.lock.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from browser import driver as driver
from browser import find_violations, prefer_dark

import fednoise_core as fn
from workflow_scripts.docgen import pages
from workflow_scripts.report.figures.draw import FIGURES
from workflow_scripts.report.runs.leaderboard import SETTING

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "project.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "benchmarks.md": "benchmarks/README.md",
    "config.md": "config/README.md",
}
NOTEBOOK = ROOT / "docs/quickstart.ipynb"
PAGES = [*(ROOT / page for page in OUTSIDE.values()), *sorted((ROOT / "docs").rglob("*.md"))]
GAIN = r"[+−]\d+\.\d \[\S+, \S+\]"
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACED = re.compile(
    r"^## `fn\.(\w+)`\n(?:(?!##).*\n)*?^<!-- generated: ([\w.]+)(?: without members)? -->$", re.MULTILINE
)


def text(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^\s*(```|~~~).*?^\s*\1", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links() -> Iterator[tuple[Path, str, str]]:
    """(page, file, anchor) of every relative link."""
    for page in (*PAGES, NOTEBOOK):
        for target in LINK.findall(text(page)):
            if "://" not in target and not target.startswith("mailto:"):
                file, _, anchor = target.partition("#")
                yield page, file, anchor


def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as the forge and the site make them; a second equal one gets a number."""
    counts: dict[str, int] = {}
    anchors = set(re.findall(r'<a id="(\w+)">', text(page)))
    for heading in re.findall(r"^#+ (.*)$", text(page), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        anchors.add(f"{slug}_{counts[slug]}" if slug in counts else slug)
        counts[slug] = counts.get(slug, 0) + 1
    return anchors


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    wrong, anchors = [], dict[Path, set[str]]()
    for page, file, anchor in links():
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or file.startswith("/"):
            wrong.append(f"{page.relative_to(ROOT)}: {file}")
        elif anchor and target.suffix == ".md":
            anchors.setdefault(target, slugs(target))
            if anchor not in anchors[target]:
                wrong.append(f"{page.relative_to(ROOT)}: {file}#{anchor}")
    assert wrong == []


def test_every_public_name_has_its_place() -> None:
    placed = {name: target for page in PAGES for name, target in PLACED.findall(page.read_text(encoding="utf-8"))}
    public = {name for name in dir(fn) if not name.startswith("_")}
    assert placed == {name: fn._NAMES[name].replace(":", ".") for name in public}


def test_every_page_is_in_the_site() -> None:
    """Pages of methods and results are listed by folder."""
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = {file for file in re.findall(r"([\w/]+\.md)$", nav, re.MULTILINE)}
    folders = re.findall(r": (\w+)$", nav, re.MULTILINE)
    # docs/site/hooks.py makes the notebook a page of the same name
    site_pages = [page.relative_to(ROOT / "docs") for page in (*PAGES[len(OUTSIDE) :], NOTEBOOK)]
    assert {
        page.with_suffix(".md").as_posix() for page in site_pages if page.parts[0] not in folders
    } | OUTSIDE.keys() == named


@pytest.mark.skipif(not os.environ.get("FEDNOISE_DOCS"), reason="builds the site; FEDNOISE_DOCS=1 asks for it")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    subprocess.run(["make", "docs"], cwd=ROOT, check=True)  # strict: mkdocs ends at its warnings, not at an installer's
    site = ROOT / "build/site"
    assert (site / "quickstart.html").read_text(encoding="utf-8").count('src="data:image/png;base64,') == 3
    assert 'href="quickstart.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert 'id="training-settings"' in (site / "reference.html").read_text(encoding="utf-8")
    assert '<a href="fedavg.html">' in (site / "methods/index.html").read_text(encoding="utf-8")
    html = (site / "api/data.html").read_text(encoding="utf-8")
    assert 'id="fnarrays"' in html
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', html)  # no request leaves the site
    assert 'src="../assets/iframe-worker.js"' in html  # with the index as a script, search works from a folder
    assert "Co-teaching" in (site / "search/search_index.js").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.skipif(not os.environ.get("FEDNOISE_DOCS"), reason="looks at the site; FEDNOISE_DOCS=1 asks for it")
@pytest.mark.parametrize(
    ("page", "dark"),
    [
        *(("index", False), ("index", True), ("api/runs", False), ("api/runs", True)),
        *(("reference", False), ("nets", True), ("results/quick/index", False)),
    ],
)
def test_axe_finds_nothing_on_the_site(driver: Any, page: str, dark: bool) -> None:
    """The test before builds the site."""
    prefer_dark(driver, dark)
    driver.get((ROOT / f"build/site/{page}.html").as_uri())
    assert find_violations(driver) == []


def read_board() -> str:
    """The tables of gains and ranks on the leaderboard's page, of all data sets."""
    files = [*(ROOT / "docs/results/leaderboard").glob("[gm]a*.md")]
    return "".join(file.read_text(encoding="utf-8") for file in files).replace("\\", "")


def test_the_readme_and_the_first_page_give_results_and_first_steps() -> None:
    readme, first = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/README.md"))
    assert readme.count("\n") <= 120
    assert f"compares {len(fn.METHODS)} methods," in readme
    for part in ("pictures/suspects.png", "quick/gains.png", "fednoise run quick", "pip install .", "jupyter lab"):
        assert part in first
    quick = json.loads((ROOT / "docs/results/quick/metrics.json").read_text(encoding="utf-8"))
    gains = [score["last10_mean"] - quick["fedavg"][setting]["last10_mean"] for setting, score in quick["sce"].items()]
    assert first.count(f"by {100 * sum(gains) / len(gains):.1f} points on") == 1
    board = read_board()
    rows = [re.findall(GAIN, line) for line in readme.splitlines() if line.startswith("| ")]
    cells = [cell for row in rows for cell in row]
    assert len(cells) == 24
    assert all(cell in board for cell in cells)


def test_advice_on_the_leaderboards_page_has_the_gains_of_its_tables() -> None:
    folder = ROOT / "docs/results/leaderboard"
    advice = " ".join((folder / "README.md").read_text(encoding="utf-8").split("written by hand -->")[1].split())
    rows = read_board().splitlines()
    named = re.findall(rf"([\w-]+(?: smoothing| mean| learning| correction)?) \(({GAIN})", advice)
    assert len(named) == len(re.findall(GAIN, advice)) >= 10
    for method, gain in named:
        assert any(row.startswith((f"| {method} |", f"| {method}, ")) and gain in row for row in rows), method


def test_the_page_of_more_seeds_counts_results_in_the_intervals() -> None:
    folder = ROOT / "docs/results/leaderboard-repeat"
    page = (folder / "README.md").read_text(encoding="utf-8")
    of_methods = [pd.read_csv(folder / f"{name}.csv").set_index("method") for name in ("first", "second")]
    by_setting = [
        pd.read_csv(folder / f"{name}-gains.csv").query("method != 'fedavg'").set_index(["method", *SETTING])
        for name in ("first", "second")
    ]
    for text, column, (first, second) in (
        ("mean rank", "rank", of_methods),
        ("mean gain over FedAvg", "mean_gain", [frame.drop(index="fedavg") for frame in of_methods]),
        ("gain in one setting", "gain", by_setting),
    ):
        inside = second[column].reindex(first.index).between(first[f"{column}_low"], first[f"{column}_high"])
        assert f"| {text} | {inside.sum()} of {len(inside)} |" in page
    first, second = by_setting
    half = np.sqrt(2) * (first["gain_high"] - first["gain_low"]) / 2
    gains = second["gain"] - first["gain"]
    assert f"| gain in one setting, interval √2 times as wide | {(gains.abs() <= half).sum()} of {len(half)} |" in page


def test_a_methods_page_has_the_numbers_of_the_leaderboards_table() -> None:
    table = (ROOT / "docs/results/leaderboard/main.md").read_text(encoding="utf-8").replace("\\", "").replace("*", "")
    cells = next(line for line in table.splitlines() if line.startswith("| FedELR |")).split(" | ")
    ranked = len(re.findall(r"^\| [^|]+ \| \d", table, re.MULTILINE))
    text = pages.describe_result("fedelr")
    assert f"FedELR is ahead in {cells[4]} of 6 settings and behind in {cells[5]}. " in text
    assert f"mean gain is {cells[3]} points and its mean rank {cells[1].split()[0]} of {ranked}." in text
    assert pages.describe_result("nobody") == "Not run on the [leaderboard](../results/leaderboard/README.md) yet."


def test_the_gallery_has_every_kind_of_figure_with_its_picture_and_lines() -> None:
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == list(FIGURES)
    lines = re.findall(r"^From `(config/\S+\.yaml)`.*?```yaml\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    for file, text in lines:
        figures = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["figures"]
        assert yaml.safe_load(text)["figures"].items() <= figures.items()
    assert len(lines) == len(FIGURES)


def test_the_studies_printed_on_pages_are_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The YAML files printed on the two pages are complete studies with the expected number of runs."""
    from workflow_scripts.config.project import Project
    from workflow_scripts.config.yaml_file import read_yaml
    from workflow_scripts.study.study import Study

    monkeypatch.chdir(ROOT)
    pages = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("start/compare.md", "write_a_study.md")]
    printed = re.findall(r"```yaml\n(title:.*?)```", "".join(pages), re.DOTALL)
    for text, count in zip(printed, (4, 24, 30), strict=True):
        project = Project(read_yaml("config/config.yaml"))
        file = tmp_path / "mine.yaml"
        file.write_text(text, encoding="utf-8")
        monkeypatch.setitem(project.study_files, "mine", str(file))
        assert len(Study(project, "mine").runs) == count
