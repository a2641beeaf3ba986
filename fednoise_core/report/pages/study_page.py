"""Pages of one file each: a study (what won, curves, tables, figures, runs, settings, provenance) or one setting.

No network. The study's page works without scripts, too: then pictures stand for the live curves and nothing can be
sorted or opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fednoise_core.io import ArtifactError
from fednoise_core.report.figures.kinds import figure_function
from fednoise_core.report.figures.settings import SETTING_FIGURES
from fednoise_core.report.figures.style import png, styled, words_of
from fednoise_core.report.pages.headline import Headline, headline, plain_averaging, points
from fednoise_core.report.pages.html import json_text, render, slug
from fednoise_core.report.pages.images import Shelf, few_colours, png_size, thumbnails
from fednoise_core.report.pages.page_data import page_data, series_style
from fednoise_core.report.pages.paper_sections import paper_parts
from fednoise_core.report.pages.run_table import run_columns, run_rows
from fednoise_core.report.runs import agreement
from fednoise_core.report.runs.csv_files import read_csv
from fednoise_core.report.runs.names import Names, describe
from fednoise_core.report.runs.noise_rate import noiseless
from fednoise_core.report.runs.provenance import file_uri, limits, provenance, tiles
from fednoise_core.report.runs.ranking import TIE
from fednoise_core.report.runs.run import ListedRun, RecordedRun, load
from fednoise_core.report.runs.settings import SettingArtifacts, artifacts_of
from fednoise_core.report.tables.layout import grid
from fednoise_core.report.text.cells import METRIC_WORDS

__all__ = ["setting_page", "study_page"]

STYLES, SCRIPTS = ("page.css", "study.css", "paper.css"), ("chart.js", "reading.js", "curves.js", "runs.js", "study.js")
HEAVY = 120_000  # bytes of an SVG above which the page shows the PNG: thousands of dots draw slowly
DPI = 144  # of a setting's pictures


def study_page(study: Mapping[str, Any], found: Sequence[ListedRun], root: str | Path, commit: str = "") -> str:
    """The page of a study. `study`: its resolved settings; `root`/tables/<id>.* and figures/<id>.* must exist; commit:
    of the software that makes the page.
    """
    root, runs = Path(root), load(found)
    if not runs:
        raise ArtifactError(f"{root}: the study has no runs")
    specs, shelf = study.get("tables", {}), Shelf()
    frames = {name: read_csv(f"{root / 'tables' / name}.csv") for name in specs}
    shown = [(spec, frames[name]) for name, spec in specs.items()]
    first = headline(shown, plain_averaging(runs), agreement.datasets(runs))
    paper = paper_parts(study, runs, root)
    drawn = {name: _figure(root, name, spec, shelf) for name, spec in study.get("figures", {}).items()}
    boards = [name for name, spec in study.get("figures", {}).items() if paper and spec["kind"] == "scoreboard"][:1]
    metric, names = first.metric if first else "last10_mean", Names.of_runs(runs)
    artifacts = artifacts_of([one for one in found if one.labels and one.partition_file and one.arrays])
    return render(
        "study.html",
        STYLES,
        SCRIPTS,
        series_style(),
        title=study.get("title") or study.get("id", root.name),
        study={"id": study.get("id", root.name), "scale": study.get("scale", "")},
        headline=first.sentence if first else "",
        won=_won(first, runs, names),
        paragraphs=[
            " ".join(part.split()) for part in re.split(r"\n\s*\n", study.get("text", "") or "") if part.strip()
        ],
        tiles=tiles(runs),
        tables=[_table(root, name, frames[name], spec) for name, spec in specs.items()],
        board=drawn[boards[0]] if boards else None,
        figures=[one for name, one in drawn.items() if name not in boards],
        settings=[{**_pictures(one, shelf), "name": names.title(one.setting)} for one in artifacts],
        run_heads=run_columns(runs, metric),
        run_rows=run_rows(runs, names, metric),
        data=json_text(page_data(study, runs, metric, commit or "unknown")),
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
        commit=commit or "unknown",
        left_out=study.get("left_out", {}),
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
    return render(
        "setting.html",
        ("page.css",),
        title=title or " · ".join(one.words),
        setting=_pictures(one, Shelf()),
        specs=specs,
        files=files,
    )


def _won(first: Headline | None, runs: Sequence[RecordedRun], names: Names) -> dict[str, Any] | None:
    """The table of winners, a row a setting; None where there is one setting, of which the sentence says it all."""
    if first is None or len(first.rows) < 2:
        return None
    clean = {run.listed.setting: noiseless(run.spec.get("noise", {})) for run in runs}
    places = {setting: at for at, setting in enumerate(clean)}
    if not all(clean.values()):  # the curves show those without noise only as a line in the others
        places = {setting: at for setting, at in places.items() if not clean[setting]}
    return {
        "metric": METRIC_WORDS[first.metric],
        "tie": TIE,
        "baseline": first.baseline,
        "rows": [
            {
                "title": names.title(won.setting),
                "place": places.get(won.setting),
                "methods": " = ".join(won.methods[:3])
                + (f" and {len(won.methods) - 3} more" if len(won.methods) > 3 else ""),
                "accuracy": won.accuracy,
                "lead": points(won.lead),
                "next": won.next,
                "over": points(won.over),
                "seeds": won.seeds,
            }
            for won in first.rows
        ],
    }


def _table(root: Path, name: str, frame: pd.DataFrame, spec: Mapping[str, Any]) -> dict[str, Any]:
    files = _files(root / "tables" / name, ("csv", "md", "tex"))
    return {"id": f"table-{slug(name)}", "grid": grid(frame, spec), "files": files}


def _figure(root: Path, name: str, spec: Mapping[str, Any], shelf: Shelf) -> dict[str, Any]:
    prefix, here = root / "figures" / name, f"figure-{slug(name)}"
    title, caption, alt = words_of(f"{prefix}.svg")
    image = _bytes(Path(f"{prefix}.png"))
    width, height = png_size(image)
    light = Path(f"{prefix}.svg").stat().st_size <= HEAVY
    uri = file_uri("svg", _bytes(Path(f"{prefix}.svg"))) if light else file_uri("png", few_colours(image))
    return {
        "id": here,
        "title": title,
        "caption": caption,
        "alt": alt,
        "same": shelf.place(image, here, title),
        "uri": uri,
        "width": width // 2,
        "height": height // 2,
        "live": spec.get("kind") == "curves",  # the page draws these itself where scripts run
        "files": _files(prefix, ("csv",)),
    }


def _pictures(one: SettingArtifacts, shelf: Shelf) -> dict[str, Any]:
    """Facts and pictures of a setting; flips are shown where there are any and something is known about them. A picture
    that the page has already is named by the id of its place.
    """
    told = one.labels.T_nominal is not None or one.labels.T_realised is not None
    figures: list[dict[str, Any]] = []
    end = slug("-".join((one.dataset, one.noise, one.partition)))
    for kind, where in SETTING_FIGURES.items():
        if kind == "transition" and (noiseless(one.labels.spec.get("noise", {})) or not told):
            continue
        with styled():
            drawn = figure_function(where)([one], {"kind": kind})
            image = png(drawn, dpi=DPI)
        width, height = png_size(image)
        figures.append(
            {
                "id": f"{kind}-{end}",
                "title": drawn.title,
                "caption": drawn.caption,
                "alt": drawn.alt,
                "same": shelf.place(image, f"setting-{end}", " · ".join(one.words)),
                "uri": file_uri("png", few_colours(image)),
                "width": width * 120 // DPI,
                "height": height * 120 // DPI,
                "live": False,
                "files": [],
            }
        )
    return {
        "id": f"setting-{end}",
        "title": " · ".join(one.words),
        "facts": one.facts(),
        "figures": figures,
        "thumbnails": thumbnails(one),
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


def _files(prefix: Path, endings: Sequence[str]) -> list[dict[str, str]]:
    paths = [Path(f"{prefix}.{ending}") for ending in endings]
    return [{"name": path.name, "uri": file_uri(path.suffix[1:], _bytes(path))} for path in paths]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
