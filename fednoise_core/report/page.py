"""Pages of one file each: a study (tables, figures, settings, provenance) or one setting. No script, no network."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fednoise_core import __version__
from fednoise_core.io import ArtifactError
from fednoise_core.report.artifacts import SettingArtifacts, artifacts_of
from fednoise_core.report.csv_files import read_csv
from fednoise_core.report.layout import grid
from fednoise_core.report.names import describe
from fednoise_core.report.paper_page import paper_parts
from fednoise_core.report.provenance import file_uri, limits, mixed_versions, provenance, tiles
from fednoise_core.report.rates import noiseless
from fednoise_core.report.runs import ListedRun, RecordedRun, load
from fednoise_core.report.setting_figures import SETTING_FIGURES
from fednoise_core.report.style import png, styled, words_of
from fednoise_core.report.tables import runs_of

__all__ = ["TEMPLATES", "setting_page", "study_page"]

TEMPLATES = tuple(
    Path(__file__).with_name(name)
    for name in ("page.html", "page.css", "paper.css", "study.html", "paper.html", "setting.html")
)
"""Files a page is made from, besides code: inputs of the workflow's report rule."""

HEAVY = 250_000  # bytes of an SVG above which the page shows the PNG: thousands of dots draw slowly


def study_page(study: Mapping[str, Any], found: Sequence[ListedRun], root: str | Path) -> str:
    """The page of a study. `study`: its resolved settings; `root`/tables/<id>.* and figures/<id>.* must exist."""
    root, runs = Path(root), load(found)
    if not runs:
        raise ArtifactError(f"{root}: the study has no runs")
    made = [_table(root, name, spec, runs) for name, spec in study.get("tables", {}).items()]
    drawn = [_figure(root, name) for name in study.get("figures", {})]
    paper = paper_parts(study, runs, root)
    return _render(
        "study.html",
        title=study.get("title") or study.get("id", root.name),
        study={"id": study.get("id", root.name), "scale": study.get("scale", "")},
        paragraphs=[
            " ".join(part.split()) for part in re.split(r"\n\s*\n", study.get("text", "") or "") if part.strip()
        ],
        tiles=tiles(runs),
        tables=made,
        figures=drawn,
        left_out=study.get("left_out", {}),
        settings=[
            _pictures(one) for one in artifacts_of([e for e in found if e.labels and e.partition_file and e.arrays])
        ],
        limits=limits(study, runs),
        parts=[
            {
                "title": title,
                "rows": [(key, _words(spec)) for key, spec in study.get(kind, {}).items() if spec is not None],
            }
            for kind, title in (
                ("datasets", "Data sets"),
                ("noises", "Noise"),
                ("partitions", "Partitions"),
                ("methods", "Methods"),
            )
            if study.get(kind)
        ],
        train=[
            *((str(key), _word(value)) for key, value in study.get("train", {}).items()),
            *((_grid_block(block), _words(block["train"])) for block in study.get("blocks", ())),
        ],
        root=root.as_posix(),
        paper=paper,
        origin_uri=file_uri("csv", paper.origin_csv.encode()) if paper else "",
        **provenance(runs),
    )


def setting_page(one: SettingArtifacts, title: str | None = None) -> str:
    """The page of a single setting, from its artifacts alone."""
    specs = [
        (name, _words(spec))
        for name, spec in (
            ("data set", one.arrays.spec),
            ("noise", one.labels.spec.get("noise", {})),
            ("partition", one.split.spec.get("partition", {})),
        )
    ]
    files = [
        (name, str(path))
        for name, path in (("arrays", one.arrays_file), ("labels", one.labels_file), ("partition", one.partition_file))
        if path
    ]
    return _render(
        "setting.html", title=title or " · ".join(one.words), setting=_pictures(one), specs=specs, files=files
    )


def _render(template: str, **values: Any) -> str:
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["slug"] = _slug
    return environment.get_template(template).render(version=__version__, **values)


def _table(root: Path, name: str, spec: Mapping[str, Any], runs: Sequence[RecordedRun]) -> dict[str, Any]:
    prefix = root / "tables" / name
    shown = grid(read_csv(f"{prefix}.csv"), spec)
    chosen = set(runs_of([run.listed for run in runs], spec))
    # Said here and not in the table's own files: cost.json is an input of the page alone, so that a rerun with equal
    # numbers, which takes another time, leaves all tables as they are.
    shown.notes.extend(mixed_versions([run for run in runs if run.listed in chosen]))
    return {"id": f"table-{_slug(name)}", "grid": shown, "files": _files(prefix, ("csv", "md", "tex"))}


def _figure(root: Path, name: str) -> dict[str, Any]:
    prefix = root / "figures" / name
    title, caption, alt = words_of(f"{prefix}.svg")
    image = _bytes(Path(f"{prefix}.png"))
    width, height = _size(image)
    light = Path(f"{prefix}.svg").stat().st_size <= HEAVY
    uri = file_uri("svg", _bytes(Path(f"{prefix}.svg"))) if light else file_uri("png", image)
    return {
        "id": f"figure-{_slug(name)}",
        "title": title,
        "caption": caption,
        "alt": alt,
        "uri": uri,
        "width": width // 2,
        "height": height // 2,
        "files": _files(prefix, ("csv",)),
    }


def _pictures(one: SettingArtifacts) -> dict[str, Any]:
    """Facts and pictures of a setting; flips are shown where there are any and something is known about them."""
    figures = []
    told = one.labels.T_nominal is not None or one.labels.T_realised is not None
    for kind, function in SETTING_FIGURES.items():
        if kind == "transition" and (noiseless(one.labels.spec.get("noise", {})) or not told):
            continue
        with styled():
            drawn = function([one], {"kind": kind})
            image = png(drawn, dpi=144)
        width, height = _size(image)
        figures.append(
            {
                "id": f"{kind}-{_slug('-'.join((one.dataset, one.noise, one.partition)))}",
                "title": drawn.title,
                "caption": drawn.caption,
                "alt": drawn.alt,
                "uri": file_uri("png", image),
                "width": width * 100 // 144,
                "height": height * 100 // 144,
                "files": [],
            }
        )
    return {
        "id": f"setting-{_slug('-'.join((one.dataset, one.noise, one.partition)))}",
        "title": " · ".join(one.words),
        "facts": one.facts(),
        "figures": figures,
    }


def _grid_block(block: Mapping[str, Any]) -> str:
    """A block of the grid by what it contains."""
    return " · ".join(", ".join(block[key]) for key in ("datasets", "noises", "partitions", "methods"))


def _words(spec: Mapping[str, Any]) -> str:
    """A spec in one line, its readable name first."""
    shown = describe(spec, "")
    rest = ", ".join(f"{key}: {_word(value)}" for key, value in spec.items() if key not in ("label", "text"))
    return f"{shown} — {rest}" if shown and rest and shown != rest else shown or rest


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)


def _files(prefix: Path, endings: Sequence[str]) -> list[dict[str, str]]:
    paths = [Path(f"{prefix}.{ending}") for ending in endings]
    return [{"name": path.name, "uri": file_uri(path.suffix[1:], _bytes(path))} for path in paths]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error


def _size(image: bytes) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    if image[:8] != b"\x89PNG\r\n\x1a\n":
        raise ArtifactError("not a PNG picture")
    width, height = struct.unpack(">II", image[16:24])
    return width, height
