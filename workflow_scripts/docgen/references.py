"""The list of sources, made from docs/references.bib. The page docs/references.md shows it."""

import re

from workflow_scripts.provenance.step_code import ROOT

FILE = ROOT / "docs/references.bib"
ENTRY = re.compile(r"^@\w+\{(\w+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (\w+) = \{(.*)\},$", re.MULTILINE)
VENUES = ("booktitle", "journal", "howpublished", "institution")
ACCENTS = {r"{\"u}": "ü", r"{\'e}": "é", "$k$": "k"}


def read_entries() -> dict[str, dict[str, str]]:
    """Fields of every entry by its key, as plain text.

    Raises:
        ValueError: if an entry lacks its title, author or year.
    """
    entries = {key: dict(FIELD.findall(_strip_latex(body))) for key, body in ENTRY.findall(_read())}
    for key, entry in entries.items():
        if missing := {"title", "author", "year"} - entry.keys():
            raise ValueError(f"{FILE.name}: {key}: expected title, author and year, got no {' and no '.join(missing)}")
    return entries


def list_references() -> str:
    """Markdown: a heading for each part of the file, and a paragraph with an anchor for each entry."""
    entries, parts = read_entries(), []
    for line in _read().splitlines()[1:]:
        if line.startswith("% "):
            parts.append(f"## {line[2:]}")
        elif line.startswith("@"):
            key = line.partition("{")[2].rstrip(",")
            entry = entries[key]
            authors = "; ".join(entry["author"].split(" and "))
            venue = next((f" {entry[name]}." for name in VENUES if name in entry), "")
            parts.append(f'<a id="{key}"></a>{authors} ({entry["year"]}). *{entry["title"]}.*{venue}')
    return "\n\n".join(parts) + "\n"


def _read() -> str:
    return FILE.read_text(encoding="utf-8")


def _strip_latex(body: str) -> str:
    for written, plain in ACCENTS.items():
        body = body.replace(written, plain)
    return re.sub(r"(?<!= )\{([^{}]*)\}(?!,$)", r"\1", body, flags=re.MULTILINE)
