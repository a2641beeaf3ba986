"""Record finished results with DVC, once nothing is left to run and the audit finds nothing.

fednoise record && git add dvc.lock results && git commit && dvc push

A folder whose content differs from an earlier record is refused, unless --accept names it, because it was made again on
purpose. A recorded folder that is missing is refused, too, unless --accept names it or a folder above it.
A plain `dvc commit` would record all files, even those beside a failed or half-finished run.
"""

import argparse
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from workflow_scripts.commands.audit import audit_store, find_folders, running_process
from workflow_scripts.config.project import Project
from workflow_scripts.provenance.dvc_record import MISSING, describe_lost, is_record_missing, read_record

CURE = "`fednoise audit --remove && snakemake` makes them again"


def _refusal_reason(accepted: Collection[str]) -> str | None:
    """Return the reason why results cannot be recorded now, or None. `accepted` folders may differ from the record."""
    if reason := running_process():
        return reason
    if (scale := Project.load().scale) != "paper":
        return f"config/config.yaml: scale: DVC records results of scale paper, got {scale}"
    recorded = read_record()
    if is_record_missing(recorded):
        return MISSING
    record = {folder: files for folder, files in recorded.items() if folder not in accepted}
    problems_found = [f"AUDIT: {problem}" for problems in audit_store(record=record).values() for problem in problems]
    if problems_found:
        return "\n".join(["the audit finds:", *problems_found, CURE])
    needed = [folder for folder in record if not {*map(str, Path(folder).parents)} & {*accepted}]
    if lost := describe_lost(find_folders(), needed):
        return lost
    dry_run = subprocess.run([sys.executable, "-m", "snakemake", "-n"], capture_output=True, text=True, check=False)
    if dry_run.returncode != 0:
        return f"snakemake -n failed:\n{dry_run.stderr.strip()}"
    if "Nothing to be done" not in dry_run.stdout + dry_run.stderr:
        return (
            "some results of the studies in config/config.yaml are not up to date. snakemake -n lists them. "
            "Finish these studies, or name only finished ones under `studies:`"
        )
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The arguments; those of the process if left out.

    Returns:
        0 if the results are recorded, 1 if they are refused.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--accept", nargs="+", default=[], metavar="FOLDER", help="folders of the store that were made again or removed"
    )
    options = parser.parse_args(arguments)  # an unknown option is an error: nothing is recorded
    if reason := _refusal_reason([folder.rstrip("/") for folder in options.accept]):
        print(f"record: {reason}", file=sys.stderr)
        return 1
    return subprocess.run([sys.executable, "-m", "dvc", "commit", "--force"], check=False).returncode
