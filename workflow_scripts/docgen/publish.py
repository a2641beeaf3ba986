"""Write a study's results as Markdown, tables and pictures for docs/results, from the runs that are finished.

fednoise publish --root results/fedmixcon-cpu [--out docs/results/fedmixcon-cpu] [--html FILE]

A paper at its own size takes long on one GPU. So the runs that are finished are published, and all other cells say
"not run". Runs of an earlier publication also count, if their settings are still the planned ones. They are read from
runs.json.xz, which has the data that most tables and figures need. So several machines can add runs to a page. Runs
with settings that are no longer planned stay in that file, as a branch may plan them, and no page shows them. To drop
them, delete the file before you publish from a store that has all other runs. Do so, too, if you change the default of
a setting: settings leave out defaults, so runs with the old one would count.

A scale with `page: cpu` has its rows on the page of scale cpu, and its runs in runs.json.xz of that page.

The text between the lines `<!-- written by hand -->` and `<!-- end of what is written by hand -->` of README.md is
kept. Publishing a paper below docs/results also writes docs/results/papers.md, which has a line for each paper.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fednoise_core.io import ArtifactError, SpecError, json_digest, open_atomic, raise_all, read_texts, write_json
from workflow_scripts.config.project import Project
from workflow_scripts.docgen.published_runs import RUNS, pack_runs, read_packed, unpack_runs
from workflow_scripts.paths import OWN
from workflow_scripts.provenance.checksums import SUMS, find_damage
from workflow_scripts.provenance.dvc_record import find_forgeries, read_record
from workflow_scripts.report.figures import draw
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.figures.style import read_words
from workflow_scripts.report.pages import study_page
from workflow_scripts.report.pages.assets import ASSETS
from workflow_scripts.report.pages.headline import summary_lines
from workflow_scripts.report.pages.paper_sections import paper_parts
from workflow_scripts.report.runs.csv_files import csv_text
from workflow_scripts.report.runs.frames import tabulate_results
from workflow_scripts.report.runs.leaderboard import compare_speed
from workflow_scripts.report.runs.names import describe_spec
from workflow_scripts.report.runs.provenance import list_limits
from workflow_scripts.report.runs.run import ListedRun, RecordedRun, list_timed, listed_runs, load, select
from workflow_scripts.report.tables import registry
from workflow_scripts.report.tables.claims import NOT_RUN, STATES
from workflow_scripts.report.text.escape import markdown_text
from workflow_scripts.steps import metrics
from workflow_scripts.steps.study_page import software_commit
from workflow_scripts.study.study import Study

RESULTS = Path("docs/results")
LIMIT = 1 << 20  # bytes; nothing larger belongs in git
HAND_WRITTEN = re.compile(r"<!-- written by hand -->\n.*?<!-- end of what is written by hand -->\n", re.S)
NOTHING_HAND_WRITTEN = "<!-- written by hand -->\n<!-- end of what is written by hand -->\n"
PAPERS = """# The papers: claims that were run

A claim of a paper agrees or disagrees if the intervals of its differences say so, and is undecided if they do not. It
is void if the paper's own numbers contradict it or a compared method fell to chance, or if its scale cannot tell. One
without a verdict was not run, or has no measure. Each page says how intervals are made and what its scale cuts. Made
by `fednoise publish`.

