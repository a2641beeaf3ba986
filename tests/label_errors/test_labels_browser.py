"""labels.html in a real Chromium: filter, decide, undo, save, load, apply; readable on a phone and in the dark."""

import csv
import dataclasses
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browser import click, find_violations, load, prefer_dark, texts
from browser import driver as driver
from label_run import SITES, LabelRun, label_run

from fednoise_core.io import plain_cell
from fednoise_core.label_errors.csv_rows import read_rows
from fednoise_core.label_errors.decisions import DECISIONS, Suspect
from workflow_scripts.commands import apply_decisions
from workflow_scripts.steps import labels_page

By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LabelRun:
    fresh = label_run(tmp_path_factory.mktemp("labels"))
    assert labels_page.main([*fresh.arguments(), "--title", "Labels", "--out", str(fresh.folder / "labels.html")]) == 0
    return fresh


@pytest.fixture
def page(driver: Any, run: LabelRun, tmp_path: Path) -> Iterator[Any]:
    """The page, wide, without earlier decisions; downloads go to tmp_path."""
    load(driver, run.folder / "labels.html", 1280)
    driver.execute_script("localStorage.clear()")
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    load(driver, run.folder / "labels.html", 1280)
    yield driver
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    driver.execute_script("localStorage.clear()")


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.find_element(By.ID, "list").send_keys(key)


def choose(page: Any, select: str, value: object) -> None:
    page.execute_script(
        "const one = document.getElementById(arguments[0]);"
        "one.value = arguments[1]; one.dispatchEvent(new Event('change'))",
        *(select, str(value)),
    )


def saved(page: Any, folder: Path) -> list[dict[str, str]]:
    """decisions.csv as it was downloaded."""
    path = folder / "decisions.csv"
    path.unlink(missing_ok=True)
    click(page, "#save")
    for _ in range(100):
        if path.exists() and path.stat().st_size:  # it is empty at first
            break
        time.sleep(0.1)
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def listed(run: LabelRun) -> list[Any]:
    return [suspect for suspect in read_rows(run.folder / "suspects.csv", Suspect) if suspect.verdict != "keep"]


def test_sites_and_labels_are_shown_as_text_and_filtered(page: Any, run: LabelRun) -> None:
    rows = listed(run)
    assert sorted(texts(page, "#sites ~ .scroll th[scope=row]")) == sorted(SITES)
    for text, suspect in zip(texts(page, ".row .labels"), rows, strict=False):
        assert text == f"{suspect.given_name} → {suspect.proposed_name}"
    assert texts(page, "#count")[0].startswith(f"{len(rows)} of {len(rows)} shown")
    choose(page, "verdict", 0)
    choose(page, "given", rows[0].given)
    left = [suspect for suspect in rows if suspect.verdict == "wrong" and suspect.given == rows[0].given]
    assert texts(page, "#count")[0].startswith(f"{len(left)} of {len(rows)} shown")
    press(page, "k")
    choose(page, "state", "open")
    assert texts(page, "#count")[0].startswith(f"{len(left) - 1} of")


