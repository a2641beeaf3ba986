"""The page of a study in use: hover, toggle, zoom, sort, filter, open a run; by mouse and by keyboard; on a phone, in
the dark, on paper, without scripts; and nothing that axe-core calls serious.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report.run_extras import write_sites
from test_page_browser import driver as driver
from test_report_page import make_study

from workflow_scripts import make_page

webdriver = pytest.importorskip("selenium.webdriver")
Wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
WebDriverException = pytest.importorskip("selenium.common.exceptions").WebDriverException
By = pytest.importorskip("selenium.webdriver.common.by").By
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
pytestmark = pytest.mark.browser

METHODS = ["fedavg", "coteaching-oracle", "fedcorr"]
GRID = [
    {"noises": ["sym40"], "partitions": ["iid", "openset-uniform"], "methods": METHODS},
    {"noises": ["clean"], "partitions": ["iid", "openset-uniform"], "methods": ["fedavg"]},
]
PAGES = 12  # of A4 that a page may print on


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose run folders have all that a page shows; one run lacks its confusion matrix."""
    root = make_study(tmp_path_factory.mktemp("study"), "Three methods", grid=GRID)
    write_sites(root)
    (root / "runs/digits/sym40/iid/fedcorr/seed1/confusion.csv").unlink()
    shared = ["--root", str(root), "--runs-list", str(root / "runs.json")]
    assert make_page.main(["--study", str(root / "study.json"), *shared, "--out", str(root / "report.html")]) == 0
    return root


@pytest.fixture
def page(driver: Any, root: Path) -> Iterator[Any]:
    """The page, wide and light, as if opened for the first time. Nothing may be asked of a network, nor logged."""
    driver.get_log("performance")
    driver.get_log("browser")
    show(driver, root, 1280)
    driver.execute_script("localStorage.clear()")
    show(driver, root, 1280)
    yield driver
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:")) for url in asked), asked


def show(driver: Any, root: Path, width: int, part: str = "") -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get("about:blank")
    driver.get((root / "report.html").resolve().as_uri() + part)
    driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")


def find(page: Any, selector: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, selector)


def texts(page: Any, selector: str) -> list[str]:
    return [one.text for one in page.find_elements(By.CSS_SELECTOR, selector)]


def click(page: Any, selector: str) -> None:
    element = find(page, selector)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def keys(page: Any, *pressed: str) -> None:
    webdriver.ActionChains(page).send_keys(*pressed).perform()


def title(page: Any) -> str:
    """Of the run or setting that opens: a change of the address is told to a page only after the key or click."""
    Wait(page, 60).until(lambda page: find(page, "#view-title").text)
    return str(find(page, "#view-title").text)


def seen(page: Any, selector: str) -> bool:
    return bool(page.execute_script("return document.querySelector(arguments[0]).checkVisibility()", selector))


def focused(page: Any) -> str:
    return str(page.execute_script("return document.activeElement.id || document.activeElement.textContent"))


def point(page: Any, x: float, y: float, *, drag_to: tuple[float, float] | None = None) -> None:
    """Move the mouse to a place in the chart, in shares of its width and height, and perhaps drag from there."""
    plot = find(page, "#plot")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    width, height = plot.size["width"], plot.size["height"]
    chain = webdriver.ActionChains(page, duration=20)
    chain.move_to_element_with_offset(plot, int((x - 0.5) * width), int((y - 0.5) * height))
    if drag_to:
        chain.click_and_hold()
        chain.move_by_offset(int((drag_to[0] - x) * width), int((drag_to[1] - y) * height)).release()
    chain.perform()


def accuracy(root: Path, folder: str, at: int) -> list[float]:
    """Of both seeds, in %, after round `at`."""
    found = []
    for seed in (0, 1):
        frame = pd.read_parquet(root / "runs" / folder / f"seed{seed}/metrics.parquet")
        rows = frame[(frame["metric"] == "accuracy") & (frame["client"] == -1) & (frame["round"] == at)]
        found.append(100 * float(rows["value"].iloc[0]))
    return found


