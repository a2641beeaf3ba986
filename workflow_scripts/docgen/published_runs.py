"""The runs of a publication in one small file that git keeps, so that a page can be made again and added to later.

It has what tables, figures and pages of a paper need of a run. It lacks models, suspects, and accuracies by class.
"""

import io
import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fednoise_core.io import ArtifactError, open_atomic
from fednoise_core.report.runs.run import ListedRun

RUNS = "runs.zip"
FILES = ("spec.json", "summary.json", "cost.json", "diagnostics.parquet")


def pack_runs(found: Iterable[ListedRun], file: Path, limit: int) -> list[Path]:
    """Write the runs to a ZIP file, whose bytes are the same for equal runs.

    Args:
        found: The runs.
        file: The file to write.
        limit: The most bytes that it may have.

    Returns:
        The file. Nothing if it would be too large.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for folder in sorted({listed.dir for listed in found}):
            parts = {name: (folder / name).read_bytes() for name in FILES}
            for name, part in (parts | {"metrics.parquet": _reduce_metrics(folder)}).items():
                packed.writestr(zipfile.ZipInfo(_name_in_store(folder, name)), part, zipfile.ZIP_DEFLATED)
    if content.tell() > limit:
        print(f"{file}: left out: {content.tell():,} bytes", file=sys.stderr)
        file.unlink(missing_ok=True)
        return []
    with open_atomic(file, "wb") as opened:
        opened.write(content.getvalue())
    return [file]


def unpack_runs(file: Path, folder: Path) -> dict[str, Path]:
    """Unpack the runs of an earlier publication.

    Args:
        file: What `pack_runs` wrote. It may be missing.
        folder: Where to.

    Returns:
        The folder of each run, by the digest of its settings.

    Raises:
        ArtifactError: The file is damaged.
    """
    if not file.exists():
        return {}
    try:
        with zipfile.ZipFile(file) as packed:
            packed.extractall(folder)
        return {json.loads(path.read_text())["spec_digest"]: path.parent for path in folder.rglob("summary.json")}
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ArtifactError(f"{file}: damaged ({error}). Take it from git again, or delete it") from error


def _reduce_metrics(folder: Path) -> bytes:
    frame = pd.read_parquet(folder / "metrics.parquet")
    left_out = frame["metric"].str.startswith("accuracy_class_") | (frame["metric"] == "loss")
    return frame[~left_out].to_parquet(index=False, compression="zstd")


def _name_in_store(folder: Path, name: str) -> str:
    """The path below the project, also of a run that was unpacked elsewhere."""
    parts = folder.parts
    return "/".join((*parts[parts.index("store") :], name))
