"""A headless Chromium for the tests of pages. Importing this skips a test module if there is none."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (BROWSER and DRIVER):
    pytest.skip("no Chromium with its chromedriver found: browser tests left out", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import ElementClickInterceptedException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

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
    browser = webdriver.Chrome(options=options, service=service)
    browser.set_network_conditions(offline=True, latency=0, throughput=0)
    yield browser
    browser.quit()
    service.stop()


def load(driver: Any, page: Path, width: int) -> None:
    driver.get_log("browser")
    driver.get_log("performance")
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": width < 600},
    )
    driver.get(page.resolve().as_uri())
    driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")


def texts(page: Any, selector: str) -> list[str]:
    return [element.text for element in page.find_elements(By.CSS_SELECTOR, selector)]


def click(page: Any, selector: str) -> None:
    """Scroll to the element and click it with the mouse. Try again if the page scrolled on meanwhile."""
    element = page.find_element(By.CSS_SELECTOR, selector)
    for tries_left in (2, 1, 0):
        page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        try:
            return element.click()
        except ElementClickInterceptedException:
            if not tries_left:
                raise  # the error names the covering element
            time.sleep(0.5)


def find_violations(driver: Any) -> list[tuple[str, list[str]]]:
    """The violations that axe-core finds on the page, as (rule, elements)."""
    axe = pytest.importorskip("axe_core_python")
    driver.execute_script(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    driver.set_script_timeout(300)  # seconds; a busy machine
    report = driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert len(report["passes"]) > 10
    return [(fault["id"], [node["html"][:120] for node in fault["nodes"]]) for fault in report["violations"]]


def prefer_dark(driver: Any, dark: bool) -> None:
    """Show pages in dark colours or in light ones."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
