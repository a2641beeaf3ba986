"""Additions of the site to the Markdown in docs/: README.md and notebooks as pages, files outside docs/ that pages link
to, and a blank line before lists.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# pages from outside docs/ by their names in the site, whose own first page is docs/README.md
PAGES = {
    "project.md": ROOT / "README.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "benchmarks.md": ROOT / "benchmarks/README.md",
    "config.md": ROOT / "config/README.md",
}
ASSETS = [DOCS / "site" / name for name in ("focus.js", "iframe-worker.js", "site.css")]
PAPERS = sorted(ROOT.glob("config/papers/*.yaml"))
NAMES = {path: name for name, path in PAGES.items()}
LINK = re.compile(r"(\]\()([^)\s#]+)")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
PICTURE = re.compile(r'(<img [^>]*src="(?!data:)([^"]+)"[^>]*>)')
FENCE = re.compile(r"\s*(```|~~~)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/, and every file there that a page links to."""
    for name, path in PAGES.items():
        files.append(File.generated(config, name, content=path.read_text(encoding="utf-8")))
    for path in DOCS.rglob("*.ipynb"):
        name = path.relative_to(DOCS).with_suffix(".md").as_posix()
        files.append(File.generated(config, name, content=_notebook(json.loads(path.read_text(encoding="utf-8")))))
    for path in ASSETS:
        files.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    for page in [*NAMES, *DOCS.rglob("*.md")]:
        for _, target in LINK.findall(_without_code(page.read_text(encoding="utf-8"))):
            path = _outside(page, target)
            if path is not None and path.is_file() and files.get_file_from_path(name := _name(path)) is None:
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_config(config: Any) -> Any:
    """Replace a folder in nav by its README.md and its pages, in order."""
    config["nav"] = [_listed(part) for part in config["nav"]]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site has them, and Markdown that Python-Markdown reads as the forge does."""
    source = PAGES.get(page.file.src_uri, DOCS / page.file.src_uri)
    lines, fenced, before = [], False, ""
    for line in markdown.splitlines():
        fenced ^= bool(FENCE.match(line))
        if not fenced:
            line = LINK.sub(lambda found: found[1] + _link(source, found[2]), line)
            line = line.replace("<details>", '<details markdown="1">')
            if ITEM.match(line) and before.strip() and not ITEM.match(before) and before[0] not in " |":
                lines.append("")
        lines.append(line)
        before = line
    return "\n".join(lines)


def on_page_content(html: str, **_: Any) -> str:
    """Every picture is a link to itself, so that a click or tap shows it at its full size."""
    return PICTURE.sub(r'<a href="\2">\1</a>', html)


def on_post_page(html: str, **_: Any) -> str:
    """The search has a name, and blocks of code that scroll can be reached by keyboard."""
    return html.replace('role="dialog">', 'role="dialog" aria-label="Search">').replace(
        "<pre><span></span><code>", '<pre><span></span><code tabindex="0">'
    )


def _notebook(notebook: Any) -> str:
    """A notebook as Markdown, with its cells, texts and pictures."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            found = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
            if "image/png" in found:
                data = found["image/png"].replace("\n", "")
                parts.append(f'<img alt="the picture that the code above draws" src="data:image/png;base64,{data}">')
            elif "text/markdown" in found:
                parts.append(found["text/markdown"])
            elif "text/plain" in found:
                parts.append(f"```text\n{found['text/plain']}\n```")
    return "\n\n".join(parts)


def _listed(part: Any) -> Any:
    ((title, value),) = part.items()
    if value == "results":
        return {title: _list_results()}
    if not isinstance(value, str):
        return part
    pages = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / value).rglob("*.md"))
    return {title: sorted(pages, key=lambda page: not page.endswith("/README.md"))}


def _list_results() -> list[Any]:
    """Published studies and papers. A study is called as its heading says, a paper by its name and the scale."""
    folders = sorted(DOCS.glob("results/*/"), key=lambda folder: (folder.name != "quick", folder.name))
    pages = {folder.name: f"results/{folder.name}/README.md" for folder in folders if (folder / "README.md").exists()}
    scales = {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")).get("scales", {}) for file in PAPERS}
    papers = {paper: "paper" for paper in scales} | {
        f"{paper}-{scale}": scale for paper, names in scales.items() for scale in names
    }
    studies = [page for name, page in pages.items() if name not in papers]
    named = [
        {f"{_heading(DOCS / pages[name]).partition(':')[0]}, scale {scale}": pages[name]}
        for name, scale in sorted(papers.items())
        if name in pages
    ]
    return [{"Studies": studies}, {"Papers": ["results/papers.md", *named]}]


def _heading(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _outside(page: Path, target: str) -> Path | None:
    """The file or folder of a relative link, if it is in the project but not in docs/."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    path = Path(os.path.normpath(page.parent / target))
    return path if path.is_relative_to(ROOT) and not path.is_relative_to(DOCS) and path.exists() else None


def _link(page: Path, target: str) -> str:
    """A link's target in the site, unchanged between pages of docs/."""
    path = Path(os.path.normpath(page.parent / target))
    if "://" in target or target.startswith(("mailto:", "/")) or not path.exists():
        return target
    if path.suffix == ".ipynb" and path.is_relative_to(DOCS):
        path, target = path.with_suffix(".md"), target.removesuffix(".ipynb") + ".md"
    if page not in NAMES and path.is_relative_to(DOCS):
        return target
    name = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else _name(path)
    start = "." if page in NAMES else os.path.relpath(page.parent, DOCS)
    return os.path.relpath(name, start).replace(os.sep, "/")


def _name(path: Path) -> str:
    return NAMES.get(path) or "files/" + path.relative_to(ROOT).as_posix()


def _without_code(text: str) -> str:
    return re.sub(r"^\s*(```|~~~).*?^\s*\1", "", text, flags=re.MULTILINE | re.DOTALL)
