"""Pages in a real headless Chromium: from a file, without network or errors, everything visible, also on a phone."""

import json
from pathlib import Path
from typing import Any

import pytest
from browser import driver as driver
from browser import load
from selenium.webdriver.common.by import By
from test_report_page import make_study

from workflow_scripts.steps import setting_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = make_study(tmp_path_factory.mktemp("quick"), "Quick: hand-written digits")
    arguments = ["--arrays", str(root / "raw/digits.npz"), "--labels", str(root / "labels/digits/sym40/any/seed0.npz")]
    arguments += ["--partition", str(root / "partitions/digits/sym40/iid/seed0.npz")]
    assert setting_page.main([*arguments, "--ids", "digits/sym40/iid", "--out", str(root / "setting.html")]) == 0
    return {"study": root / "report.html", "setting": root / "setting.html"}


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
    widths = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1] == width
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    urls = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            urls.append(message["params"]["request"]["url"])
    assert all(url.startswith(("file:", "data:")) for url in urls)
