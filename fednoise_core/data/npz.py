"""What an npz file of the user holds, without reading its arrays."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from fednoise_core.io import ArtifactError


def arrays_in(path: Path) -> list[str]:
    """Names of the arrays in an npz.

    Raises:
        ArtifactError: the file is damaged. The message names it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except (OSError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path}: damaged ({type(error).__name__}: {error})") from error


def read_shape(path: Path, name: str) -> tuple[int, ...]:
    """Shape of one array in an npz, from its header.

    Raises:
        ArtifactError: the file is damaged, or has no such array. The message names the file.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            major = np.lib.format.read_magic(member)[0]
            read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            return tuple(read(member)[0])
    except KeyError as error:
        raise ArtifactError(f"{path}: it has no {name}") from error
    except Exception as error:  # zipfile, zlib and numpy each raise their own kinds
        raise ArtifactError(f"{path}: damaged ({type(error).__name__}: {error})") from error
