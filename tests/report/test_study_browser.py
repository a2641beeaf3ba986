"""The page of a study in use: reading, toggling, sorting, filtering, opening a run, by mouse and keyboard, on a phone,
in the dark and on paper. axe-core must have no objection.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from browser import click, find_violations, prefer_dark, texts
from browser import driver as driver
from fake_runs import shown_files
from run_extras import write_sites
from test_report_page import make_study

from workflow_scripts.steps import study_page

webdriver = pytest.importorskip("selenium.webdriver")
Wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
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
    """A study whose run folders have every file that a page shows. One run lacks its confusion matrix."""
    root = make_study(tmp_path_factory.mktemp("study"), "Three methods", grid=GRID)
    write_sites(root)
    (root / "runs/digits/sym40/iid/fedcorr/seed1/confusion.csv").unlink()
    shared = ["--runs-list", str(root / "runs.json"), "--shown", shown_files(root)]
    assert study_page.main(["--study", str(root / "study.json"), *shared, "--out", str(root / "report.html")]) == 0
    return root


@pytest.fixture
def page(driver: Any, root: Path) -> Iterator[Any]:
    """The page, wide and light, as if opened for the first time. It must request nothing and log no error."""
    driver.get_log("performance")
    driver.get_log("browser")
    show(driver, root, 1280)
    driver.execute_script("localStorage.clear()")
    show(driver, root, 1280)
    yield driver
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:")) for url in urls), urls


def show(driver: Any, root: Path, width: int, part: str = "") -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get("about:blank")
    driver.get((root / "report.html").resolve().as_uri() + part)
    driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")


def find(page: Any, selector: str) -> Any:
    return page.find_element(By.CSS_SELECTOR, selector)


def keys(page: Any, *pressed: str) -> None:
    webdriver.ActionChains(page).send_keys(*pressed).perform()


def title(page: Any) -> str:
    """Wait for the title of the opened run or setting: the page learns of a new address only after the click."""
    Wait(page, 60).until(lambda page: find(page, "#view-title").text)
    return str(find(page, "#view-title").text)


def focused(page: Any) -> str:
    return str(page.execute_script("return document.activeElement.id || document.activeElement.textContent"))


def test_heads_of_tables_sort_them_unless_rows_stand_apart(page: Any) -> None:
    buttons = page.find_elements(By.CSS_SELECTOR, "#table-cost thead button")
    column = [button.text for button in buttons].index("seconds") + 1
    click(page, f"#table-cost th:nth-child({column}) button")
    seconds = [float(text.split()[0]) for text in texts(page, f"#table-cost tbody tr > :nth-child({column})")]
    assert seconds == sorted(seconds, reverse=True)
    assert len(set(seconds)) > 1
    assert texts(page, "#table-accuracy thead button") == []  # FedAvg without noise is set apart


def accuracy(root: Path, folder: str, end: int) -> list[float]:
    """The accuracy of each seed in %: the mean of the ten rounds up to `end`."""
    values = []
    for seed in (0, 1):
        frame = pd.read_parquet(root / "runs" / folder / f"seed{seed}/metrics.parquet")
        rows = frame[(frame["metric"] == "accuracy") & (frame["client"] == -1) & frame["round"].between(end - 9, end)]
        values.append(100 * float(rows["value"].mean()))
    return values


def test_arrow_keys_read_the_curves_aloud(page: Any, root: Path) -> None:
    page.execute_script("document.getElementById('plot').focus()")
    keys(page, Keys.END)
    last = accuracy(root, "digits/sym40/iid/fedavg", 12)
    script = "return document.getElementById('plot-said').textContent"
    assert page.execute_script(script).startswith(f"Round 12: FedAvg {sum(last) / 2:.1f} % (seed 0: {last[0]:.1f}")
    keys(page, Keys.ARROW_LEFT, *[Keys.ARROW_UP] * 4)
    best = max(sum(accuracy(root, f"digits/sym40/iid/{method}", 11)) / 2 for method in METHODS)
    clean = sum(accuracy(root, "digits/clean/iid/fedavg", 11)) / 2
    assert f" {max(best, clean):.1f} %" in page.execute_script(script)


def test_methods_are_shown_and_hidden(page: Any) -> None:
    def lines() -> int:
        return len(page.find_elements(By.CSS_SELECTOR, "#plot path[data-name]"))

    assert lines() == 4  # three methods and the ceiling
    click(page, ".key")
    assert find(page, ".key").get_attribute("aria-pressed") == "false"
    assert lines() == 3
    find(page, ".key").send_keys(Keys.SPACE)
    assert lines() == 4


def test_runs_sort_and_filter(page: Any) -> None:
    column = [button.text for button in page.find_elements(By.CSS_SELECTOR, "#runs-table thead button")].index("best")
    cells = f"#runs-table tbody tr:not([hidden]) > :nth-child({column + 1})"
    click(page, f"#runs-table th:nth-child({column + 1}) button")
    falling = [float(text) for text in texts(page, cells)]
    assert falling == sorted(falling, reverse=True)
    find(page, f"#runs-table th:nth-child({column + 1}) button").send_keys(Keys.ENTER)
    assert [float(text) for text in texts(page, cells)] == sorted(falling)
    find(page, "#runs-search").send_keys("fedcorr equal")
    assert texts(page, "#runs-count") == ["2 of 16 runs"]
    assert set(texts(page, "#runs-table tbody tr:not([hidden]) a")) == {"FedCorr"}


def test_a_run_opens_with_all_its_details(page: Any, root: Path) -> None:
    find(page, "#runs-search").send_keys("fedcorr")
    find(page, "#runs-table tbody tr:not([hidden]) a").send_keys(Keys.ENTER)
    folder = root / "runs/digits/sym40/iid/fedcorr/seed0"
    assert title(page) == "FedCorr, seed 0"
    record, summary = (json.loads((folder / name).read_text()) for name in ("spec.json", "summary.json"))
    text = find(page, "#view").text.replace("\xa0", " ")
    for part in (f"{100 * summary['accuracy']['last10_mean']:.2f} %", record["code"], summary["spec_digest"]):
        assert part in text
    counts = pd.read_csv(folder / "confusion.csv").filter(like="predicted_").to_numpy()
    assert [int(text) for text in texts(page, "#view .matrix td")] == counts.ravel().tolist()
    assert len(page.find_elements(By.CSS_SELECTOR, "#view circle.client")) == len(pd.read_csv(folder / "sites.csv"))
    page.execute_script("document.getElementById('view-next').click()")
    Wait(page, 60).until(lambda page: title(page) == "FedCorr, seed 1")
    assert "Not recorded for this run: its folder has no confusion.csv." in find(page, "#view").text
    keys(page, Keys.ESCAPE)
    assert not find(page, "#view").is_displayed()
    assert focused(page) == "FedCorr"


def test_the_page_works_with_the_keyboard_alone(page: Any) -> None:
    keys(page, Keys.TAB)
    assert focused(page) == "Skip to the results"
    keys(page, Keys.ENTER)
    assert focused(page) == "main"
    page.execute_script("document.querySelector('.card summary').focus()")
    keys(page, Keys.ENTER)
    assert title(page) == find(page, ".card .name").get_attribute("textContent")
    page.execute_script("document.querySelector('#view .picture').focus()")
    keys(page, Keys.ENTER)
    assert find(page, "#large-picture").is_displayed()
    keys(page, Keys.ESCAPE)
    assert not find(page, "#large").is_displayed()
    keys(page, Keys.ESCAPE)
    assert not find(page, "#view").is_displayed()
    assert page.execute_script("return document.activeElement.tagName") == "SUMMARY"


def test_on_a_phone(page: Any, root: Path) -> None:
    show(page, root, 390)
    widths = "return [document.documentElement.scrollWidth, innerWidth]"
    assert page.execute_script(widths) == [390, 390]
    assert find(page, ".tip strong").text == "At the end"  # names and last values in a list below
    assert not find(page, "nav a[href='#table-cost']").is_displayed()
    click(page, "nav summary")
    find(page, "nav a[href='#table-cost']").click()
    assert -1 <= page.execute_script("return document.getElementById('table-cost').getBoundingClientRect().top") < 120
    click(page, "#runs-table tbody a")
    assert title(page) == "FedAvg, seed 0"
    assert page.execute_script(widths) == [390, 390]


@pytest.mark.parametrize(
    ("width", "part", "dark"), [(1280, "", False), (390, "#setting-digits-sym40-iid", False), (1280, "#run-9", True)]
)
def test_axe_finds_nothing(page: Any, root: Path, width: int, part: str, dark: bool) -> None:
    prefer_dark(page, dark)
    show(page, root, width, part)
    assert find(page, "#view").is_displayed() == bool(part)
    assert find_violations(page) == []


def test_prints_on_few_pages(page: Any, root: Path) -> None:
    paper = {"paperWidth": 8.27, "paperHeight": 11.69}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert find(page, "#figure-curves img").is_displayed()  # in place of the live curves
    for selector in ("nav", "#plot", "#runs-table", "#theme", ".card .full"):
        assert not find(page, selector).is_displayed()
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert _pages(page.execute_cdp_cmd("Page.printToPDF", paper)) <= PAGES


def _pages(printed: dict[str, str]) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))


def test_a_page_of_untrusted_labels_shows_no_clean_labels(driver: Any, tmp_path: Path) -> None:
    grid = [{"noises": ["as-given"], "partitions": ["iid"], "methods": ["fedavg", "fedcorr"]}]
    root = make_study(tmp_path / "given", "As given", grid=grid, clean_known=False, test_known=False)
    write_sites(root)
    shared = ["--runs-list", str(root / "runs.json"), "--shown", shown_files(root)]
    assert study_page.main(["--study", str(root / "study.json"), *shared, "--out", str(root / "report.html")]) == 0
    show(driver, root, 1280)
    assert "greement with given labels" in find(driver, "#plot svg").get_attribute("aria-label")
    assert texts(driver, "#table-diagnostics tbody tr") == []
    show(driver, root, 1280, "#run-2")
    assert title(driver) == "FedCorr, seed 0"
    assert texts(driver, "#view thead th[scope=col]")[0] == "given"
    assert "Clients: suspects" in texts(driver, "#view h3")
    heads = texts(driver, "#view .pair section:last-child thead th")
    assert heads == ["client", "labels", "estimated wrong", "90 % interval", "verdict wrong"]
    assert not driver.find_elements(By.CSS_SELECTOR, "#view circle.client")
