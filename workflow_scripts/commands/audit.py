"""Check the files of the store against their SHA-256, their addresses and what DVC recorded of them.

fednoise audit [--remove | --store]        (make audit)

--remove moves each damaged folder to .discarded/, so that the next `snakemake` makes it again, and nothing else. The
audit also reports copies in results/ that are missing or differ from the store. `snakemake` makes them again in any
case, so --store skips them. Other files in results/ are not checked.
"""

import argparse
import contextlib
import datetime
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from fednoise_core.io import ArtifactError, SpecError, sha256_file
from workflow_scripts import paths
from workflow_scripts.config.project import Project
from workflow_scripts.machine.locks import is_locked
from workflow_scripts.provenance.checksums import SUMS, find_damage, read_sums
from workflow_scripts.provenance.dvc_record import (
    MISSING,
    describe_lost,
    find_forgeries,
    has_remote,
    is_record_missing,
    read_record,
)
from workflow_scripts.study.targets import Targets

ROOTS = ("store", "data/arrays")
DISCARDED = ".discarded"
COPIES = (
    *(f"tables/*.{suffix}" for suffix in paths.TABLE_SUFFIXES),
    *(f"figures/*.{suffix}" for suffix in paths.FIGURE_SUFFIXES),
    *paths.STUDY_FILES,
)


def find_folders() -> Iterator[Path]:
    """Find the folders of the store to which steps wrote: finished ones, and those with files but without folders."""
    for root in ROOTS:
        for folder, below, files in os.walk(root):
            if SUMS in files or (files and not below):
                yield Path(folder)


def running_process() -> str:
    """Check whether Snakemake or a training runs in the working folder.

    Returns:
        A message that names the process and the remedy, or "" if nothing runs.
    """
    locks = Path(".snakemake/locks")
    if locks.is_dir() and any(locks.iterdir()):
        return "Snakemake's lock is held. Wait for the run (after a crash: snakemake --unlock)"
    training = next((path.parent for path in Path("work").rglob("lock") if is_locked(path)), None)
    return f"{training}: a process trains here. Wait for it" if training else ""


def find_missing_copies() -> list[str]:
    """List the copies of the configured studies that are not in results/ although the store has them."""
    targets = Targets(Project.load())
    copies: dict[str, str] = {}
    for name in targets.project.studies:
        with contextlib.suppress(SpecError, ArtifactError):  # a study that cannot be planned has no expected copies
            copies |= targets.list_copies(targets.load_study(name))
    return [file for file, source in copies.items() if not Path(file).exists() and Path(source).exists()]


def audit_store(
    *, copies: bool = True, record: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> dict[Path, list[str]]:
    """Compare the store with its SHA-256 lists and with DVC's record.

    Args:
        copies: Whether the copies in results/ are compared, too.
        record: The result of `read_record`.

    Returns:
        Folder, or copy in results/ → its problems.
    """
    there = sorted(find_folders())
    problems = {folder: wrong for folder in there if (wrong := _find_problems(folder))}
    problems |= find_forgeries([folder for folder in there if folder not in problems], record)
    if copies and there:
        with contextlib.suppress(SpecError, ArtifactError):  # errors in the config
            problems |= {Path(file): [f"{file}: missing from results/"] for file in find_missing_copies()}
        sums = {value for folder in there for value in read_sums(folder).values()}
        for file in sorted(file for pattern in COPIES for file in Path("results").glob(f"*/{pattern}")):
            linked = any(folder.is_symlink() for folder in file.parents[:-2])  # below results/ no link is followed
            if file.is_file() and not linked and sha256_file(file) not in sums:
                problems[file] = [f"{file}: not a copy of a file in the store"]
    return problems


def _find_problems(folder: Path) -> list[str]:
    """List the problems of a folder of the store."""
    if not (folder / SUMS).exists():
        return [f"{folder}: has no {SUMS}: its step did not end"]
    return [f"{folder}/{name}: {problem}" for name, problem in find_damage(folder)]


def discard_path(path: Path, now: str) -> None:
    """Move a file or folder to the same path below .discarded/<now>/."""
    target = Path(DISCARDED, now, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, target)


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The arguments; those of the process if left out.

    Returns:
        0 if there are no problems, or all were removed; 1 if there are problems, or if Snakemake or a training runs.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--remove", action="store_true", help=f"move damaged folders and copies to {DISCARDED}/")
    scope.add_argument("--store", action="store_true", help="skip the copies in results/")
    options = parser.parse_args(arguments)
    record = read_record()
    problems_by_path = audit_store(copies=not options.store, record=record)
    now = datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")
    for path, problems in problems_by_path.items():
        if options.remove and (reason := running_process()):  # each time: reading a large store takes minutes
            print(f"audit: {reason}", file=sys.stderr)
            return 1
        if options.remove and path.is_dir() and not (_find_problems(path) or find_forgeries([path], record)):
            continue  # its step has finished in the meantime
        print("\n".join(f"AUDIT: {problem}" for problem in problems))
        if options.remove and path.exists():
            discard_path(path, now)
    if not problems_by_path and not any(find_folders()):
        origin = "`dvc pull` brings recorded results" if Path("dvc.lock").exists() else "`fednoise run` makes results"
        print(f"audit: nothing is here yet. {origin}")
        return 0
    if lost := describe_lost(find_folders(), record):
        print(f"audit: {lost}")
    if not problems_by_path:
        print("audit: every file is what its step wrote")
        unrecorded = [str(folder) for folder in find_folders() if str(folder) not in record]
        if is_record_missing(record):
            print(f"audit: {MISSING}. Without it only accidents are found")
        elif record and unrecorded:
            print(f"audit: DVC has no record of {len(unrecorded)} of the folders, where only accidents are found")
        elif not record:
            print("audit: DVC has no record of results, so only accidents are found. To keep one: fednoise record")
        return 0
    recorded = [str(folder) for folder in problems_by_path if str(folder) in record]
    cure = "`fednoise audit --remove` moves them away, and `snakemake` makes them again"
    done = f"moved to {DISCARDED}/{now}; `snakemake` makes them again" if options.remove else f"damaged; {cure}"
    print(f"audit: {len(problems_by_path)} folder{'s' * (len(problems_by_path) != 1)} or copies {done}")
    if recorded:
        folders = shlex.join(recorded)
        # if the cache lacks the recorded files, `dvc checkout` removes the whole store
        fetch = f"dvc fetch {folders} && " if has_remote() else ""
        print(f"audit: to bring back what was recorded: {fetch}dvc checkout --force {folders}")
    return 0 if options.remove else 1