def test_hover_reads_round_method_seeds_and_value(page: Any, root: Path) -> None:
    last = max(pd.read_parquet(root / "runs/digits/sym40/iid/fedavg/seed0/metrics.parquet")["round"])
    point(page, 0.78, 0.3)
    assert find(page, ".tip strong").text.startswith("Round ")
    assert not find(page, "#plot .names").is_displayed()  # the values stand in the names' place, beside the lines
    dots = page.find_elements(By.CSS_SELECTOR, ".cursor circle")
    assert find(page, ".tip").location["x"] > max(one.rect["x"] for one in dots)
    at = int(re.sub(r"\D.*", "", find(page, ".tip strong").text.removeprefix("Round ")))
    assert 0 < at <= last
    told = dict(zip(texts(page, ".tip .row span"), texts(page, ".tip .row b"), strict=True))
    values = {"FedAvg": "fedavg", "Co-teaching †": "coteaching-oracle", "FedCorr": "fedcorr"}
    for name, method in values.items():
        assert float(told[name]) == pytest.approx(sum(accuracy(root, f"digits/sym40/iid/{method}", at)) / 2, abs=0.06)
    near = find(page, ".tip .near").text
    if method := values.get(find(page, ".tip .near span").text):
        for seed, value in enumerate(accuracy(root, f"digits/sym40/iid/{method}", at)):
            read = re.search(rf"seed {seed}: ([\d.]+)", near)[1]
            assert float(read) == pytest.approx(value, abs=0.06)  # the page holds hundredths


def test_methods_and_seeds_are_shown_and_hidden(page: Any) -> None:
    def lines(kind: str = "") -> int:
        return len(page.find_elements(By.CSS_SELECTOR, f"#plot path{kind}[data-name]"))

    assert lines() == 4  # three methods and the ceiling
    click(page, ".key")
    assert find(page, ".key").get_attribute("aria-pressed") == "false"
    assert lines() == 3
    find(page, ".key").send_keys(Keys.SPACE)
    assert lines() == 4
    click(page, "#plot-seeds")
    assert lines(".faint") == 6
    find(page, "#plot-keys .link:last-child").click()
    assert lines() == 1  # the ceiling stays
    assert focused(page) == "none"  # the row was made anew
    find(page, "#plot-keys .link:nth-last-child(2)").send_keys(Keys.ENTER)
    assert lines() == 10
    assert focused(page) == "all"
    find(page, ".key").send_keys(Keys.SPACE)
    assert page.find_elements(By.CSS_SELECTOR, "#plot .dim") == []  # none stands out that is hidden


def test_zoom_by_drag_and_by_keys_and_back(page: Any) -> None:
    def ticks() -> list[str]:
        return texts(page, "#plot svg text[text-anchor=middle]")

    whole = ticks()
    point(page, 0.3, 0.4, drag_to=(0.5, 0.42))
    assert ticks() != whole
    click(page, "#plot-reset")
    assert ticks() == whole
    assert focused(page) == "plot"
    keys(page, "+")
    assert ticks() != whole
    keys(page, "0")
    assert ticks() == whole
    assert not find(page, "#plot-reset").is_enabled()


def test_arrow_keys_read_the_curves_aloud(page: Any, root: Path) -> None:
    page.execute_script("document.getElementById('plot').focus()")
    keys(page, Keys.END)
    last = [accuracy(root, f"digits/sym40/iid/{method}", 12) for method in METHODS]
    said = "return document.getElementById('plot-said').textContent"
    assert page.execute_script(said).startswith("Round 12: FedAvg ")
    assert f"{sum(last[0]) / 2:.1f} % (seed 0: {last[0][0]:.1f}" in page.execute_script(said)
    keys(page, Keys.ARROW_LEFT, *[Keys.ARROW_UP] * 4)
    best = max(sum(accuracy(root, f"digits/sym40/iid/{method}", 11)) / 2 for method in METHODS)
    clean = sum(accuracy(root, "digits/clean/iid/fedavg", 11)) / 2
    assert f" {max(best, clean):.1f} %" in page.execute_script(said)


def test_a_line_that_ended_before_is_read_with_its_last_round(page: Any) -> None:
    page.execute_script(
        "const x = document.getElementById('plot-x'); x.value = 'work'; x.dispatchEvent(new Event('change'));"
        "for (const n of [1, 3]) document.querySelectorAll('#plot-keys .key')[n].click();"  # FedAvg and FedCorr stay
        "document.getElementById('plot').focus()"
    )
    keys(page, Keys.END, Keys.ARROW_UP)
    if find(page, ".tip .near span").text == "FedAvg":
        keys(page, Keys.ARROW_DOWN)
    keys(page, Keys.END)  # FedCorr's, at work 16.8
    rows = {one.split("\n")[1]: one for one in texts(page, ".tip .row")}
    assert find(page, ".tip .near span").text == "FedCorr"
    assert rows["FedAvg"].endswith("till round 12")


