"""Pages as single HTML files: a study (headline, curves, tables, figures, runs, settings, provenance) or one setting.

They need no network. The study's page also works without scripts. Pictures then replace the live curves, and nothing
can be sorted or opened.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fednoise_core.html.render import json_text, make_slug, render_page
from fednoise_core.io import ArtifactError
from workflow_scripts.report.figures.draw import draw_setting_figure, find_figure_kind
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.figures.style import figure_bytes, read_words, use_house_style
from workflow_scripts.report.pages.assets import ASSETS
from workflow_scripts.report.pages.headline import METRIC, Headline, headline_of
from workflow_scripts.report.pages.images import ImageCache, few_colours, make_thumbnails, png_size
from workflow_scripts.report.pages.page_data import page_data, series_style
from workflow_scripts.report.pages.paper_sections import paper_parts
from workflow_scripts.report.pages.run_details import rows_of, run_columns, run_rows
from workflow_scripts.report.runs.names import Names, describe_spec
from workflow_scripts.report.runs.noise_rate import is_noiseless
from workflow_scripts.report.runs.provenance import describe_provenance, file_uri, list_limits, summary_counts
from workflow_scripts.report.runs.run import SELECTORS, ListedRun, RecordedRun, load
from workflow_scripts.report.runs.settings import SettingArtifacts, artifacts_of
from workflow_scripts.report.tables.registry import complete_tables, lay_out_table, read_table
from workflow_scripts.report.text.cells import METRIC_WORDS

STYLES, SCRIPTS = ("page.css", "study.css", "paper.css"), ("chart.js", "reading.js", "curves.js", "runs.js", "study.js")
HEAVY = 120_000  # bytes of an SVG above which the page shows the PNG: thousands of dots draw slowly
DPI = 144  # of a setting's pictures
DEFINITIONS = {"datasets": "Data sets", "noises": "Noise", "partitions": "Partitions", "methods": "Methods"}


def study_page(study: Mapping[str, Any], listed: Sequence[ListedRun], root: str | Path, commit: str = "") -> str:
    """The page of a study as HTML.

    Args:
        study: Its resolved settings, as `Study.page_metadata` makes them.
        listed: Its runs.
        root: Folder with tables/<id>.* and figures/<id>.* of all its tables and figures.
        commit: Of the software that makes the page.

    Raises:
        ArtifactError: If there is no run, or a file is missing or damaged.
    """
    root, runs, study = Path(root), load(listed), complete_tables(study)
    if not runs:
        raise ArtifactError(f"{root}: the study has no runs")
    specs, shelf, names = study["tables"], ImageCache(), Names.of_runs(runs)
    frames = {name: read_table(root / f"tables/{name}.csv", spec) for name, spec in specs.items()}
    first = headline_of(runs)
    paper = paper_parts(study, runs, root)
    board, figures = _split_board(study, root, shelf, of_a_paper=paper is not None)
    tables = [_table_part(root, name, frames[name], spec) for name, spec in specs.items()]
    _tell_notes_once([*([board] if board else []), *tables, *figures])
    artifacts = artifacts_of([run for run in listed if run.labels and run.partition_file and run.arrays])
    return render_page(
        "study.html",
        STYLES,
        SCRIPTS,
        series_style(),
        folder=ASSETS,
        title=study.get("title") or study.get("id", root.name),
        study={"id": study.get("id", root.name), "scale": study.get("scale", "")},
        headline=first.sentence,
        won=_winners_table(first, runs, names),
        label_pages=study.get("label_pages", {}),
        paragraphs=split_paragraphs(study.get("text") or ""),
        tiles=summary_counts(runs),
        tables=tables,
        board=board,
        figures=figures,
        settings=[{**_setting_part(setting, shelf), "name": names.title(setting.setting)} for setting in artifacts],
        run_heads=run_columns(runs),
        run_rows=run_rows(runs, names),
        data=json_text(page_data(study, runs, commit or "unknown")),
        limits=list_limits(study, runs),
        parts=_list_definitions(study, runs),
        train=_list_training(study, runs),
        commit=commit or "unknown",
        left_out=study.get("left_out", {}),
        paper=paper,
        origin_uri=file_uri("csv", paper["origin_csv"].encode()) if paper else "",
        **describe_provenance(runs),
    )


def _split_board(
    study: Mapping[str, Any], root: Path, shelf: ImageCache, *, of_a_paper: bool
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Split figures into the one at the top of the page, such as the scoreboard of a paper, and the others."""
    specs = study.get("figures", {})
    drawn = {name: _figure_part(root, name, spec, shelf) for name, spec in specs.items()}
    kinds = {name: find_figure_kind(spec) for name, spec in specs.items()}
    board = drawn.pop(
        next((name for name in kinds if kinds[name].at_top and kinds[name].of_a_paper == of_a_paper), ""), None
    )
    return board, list(drawn.values())


def _tell_notes_once(parts: Sequence[dict[str, Any]]) -> None:
    """Keep each footnote only under the first table or figure that has it.

    A figure that the live curves replace comes last, since its footnotes are hidden with it.
    """
    seen: set[str] = set()
    for part in sorted(parts, key=lambda part: bool(part.get("live"))):
        part["notes"] = [note for note in part["notes"] if note not in seen]
        seen.update(part["notes"])


def split_paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each in one line."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _list_definitions(study: Mapping[str, Any], runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Titles of data sets, noises, partitions and methods, each with the ids that runs have and their settings."""
    used = {kind: {getattr(run.listed, SELECTORS[kind]) for run in runs} for kind in DEFINITIONS}
    return [
        {"title": title, "rows": [(key, _format_spec(spec)) for key, spec in study[kind].items() if key in used[kind]]}
        for kind, title in DEFINITIONS.items()
        if study.get(kind)
    ]


