"""What the user's own files hold, as SHA-256. Contents decide what runs again; they are read once for each state of a
file (time, size, inode), which build/contents.sqlite remembers.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from fednoise_core.io import digest, sha256_file

__all__ = ["content"]

CACHE = Path("build/contents.sqlite")


def content(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file; of a folder, a digest of the names and contents of all files below it."""
    path = Path(path)
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    found = _hashes(files)
    if not path.is_dir():
        return found[path]
    return digest([[file.relative_to(path).as_posix(), found[file]] for file in files])


def _hashes(files: list[Path]) -> dict[Path, str]:
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(CACHE, timeout=60)) as cache:
        with suppress(sqlite3.OperationalError):
            cache.execute("CREATE TABLE IF NOT EXISTS seen (path TEXT PRIMARY KEY, state TEXT, sha256 TEXT)")
        known = dict(cache.execute("SELECT path || '|' || state, sha256 FROM seen"))
        found: dict[Path, str] = {}
        new: list[tuple[str, str, str]] = []
        for file in files:
            name, stat = os.path.abspath(file), file.stat()
            state = f"{stat.st_mtime_ns} {stat.st_size} {stat.st_ino}"
            if (value := known.get(f"{name}|{state}")) is None:
                value = sha256_file(file)
                new.append((name, state, value))
            found[file] = value
        with cache:
            cache.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", new)
    return found
