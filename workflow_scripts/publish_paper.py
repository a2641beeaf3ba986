"""A paper's results as Markdown, tables and pictures for docs/results, from the runs that there are.

A paper at its own size takes months on one GPU, so what was run so far is published, and every other cell says
"not run".
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError, atomic, write_json
from fednoise_core.report import figures, layout, page, paper_markdown, render, tables
from fednoise_core.report.csv_files import csv_text, read_csv, write_csv
from fednoise_core.report.frames import results
from fednoise_core.report.paper_page import PaperParts, paper_parts
from fednoise_core.report.runs import ListedRun, RecordedRun, listed_runs, load
from fednoise_core.report.style import words_of
from fednoise_core.report.texts import markdown_text
from workflow_scripts import paths, summary
from workflow_scripts.config_file import read_yaml
from workflow_scripts.make_page import commit
from workflow_scripts.project import Project
from workflow_scripts.study import Study

__all__ = ["WORDS", "paper_of", "publish_paper", "runs_at_hand"]

LIMIT = 1 << 20  # bytes; nothing larger belongs in git
WORDS = re.compile(r"<!-- written by hand -->\n.*?<!-- end of what is written by hand -->\n", re.S)
NO_WORDS = "<!-- written by hand -->\n<!-- end of what is written by hand -->\n"


def paper_of(root: str, folder: str | Path = ".") -> Study | None:
    """The paper whose results folder is named `root`, at whatever scale; None: it is no paper's."""
    config = read_yaml(Path(folder, "config/config.yaml"))
    for scale in ["paper", *Project(config, folder).scales]:
        project = Project({**config, "scale": scale}, folder)
        name = project.roots.get(root)
        if name in project.papers:
            return Study(project, str(name))
    return None


def runs_at_hand(study: Study) -> list[ListedRun]:
    """The runs of a study that were made. Those of other settings have other folders."""
    planned = [run for run in study.runs if run.files.run.finished]
    found = []
    for listed in listed_runs([run.row for run in planned]):
        files = (listed.labels, listed.partition_file, listed.arrays, listed.donor)
        labels, split, arrays, donor = map(_if_there, files)
        found.append(replace(listed, labels=labels, partition_file=split, arrays=arrays, donor=donor))
    return found


def _if_there(path: Path | None) -> Path | None:
    return path if path and path.is_file() else None


def publish_paper(study: Study, out: Path, html: Path | None = None) -> list[Path]:
    """Write the page README.md with its tables, pictures, claims.csv and origins.csv; `html`: as one HTML file, too.

    What stands in README.md between the lines `written by hand` stays. Returns what was written. Raises ArtifactError
    if no run was made.
    """
    found = runs_at_hand(study)
    if not found:
        raise ArtifactError(f"{study.root}: no run of the study was made")
    runs, told = load(found), study.described()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shown = _tables(root, told["tables"], found)
        drawn = _figures(root, study.figures, found)
        told["figures"] = {name: spec for name, spec in told["figures"].items() if name in drawn}
        paper = paper_parts(told, runs, root)
        assert paper is not None  # `paper_of` found it
        for name in (*(f"tables/{one}.{end}" for one in shown for end in ("csv", "md")),):
            shutil.copyfile(root / name, out / Path(name).name)
        light = [name for name in drawn if (root / f"figures/{name}.png").stat().st_size <= LIMIT]
        for name in light:
            shutil.copyfile(root / f"figures/{name}.png", out / f"{name}.png")
        words = {name: words_of(root / f"figures/{name}.svg") for name in light}
        if html is not None:
            with atomic(html) as file:
                file.write(page.study_page(told, found, root, commit()))
    _remove_stale(
        study, out, {*(f"{one}.{end}" for one in shown for end in ("csv", "md")), *(f"{one}.png" for one in light)}
    )
    for name, content in (("origins.csv", paper.origin_csv), ("claims.csv", csv_text(paper.squares))):
        with atomic(out / name) as file:
            file.write(content)
    write_json(out / "metrics.json", summary.metrics(results(runs)))
    text = _page(study, told, paper, runs, shown, words, out)
    with atomic(out / "README.md") as file:
        file.write(text)
    made = [f"{name}.{end}" for name in shown for end in ("csv", "md")] + [f"{name}.png" for name in light]
    return [out / name for name in (*made, "origins.csv", "claims.csv", "metrics.json", "README.md")]


