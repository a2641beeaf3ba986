"""The runs of a publication in one small file in git, from which a page can be made again and extended later.

For each run it has the data that most tables and figures need, but no models, suspects, losses and accuracies by class.
"""

import csv
import io
import json
import lzma
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from fednoise_core.io import ArtifactError, json_digest, open_atomic, sha256_file
from workflow_scripts.report.runs.run import ListedRun, Setting
from workflow_scripts.study.store import path_word

RUNS = "runs.json.xz"
TEXTS = ("spec.json", "summary.json", "cost.json")
NUMBERS = ("metrics", "diagnostics")  # parquet files in a run's folder, CSV in the packed file
Packed = dict[str, dict[str, str]]  # folder of a run in the store -> name -> text


def read_packed(file: Path, *, may_be_missing: bool = False) -> Packed:
    """Read the runs of an earlier publication.

    Args:
        file: A file that `pack_runs` wrote.
        may_be_missing: Whether a missing file stands for no runs.

    Raises:
        ArtifactError: The file is missing or damaged, or does not match its `.sha256` file.
    """
    sums = file.with_name(f"{file.name}.sha256")
    if sums.exists() and not (file.exists() and sums.read_text(encoding="utf-8").startswith(sha256_file(file))):
        raise ArtifactError(f"{file}: not the file that {sums.name} is of. Take both from git again")
    if not file.exists():
        if may_be_missing:
            return {}
        raise ArtifactError(f"{file}: missing. Name a file {RUNS} of docs/results")
    try:
        runs: Packed = json.loads(lzma.decompress(file.read_bytes()))
        for address, parts in runs.items():
            if not address.startswith("store/runs/") or ".." in address or {*parts} != {*TEXTS, *NUMBERS}:
                raise ValueError(f"{address!r} is no run")
            _check_run(address, parts)
    except Exception as error:  # damage can raise any error
        raise ArtifactError(f"{file}: damaged ({error}). Take it from git again, or delete it") from error
    return runs


def _check_run(address: str, parts: Mapping[str, str]) -> None:
    """Raise ValueError if the files of a run contradict its address or each other."""
    spec, summary = json.loads(parts["spec.json"])["spec"], json.loads(parts["summary.json"])
    path_part = f"/{path_word(spec['method']['name'])}/seed{spec['seed']}/"
    if path_part not in address or json_digest(spec) != summary["spec_digest"]:
        raise ValueError(f"{address}: its settings are those of another run")
    rows = [row for row in csv.DictReader(io.StringIO(parts["metrics"])) if row["metric"] == "accuracy"]
    curve = [row for row in rows if row["view"] == summary["headline_view"] and row["client"] == "-1"]
    values = [float(row["value"] or "nan") for row in curve]
    values = values[1:] or values  # the first is before training
    finite = [value for value in values if np.isfinite(value)]
    by_rounds = {"best": max(finite, default=np.nan), "last": values[-1], "last10_mean": float(np.mean(values[-10:]))}
    for name, value in by_rounds.items():
        number = float("nan" if summary["accuracy"][name] is None else summary["accuracy"][name])  # null if it diverged
        if not np.isclose(number, value, rtol=0, atol=1e-6, equal_nan=True):
            raise ValueError(f"{address}: accuracy.{name} is {number}, by its rounds {value:.4f}")


def unpack_runs(packed: Packed, folder: Path) -> dict[str, Path]:
    """Write the files of packed runs.

    Args:
        packed: The runs.
        folder: The folder to write to.

    Returns:
        The folder of each run, by the digest of its settings.
    """
    for address, parts in packed.items():
        run_folder = folder / address
        run_folder.mkdir(parents=True)
        for name in TEXTS:
            (run_folder / name).write_text(parts[name], encoding="utf-8")
        for name in NUMBERS:
            numbers = pd.read_csv(io.StringIO(parts[name]), keep_default_na=False, na_values={"value": [""]})
            numbers.to_parquet(run_folder / f"{name}.parquet")
    return {settings_digest(parts): folder / address for address, parts in packed.items()}


def pack_runs(
    listed_runs: Iterable[ListedRun],
    earlier: Packed,
    file: Path,
    limit: int,
    *,
    scores_only: bool = False,
    ratios: Mapping[Setting, float] = MappingProxyType({}),
) -> list[Path]:
    """Write the runs to one file. Equal runs give equal bytes.

    Args:
        listed_runs: The runs.
        earlier: Runs of an earlier publication. Those with other settings are kept.
        file: The file to write.
        limit: The largest size in bytes. A larger file is not written, and the earlier file stays.
        scores_only: Keep only the accuracies of views by round, and also write the file's SHA-256 to a second file.
        ratios: The result of `compare_speed`, which is added to the costs of the runs made here as `cpu_ratio`.

    Returns:
        The files that were written.
    """
    runs = {listed.folder: _pack_run(listed, scores_only, ratios) for listed in listed_runs}
    metrics = {settings_digest(parts): parts["metrics"] for parts in runs.values()}
    changed = []
    for address, parts in earlier.items():
        replacement = metrics.get(settings_digest(parts))
        if replacement is None:
            runs[address] = parts
        elif replacement != parts["metrics"]:
            changed.append(address)
    if changed:
        message = f"published runs that are replaced by runs of this machine with other accuracies: {len(changed)}"
        print(f"{file}: {message}, such as {changed[0]}", file=sys.stderr)
    content = lzma.compress(json.dumps(runs, sort_keys=True).encode())
    if len(content) > limit:
        print(f"{file}: not written, as it would have {len(content):,} bytes", file=sys.stderr)
        return []
    with open_atomic(file, "wb") as opened:
        opened.write(content)
    if not scores_only:
        return [file]
    sums = file.with_name(f"{file.name}.sha256")
    with open_atomic(sums) as text:
        text.write(f"{sha256_file(file)}  {file.name}\n")
    return [file, sums]


def _pack_run(listed: ListedRun, scores_only: bool, ratios: Mapping[Setting, float]) -> dict[str, str]:
    parts = {name: (listed.dir / name).read_text(encoding="utf-8") for name in TEXTS}
    if listed.setting in ratios and not listed.is_published:
        cost = json.loads(parts["cost.json"]) | {"cpu_ratio": ratios[listed.setting]}
        parts["cost.json"] = json.dumps(cost, indent=2)
    return parts | {name: _numbers_text(listed.dir / f"{name}.parquet", scores_only) for name in NUMBERS}


def settings_digest(parts: dict[str, str]) -> str:
    """The digest of the settings of a packed run."""
    return str(json.loads(parts["summary.json"])["spec_digest"])


def _numbers_text(file: Path, scores_only: bool) -> str:
    frame = pd.read_parquet(file)
    left_out = frame["metric"].str.startswith("accuracy_class_") | (frame["metric"] == "loss")
    if scores_only:
        left_out |= (frame["client"] != -1) | (("view" in frame) & (frame.get("view", "") == ""))
    return str(frame[~left_out].to_csv(index=False))
