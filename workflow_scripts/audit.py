"""Compare the store with the SHA-256 that its steps wrote: every missing, changed or extra file is named.

python -m workflow_scripts.audit [--remove]        (make audit)

--remove takes each damaged folder away, so that the next `snakemake` makes it again, and nothing else. Copies in
results/ that are not in the store are named, too; `snakemake` makes them anew as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from fednoise_core.index import INDEX
from fednoise_core.io import sha256_file
from workflow_scripts.sums import SUMS, damages, read_sums

__all__ = ["audit", "folders", "main", "running"]

ROOTS = ("store", "data/arrays")


def folders() -> Iterator[Path]:
    """Folders of the store that hold files."""
    for root in ROOTS:
        for folder, _, files in os.walk(root):
            if files:
                yield Path(folder)


def running() -> bool:
    """Whether Snakemake holds its lock here."""
    locks = Path(".snakemake/locks")
    return locks.is_dir() and any(locks.iterdir())


def audit() -> dict[Path, list[str]]:
    """Folder, or copy in results/ → what is wrong with it."""
    found: dict[Path, list[str]] = {}
    sums: set[str] = set()
    for folder in sorted(folders()):
        if not (folder / SUMS).exists():
            found[folder] = [f"{folder}: has no {SUMS}: its step did not end"]
        elif wrong := damages(folder):
            found[folder] = [f"{folder}/{name}: {problem}" for name, problem in wrong]
        sums |= set(read_sums(folder).values())
    for file in sorted(Path("results").rglob("*")):
        if file.is_file() and file.name not in (INDEX, ".gitignore") and sha256_file(file) not in sums:
            found[file] = [f"{file}: not a copy of a file in the store"]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: nothing found, or what was found is removed; 1: findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remove", action="store_true", help="remove damaged folders and copies")
    options = parser.parse_args(arguments)
    if options.remove and running():
        print("audit: Snakemake's lock is held: wait for the run (after a crash: snakemake --unlock)", file=sys.stderr)
        return 1
    found = audit()
    for path, problems in found.items():
        print("\n".join(f"AUDIT: {problem}" for problem in problems))
        if options.remove:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not found:
        print("audit: every file is what its step wrote")
        return 0
    done = "removed; `snakemake` makes them again" if options.remove else "damaged; --remove takes them away"
    print(f"audit: {len(found)} folders or copies {done}")
    return 0 if options.remove else 1


if __name__ == "__main__":
    sys.exit(main())
