"""The site in a real Chromium. It is built by `make docs`, which FEDNOISE_DOCS=1 asks test_docs_site.py for."""

import os
from pathlib import Path
from typing import Any

import pytest
from browser import driver as driver
from browser import find_violations, prefer_dark

SITE = Path(__file__).parents[2] / "build/site"
pytestmark = pytest.mark.browser


@pytest.mark.skipif(not os.environ.get("FEDNOISE_DOCS"), reason="looks at the site; FEDNOISE_DOCS=1 asks for it")
@pytest.mark.parametrize("page", ["index", "reference", "nets", "api/runs", "results/quick/index"])
def test_axe_finds_nothing(driver: Any, page: str) -> None:
    for dark in (False, True):
        prefer_dark(driver, dark)
        driver.get((SITE / f"{page}.html").as_uri())
        assert find_violations(driver) == []
