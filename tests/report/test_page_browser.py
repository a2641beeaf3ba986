"""Pages in a real headless Chromium: from a file, without network or errors, everything visible, also on a phone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip("no Chromium with its chromedriver found: browser tests left out", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from test_report_page import make_study  # noqa: E402

from workflow_scripts.steps import setting_page  # noqa: E402

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=str(DRIVER), log_output=os.devnull)
    found = webdriver.Chrome(options=options, service=service)
    found.set_network_conditions(offline=True, latency=0, throughput=0)
    yield found
    found.quit()
    service.stop()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = make_study(tmp_path_factory.mktemp("quick"), "Quick: hand-written digits")
    arguments = ["--arrays", str(root / "raw/digits.npz"), "--labels", str(root / "labels/digits/sym40/any/seed0.npz")]
    arguments += ["--partition", str(root / "partitions/digits/sym40/iid/seed0.npz")]
    assert setting_page.main([*arguments, "--ids", "digits/sym40/iid", "--out", str(root / "setting.html")]) == 0
    return {"study": root / "report.html", "setting": root / "setting.html"}


def load(driver: Any, page: Path, width: int) -> None:
    driver.get_log("browser")
    driver.get_log("performance")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": width < 600},
    )
    driver.get(page.resolve().as_uri())
    driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["study", "setting"])
def test_page_shows_everything(driver: Any, pages: dict[str, Path], name: str, width: int) -> None:
    load(driver, pages[name], width)
    assert driver.title
    images = driver.find_elements(By.CSS_SELECTOR, "section:not(.twin) > figure img, .full img, main > figure img")
    assert len(images) == (8 if name == "study" else 4)  # without the one that the page draws itself
    for image in images:
        assert image.get_property("naturalWidth") > 0
        assert image.size["width"] > 200
        assert image.size["height"] > 50
    for table in driver.find_elements(By.CSS_SELECTOR, "main table"):
        assert table.size["height"] > 20
    wide = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1] == width
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    asked = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.append(message["params"]["request"]["url"])
    assert all(url.startswith(("file:", "data:")) for url in asked)