| paper | scale | claims | agree | disagree | undecided | void | no verdict |
| --- | --- | --: | --: | --: | --: | --: | --: |
"""


def find_study(root: str, folder: str | Path = ".") -> Study:
    """Find a study by its results folder.

    Args:
        root: The name of the folder, which may be that of any scale.
        folder: The project's folder.

    Raises:
        SpecError: No study has this results folder.
    """
    for scale in ["paper", *Project.load(folder).scale_names]:
        project = Project.load(folder, scale=scale)
        if root in project.studies_by_folder:
            return Study(project, project.studies_by_folder[root])
    raise SpecError(f"results/{root}: no study has this results folder")


def finished_runs(
    study: Study, published: Mapping[str, Path] = MappingProxyType({}), published_first: Collection[str] = ()
) -> list[ListedRun]:
    """List the finished runs of a study. Runs with other settings have other folders.

    For a method that is entered in a leaderboard, only runs that were made here are listed.

    Args:
        study: The study.
        published: The folders of runs that were published earlier, by the digest of their settings.
        published_first: Methods whose published runs are preferred to the same runs finished here.
    """
    finished, rows = [], []
    for run in study.runs:
        folder = None if run.method.startswith(OWN) else published.get(json_digest(run.spec))
        is_finished = run.plan.is_finished
        if is_finished and not (folder and run.method in published_first):
            rows.append(run.row)
        elif folder:
            rows.append(run.row | {"dir": folder, "local": Path(run.folder) if is_finished else None})
    for listed in listed_runs(rows):
        files = (listed.labels, listed.partition_file, listed.arrays, listed.donor)
        labels, split, arrays, donor = (path if path and path.is_file() else None for path in files)
        finished.append(replace(listed, labels=labels, partition_file=split, arrays=arrays, donor=donor))
    return finished


def refuse_damage(folders: Sequence[Path]) -> None:
    """Refuse runs of the store whose files differ from their SHA-256 list or from DVC's record.

    Raises:
        ArtifactError: There are such runs.
    """
    finished = [folder for folder in folders if (folder / SUMS).exists()]  # unpacked published runs have no list
    problems = {folder: [f"{folder}/{name}: {problem}" for name, problem in find_damage(folder)] for folder in finished}
    problems |= find_forgeries([folder for folder in finished if not problems[folder]], read_record())
    lines = [line for folder in finished for line in problems[folder]]
    raise_all(ArtifactError, [*lines, "`fednoise audit` says how to mend this"] if lines else [])


def publish_study(
    study: Study, out: Path, html: Path | None = None, published: Path | None = None, note: str = ""
) -> list[Path]:
    """Write the page README.md of a study with its tables, pictures and numbers.

    Args:
        study: The study.
        out: The folder to write to.
        html: A file to which the page is also written, as HTML.
        published: A file of published runs, which are shown instead of the same runs of this machine. By default the
            file in `out` is read, and only its runs of a leaderboard's baseline are preferred. All runs are then
            written to that file, so that a page never loses a run.
        note: A paragraph that is added to the study's text.

    Returns:
        The files that were written.

    Raises:
        ArtifactError: No run is finished, a run is damaged or differs from DVC's record, the file of earlier runs is
            damaged, or a published table or figure cannot be made again here.
    """
    commit = software_commit()  # before this function changes files of the repository
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        earlier = read_packed(published or out / RUNS, may_be_missing=True)
        folders = unpack_runs(earlier, root / "earlier")
        boards = [registry.complete_spec(spec) for spec in study.tables.values() if spec["kind"] == "leaderboard"]
        # the published runs of a leaderboard's baseline are the reference of all gains
        first = {run.method for run in study.runs} if published else {spec["baseline"] for spec in boards}
        listed = finished_runs(study, folders, first)
        if not listed:
            raise ArtifactError(f"{study.root}: no run of the study is finished")
        sizes = _list_other_sizes(study, folders)
        packed = [*listed, *(run for _, sized_runs in sizes for run in sized_runs)]
        refuse_damage([run.dir for run in packed])
        runs, metadata = load(listed), registry.complete_tables(study.page_metadata())
        metadata["text"] += f"\n\n{note}" if note else ""
        out.mkdir(parents=True, exist_ok=True)
        table_names, drawn = _write_tables(root, metadata["tables"], listed), _draw_figures(root, study.figures, listed)
        _refuse_loss(out, metadata, [*table_names, *drawn])
        for name in (*metadata["tables"], *metadata["figures"]):
            for ending in ("csv", "md", "png"):
                (out / f"{name}.{ending}").unlink(missing_ok=True)
        metadata["figures"] = {name: spec for name, spec in metadata["figures"].items() if name in drawn}
        tables = {name: spec for name, spec in metadata["tables"].items() if (root / f"tables/{name}.csv").exists()}
        loaded = [(registry.complete_tables(sized.page_metadata()), load(sized_runs)) for sized, sized_runs in sizes]
        paper = paper_parts(metadata, runs, root, loaded)
        light = [name for name in drawn if (root / f"figures/{name}.png").stat().st_size <= LIMIT]
        texts_by_figure = {name: read_words(root / f"figures/{name}.svg") for name in light}
        endings = ("csv", "md", *(["tex"] if boards else []))
        files = [root / f"tables/{name}.{ending}" for name in table_names for ending in endings]
        copies = [shutil.copy(file, out) for file in (*files, *(root / f"figures/{name}.png" for name in light))]
        if not published:
            copies += pack_runs(
                packed, earlier, out / RUNS, LIMIT, scores_only=bool(boards), ratios=compare_speed(runs)
            )
        if html is not None:
            with open_atomic(html) as opened:
                opened.write(study_page.study_page(metadata | {"tables": tables}, listed, root, commit))
        write_json(out / "metrics.json", metrics.study_metrics(tabulate_results(runs)))
        # the page of an entry in a leaderboard does not need the board's other runs
        progress = "" if published else _progress_sentence(study, paper, runs, commit)
        texts = {"README.md": _page_markdown(metadata, paper, runs, table_names, texts_by_figure, out, progress)}
        if paper:
            texts |= {"origins.csv": paper["origin_csv"], "claims.csv": csv_text(paper["comparisons"])}
    for name, text in texts.items():
        with open_atomic(out / name) as opened:
            opened.write(text)
    return [*map(Path, copies), out / "metrics.json", *(out / name for name in texts)]


def _list_other_sizes(study: Study, published: Mapping[str, Path]) -> list[tuple[Study, list[ListedRun]]]:
    """List the study at the other scales that its page shows (`page`), each with its finished runs."""
    scales = [scale for scale, file in study.files.items() if file.data.get("page") == study.project.scale]
    studies = [Study(Project.load(study.project.folder, scale=scale), study.name) for scale in scales]
    return [(sized, listed) for sized in studies if (listed := finished_runs(sized, published))]


def _refuse_loss(out: Path, metadata: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ArtifactError if a published table or figure would be lost, because it was not made here.

    A paper's runs are published with its page. A table may be removed if no published run has the planned settings any
    more. Pictures of clients need data, which are never published. So do the runs of other studies.
    """
    endings = {"tables": "md", "figures": "png"}
    published = [
        (name, spec["kind"])
        for key, ending in endings.items()
        for name, spec in metadata[key].items()
        if (out / f"{name}.{ending}").exists()
    ]
    lost = [
        (name, kind)
        for name, kind in published
        if name not in names and (kind in SETTING_FIGURES or not metadata.get("paper"))
    ]
    if lost:
        ending = "_settings" if all(kind in SETTING_FIGURES for _, kind in lost) else ""
        scale = "" if metadata["scale"] == "paper" else f" --config scale={metadata['scale']}"
        raise ArtifactError(
            f"{out}: {', '.join(name for name, _ in lost)}: published before, and cannot be made here, as runs or data "
            f"are missing. `snakemake --cores 2 {metadata['id']}{ending}{scale}` makes them. "
            "To leave something out, remove its files first"
        )