def _list_training(study: Mapping[str, Any], runs: Sequence[RecordedRun]) -> list[tuple[str, str]]:
    """List the training settings in words, then those of each block of the grid, and the tuned ones."""
    rows = rows_of(study.get("train", {}))
    for block in study.get("blocks", ()):
        place = " · ".join(", ".join(block[key]) for key in DEFINITIONS)
        rows.append((place, _format_spec(block["train"])))
    used = {(run.listed.dataset, run.listed.method) for run in runs}
    tuned = [row for row in study.get("tuned", ()) if tuple(row[:2]) in used]
    rows += dict.fromkeys((f"{dataset} · {method}", _format_spec(settings)) for dataset, method, settings in tuned)
    return rows


def setting_page(artifacts: SettingArtifacts) -> str:
    """The page of a single setting as HTML, from its artifacts alone.

    Args:
        artifacts: The setting.
    """
    specs = [
        (name, _format_spec(spec))
        for name, spec in (
            ("data set", artifacts.arrays.spec),
            ("noise", artifacts.labels.spec.get("noise", {})),
            ("partition", artifacts.split.spec.get("partition", {})),
        )
    ]
    return render_page(
        "setting.html",
        ("page.css",),
        folder=ASSETS,
        title=" · ".join(artifacts.words),
        setting=_setting_part(artifacts, ImageCache()),
        specs=specs,
        files=[(name, str(path)) for name, path in artifacts.files.items()],
    )


def _winners_table(first: Headline, runs: Sequence[RecordedRun], names: Names) -> dict[str, Any] | None:
    """Make the table of leading methods, one row per setting. None for one setting, which the sentence describes."""
    if len(first.rows) < 2:
        return None
    clean = {run.listed.setting: is_noiseless(run.spec.get("noise", {})) for run in runs}
    places = {setting: place for place, setting in enumerate(clean)}
    if not all(clean.values()):  # the curves show settings without noise only as lines in the others
        places = {setting: place for setting, place in places.items() if not clean[setting]}
    return {
        "metric": METRIC_WORDS[METRIC],
        "baseline": first.baseline,
        "rows": [
            {**vars(row), "title": names.title(row.setting), "place": places.get(row.setting)} for row in first.rows
        ],
    }


def _table_part(root: Path, name: str, frame: pd.DataFrame, spec: Mapping[str, Any]) -> dict[str, Any]:
    files = _embed_files(root / "tables" / name, ("csv", "md", "tex"))
    grid = lay_out_table(frame, spec)
    return {"id": f"table-{make_slug(name)}", "grid": grid, "notes": grid.notes, "files": files}


def _figure_part(root: Path, name: str, spec: Mapping[str, Any], shelf: ImageCache) -> dict[str, Any]:
    prefix, place = root / "figures" / name, f"figure-{make_slug(name)}"
    title, caption, alt, notes = read_words(f"{prefix}.svg")
    image = _read_bytes(Path(f"{prefix}.png"))
    width, height = png_size(image)
    light = Path(f"{prefix}.svg").stat().st_size <= HEAVY
    uri = file_uri("svg", _read_bytes(Path(f"{prefix}.svg"))) if light else file_uri("png", few_colours(image))
    return {
        "id": place,
        "title": title,
        "caption": caption,
        "alt": alt,
        "notes": notes,
        "same": shelf.place(image, place, title),
        "uri": uri,
        "width": width // 2,
        "height": height // 2,
        "live": find_figure_kind(spec).live,
        "files": _embed_files(prefix, ("svg", "pdf", "csv")),
    }


def _setting_part(artifacts: SettingArtifacts, shelf: ImageCache) -> dict[str, Any]:
    """Collect facts and pictures of a setting. A picture that the page already has is given by the id of its place."""
    figures: list[dict[str, Any]] = []
    end = make_slug("-".join(artifacts.setting))
    for kind in SETTING_FIGURES:
        if not find_figure_kind({"kind": kind}).applies(artifacts):
            continue
        with use_house_style():
            drawn = draw_setting_figure([artifacts], {"kind": kind})
            image = figure_bytes(drawn, "png", DPI)
        width, height = png_size(image)
        figures.append(
            {
                "id": f"{kind}-{end}",
                "title": drawn.title,
                "caption": drawn.caption,
                "alt": drawn.alt,
                "notes": [],
                "same": shelf.place(image, f"setting-{end}", " · ".join(artifacts.words)),
                "uri": file_uri("png", few_colours(image)),
                "width": width * 120 // DPI,
                "height": height * 120 // DPI,
                "live": False,
                "files": [],
            }
        )
    return {
        "id": f"setting-{end}",
        "title": " · ".join(artifacts.words),
        "facts": artifacts.facts(),
        "figures": figures,
        "thumbnails": make_thumbnails(artifacts),
    }


def _format_spec(spec: Mapping[str, Any]) -> str:
    """A spec in one line, its readable name first."""
    name = describe_spec(spec, "")
    details = ", ".join(f"{key}: {value}" for key, value in rows_of(spec) if key not in ("label", "text"))
    return f"{name} — {details}" if name and details and name != details else name or details


def _embed_files(prefix: Path, endings: Sequence[str]) -> list[dict[str, str]]:
    paths = [Path(f"{prefix}.{ending}") for ending in endings]
    return [{"name": path.name, "uri": file_uri(path.suffix[1:], _read_bytes(path))} for path in paths]


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file") from error