def test_decide_by_keyboard_undo_save_and_apply(page: Any, run: LabelRun, tmp_path: Path) -> None:
    rows = listed(run)
    click(page, ".row [data-do=relabel]")  # by mouse, which moves on as the keys do
    press(page, "d", "k", "r", "u", "d", Keys.HOME, Keys.ARROW_DOWN, "d", "d")
    # relabel 0, drop 1, keep 2, relabel 3, undone, drop 3; then 1: undecided again, so that it stays there; dropped
    decisions = saved(page, tmp_path)
    assert tuple(decisions[0]) == DECISIONS
    got = {int(row["sample"]): (row["decision"], int(row["label"])) for row in decisions}
    expected = {0: ("relabel", rows[0].proposed), 1: ("drop", rows[1].given), 2: ("keep", rows[2].given)}
    expected[3] = ("drop", rows[3].given)
    assert got == {rows[i].sample: choice for i, choice in expected.items()}
    for row in decisions:
        suspect = next(suspect for suspect in rows if suspect.sample == int(row["sample"]))
        assert plain_cell(row["source"]) == suspect.source
        assert plain_cell(row["site"]) == suspect.site
        assert plain_cell(row["given_name"]) == suspect.given_name
        assert not row["given_name"].startswith("=")
    arguments = ["--decisions", str(tmp_path / "decisions.csv"), "--data", str(run.folder / "mine.npz")]
    assert apply_decisions.main([*arguments, "--out", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as after, np.load(run.folder / "mine.npz") as before:
        stays = ~np.isin(np.arange(120), [int(rows[1].source), int(rows[3].source)])
        labels = before["given"].copy()
        labels[int(rows[0].source)] = rows[0].proposed
        np.testing.assert_array_equal(after["given"], labels[stays])


def test_all_at_once_is_one_step_and_decisions_come_back(page: Any, run: LabelRun, tmp_path: Path) -> None:
    rows = [suspect for suspect in listed(run) if suspect.verdict == "wrong"]
    right = round(sum(suspect.p_proposed for suspect in rows))
    assert texts(page, "#gain")[0].endswith(f"are expected to be right, and {right} of the proposed ones.")
    press(page, "k")
    click(page, "#accept")
    assert f"{len(rows) - 1} relabelled" in texts(page, "#count")[0]

    def are_back(page: Any) -> bool:  # the browser stores in the background: a page that is opened at once may miss it
        load(page, run.folder / "labels.html", 1280)
        return f"{len(rows)} earlier decisions" in texts(page, "#said")[0]

    Wait(page, 60).until(are_back)
    assert len(saved(page, tmp_path)) == len(rows)
    page.execute_script("localStorage.clear()")
    load(page, run.folder / "labels.html", 1280)
    press(page, "k")
    click(page, "#accept")
    click(page, "#undo")
    assert [row["decision"] for row in saved(page, tmp_path)] == ["keep"]


def test_relabelling_all_is_refused_where_it_would_not_help(page: Any, run: LabelRun, tmp_path: Path) -> None:
    changed = dataclasses.replace(run, folder=Path(shutil.copytree(run.folder, tmp_path / "run")))
    table = pd.read_csv(changed.folder / "suspects.csv", dtype=str).assign(p_proposed="0.1")
    table.to_csv(changed.folder / "suspects.csv", index=False)
    assert labels_page.main([*changed.arguments(), "--out", str(tmp_path / "labels.html")]) == 0
    load(page, tmp_path / "labels.html", 1280)
    wrong = [suspect for suspect in listed(changed) if suspect.verdict == "wrong"]
    assert not page.find_element(By.ID, "accept").is_enabled()
    assert texts(page, "#gain")[0].endswith("Relabelling them all would not help: drop them, or decide by hand.")
    click(page, "#drop")
    assert {row["decision"] for row in saved(page, tmp_path)} == {"drop"}
    assert f"{len(wrong)} dropped" in texts(page, "#count")[0]
    assert texts(page, "#gain") == [""]


def reopened(page: Any, run: LabelRun, file: str = "labels.html") -> None:
    """The page in a browser without stored decisions."""
    page.execute_script("localStorage.clear()")
    load(page, run.folder / file, 1280)
    assert "decided: 0 kept, 0 relabelled, 0 dropped" in texts(page, "#count")[0]


def bring(page: Any, path: Path) -> str:
    """Load an earlier decisions.csv; returns the page's message."""
    page.execute_script("document.getElementById('said').textContent = ''")
    page.find_element(By.ID, "file").send_keys(str(path))
    for _ in range(100):
        if texts(page, "#said") != [""]:
            break
        time.sleep(0.05)
    return texts(page, "#said")[0]


def test_a_saved_file_is_loaded_and_continued(page: Any, run: LabelRun, tmp_path: Path) -> None:
    press(page, "r", "d", "k")
    before = saved(page, tmp_path)
    earlier = (tmp_path / "decisions.csv").rename(tmp_path / "earlier.csv")
    reopened(page, run)
    press(page, "d", "k")  # the file replaces these decisions
    assert bring(page, earlier) == "earlier.csv: 3 decisions are here again."
    assert "1 kept, 1 relabelled, 1 dropped" in texts(page, "#count")[0]
    assert [row.get_attribute("data-choice") for row in page.find_elements(By.CSS_SELECTOR, ".row")][:4] == [
        *("relabel", "drop", "keep", "")
    ]
    assert saved(page, tmp_path) == before
    assert (tmp_path / "decisions.csv").read_bytes() == earlier.read_bytes()
    press(page, "u")
    assert "1 kept, 0 relabelled, 1 dropped" in texts(page, "#count")[0]
    bring(page, earlier)  # the same file a second time
    press(page, Keys.END, "d")
    assert len(saved(page, tmp_path)) == 4


def test_decisions_stay_for_samples_that_a_shorter_page_does_not_show(
    page: Any, run: LabelRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fednoise_core.label_errors.page.RANDOM", 0)
    rows = [suspect for suspect in listed(run) if suspect.verdict == "wrong"]
    click(page, "#accept")
    everything = saved(page, tmp_path)
    earlier = (tmp_path / "decisions.csv").rename(tmp_path / "earlier.csv")
    short = [*run.arguments(), "--most", "5", "--out", str(run.folder / "short.html")]
    assert labels_page.main(short) == 0
    reopened(page, run, "short.html")
    reply = bring(page, earlier)
    assert reply.startswith(f"earlier.csv: {len(rows)} decisions are here again, {len(rows) - 5} of them about samples")
    press(page, "k")
    load(page, run.folder / "short.html", 1280)  # they come back with it
    after = saved(page, tmp_path)
    assert [row["decision"] for row in after].count("keep") == 1
    changed = str(rows[0].sample)
    assert [row for row in after if row["sample"] != changed] == [row for row in everything if row["sample"] != changed]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r",[0-9a-f]{16}\n", ",0123456789abcdef\n", "line 2: it was decided about other data than this page shows"),
        (",relabel,", ",rename,", "line 2: the decision rename is not known"),
        (r"(,relabel,\d,)[^,]*", r"\1dog", "dog is no class here"),
        (r"\n(\d+),", r"\n\1,,", "line 2: 11 cells for 10 columns"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(
    page: Any, run: LabelRun, tmp_path: Path, old: str, new: str, message: str
) -> None:
    press(page, "r")
    saved(page, tmp_path)
    text = (tmp_path / "decisions.csv").read_text(encoding="utf-8")
    edited = re.sub(old, new, text, count=1)
    assert edited != text
    (tmp_path / "other.csv").write_text(edited, encoding="utf-8")
    reopened(page, run)
    press(page, Keys.END, "k")
    reply = bring(page, tmp_path / "other.csv")
    assert reply.startswith("Nothing was loaded. other.csv: ")
    assert message in reply
    assert "1 kept, 0 relabelled, 0 dropped" in texts(page, "#count")[0]


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_everything_fits_and_can_be_read(page: Any, run: LabelRun, width: int, dark: bool) -> None:
    prefer_dark(page, dark)
    load(page, run.folder / "labels.html", width)
    press(page, "k", "r", "d")
    try:
        assert page.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
        assert find_violations(page) == []
    finally:
        prefer_dark(page, False)


def test_a_random_sample_gives_a_share_and_its_interval(page: Any, run: LabelRun) -> None:
    """Only once all of it is decided; the interval is that of scipy."""
    stats = pytest.importorskip("scipy.stats")
    click(page, "[data-random='1']")
    count = int(texts(page, "#count")[0].split()[0])
    assert texts(page, "#count")[0].startswith(f"{count} of ")
    press(page, "d", "r", *"k" * (count - 3))
    assert texts(page, "#rate1") == [f"{count - 1} of {count} decided"]
    press(page, "k")
    low, high = (100 * share for share in stats.binomtest(2, count).proportion_ci(0.9, method="exact"))
    assert texts(page, "#rate1") == [f"2 of {count} wrong: {200 / count:.0f} %, {low:.0f} to {high:.0f} %"]
    assert texts(page, "#rate0") == [""]
    assert not page.find_element(By.ID, "accept").is_enabled()
    choose(page, "view", "")
    choose(page, "site", "")
    click(page, "#accept")
    assert texts(page, "#rate0") == [""]  # these labels were not looked at
    assert texts(page, "#count")[0].startswith(f"{len(listed(run))} of {len(listed(run))} shown")


def test_labels_with_the_verdict_keep_are_not_relabelled_with_the_others(
    page: Any, run: LabelRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of several contradicting copies may be right, and an image out of scope has no right label."""
    strange = {suspect.sample: 4 for suspect in listed(run)[:2]}
    unsuspected = [suspect for suspect in read_rows(run.folder / "suspects.csv", Suspect) if suspect.verdict == "keep"]
    copies = [suspect.sample for suspect in unsuspected[:4]]
    monkeypatch.setattr("fednoise_core.label_errors.page._find_kinds", lambda *data: strange | dict.fromkeys(copies, 1))
    assert labels_page.main([*run.arguments(), "--out", str(run.folder / "copies.html")]) == 0
    load(page, run.folder / "copies.html", 1280)
    suspects = len(listed(run))
    assert texts(page, "#count")[0].startswith(f"{suspects + 4} of {suspects + 4} shown")
    wrong = sum(suspect.verdict == "wrong" for suspect in listed(run)) - 2
    assert texts(page, "#accept, #drop") == [f"Relabel {wrong} “wrong” as proposed", f"Drop {wrong} “wrong”"]
    choose(page, "kind", 1)
    assert texts(page, "#count")[0].startswith("4 of ")
    assert all("contradicting copy" in text for text in texts(page, ".row .sure"))
    assert texts(page, "#accept") == ["Relabel 0 “wrong” as proposed"]


def test_the_grid_groups_what_is_wrong_and_leads_to_the_list(page: Any, run: LabelRun) -> None:
    wrong = [suspect for suspect in listed(run) if suspect.verdict == "wrong"]
    groups: dict[tuple[str, str, str], list[Any]] = {}
    for suspect in wrong:
        groups.setdefault((suspect.site, suspect.given_name, suspect.proposed_name), []).append(suspect)
    largest = sorted(groups.values(), key=len, reverse=True)[:12]
    heads = [f"{rows[0].site}: {rows[0].given_name} → {rows[0].proposed_name} ({len(rows)})" for rows in largest]
    assert texts(page, "#grid .link") == heads
    assert page.find_element(By.ID, "grid").location["y"] < 400  # before all else
    tiles = page.find_elements(By.CSS_SELECTOR, "#grid > div:first-child .tile")
    sources = [suspect.source for suspect in largest[0][:10]]
    assert [tile.get_attribute("aria-label").split(",")[0] for tile in tiles] == sources
    click(page, "#grid > div:first-child .tile:nth-of-type(3)")  # the first button is the group's
    assert texts(page, "#count")[0].startswith(f"{len(largest[0])} of {len(listed(run))} shown")
    assert texts(page, ".row[aria-selected=true] .where")[0].endswith(largest[0][1].source)