def test_another_setting_from_the_table_of_winners(page: Any, root: Path) -> None:
    assert "FedCorr" in find(page, ".lead").text
    assert "†" not in find(page, ".lead").text
    click(page, ".won tbody tr:nth-child(2) a")
    chosen = page.execute_script("return document.getElementById('plot-setting').selectedOptions[0].textContent")
    assert chosen.endswith("openset uniform")
    assert "openset uniform" in find(page, "#plot svg").get_attribute("aria-label")


def test_runs_sort_and_filter(page: Any) -> None:
    column = [one.text for one in page.find_elements(By.CSS_SELECTOR, "#runs-table thead button")].index("best")
    cells = f"#runs-table tbody tr:not([hidden]) > :nth-child({column + 1})"
    click(page, f"#runs-table th:nth-child({column + 1}) button")
    falling = [float(text) for text in texts(page, cells)]
    assert falling == sorted(falling, reverse=True)
    assert len(falling) == 16
    find(page, f"#runs-table th:nth-child({column + 1}) button").send_keys(Keys.ENTER)
    assert [float(text) for text in texts(page, cells)] == sorted(falling)
    assert find(page, f"#runs-table th:nth-child({column + 1})").get_attribute("aria-sort") == "ascending"
    find(page, "#runs-search").send_keys("fedcorr uniform")
    assert texts(page, "#runs-count") == ["2 of 16 runs"]
    assert set(texts(page, "#runs-table tbody tr:not([hidden]) a")) == {"FedCorr"}
    click(page, "#runs-bar button")
    assert texts(page, "#runs-count") == ["16 runs"]
    assert focused(page) == "runs-search"
    page.execute_script(
        "const one = document.querySelector('#runs-bar select'); one.value = 'Co-teaching †';"
        "one.dispatchEvent(new Event('change'))"
    )
    assert texts(page, "#runs-count") == ["4 of 16 runs"]


def test_a_run_opens_with_all_that_is_known_of_it(page: Any, root: Path) -> None:
    find(page, "#runs-search").send_keys("fedcorr")
    link = find(page, "#runs-table tbody tr:not([hidden]) a")
    folder = root / "runs/digits/sym40/iid/fedcorr/seed0"
    link.send_keys(Keys.ENTER)
    view = find(page, "#view")
    assert title(page) == "FedCorr, seed 0"
    assert view.is_displayed()
    made = re.search(r"at commit <code>([^<]+)", (root / "report.html").read_text(encoding="utf-8"))[1]
    record, summary = (json.loads((folder / name).read_text()) for name in ("spec.json", "summary.json"))
    for words in (
        f"{100 * summary['accuracy']['last10_mean']:.2f}\xa0%".replace("\xa0", " "),
        record["code"],
        summary["spec_digest"],
        made,
        "suspects.csv",
        f"snakemake --cores 1 --force {folder.as_posix()}/SHA256SUMS",
    ):
        assert words in view.text.replace("\xa0", " "), words
    counts = pd.read_csv(folder / "confusion.csv").filter(like="predicted_").to_numpy()
    assert [int(text) for text in texts(page, "#view .matrix td")] == counts.ravel().tolist()
    sites = pd.read_csv(folder / "sites.csv")
    assert len(page.find_elements(By.CSS_SELECTOR, "#view circle.client")) == len(sites)
    click(page, "#view details:has(.scroll) summary")
    first = texts(page, "#view details:has(.scroll) tbody tr:first-child > *")
    assert first[:2] == ["0", str(sites["samples"][0])]
    assert first[3] == f"{100 * sites['wrong'][0] / sites['samples'][0]:.1f} %"
    click(page, "#view .command button")
    assert "Copied" in find(page, "#view .said").text
    page.execute_script("document.getElementById('view-next').click()")
    Wait(page, 60).until(lambda page: title(page) == "FedCorr, seed 1")
    assert "Not recorded for this run: its folder has no confusion.csv." in view.text
    keys(page, Keys.ESCAPE)
    assert not view.is_displayed()
    assert focused(page) == "FedCorr"
    assert page.execute_script("return location.hash") == ""
    show(page, root, 1280, "#run-0")  # a link to a run from elsewhere
    assert title(page) == "FedAvg, seed 0"


