"""Compare the store with DVC's record, to find files that were changed together with their SHA-256 list."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import yaml

from workflow_scripts.provenance.checksums import SUMS

MISSING = (
    "dvc.lock says that results are recorded, but DVC does not have the record here. `dvc fetch` brings it (where it "
    "is lost for good: remove dvc.lock)"
)


def read_record() -> dict[str, dict[str, str]]:
    """Read DVC's record of the store.

    Returns:
        Folder → file name → MD5. Empty if no results are recorded, or if DVC's cache lacks the record.
    """
    if not Path("dvc.lock").exists():
        return {}
    command = [sys.executable, "-m", "dvc", "ls", "--recursive", "--show-hash", "--json", ".", "store"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    entries = json.loads(listing.stdout) if listing.returncode == 0 else []
    record: dict[str, dict[str, str]] = {}
    for entry in entries:
        if entry["isout"]:
            file = Path("store", entry["path"])
            record.setdefault(str(file.parent), {})[file.name] = str(entry.get("md5"))
    return {folder: files for folder, files in record.items() if SUMS in files}


def has_remote() -> bool:
    """Return True if DVC has a remote, from which recorded files can be fetched."""
    files = (Path(".dvc", name) for name in ("config", "config.local"))
    return any('remote "' in file.read_text(encoding="utf-8") for file in files if file.exists())


def is_record_missing(record: Mapping[str, Mapping[str, str]]) -> bool:
    """Return True if dvc.lock has a record of the store but `read_record` found none, as in a fresh clone."""
    if record or not Path("dvc.lock").exists():
        return False
    stages = yaml.safe_load(Path("dvc.lock").read_text(encoding="utf-8")).get("stages") or {}
    return any(out.get("nfiles") for out in stages.get("store", {}).get("outs", ()))


def describe_lost(folders: Iterable[Path], record: Collection[str]) -> str:
    """Describe the recorded folders that are missing or empty, and how to restore them. "" if there are none.

    Args:
        folders: Folders that have files.
        record: The result of `read_record`.
    """
    lost = sorted({*record} - {str(folder) for folder in folders})
    if not lost:
        return ""
    count = f"{len(lost)} recorded folder{'s are' if len(lost) > 1 else ' is'} not here, such as {lost[0]}"
    return f"{count}. `dvc pull` brings them back. Removed on purpose: `fednoise record --accept FOLDER` (all: store)"


def find_forgeries(folders: Iterable[Path], record: Mapping[str, Mapping[str, str]]) -> dict[Path, list[str]]:
    """Compare folders with DVC's record, since a file may have been changed together with its line in SHA256SUMS.

    Args:
        folders: Folders whose files match their SHA-256 lists.
        record: The result of `read_record`.

    Returns:
        Folder → its problems, with the names of the files that differ.
    """
    forgeries = {}
    for folder in folders:
        recorded = record.get(str(folder), {})
        if recorded and _md5(folder / SUMS) != recorded[SUMS]:
            digests = {file.name: _md5(file) for file in folder.iterdir() if file.is_file() and file.name != SUMS}
            names = {*digests, *recorded} - {SUMS}
            differing = sorted(name for name in names if digests.get(name) != recorded.get(name)) or [SUMS]
            again = " (a run made again has other times)" if differing == ["cost.json"] else ""
            forgeries[folder] = [f"{folder}: is not what was recorded: {', '.join(differing)}{again}"]
    return forgeries


def _md5(file: Path) -> str:
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
