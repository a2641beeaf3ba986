"""List results that no config names, from single runs to whole studies, and remove them with --yes: the files, their
lines in the ledgers, and Snakemake's records. Lines of files that were removed by hand are listed, too.

python -m workflow_scripts.prune [--yes]        (make prune, make prune YES=1)

A results folder is compared with its study at its scale: results/quick with config/studies/quick.yaml, and
results/quick-smoke with the same under config/scales/smoke.yaml.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts import ledger
from workflow_scripts.config_file import deep_merge, read_yaml
from workflow_scripts.ledger_file import DATA, NAME
from workflow_scripts.ledger_pack import DVC_FOLDERS
from workflow_scripts.paths import FIGURE_SUFFIXES
from workflow_scripts.project import Project
from workflow_scripts.study import Study

__all__ = ["remove", "unnamed"]

KEPT = (NAME, "metrics.json", "headline.json", "report.html", "plots")  # of every study


def unnamed() -> list[Path]:
    """Folders and files under results/ that no config names, the highest that is unnamed as a whole; then what only a
    ledger still names.
    """
    config = read_yaml("config/config.yaml")
    scales = {path.stem: read_yaml(path) for path in sorted(Path("config/scales").glob("*.yaml"))}
    configs = [{**config, "scale": "paper", "overlay": {}}, *(deep_merge(config, scale) for scale in scales.values())]
    projects = [Project({**one, "studies": config["studies"]}) for one in configs]
    known = {root: (project, name) for project in projects for root, name in project.roots.items()}
    found: list[Path] = []
    for root in sorted(path for path in Path("results").glob("*") if path.is_dir()):
        if root.name in known:
            project, name = known[root.name]
            found += _unnamed_in(root, Study(project, name))
        else:
            found.append(root)
    arrays = {projects[0].arrays(dataset) for dataset in projects[0].datasets}
    listed = {path: entry.beside or path for path, entry in ledger.read(DATA).items() if path.startswith("data/raw/")}
    return found + [Path(path) for path, main in listed.items() if main not in arrays and not os.path.lexists(path)]


def _unnamed_in(root: Path, study: Study) -> list[Path]:
    """What `root` holds besides the study's files."""
    named = {Path(run.folder) for run in study.runs}
    named |= {Path(file) for run in study.runs for file in (run.labels, run.partition_file)}
    named |= {root / "tables" / f"{name}.{suffix}" for name in study.tables for suffix in ("csv", "md", "tex")}
    named |= {root / "figures" / f"{name}.{suffix}" for name in study.figures for suffix in FIGURE_SUFFIXES}
    named |= {root / name for name in KEPT}
    above = {parent for path in named for parent in path.parents} | {root / name for name in DVC_FOLDERS}
    return sorted({*_outside(root, named, above), *_only_listed(root, named, above)})


def _only_listed(root: Path, named: set[Path], above: set[Path]) -> Iterator[Path]:
    """What the ledger still names though it was removed by hand, the highest folder that is unnamed as a whole."""
    for name in ledger.read(root / NAME):
        line = [Path(name), *Path(name).parents]
        if not named.intersection(line) and not os.path.lexists(name):
            yield next(path for path in reversed(line) if path not in above and root in path.parents)


def _outside(folder: Path, named: set[Path], above: set[Path]) -> list[Path]:
    found = []
    for path in sorted(folder.iterdir()):
        if path in above:
            found += _outside(path, named, above)
        elif path not in named and path.name != ".gitignore":
            found.append(path)
    return found


def remove(paths: list[Path]) -> None:
    """Remove files and folders, their lines in the ledgers, and Snakemake's records of them."""
    gone = set(paths)
    ledger.pack()
    with ledger.alone():
        for book in ledger.ledgers():
            if book.parent in gone:
                continue
            entries = ledger.read(book)
            left = {name: one for name, one in entries.items() if gone.isdisjoint([Path(name), *Path(name).parents])}
            for name in entries.keys() - left.keys():
                ledger.record_path(name).unlink(missing_ok=True)
            if len(left) < len(entries):
                ledger.write(book, left)
                ledger.set_stamp(book, [])
        for path in paths:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: listed or removed; 2: the config is wrong."""
    parser = argparse.ArgumentParser(description="Results that no config names.")
    parser.add_argument("--yes", action="store_true", help="remove them")
    options = parser.parse_args(arguments)
    try:
        found = unnamed()
        for path in found:
            print(path)
        if options.yes:
            remove(found)
    except (SpecError, ArtifactError) as error:
        print(f"prune: {error}", file=sys.stderr)
        return 2
    done = "removed" if options.yes else "named by no config; --yes removes them (make prune YES=1)"
    print(f"prune: {len(found)} {done}" if found else "prune: every result is named by a config")
    return 0


if __name__ == "__main__":
    sys.exit(main())
