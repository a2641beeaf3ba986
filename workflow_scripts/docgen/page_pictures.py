"""Draw the pictures of docs/pictures anew, from a study's page and from figures of the study gallery.

snakemake --cores 2 quick gallery_transition-drawn gallery_histogram gallery_clients-noise gallery_samples-symmetric
python -m workflow_scripts.docgen.page_pictures

It needs Chromium with its chromedriver. The page of suspects (labels.png) is not among them.
"""

import argparse
import io
import shutil
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By

from fednoise_core.report.pages.images import few_colours

PICTURES = Path("docs/pictures")
FIGURES = {
    "noises": "transition-drawn",
    "partitions": "histogram",
    "clients": "clients-noise",
    "samples": "samples-symmetric",
}
WIDTH = 910  # pixels of a figure, seven inches


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--page", type=Path, default=Path("results/quick/report.html"), help="of the study")
    parser.add_argument("--gallery", type=Path, default=Path("results/gallery/figures"), help="folder of figures")
    given = parser.parse_args()
    for name, figure in FIGURES.items():
        with Image.open(given.gallery / f"{figure}.png") as image:
            scaled = image.convert("RGB").resize((WIDTH, round(image.height * WIDTH / image.width)))
            _save(name, scaled)
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))  # else one is searched for online
    with webdriver.Chrome(options=options, service=service) as driver:
        address = given.page.resolve().as_uri()
        _save("page", _photograph(driver, address, (1280, 1620)))
        _save("page_dark", _photograph(driver, address, (1280, 1250), "dark", _open_run))
        parts = ["main", "plot-keys", "table-main"]
        shots = [_photograph(driver, address, (390, 844), part=part) for part in parts]
        row = Image.new("RGB", (1210, 844), "#80848c")
        for place, shot in enumerate(shots):
            row.paste(shot, (410 * place, 0))
        _save("page_phone", row)


def _photograph(
    driver: webdriver.Chrome,
    address: str,
    size: tuple[int, int],
    theme: str = "light",
    prepare: Callable[[webdriver.Chrome], None] | None = None,
    part: str = "main",
) -> Image.Image:
    """A picture of a page of `size` (width, height) in pixels, from its top or from the element `part`."""
    width, height = size
    device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    driver.get("about:blank")
    driver.get(address)
    driver.implicitly_wait(30)
    driver.find_element(By.CSS_SELECTOR, "#plot path[data-name]")
    if prepare is not None:
        prepare(driver)
    if part != "main":
        driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        driver.execute_script("document.getElementById(arguments[0]).scrollIntoView()", part)
    return Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")


def _open_run(driver: webdriver.Chrome) -> None:
    """Open the first run of FedCorr."""
    link = driver.find_element(By.XPATH, "//table[@id='runs-table']//a[contains(., 'FedCorr')]")
    driver.execute_script("arguments[0].click()", link)
    driver.find_element(By.CSS_SELECTOR, "#view[open] circle.client")


def _save(name: str, image: Image.Image) -> None:
    made = io.BytesIO()
    image.save(made, "PNG", optimize=True)
    (PICTURES / f"{name}.png").write_bytes(few_colours(made.getvalue(), 256))


if __name__ == "__main__":
    main()
