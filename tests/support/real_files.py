"""The real data sets' files for tests marked `real_data`: FEDNOISE_DATA, or the packed data beside the repository."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
UNPACK = ROOT.parent / "shared" / "data" / "unpack.py"
PACKED = UNPACK.with_name("labels.npz")
MISSING = "real data sets not found: set FEDNOISE_DATA to the folder with the unpacked data"


@functools.cache
def real_folder() -> Path:
    """Folder with `<name>.npz` and torchvision's raw layout, unpacked once below build/. Skips the test if none."""
    named = os.environ.get("FEDNOISE_DATA")
    if named and (Path(named) / "mnist.npz").is_file():
        return Path(named)
    if not UNPACK.is_file():
        pytest.skip(MISSING)
    folder = ROOT / "build" / "real-data"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # tests may run in several processes; a second call checks and is quick
        if not (folder / "complete").is_file():
            subprocess.run([sys.executable, str(UNPACK), "--out", str(folder)], check=True, capture_output=True)
            (folder / "complete").touch()
    return folder


def real_labels(dataset: str, key: str = "y_train") -> np.ndarray:
    """int64 [n] labels of a data set (`key`: y_train, or a CIFAR-N set by its published name). Skips the test if
    absent.
    """
    unpacked = Path(os.environ.get("FEDNOISE_DATA") or "/nowhere") / f"{dataset}.npz"
    if unpacked.is_file():
        path, name = unpacked, key
    elif PACKED.is_file():
        path, name = PACKED, f"{dataset}_{key}" if key == "y_train" else f"{dataset}n_{key}"
    else:
        pytest.skip(MISSING)
    with np.load(path, allow_pickle=False) as archive:
        return archive[name].astype(np.int64)
