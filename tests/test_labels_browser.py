"""labels.html in a real Chromium: filter, decide by mouse and keyboard, undo, save, apply; 10,000 suspects."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.label_run import NAMES, SITES, LabelRun, label_run
from test_page_browser import driver as driver
from test_page_browser import load

from fednoise_core.io import plain_cell
from fednoise_core.report.suspect_files import read_rows
from label_review import apply_decisions, make_labels
from label_review.decisions import DECISIONS, Suspect

By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> LabelRun:
    run = label_run(tmp_path_factory.mktemp("labels"))
    assert make_labels.main([*run.arguments(), "--title", "Labels", "--out", str(run.folder / "labels.html")]) == 0
    return run


@pytest.fixture
def page(driver: Any, found: LabelRun, tmp_path: Path) -> Iterator[Any]:
    """The page, wide, without earlier decisions; downloads go to tmp_path."""
    load(driver, found.folder / "labels.html", 1280)
    driver.execute_script("localStorage.clear()")
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    load(driver, found.folder / "labels.html", 1280)
    yield driver
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    driver.execute_script("localStorage.clear()")


def texts(page: Any, selector: str) -> list[str]:
    return [one.text for one in page.find_elements(By.CSS_SELECTOR, selector)]


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.find_element(By.ID, "list").send_keys(key)


def click(page: Any, selector: str) -> None:
    """With the mouse, where a person would have scrolled to before."""
    element = page.find_element(By.CSS_SELECTOR, selector)
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    element.click()


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
        if path.exists():
            break
        time.sleep(0.1)
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def listed(run: LabelRun) -> list[Any]:
    return [one for one in read_rows(run.folder / "suspects.csv", Suspect) if one.verdict != "keep"]


def test_sites_and_names_are_shown_as_text(page: Any, found: LabelRun) -> None:
    assert sorted(texts(page, "#sites ~ .scroll th[scope=row]")) == sorted(SITES)
    rows = listed(found)
    shown = texts(page, ".row .labels")
    assert len(shown) > 4
    for text, one in zip(shown, rows, strict=False):
        assert text == f"{one.given_name} → {one.proposed_name}"
    assert texts(page, "#count")[0].startswith(f"{len(rows)} of {len(rows)} shown")


def test_filters(page: Any, found: LabelRun) -> None:
    rows = listed(found)
    site = rows[3].site
    for button in page.find_elements(By.CSS_SELECTOR, "[data-site]"):
        if button.text == site:
            page.execute_script("arguments[0].click()", button)
    mine = [one for one in rows if one.site == site]
    assert texts(page, "#count")[0].startswith(f"{len(mine)} of {len(rows)} shown")
    choose(page, "verdict", 0)
    choose(page, "given", mine[0].given)
    left = [one for one in mine if one.verdict == "wrong" and one.given == mine[0].given]
    assert texts(page, "#count")[0].startswith(f"{len(left)} of {len(rows)} shown")
    choose(page, "proposed", left[0].proposed)
    left = [one for one in left if one.proposed == left[0].proposed]
    assert texts(page, "#count")[0].startswith(f"{len(left)} of {len(rows)} shown")
    wanted = [f"{one.given_name} → {one.proposed_name}" for one in left]
    assert texts(page, ".row .labels") == wanted[: len(texts(page, ".row .labels"))]
    press(page, "k")
    choose(page, "state", "open")
    assert texts(page, "#count")[0].startswith(f"{len(left) - 1} of")


def test_decide_by_keyboard_undo_save_and_apply(page: Any, found: LabelRun, tmp_path: Path) -> None:
    rows = listed(found)
    press(page, "r", "d", "k", "r", "u", "d", Keys.HOME, Keys.ARROW_DOWN, "d", "d")
    # relabel 0, drop 1, keep 2, relabel 3, undone, drop 3; then 1: undecided again, so that it stays there; dropped
    decisions = saved(page, tmp_path)
    assert tuple(decisions[0]) == DECISIONS
    got = {int(row["sample"]): (row["decision"], int(row["label"])) for row in decisions}
    expected = {0: ("relabel", rows[0].proposed), 1: ("drop", rows[1].given), 2: ("keep", rows[2].given)}
    expected[3] = ("drop", rows[3].given)
    assert got == {rows[i].sample: choice for i, choice in expected.items()}
    for row in decisions:
        one = next(one for one in rows if one.sample == int(row["sample"]))
        assert plain_cell(row["source"]) == one.source
        assert plain_cell(row["site"]) == one.site
        assert plain_cell(row["given_name"]) == one.given_name
        assert not row["given_name"].startswith("=")
    arguments = ["--decisions", str(tmp_path / "decisions.csv"), "--data", str(found.folder / "mine.npz")]
    assert apply_decisions.main([*arguments, "--out", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as after, np.load(found.folder / "mine.npz") as before:
        stays = ~np.isin(np.arange(120), [int(rows[1].source), int(rows[3].source)])
        given = before["given"].copy()
        given[int(rows[0].source)] = rows[0].proposed
        np.testing.assert_array_equal(after["given"], given[stays])


def test_decide_by_mouse_and_to_another_label(page: Any, found: LabelRun, tmp_path: Path) -> None:
    rows = listed(found)
    click(page, "#row1 [data-do=keep]")
    third = ({0, 1, 2} - {rows[2].given, rows[2].proposed}).pop()
    click(page, "#row2")
    press(page, "l")
    assert page.switch_to.active_element.get_attribute("aria-label") == f"Relabel {rows[2].source} as"
    page.execute_script(  # what a choice with the arrow keys sends; the keys themselves open a menu on some systems
        "const one = document.activeElement; one.value = arguments[0];"
        "one.dispatchEvent(new Event('change', {bubbles: true}))",
        str(third),
    )
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert page.switch_to.active_element.get_attribute("id") == "list"
    assert texts(page, "#row2 .labels") == [f"{rows[2].given_name} → {NAMES[third]}"]
    got = {int(row["sample"]): (row["decision"], int(row["label"])) for row in saved(page, tmp_path)}
    assert got == {rows[1].sample: ("keep", rows[1].given), rows[2].sample: ("relabel", third)}
    click(page, "#row1 [data-do=keep]")  # the same again takes it back
    assert [int(row["sample"]) for row in saved(page, tmp_path)] == [rows[2].sample]


def test_all_at_once_is_one_step_and_decisions_come_back(page: Any, found: LabelRun, tmp_path: Path) -> None:
    rows = listed(found)
    press(page, "k")
    click(page, "#accept")
    assert f"{len(rows) - 1} relabelled" in texts(page, "#count")[0]
    load(page, found.folder / "labels.html", 1280)
    assert f"{len(rows)} earlier decisions" in texts(page, "#said")[0]
    assert len(saved(page, tmp_path)) == len(rows)
    page.execute_script("localStorage.clear()")
    load(page, found.folder / "labels.html", 1280)
    press(page, "k")
    click(page, "#accept")
    click(page, "#undo")
    assert [row["decision"] for row in saved(page, tmp_path)] == ["keep"]


def reopened(page: Any, found: LabelRun, file: str = "labels.html") -> None:
    """As in a browser that has kept nothing."""
    page.execute_script("localStorage.clear()")
    load(page, found.folder / file, 1280)
    assert "decided: 0 kept, 0 relabelled, 0 dropped" in texts(page, "#count")[0]


def bring(page: Any, path: Path) -> str:
    """Load an earlier decisions.csv; returns what the page says to it."""
    page.execute_script("document.getElementById('said').textContent = ''")
    page.find_element(By.ID, "file").send_keys(str(path))
    for _ in range(100):
        if texts(page, "#said") != [""]:
            break
        time.sleep(0.05)
    return texts(page, "#said")[0]


def test_a_saved_file_is_loaded_and_gone_on_with(page: Any, found: LabelRun, tmp_path: Path) -> None:
    press(page, "r", "d", "k")
    before = saved(page, tmp_path)
    earlier = (tmp_path / "decisions.csv").rename(tmp_path / "earlier.csv")
    reopened(page, found)
    press(page, "d", "k")  # the file's word counts about the same samples
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


def test_what_a_shorter_page_does_not_show_stays_decided(page: Any, found: LabelRun, tmp_path: Path) -> None:
    rows = listed(found)
    click(page, "#accept")
    everything = saved(page, tmp_path)
    earlier = (tmp_path / "decisions.csv").rename(tmp_path / "earlier.csv")
    short = [*found.arguments(), "--most", "5", "--out", str(found.folder / "short.html")]
    assert make_labels.main(short) == 0
    reopened(page, found, "short.html")
    said = bring(page, earlier)
    assert said.startswith(f"earlier.csv: {len(rows)} decisions are here again, {len(rows) - 5} of them about samples")
    press(page, "k")
    load(page, found.folder / "short.html", 1280)  # they come back with it
    after = saved(page, tmp_path)
    assert [row["decision"] for row in after].count("keep") == 1
    changed = str(rows[0].sample)
    assert [row for row in after if row["sample"] != changed] == [row for row in everything if row["sample"] != changed]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r",[0-9a-f]{16}\n", ",0123456789abcdef\n", "line 2: it was decided about other data than this page shows"),
        (r"(?m)^(.*,relabel,.*)$", r"\1\n\1", "was decided before"),
        (",relabel,", ",rename,", "line 2: the decision rename is not known"),
        ("decision,", "choice,", "it has no column decision"),
        (r"(,relabel,\d,)[^,]*", r"\1dog", "dog is no class here"),
        (r"\n(\d+),", r"\n1e3,", "line 2: the sample 1e3 is no number"),
        (r"\n(\d+),", r'\n\1"",', "line 2: no CSV"),
        (r"\n(\d+),", r"\n\1,,", "line 2: 11 cells for 10 columns"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(
    page: Any, found: LabelRun, tmp_path: Path, old: str, new: str, message: str
) -> None:
    press(page, "r")
    saved(page, tmp_path)
    text = (tmp_path / "decisions.csv").read_text(encoding="utf-8")
    other = re.sub(old, new, text, count=1)
    assert other != text
    (tmp_path / "other.csv").write_text(other, encoding="utf-8")
    reopened(page, found)
    press(page, Keys.END, "k")
    said = bring(page, tmp_path / "other.csv")
    assert said.startswith("Nothing was loaded. other.csv: ")
    assert message in said
    assert "1 kept, 0 relabelled, 0 dropped" in texts(page, "#count")[0]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_everything_fits_and_can_be_read(page: Any, found: LabelRun, width: int, dark: bool) -> None:
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    load(page, found.folder / "labels.html", width)
    press(page, "k", "r", "d")
    try:
        assert page.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
        row = page.find_element(By.ID, "row0").rect
        for part in page.find_elements(By.CSS_SELECTOR, "#row0 button, #row0 select, #row0 .thumb, #row0 .where"):
            assert part.rect["x"] + part.rect["width"] <= row["x"] + row["width"]
            assert part.rect["y"] + part.rect["height"] <= row["y"] + row["height"]
        low = page.execute_script(CONTRAST)
        assert low == []
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


CONTRAST = """
const luminance = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (element) => {
  for (; element; element = element.parentElement) {
    const color = getComputedStyle(element).backgroundColor;
    if (!/, 0\\)$/.test(color)) return color;
  }
};
const low = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || element.disabled || !element.getClientRects().length || element.closest("option")) continue;
  const [a, b] = [getComputedStyle(element).color, ground(element)].map(luminance);
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) low.push([element.tagName, element.className, element.textContent.slice(0, 30), ratio]);
}
return low;
"""


def test_ten_thousand_suspects_stay_fluid(driver: Any, tmp_path: Path) -> None:
    run = label_run(tmp_path, n=40000, test=0.01)
    limits = ["--per-site", "5000", "--most", "10000"]
    assert make_labels.main([*run.arguments(), *limits, "--out", str(tmp_path / "labels.html")]) == 0
    load(driver, tmp_path / "labels.html", 1280)
    assert texts(driver, "#count")[0].startswith("10,000 of 10,000 shown")
    most, slowest = driver.execute_async_script(FLUID)
    assert most < 40  # rows in the page at a time
    assert slowest < 500  # milliseconds from a jump to its rows, also on a busy machine
    began = driver.execute_script("return performance.now()")
    choose(driver, "verdict", 0)
    press(driver, "r", "r", Keys.END, "d")
    assert driver.execute_script("return performance.now()") - began < 10_000
    assert "2 relabelled, 1 dropped" in texts(driver, "#count")[0]
    driver.execute_script("localStorage.clear()")


FLUID = """
const done = arguments[arguments.length - 1], list = document.getElementById("list");
let most = 0, slowest = 0, step = 0;
const next = () => {
  if (step++ === 40) return done([most, slowest]);
  const began = performance.now();
  list.scrollTop = (step * 7919 * 92) % list.scrollHeight;
  requestAnimationFrame(() => requestAnimationFrame(() => {
    slowest = Math.max(slowest, performance.now() - began);
    const rows = [...list.querySelectorAll(".row")];
    most = Math.max(most, rows.length);
    const seen = rows.some((row) => Math.abs(row.getBoundingClientRect().top - list.getBoundingClientRect().top) < 100);
    if (!seen) slowest = Infinity;
    next();
  }));
};
next();
"""
