"""HTML files that need no network: templates, with their own style and script allowed by hash and nothing else."""

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
        template: Its file.
        styles: Files of CSS.
        scripts: Files of JavaScript.
        extra: More CSS.
        folder: Where the files lie. page.html and page.css of this package are found, too.
        values: What the template shows.
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
    """JSON for inside a script element, where an HTML parser must find neither a tag nor a comment.

    Args:
        value: What JSON can hold.
    """
    return htmlsafe_json_dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def make_slug(text: str) -> str:
    """A text as an id of HTML."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)


def _csp_hash(text: str) -> str:
    """Hash an inline script or style for a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