def _remove_stale(study: Study, out: Path, made: Collection[str]) -> None:
    """Remove what an earlier publication wrote of a table or figure that now has no run: the README would count it."""
    told = study.described()
    for kind, ends in (("tables", ("csv", "md")), ("figures", ("png",))):
        for name in (f"{one}.{end}" for one in told[kind] for end in ends):
            if name not in made:
                (out / name).unlink(missing_ok=True)


def _tables(root: Path, specs: Mapping[str, Mapping[str, Any]], found: Sequence[ListedRun]) -> list[str]:
    """Make every table below `root`; returns those that have something to show."""
    shown = []
    for name, spec in specs.items():
        prefix = root / "tables" / name
        write_csv(f"{prefix}.csv", tables.build(found, spec))
        made = layout.grid(read_csv(f"{prefix}.csv"), spec)
        for ending, text in (("md", render.markdown(made)), ("tex", "")):
            with atomic(f"{prefix}.{ending}") as file:
                file.write(text)
        if spec["kind"] == "setup" or tables.runs_of(found, spec):
            shown.append(name)
    return shown


def _figures(root: Path, specs: Mapping[str, Mapping[str, Any]], found: Sequence[ListedRun]) -> list[str]:
    """Draw every figure that the runs suffice for; returns their names."""
    drawn = []
    for name, spec in specs.items():
        chosen = tables.runs_of(found, {**spec, "kind": "reproduction"})
        if spec["kind"] in paths.ARTIFACTS:
            chosen = [one for one in chosen if one.labels and one.partition_file and one.arrays]
        if not chosen:
            continue
        try:
            figures.make(found, spec, root / "figures" / name)
        except SpecError as error:  # such as differences to a method that was not run yet
            print(f"figure {name}: left out: {error}", file=sys.stderr)
            continue
        drawn.append(name)
    return drawn


def _page(
    study: Study,
    told: Mapping[str, Any],
    paper: PaperParts,
    runs: Sequence[RecordedRun],
    shown: Sequence[str],
    words: Mapping[str, tuple[str, str, str]],
    out: Path,
) -> str:
    """The page as Markdown. words: of each figure its title, caption and alternative text."""
    old = out / "README.md"
    kept = WORDS.search(old.read_text(encoding="utf-8")) if old.is_file() else None
    scale = "" if study.project.scale == "paper" else f" --config scale={study.project.scale}"
    board = next((name for name in words if told["figures"][name]["kind"] == "scoreboard"), "")
    shown_board = [_picture(board, words[board])] if board else []
    parts = [
        f"# {told['title']}",
        paper_markdown.first_screen(
            paper,
            "\n\n".join(shown_board),
            f"Run so far: {paper.made} of {len(study.runs):,} runs; `snakemake --cores 2 {study.name}{scale}` makes "
            f"all. Published at commit `{commit() or 'unknown'}`.",
        ),
        kept[0] if kept else NO_WORDS,
        paper_markdown.before_tables(paper),
        "## What the paper leaves open",
        *(" ".join(part.split()) for part in re.split(r"\n\s*\n", told["text"]) if part.strip()),
        _made_on(runs),
        "## Tables",
        *((out / f"{name}.md").read_text(encoding="utf-8").strip() for name in shown),
    ]
    left = [spec.get("title") or name for name, spec in told["tables"].items() if name not in shown]
    if left:
        parts.append(f"Nothing of these was run: {'; '.join(left)}.")
    others = [name for name in words if name != board]
    if others:
        parts.append("## Figures")
    for name in others:
        parts += [f"### {markdown_text(words[name][0])}", _picture(name, words[name])]
    return "\n\n".join(part.strip() for part in (*parts, paper_markdown.after_figures(paper, "origins.csv"))) + "\n"


def _picture(name: str, words: tuple[str, str, str]) -> str:
    """A figure with its words: title, caption and alternative text."""
    _, caption, alt = map(markdown_text, words)
    return f"![{alt}]({name}.png)\n\n*{caption}*"


def _made_on(runs: Sequence[RecordedRun]) -> str:
    seconds = sorted(float(run.cost["seconds"]) for run in runs)
    devices = sorted({str(run.cost.get("device", "unknown")) for run in runs})
    versions = sorted({f"{name} {one}" for run in runs for name, one in run.cost.get("versions", {}).items()})
    return (
        f"Made on {', '.join(devices)}; {', '.join(versions)}. A run took {seconds[0]:.1f} to {seconds[-1]:.1f} s "
        f"(median {seconds[len(seconds) // 2]:.1f} s without start-up), {sum(seconds) / 60:.0f} min in all."
    )