def _write_tables(root: Path, specs: Mapping[str, Mapping[str, Any]], listed: Sequence[ListedRun]) -> list[str]:
    """Write every table below `root`. Returns the names of the tables that have something to show."""
    written = []
    for name, spec in specs.items():
        kind = registry.find_kind(spec)
        chosen = kind.without_runs or select(listed, spec, none=True)
        if not (chosen or kind.of_a_paper):
            continue
        registry.write_table(listed, spec, root / "tables" / name, name)
        if chosen:
            written.append(name)
    return written


def _draw_figures(root: Path, specs: Mapping[str, Mapping[str, Any]], listed: Sequence[ListedRun]) -> list[str]:
    """Draw every figure for which there are enough runs. Returns their names."""
    drawn = []
    for name, spec in specs.items():
        chosen = select(listed, spec, none=True)
        if spec["kind"] in SETTING_FIGURES:
            chosen = [run for run in chosen if run.labels and run.partition_file and run.arrays]
        if not chosen:
            continue
        try:
            draw.write_figure(listed, spec, root / "figures" / name)
        except SpecError as error:  # such as a metric that no run reports yet
            print(f"figure {name}: left out: {error}", file=sys.stderr)
            continue
        drawn.append(name)
    return drawn


def _page_markdown(
    metadata: Mapping[str, Any],
    paper: Mapping[str, Any] | None,
    runs: Sequence[RecordedRun],
    tables: Sequence[str],
    texts_by_figure: Mapping[str, Sequence[Any]],
    out: Path,
    progress: str,
) -> str:
    """Write the page as Markdown. texts_by_figure: id of a figure → title, caption and alternative text."""
    kinds = {name: draw.find_figure_kind(metadata["figures"][name]) for name in texts_by_figure}
    board = next((name for name in kinds if kinds[name].at_top and kinds[name].of_a_paper == bool(paper)), "")
    picture = _picture_markdown(board, texts_by_figure[board]) if board else ""
    text = study_page.split_paragraphs(metadata["text"])
    hand_written = _hand_written(out / "README.md")
    if paper:
        parts = [render_section("first", paper, picture), render_section("top", paper)]
    else:
        notes = "\n".join(f"- {line}" for line in list_limits(metadata, runs))
        first, *settings = summary_lines(runs) or [""]
        by_setting = "\n".join(f"- {line}" for line in settings)
        parts = [first, picture, progress, hand_written, *text, by_setting, "## Notes and limits", notes]
    hardware = _hardware_sentence(runs)
    parts += [*([] if paper else [hardware]), *_tables_markdown(metadata["tables"], tables, out)]
    parts += [render_section("ranks", paper)] if paper else []
    others = [name for name in texts_by_figure if name != board]
    parts += ["## Figures"] if others else []
    for name in others:
        parts += [f"### {markdown_text(texts_by_figure[name][0])}", _picture_markdown(name, texts_by_figure[name])]
    if paper:
        left_open = ["## What the paper leaves open", *text, hand_written, "## Compute", progress, hardware]
        parts += [*left_open, render_section("end", paper, "origins.csv")]
    return "\n\n".join(part.strip() for part in (f"# {metadata['title']}", *parts) if part.strip()) + "\n"


