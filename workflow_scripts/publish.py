"""Copy a study's tables and figures into docs/results/<study>/, small enough for git, with a page that shows them.

python -m workflow_scripts.publish --root results/quick [--out docs/results/quick]
python -m workflow_scripts.publish --root results/fedmixcon-cpu [--html FILE]     a paper's, of what was run so far
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from fednoise_core.io import ArtifactError, SpecError, atomic
from workflow_scripts import readme_table
from workflow_scripts.publish_paper import paper_of, publish_paper

__all__ = ["publish"]

LIMIT = 1 << 20  # bytes; nothing larger belongs in git


def publish(root: Path, out: Path) -> list[Path]:
    """Write the page and its files; returns what was written. Raises ArtifactError if the study is not finished."""
    tables, figures = sorted(root.glob("tables/*.md")), sorted(root.glob("figures/*.png"))
    costs = [json.loads(path.read_text()) for path in sorted(root.glob("runs/*/*/*/*/*/cost.json"))]
    missing = [name for name in ("metrics.json", "report.html") if not (root / name).exists()]
    if not tables or not costs or missing:
        raise ArtifactError(f"{root}: no finished study (tables, runs, metrics.json and report.html are needed)")
    out.mkdir(parents=True, exist_ok=True)
    sources = [*tables, *sorted(root.glob("tables/*.csv")), *figures, root / "metrics.json"]
    written = []
    for source in sources:
        if source.stat().st_size > LIMIT:
            print(f"{source}: left out, larger than 1 MiB", file=sys.stderr)
            continue
        shutil.copyfile(source, out / source.name)
        written.append(out / source.name)
    with atomic(out / "README.md") as page:
        page.write(f"# Results of `{root.name}`, as measured\n\n")
        page.write(f"Made by `snakemake --cores 2 {root.name}`. {_provenance(costs)}\n")
        for table in tables:
            page.write(f"\n## {table.stem}\n\n{_without_heading(table.read_text(encoding='utf-8'))}\n")
        for figure in figures:
            if out / figure.name in written:
                page.write(f"\n## {figure.stem}\n\n![{figure.stem}]({figure.name})\n")
    return [*written, out / "README.md"]


def _provenance(costs: list[dict]) -> str:
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


def _without_heading(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(line if not line.startswith("#") else f"**{line.lstrip('# ')}**" for line in lines)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, type=Path, help="results folder of the study")
    parser.add_argument("--out", type=Path, help="default: docs/results/<name of the folder>")
    parser.add_argument("--html", type=Path, help="of a paper: write the page as one HTML file, too")
    args = parser.parse_args(argv)
    out = args.out or Path("docs/results", args.root.name)
    try:
        paper = paper_of(args.root.name)
        written = publish_paper(paper, out, args.html) if paper else publish(args.root, out)
        if paper and Path("docs/results") in out.parents:
            readme_table.fill()
    except (ArtifactError, SpecError) as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    print(f"{len(written)} files in {written[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