def test_by_keyboard_alone(page: Any) -> None:
    keys(page, Keys.TAB)
    assert focused(page) == "Skip to the results"
    keys(page, Keys.ENTER)
    assert focused(page) == "main"
    page.execute_script("document.querySelector('.card summary').focus()")
    keys(page, Keys.ENTER)
    assert title(page) == find(page, ".card .name").get_attribute("textContent")
    assert find(page, "#view figure img").is_displayed()
    keys(page, Keys.TAB, Keys.TAB)
    page.execute_script("document.querySelector('#view .picture').focus()")
    keys(page, Keys.ENTER)
    assert find(page, "#large-picture").is_displayed()
    assert find(page, "#large-picture").size["width"] >= find(page, "#view .picture").size["width"]
    keys(page, Keys.ESCAPE)
    assert not find(page, "#large").is_displayed()
    assert find(page, "#view").is_displayed()
    keys(page, Keys.ESCAPE)
    assert not find(page, "#view").is_displayed()
    assert page.execute_script("return document.activeElement.tagName") == "SUMMARY"
    page.execute_script("document.querySelector('#runs-table tbody a').focus()")
    keys(page, Keys.ARROW_DOWN)
    assert page.execute_script("return document.activeElement.hash") == "#run-1"


def test_on_a_phone(page: Any, root: Path) -> None:
    show(page, root, 390)
    wide = "return [document.documentElement.scrollWidth, innerWidth]"
    assert page.execute_script(wide) == [390, 390]
    link = "nav a[href='#table-cost']"
    assert not seen(page, link)
    click(page, "nav summary")
    assert seen(page, link)
    find(page, link).click()
    assert not seen(page, link)
    assert -1 <= page.execute_script("return document.getElementById('table-cost').getBoundingClientRect().top") < 120
    before = find(page, "#figure-bytes .picture img").size["width"]
    click(page, "#figure-bytes .picture")
    assert find(page, "#large-picture").size["width"] >= 2 * before
    box = find(page, "#large .scroll")
    assert page.execute_script("return arguments[0].scrollLeft", box) == 0
    assert page.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
    assert page.execute_script(wide) == [390, 390]
    click(page, "#large-close")
    click(page, "#runs-table tbody a")
    assert title(page) == "FedAvg, seed 0"
    assert page.execute_script(wide) == [390, 390]
    assert page.execute_script("const one = document.getElementById('view'); return one.scrollWidth") <= 390


def test_a_finger_reads_the_curves(page: Any, root: Path) -> None:
    show(page, root, 390)
    assert find(page, ".tip strong").text == "At the end"  # names and last values in a list below
    plot = find(page, "#plot svg")
    assert find(page, ".tip").location["y"] >= plot.location["y"] + plot.size["height"]
    assert "Tap" in find(page, "#plot-help").text
    last = dict(zip(texts(page, ".tip .row span"), texts(page, ".tip .row b"), strict=True))
    assert f"FedCorr {last['FedCorr']} %" in plot.get_attribute("aria-label")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    box = page.execute_script("return arguments[0].getBoundingClientRect().toJSON()", plot)
    for x in (0.5, 0.8):
        at = {"x": box["x"] + x * box["width"], "y": box["y"] + 0.4 * box["height"]}
        page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [at]})
        page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        Wait(page, 60).until(lambda page: find(page, ".tip strong").text.startswith("Round "))
        read = int(find(page, ".tip strong").text.removeprefix("Round "))
        told = dict(zip(texts(page, ".tip .row span"), texts(page, ".tip .row b"), strict=True))
        mean = sum(accuracy(root, "digits/sym40/iid/fedavg", read)) / 2
        assert float(told["FedAvg"]) == pytest.approx(mean, abs=0.06)
        assert not find(page, "#plot-reset").is_enabled()  # nothing zooms
    assert read > 6


