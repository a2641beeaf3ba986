"""The gallery of figures, made from the registered kinds, the studies and the published pictures.

The page docs/gallery.md shows it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from workflow_scripts.provenance.step_code import ROOT

DOCS, CONFIG = ROOT / "docs", ROOT / "config"
KINDS = CONFIG / "schema/figure.yaml"


def list_figures() -> str:
    """Markdown: for each kind of figure a heading, what it is, a published picture and the lines that draw it."""
    kinds = yaml.safe_load(KINDS.read_text(encoding="utf-8"))
    found: dict[str, tuple[Path, str, Any]] = {}
    for picture, study, settings in _list_published():
        found.setdefault(settings["kind"], (picture, study, settings))
    links = " · ".join(f"[{name}](#{name})" for name in kinds)
    return "\n\n".join([links, *(_show_kind(name, kind, found.get(name)) for name, kind in kinds.items())])


def list_result_folders(file: Path) -> list[Path]:
    """List the folders of a study's or paper's published results: its name, and its name with each scale."""
    scales = yaml.safe_load(file.read_text(encoding="utf-8")).get("scales", {})
    names = [file.stem, *(f"{file.stem}-{scale}" for scale in scales)]
    return [folder for folder in (DOCS / "results" / name for name in names) if folder.is_dir()]


def _list_published() -> Iterator[tuple[Path, str, Any]]:
    """(picture, study's file, settings) of every published figure; small studies before those of papers."""
    for folder in ("studies", "papers"):
        for file in sorted((CONFIG / folder).glob("*.yaml"), key=lambda file: file.stem != "quick"):
            study = yaml.safe_load(file.read_text(encoding="utf-8"))
            for name, settings in study.get("figures", {}).items():
                for picture in (results / f"{name}.png" for results in list_result_folders(file)):
                    if picture.exists():
                        yield picture, file.relative_to(CONFIG.parent).as_posix(), settings


def _show_kind(name: str, kind: Any, published: tuple[Path, str, Any] | None) -> str:
    parts = [f"## `{name}`", kind["description"]]
    if published is None:
        parts += ["No example is published. The settings are, for instance:", _write_yaml(name, kind["example"])]
    else:
        picture, study, settings = published
        place = picture.relative_to(DOCS)
        parts += [
            f"![An example of the figure {name}; its numbers are on the page of results]({place.as_posix()})",
            f"`{study}` has these lines ([results]({place.parent.as_posix()}/README.md)):",
            _write_yaml(picture.stem, settings),
        ]
    return "\n\n".join(parts)


def _write_yaml(name: str, settings: Any) -> str:
    lines = yaml.safe_dump({name: settings}, default_flow_style=None, sort_keys=False, allow_unicode=True)
    return "```yaml\nfigures:\n" + "".join(f"  {line}\n" for line in lines.splitlines()) + "```"
