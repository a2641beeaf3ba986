"""Copy a study's tables and figures into docs/results/<study>/, small enough for git, with a page that shows them.

python -m workflow_scripts.publish --root results/quick [--out docs/results/quick] [--config scale=smoke]
python -m workflow_scripts.publish --root results/fedmixcon-cpu [--html FILE]     a paper's, of what was run so far

What stands between the lines `<!-- written by hand -->` and `<!-- end of what is written by hand -->` stays as it is.
A paper's publication below docs/results also writes docs/results/papers.md, a line for each published paper.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError, atomic
from fednoise_core.report.headline import closing
from fednoise_core.report.provenance import limits
from fednoise_core.report.runs import RecordedRun, listed_runs, load
from fednoise_core.report.style import words_of
from workflow_scripts import published_papers
from workflow_scripts.config_file import read_yaml
from workflow_scripts.project import Project
from workflow_scripts.publish_paper import WORDS, paper_of, publish_paper
from workflow_scripts.study import Study

__all__ = ["publish"]

RESULTS = Path("docs/results")
LIMIT = 1 << 20  # bytes; nothing larger belongs in git
TITLE = re.compile(r"\*\*(.+?)\.?\*\* ")


def publish(root: Path, out: Path, study: Mapping[str, Any], runs: list[RecordedRun]) -> list[Path]:
    """Write the page and its files, tables and figures in the study's order; returns what was written.

    study: as `Study.described` tells it. Raises ArtifactError if the study is not finished.
    """
    tables = [root / f"tables/{name}.md" for name in study.get("tables", {})]
    figures = [root / f"figures/{name}.png" for name in study.get("figures", {})]
    beside = [path.with_suffix(".csv") for path in tables], [path.with_suffix(".svg") for path in figures]
    wanted = [*tables, *beside[0], *figures, *beside[1], root / "metrics.json"]
    missing = [path for path in wanted if not path.exists()]
    if missing or not tables:
        raise ArtifactError(f"{missing[0] if missing else root / 'tables'}: no such file; the study is not finished")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for source in (*tables, *beside[0], *figures, root / "metrics.json"):
        if source.stat().st_size > LIMIT:
            print(f"{source}: left out, larger than 1 MiB", file=sys.stderr)
            continue
        shutil.copyfile(source, out / source.name)
        written.append(out / source.name)
    page = out / "README.md"
    own = WORDS.search(page.read_text(encoding="utf-8")) if page.exists() else None
    parts = [
        f"# {study['title']}",
        f"Made by `snakemake --cores 2 {root.name}`. {_provenance([run.cost for run in runs])}",
        *([own[0].rstrip("\n")] if own else []),
        " ".join(study.get("text", "").split()),
        "\n".join(f"- {line}" for line in closing(runs)),
        "## Notes and limits",
        "\n".join(f"- {line}" for line in limits(study, runs)),
        *(part for path in tables for part in _table(path)),
        *(part for path in figures if out / path.name in written for part in _figure(path)),
    ]
    with atomic(page) as file:
        file.write("\n\n".join(filter(None, parts)) + "\n")
    return [*written, page]


def _table(path: Path) -> tuple[str, str]:
    """Heading and body: the title stands in bold before the caption."""
    text = path.read_text(encoding="utf-8").strip()
    title = TITLE.match(text)
    return (f"## {title[1]}", text[title.end() :]) if title else (f"## {path.stem}", text)


def _figure(path: Path) -> tuple[str, str, str]:
    """Heading, picture with its words for those who cannot see it, caption."""
    title, caption, alt = words_of(path.with_suffix(".svg"))
    return f"## {title}", f"![{alt.replace('[', '(').replace(']', ')')}]({path.name})", f"*{caption.replace('*', '')}*"


def _provenance(costs: list[dict[str, Any]]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    seconds = sorted(cost["seconds"] for cost in costs)
    versions = {f"{name} {version}" for cost in costs for name, version in cost["versions"].items()}
    devices = {cost["device"] for cost in costs}
    torch = sorted({str(cost["versions"].get("torch", "unknown")) for cost in costs})
    mixed = f" The runs were made with several versions of torch ({', '.join(torch)}), whose numbers may differ."
    return (
        f"{len(costs)} runs at commit {commit.strip() or 'unknown'}, on {', '.join(sorted(devices))}; "
        f"{', '.join(sorted(versions))}. A run took {seconds[0]:.1f} to {seconds[-1]:.1f} s "
        f"(median {seconds[len(seconds) // 2]:.1f} s without start-up), {sum(seconds) / 60:.0f} min in all."
        f"{mixed if len(torch) > 1 else ''}"
    )


def _read_pairs(pairs: list[str]) -> dict[str, str]:
    """The values of --config by key. Raises SpecError for one that is not KEY=VALUE."""
    for pair in pairs:
        if "=" not in pair:
            raise SpecError(f"--config: expected KEY=VALUE, got {pair!r}. Write for example scale=smoke")
    return dict(pair.split("=", 1) for pair in pairs)


def _study(root: Path, settings: Mapping[str, Any]) -> Study:
    """The study whose results folder this is."""
    project = Project({**read_yaml("config/config.yaml"), **settings})
    if root.name not in project.roots:
        raise SpecError(f"{root}: the results of no study at scale {project.scale}; another one: --config scale=…")
    return Study(project, project.roots[root.name])


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, type=Path, help="results folder of the study")
    parser.add_argument("--out", type=Path, help="default: docs/results/<name of the folder>")
    parser.add_argument("--html", type=Path, help="of a paper: write the page as one HTML file, too")
    parser.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="such as scale=smoke")
    args = parser.parse_args(argv)
    out = args.out or RESULTS / args.root.name
    try:
        settings = _read_pairs(args.config)
        paper = paper_of(args.root.name)
        if paper:
            made = publish_paper(paper, out, args.html)
            if RESULTS.resolve() in out.resolve().parents:
                made.append(published_papers.write(RESULTS))
        else:
            study = _study(args.root, settings)
            runs = load(listed_runs([run.row for run in study.runs]))
            made = publish(args.root, out, study.described(), runs)
    except (ArtifactError, SpecError, OSError, json.JSONDecodeError) as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    print(f"{len(made)} files in {made[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
