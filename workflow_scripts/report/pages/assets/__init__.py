"""Templates, styles and scripts of the pages."""

from pathlib import Path

ASSETS = Path(__file__).parent
