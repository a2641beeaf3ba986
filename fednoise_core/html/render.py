"""HTML files that work without a network. Only their own style and script, identified by hash, are allowed."""

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from fednoise_core.version import __version__

BASE = Path(__file__).parent


def render_page(
    template: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    extra: str = "",
    *,
    folder: Path,
    **values: Any,
) -> str:
    """Fill a template, with `style`, `script` and their hashes for its Content-Security-Policy.

    Args:
        template: Name of the template file.
        styles: Names of CSS files.
        scripts: Names of JavaScript files.
        extra: Further CSS.
        folder: Folder of the files. page.html and page.css of this package are found, too.
        values: Values for the template.
    """
    loader = FileSystemLoader([folder, BASE])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["slug"] = make_slug
    style = "".join(loader.get_source(environment, name)[0] for name in styles) + extra
    script = "".join(loader.get_source(environment, name)[0] for name in scripts)
    return environment.get_template(template).render(
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        **values,
    )


def json_text(value: Any) -> Markup:
    """Write JSON for a script element, such that an HTML parser finds neither a tag nor a comment in it.

    Args:
        value: Any value that JSON can hold.
    """
    return htmlsafe_json_dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def make_slug(text: str) -> str:
    """Convert a text to an HTML id."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)


def _csp_hash(text: str) -> str:
    """Hash an inline script or style for a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
