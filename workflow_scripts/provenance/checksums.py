"""The SHA-256 list that a step writes last: a folder of the store is finished when it has one.

The list has the format of coreutils, so that `sha256sum -c SHA256SUMS` in the folder checks it, too.
"""

import os
import re
from pathlib import Path

from fednoise_core.io import (
    ADDRESS,
    ArtifactError,
    find_address,
    find_other_address,
    open_atomic,
    remove_unfinished,
    sha256_file,
)

SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  ([^/\n]+)\n")


def write_sums(folder: str | os.PathLike[str]) -> None:
    """Write the SHA-256 of every file in a folder, and the address for which the folder was made.

    Temporary files of killed processes are removed first.

    Args:
        folder: The folder.
    """
    remove_unfinished(folder)
    if address := find_address(folder):
        with open_atomic(Path(folder, ADDRESS)) as file:
            file.write(f"{address}\n")
    lines = [f"{sha256_file(Path(folder, name))}  {name}\n" for name in _list_files(folder)]
    with open_atomic(Path(folder, SUMS)) as file:
        file.writelines(lines)


def read_sums(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Read a list of SHA-256.

    Args:
        folder: The folder with the list.

    Returns:
        File name → SHA-256. Empty if the list is missing or damaged.
    """
    try:
        text = Path(folder, SUMS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    match = re.fullmatch(f"(?:{LINE.pattern})*", text)
    return {name: value for value, name in LINE.findall(text)} if match else {}


def check_sums(folder: str | os.PathLike[str]) -> None:
    """Check that no file of a folder has changed since its step wrote it. Models are skipped, because they are large.

    Args:
        folder: The folder. One without a list of SHA-256 passes.

    Raises:
        ArtifactError: A file has changed.
    """
    for name, value in read_sums(folder).items():
        file = Path(folder, name)
        if file.suffix != ".safetensors" and file.is_file() and sha256_file(file) != value:
            raise ArtifactError(f"{file}: changed after its step wrote it. `fednoise audit` says how to get it back")


def find_damage(folder: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Compare a folder with its list of SHA-256.

    Args:
        folder: The folder.

    Returns:
        (file name, what is wrong with it) for each file that is missing, changed or not in the list.
    """
    sums, there = read_sums(folder), set(_list_files(folder))
    damage = [(SUMS, "damaged, or lists nothing")] if not sums else []
    for name, value in sums.items():
        if name not in there:
            damage.append((name, "missing"))
        elif sha256_file(Path(folder, name)) != value:
            damage.append((name, "changed"))
    damage += [(name, "not made by the workflow") for name in sorted(there - sums.keys())]
    if (made_for := find_other_address(folder)) is not None:
        damage.append((ADDRESS, f"holds what was made for {made_for}"))
    elif find_address(folder) and ADDRESS not in {*there, *sums}:
        damage.append((ADDRESS, "missing"))
    return damage


def _list_files(folder: str | os.PathLike[str]) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.name != SUMS and not entry.is_dir())