def test_contents_fold_and_tables_say_that_more_is_beside(page: Any, root: Path) -> None:
    assert seen(page, "nav a[href='#table-cost']")
    show(page, root, 1024)
    assert not seen(page, "nav a[href='#table-cost']")
    wide = "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
    assert page.execute_script(wide) == 0
    show(page, root, 390)
    assert page.execute_script(wide) > 3
    shade = "return getComputedStyle(document.querySelector('.scroll')).backgroundAttachment"
    assert page.execute_script(shade) == "local, scroll"  # the cover goes with the table, the shade stays


def test_theme_follows_the_system_until_it_is_chosen(page: Any, root: Path) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(ground)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert page.execute_script(ground) != light
    click(page, "#theme")
    assert (find(page, "#theme").text, page.execute_script(ground)) == ("Theme: light", light)
    show(page, root, 1280)
    assert page.execute_script(ground) == light
    click(page, "#theme")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert (find(page, "#theme").text, page.execute_script(ground) != light) == ("Theme: dark", True)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("width", "part"), [(1280, ""), (390, ""), (1280, "#run-9"), (390, "#setting-digits-sym40-iid")]
)
def test_axe_finds_nothing_serious(page: Any, root: Path, width: int, part: str, dark: bool) -> None:
    axe = pytest.importorskip("axe_core_python")
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    show(page, root, width, part)
    assert find(page, "#view").is_displayed() == bool(part)
    page.execute_script(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    page.set_script_timeout(300)  # seconds; a busy machine
    found = page.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 20
    also = ("landmark-unique",)
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical") or one["id"] in also]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in serious] == []


def test_prints_on_few_pages(page: Any, root: Path) -> None:
    paper = {"paperWidth": 8.27, "paperHeight": 11.69}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert find(page, "#figure-curves img").is_displayed()  # in place of the live curves
    for selector in ("nav", "#plot", "#runs-table", "#theme", ".card .full"):
        assert not find(page, selector).is_displayed()
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert _pages(page.execute_cdp_cmd("Page.printToPDF", paper)) <= PAGES
    show(page, root, 1280, "#run-9")
    assert _pages(page.execute_cdp_cmd("Page.printToPDF", paper)) <= 4  # the run alone


def test_a_page_of_labels_that_nobody_trusts_pretends_no_clean_ones(driver: Any, tmp_path: Path) -> None:
    grid = [{"noises": ["as-given"], "partitions": ["iid"], "methods": ["fedavg", "fedcorr"]}]
    root = make_study(tmp_path / "given", "As given", grid=grid, clean_known=False, test_known=False)
    write_sites(root)
    shared = ["--root", str(root), "--runs-list", str(root / "runs.json")]
    assert make_page.main(["--study", str(root / "study.json"), *shared, "--out", str(root / "report.html")]) == 0
    show(driver, root, 1280)
    assert "greement with given labels" in find(driver, "#plot svg").get_attribute("aria-label")
    assert texts(driver, "#table-diagnostics tbody tr") == []
    show(driver, root, 1280, "#run-2")
    assert title(driver) == "FedCorr, seed 0"
    assert texts(driver, "#view thead th[scope=col]")[0] == "given"
    assert "Clients: suspects" in texts(driver, "#view h3")
    heads = texts(driver, "#view .pair section:last-child thead th")
    assert heads == ["client", "labels", "held for wrong", "90 % interval", "named"]
    assert not driver.find_elements(By.CSS_SELECTOR, "#view circle.client")


def _pages(printed: dict[str, str]) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))


def test_without_scripts_pictures_and_tables_stay(page: Any, root: Path) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        size = {"width": 1280, "height": 844, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.get("about:blank")
        page.get((root / "report.html").resolve().as_uri())
        assert page.execute_cdp_cmd("DOM.getDocument", {})["root"]
        shown = {}
        for selector in ("#figure-curves img", "#runs-table tbody tr", "nav ol", "#plot", "#theme", "#runs-bar"):
            node = page.execute_cdp_cmd("DOM.getDocument", {})["root"]["nodeId"]
            one = page.execute_cdp_cmd("DOM.querySelector", {"nodeId": node, "selector": selector})["nodeId"]
            try:
                box = page.execute_cdp_cmd("DOM.getBoxModel", {"nodeId": one})["model"]
                shown[selector] = box["height"] > 0
            except WebDriverException:
                shown[selector] = False
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert shown == {
        **dict.fromkeys(("#figure-curves img", "#runs-table tbody tr", "nav ol"), True),
        **dict.fromkeys(("#plot", "#theme", "#runs-bar"), False),
    }
