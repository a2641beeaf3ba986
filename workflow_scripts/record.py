"""Record finished results with DVC, but only if there is nothing left to run and the audit finds nothing.

python -m workflow_scripts.record && git add dvc.lock results && git commit && dvc push
python -m workflow_scripts.record --check       does DVC know the results that lie here?

A plain `dvc commit` would record whatever lies there, also beside a failed or half-finished run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from fednoise_core.io import ArtifactError
from workflow_scripts.audit import audit, running

__all__ = ["main", "refusal", "unrecorded"]

SNAKEMAKE = (sys.executable, "-m", "snakemake")
DVC = (sys.executable, "-m", "dvc")
CURE = "`python -m workflow_scripts.audit --remove && snakemake` makes them again"
NOTHING = "Nothing to be done"


def refusal() -> str | None:
    """Why the results cannot be recorded now, or None."""
    if reason := running():
        return reason
    found = [f"AUDIT: {problem}" for problems in audit().values() for problem in problems]
    if found:
        return "\n".join(["the audit finds:", *found, CURE])
    dry_run = subprocess.run([*SNAKEMAKE, "-n"], capture_output=True, text=True, check=False)
    if dry_run.returncode != 0:
        return f"snakemake -n failed:\n{dry_run.stderr.strip()}"
    if NOTHING not in dry_run.stdout + dry_run.stderr:
        return "there is work left to do: snakemake -n lists it"
    return None


def unrecorded() -> tuple[list[str], list[str]]:
    """Results that are not those in dvc.lock, and what was edited since: code and settings that a stage depends on.

    An edit alone is no fault: `snakemake -n` says whether it makes anything stale. Raises ArtifactError if DVC fails.
    """
    done = subprocess.run([*DVC, "status", "--json"], capture_output=True, text=True, check=False)
    try:
        stages = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ArtifactError(f"dvc status failed: {done.stderr.strip()}") from None
    results, edits = set(), set()
    for changes in stages.values():
        for change in changes:
            if change == "changed command":
                edits.add("dvc.yaml")
                continue
            results |= {f"{path}: {state}" for path, state in change.get("changed outs", {}).items()}
            edits |= set(change.get("changed deps", {}))
    return sorted(results), sorted(edits)


def _check() -> int:
    results, edits = unrecorded()
    for line in results:
        print(f"RECORD: {line}")
    if results:
        print("record: DVC does not know these results: python -m workflow_scripts.record, if they are to be kept")
        return 1
    told = f"; edited since: {', '.join(edits)} (snakemake -n says what that makes stale)" if edits else ""
    print(f"record: the results are those in dvc.lock{told}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: recorded, or known to DVC; 1: refused or not known, the reason is told."""
    parser = argparse.ArgumentParser(description="Record finished results with DVC.")
    parser.add_argument("--check", action="store_true", help="only say whether DVC knows the results that lie here")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            return _check()
        reason = refusal()
    except ArtifactError as error:
        reason = str(error)
    if reason is not None:
        print(f"record: {reason}", file=sys.stderr)
        return 1
    return subprocess.run([*DVC, "commit", "--force"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
