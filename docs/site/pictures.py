"""Draw the pictures of pages in docs/pictures anew, of a study and of suspect labels.

snakemake --cores 2 quick
python docs/site/pictures.py results/quick/report.html
python docs/site/pictures.py build/labels/…/labels.html

It needs Chromium with its chromedriver.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from selenium import webdriver

from workflow_scripts.report.pages.images import few_colours

PICTURES = Path("docs/pictures")
RUN = "[...document.querySelectorAll('#runs-table th a')].find((one) => one.textContent.includes('FedCorr')).click()"
PART = "document.documentElement.style.scrollBehavior = 'auto'; document.getElementById('{}').scrollIntoView()"
LIST = "scrollBy({top: document.querySelector('select').getBoundingClientRect().top - 40, behavior: 'instant'})"


def photograph_page(
    driver: webdriver.Chrome, page: Path, width: int, height: int, then: str, theme: str
) -> Image.Image:
    """Take a picture of a page, of so many pixels, after a script has run on it.

    Args:
        driver: The browser.
        page: The page.
        width: Pixels.
        height: Pixels.
        then: The script.
        theme: light or dark.
    """
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get(page.resolve().as_uri())
    driver.execute_async_script("setTimeout(arguments[0], 1000)")  # until the curves are drawn
    driver.execute_script(then)
    driver.execute_async_script("setTimeout(arguments[0], 1000)")
    return Image.open(io.BytesIO(driver.get_screenshot_as_png()))


def main(page: Path) -> None:
    """Write the pictures of a page.

    Args:
        page: The page of a study, or labels.html.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(flag)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))  # else one is searched for online
    made = {}
    with webdriver.Chrome(options=options, service=service) as driver:
        if page.name == "labels.html":
            made["labels-sites"] = photograph_page(driver, page, 1000, 1268, "", "light")
            made["labels"] = photograph_page(driver, page, 1000, 900, LIST, "light")
        else:
            made["page"] = photograph_page(driver, page, 1280, 1620, "", "light")
            made["page_dark"] = photograph_page(driver, page, 1280, 1250, RUN, "dark")
            made["page_phone"] = Image.new("RGB", (1210, 844), "#80848c")
            for left, part in ((0, "theme"), (410, "plot-keys"), (820, "table-main")):
                made["page_phone"].paste(photograph_page(driver, page, 390, 844, PART.format(part), "light"), (left, 0))
    for name, image in made.items():
        file = io.BytesIO()
        image.save(file, "PNG")
        (PICTURES / f"{name}.png").write_bytes(few_colours(file.getvalue(), 256))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
