"""List files in store/ and results/ that no config names any more. With --yes, move them to .discarded/.

fednoise prune [--yes]

Files of all studies are kept, whether configured or not, at all scales and for all subsets. If a study cannot be
planned, its files are not known, so nothing is listed. Below store/ and results/ no link is followed. If DVC has
recorded what was moved, `fednoise record --accept store` accepts all folders that are gone.
"""

import argparse
import contextlib
import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fednoise_core.io import ArtifactError, SpecError
from workflow_scripts import paths
from workflow_scripts.commands.audit import DISCARDED, discard_path, find_folders, running_process
from workflow_scripts.config.project import Project
from workflow_scripts.study.grid import AllAbsent
from workflow_scripts.study.targets import Targets


def _find_unnamed() -> list[Path]:
    """List the folders of the store, and the files and folders of results/, that no config names.

    Raises SpecError, ArtifactError or OSError if a study cannot be planned, since its files are then not known.
    """
    scales = ["paper", *Project.load(subset=None, scale="paper", overlay={}).scale_names]
    named: set[Path] = set()
    for scale in scales:
        overlay: dict[str, Any] = {"overlay": {}} if scale == "paper" else {}
        targets = Targets(Project.load(subset=None, scale=scale, **overlay))
        project = targets.project
        for name in project.study_files:
            with contextlib.suppress(AllAbsent):  # without data the study has no results
                named |= _named_paths(targets, name)
    return [*sorted(set(find_folders()) - named), *sorted(_not_shown(Path("results"), named))]


def _named_paths(targets: Targets, name: str) -> set[Path]:
    """Collect the paths that a study names."""
    study = targets.load_study(name)
    plans = {Path(plan.folder) for plan in targets.study_plans(study)}
    contents = {Path(study.project.contents_folder(dataset)) for dataset in study.project.datasets}
    return plans | contents | {Path(file) for file in (*targets.list_copies(study), f"{study.root}/{paths.INDEX}")}


def _not_shown(folder: Path, named: set[Path]) -> Iterator[Path]:
    """Yield the paths in a folder that are not named.

    A folder without any named path is yielded as a whole.
    """
    above = {parent for path in named for parent in path.parents}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path in above:
            yield from () if path.is_symlink() else _not_shown(path, named)
        elif path not in named and path.name != ".gitignore":
            yield path


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns 1 if Snakemake or a training runs in this folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yes", action="store_true", help=f"move it to {DISCARDED}/, which you can delete")
    options = parser.parse_args(arguments)
    try:
        unnamed = _find_unnamed()
    except (SpecError, ArtifactError, OSError) as error:
        raise SpecError(f"{error}. Nothing is removed until this is fixed") from error
    now = datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")
    for path in unnamed:
        if options.yes and (reason := running_process()):
            print(f"prune: {reason}", file=sys.stderr)
            return 1
        print(path)
        if options.yes:
            discard_path(path, now)
    done = f"moved to {DISCARDED}/{now}" if options.yes else f"named by no config; --yes moves them to {DISCARDED}/"
    print(f"prune: {len(unnamed)} {done}" if unnamed else "prune: every result is named by a config")
    return 0
