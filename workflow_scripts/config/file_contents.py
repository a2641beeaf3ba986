"""SHA-256 of the user's own files. Changed contents make steps run again.

A file is read again only if its time, size or inode changes. build/contents.json caches the digests.
"""

import contextlib
import json
import os
from pathlib import Path

from fednoise_core.io import json_digest, sha256_file, write_json

CACHE = Path("build/contents.json")


def hash_contents(path: str | os.PathLike[str]) -> str:
    """Hash the content of a file or folder.

    Args:
        path: The file or folder.

    Returns:
        SHA-256 of the file; of a folder, a digest of the names and contents of all files below it.
    """
    path = Path(path)
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digests = _hash_files(files)
    if not path.is_dir():
        return digests[path]
    return json_digest([[file.relative_to(path).as_posix(), digests[file]] for file in files])


def _hash_files(files: list[Path]) -> dict[Path, str]:
    cached, states, new = {}, {}, {}
    with contextlib.suppress(OSError, ValueError):  # missing or damaged: it is made again
        cached = json.loads(CACHE.read_text(encoding="utf-8"))
    for file in files:
        stat = file.stat()
        states[file] = state = f"{os.path.abspath(file)} {stat.st_mtime_ns} {stat.st_size} {stat.st_ino}"
        if state not in cached:
            new[state] = sha256_file(file)
    if new:
        write_json(CACHE, cached | new)
    return {file: (cached | new)[state] for file, state in states.items()}