def render_section(name: str, paper: Mapping[str, Any], *values: Any) -> str:
    """Render a part of the page by a macro of `assets/paper.md`.

    Args:
        name: "first" (the paper, the scale, the scoreboard, and a summary of our numbers), "top" (the claims), "ranks"
            (the reproduction at a glance) or "end" (changes of the scale, settings with their sources, commands for
            single cells, and the origin of each number).
        paper: The sections.
        values: For "first" the figure as Markdown. For "end" the CSV with a row for each run.
    """
    environment = Environment(
        loader=FileSystemLoader(ASSETS), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["md"] = markdown_text
    return str(getattr(environment.get_template("paper.md").module, name)(paper, *values))


def _progress_sentence(study: Study, paper: Mapping[str, Any] | None, runs: Sequence[RecordedRun], commit: str) -> str:
    scale = "" if study.project.scale == "paper" else f" --config scale={study.project.scale}"
    planned = {run.folder for run in study.runs}  # two methods with equal settings are one run
    trained = len({run.listed.dir for run in runs})
    count = paper["made"] if paper else trained
    others = len({run.listed.folder for run in runs} - planned)
    share = "All" if others == trained else f"{others} of the"
    origins = ": origins.csv has the hash of the code, versions and devices" if paper else ""
    by_others = (
        f" {share} runs {'was' if others == 1 < trained else 'were'} made with another version of the code or its "
        f"packages, or on another kind of device{origins}."
    )
    return (
        f"Run so far: {count} of {len(planned):,} runs; `snakemake --cores 2 {study.name}{scale}` makes all. "
        f"Published at commit `{commit or 'unknown'}`.{by_others if others else ''}"
        f"{'' if paper else _missing_sentence(study, runs)}"
    )


def _missing_sentence(study: Study, runs: Sequence[RecordedRun]) -> str:
    """Name the data sets with missing runs, and count these runs."""
    finished = {(run.listed.setting, run.listed.method, run.listed.seed) for run in runs}
    missing, planned = Counter[str](), Counter[str]()
    for run in {run.folder: run for run in study.runs}.values():  # two methods with equal settings are one run
        planned[run.dataset] += 1
        missing[run.dataset] += ((run.dataset, run.noise, run.partition), run.method, run.seed) not in finished
    names = {run.dataset: describe_spec(run.spec["dataset"], run.dataset) for run in study.runs}
    parts = [f"{count} of {planned[id_]} on {names[id_]}" for id_, count in missing.items() if count]
    return f" Not run yet: {'; '.join(parts)}." if parts else ""


def _hand_written(page: Path) -> str:
    """Read the part of the page that a person has written."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if match := HAND_WRITTEN.search(text):
        return match[0]
    if "written by hand" in text:
        begin, end = NOTHING_HAND_WRITTEN.split("\n")[:2]
        raise SpecError(f"{page}: what is written by hand must stand between the lines {begin} and {end}")
    return NOTHING_HAND_WRITTEN


def _tables_markdown(specs: Mapping[str, Mapping[str, Any]], written: Sequence[str], out: Path) -> list[str]:
    parts = ["## Tables", *((out / f"{name}.md").read_text(encoding="utf-8") for name in written)]
    left = [spec.get("title") or name for name, spec in specs.items() if name not in written]
    return [*parts, f"Nothing of these was run: {'; '.join(left)}."] if left else parts


def _picture_markdown(name: str, texts: Sequence[Any]) -> str:
    """A figure with title, caption and alternative text. Marks are explained under the tables and in the limits."""
    caption, alt = map(markdown_text, texts[1:3])
    return f"![{alt}]({name}.png)\n\n*{caption}*"


def _hardware_sentence(runs: Sequence[RecordedRun]) -> str:
    timed = list_timed(list({run.listed.dir: run for run in runs}.values()))
    seconds = sorted(float(run.cost["seconds"]) for run in timed)
    devices, of_times = (sorted({str(run.cost.get("device", "unknown")) for run in group}) for group in (runs, timed))
    timed_on = f" on {', '.join(of_times)}" if len(of_times) < len(devices) else ""
    versions = sorted({f"{name} {version}" for run in runs for name, version in run.cost.get("versions", {}).items()})
    precisions = sorted({run.spec.get("train", {}).get("precision", "fp32") for run in runs})
    return (
        f"Made on {', '.join(devices)} in {' and '.join(precisions)}; {', '.join(versions)}. "
        f"A run{timed_on} took {seconds[0]:.1f} to {seconds[-1]:.1f} s (median {seconds[len(seconds) // 2]:.1f} s "
        f"without start-up), {sum(seconds) / 60:.0f} min in all."
    )


def write_papers(folder: Path) -> Path:
    """Write papers.md from the claims.csv beside each published page.

    Args:
        folder: The folder of published results.

    Returns:
        The file.
    """
    lines = []
    for file in sorted(folder.rglob("claims.csv")):
        rows = read_texts(file)
        states = list(rows[rows["reading"] == ""].drop_duplicates("number")["state"])
        readme = file.with_name("README.md")
        title = readme.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        link = f"[{title}]({readme.relative_to(folder).as_posix()})"
        counts = [str(len(states)), *(str(states.count(name)) for name in (*STATES, NOT_RUN))]
        lines.append(f"| {link} | `{rows['scale'].iloc[0] if len(rows) else ''}` | {' | '.join(counts)} |\n")
    with open_atomic(folder / "papers.md") as opened:
        opened.write(PAPERS + "".join(lines))
    return folder / "papers.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, type=Path, help="results folder of the study")
    parser.add_argument("--out", type=Path, help="default: docs/results/<name of the folder>")
    parser.add_argument("--html", type=Path, help="write the page as one HTML file, too")
    args = parser.parse_args(arguments)
    out = args.out or RESULTS / args.root.name
    study = find_study(args.root.name)
    if page := study.data.get("page"):
        raise SpecError(f"{study.root}: has its rows on the page of scale {page}. Publish results/{study.name}-{page}")
    files = publish_study(study, out, args.html)
    if study.name in study.project.paper_names and RESULTS.resolve() in out.resolve().parents:
        files.append(write_papers(RESULTS))
    print(f"{len(files)} files in {out}")
    return 0
