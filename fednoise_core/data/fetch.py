"""Downloads that are whole and checked, or absent; archives that stay inside their folder. Standard library only."""

from __future__ import annotations

import errno
import glob
import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from fednoise_core.io import ArtifactError, atomic

__all__ = ["extract_tar", "fetch", "file_hash", "gunzip", "intact", "sweep"]

CHUNK = 1 << 18
GONE = frozenset({401, 403, 404, 410, 451})  # asking the same address again does not help
LOCAL = frozenset(  # the disk, not the network
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST}
)
TRANSIENT = (urllib.error.URLError, http.client.HTTPException, OSError)


class _Broken(Exception):
    """What arrived is not the file."""


def file_hash(path: str | os.PathLike[str], kind: str) -> str:
    """Hex digest of a file; `kind` is "md5" or "sha256"."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def intact(path: str | os.PathLike[str], expected: str) -> bool:
    """Whether `path` is a file with this digest: "md5:<hex>" or "sha256:<hex>"."""
    kind, _, value = expected.partition(":")
    return Path(path).is_file() and file_hash(path, kind) == value


def fetch(
    urls: Sequence[str],
    path: str | os.PathLike[str],
    expected: str,
    *,
    attempts: int = 3,
    timeout: float = 30.0,
    deadline: float = 3600.0,
    pause: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Put the file with digest `expected` ("md5:<hex>" or "sha256:<hex>") at `path` and return it.

    Nothing is asked if it is already there. Each address is tried in turn, up to `attempts` times, with pauses of
    `pause`, 2 `pause`, 4 `pause` … seconds between the turns. A server may be silent for `timeout` seconds, and a whole
    try may take `deadline` seconds. What arrives goes to a temporary file that takes the name if the digest is right.

    Raises ArtifactError naming the file and what went wrong at each address; then nothing is left at `path`. Two
    processes must not fetch the same file at once: what a killed one left beside it is removed.
    """
    path = Path(path)
    if intact(path, expected):
        return path
    sweep(path)
    left, problems = list(urls), dict.fromkeys(urls, "")
    for attempt in range(attempts):
        if attempt and left:
            sleep(pause * 2 ** (attempt - 1))
        for url in tuple(left):
            try:
                _download(url, path, expected, timeout, time.monotonic() + deadline)
                return path
            except urllib.error.HTTPError as error:
                problems[url] = f"the server answered {error.code} {error.reason}"
                error.close()
                if error.code in GONE:
                    left.remove(url)
            except _Broken as error:
                problems[url] = str(error)
            except TRANSIENT as error:
                if isinstance(error, OSError) and error.errno in LOCAL:
                    raise ArtifactError(f"{path}: cannot be written ({error.strerror})") from error
                problems[url] = f"{type(error).__name__}: {getattr(error, 'reason', '') or error}"
    path.unlink(missing_ok=True)  # a damaged file from before
    text = "; ".join(f"{url}: {problem}" for url, problem in problems.items())
    raise ArtifactError(f"{path.name} could not be downloaded ({text})")


def sweep(path: Path) -> None:
    """Remove temporary files and folders that a killed process left beside `path` while it made it."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)


def _download(url: str, path: Path, expected: str, timeout: float, until: float) -> None:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url}: not an http address")
    kind, _, value = expected.partition(":")
    hasher = hashlib.new(kind, usedforsecurity=False)
    request = urllib.request.Request(url, headers={"User-Agent": "fednoise_core"})
    with urllib.request.urlopen(request, timeout=timeout) as answer, atomic(path, "wb") as file:
        promised = answer.headers.get("Content-Length")
        size = 0
        while chunk := answer.read1(CHUNK):
            if time.monotonic() > until:
                raise _Broken(f"too slow: {size} bytes so far")
            size += len(chunk)
            hasher.update(chunk)
            file.write(chunk)
        if promised is not None and size != int(promised):
            raise _Broken(f"cut off: {size} of {promised} bytes arrived")
        if hasher.hexdigest() != value:
            raise _Broken(f"wrong content: {kind} {hasher.hexdigest()}, {value} expected")


def gunzip(archive: Path, path: Path) -> None:
    """Unpack one .gz file to `path`, whole or not at all. Raises ArtifactError for a damaged archive."""
    try:
        with gzip.open(archive) as source, atomic(path, "wb") as target:
            shutil.copyfileobj(source, target, CHUNK)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ArtifactError(f"{archive}: damaged archive ({error})") from error


def extract_tar(archive: Path, folder: Path, top: str) -> Path:
    """Unpack the directory `top` of a tar archive to `folder/top`, whole or not at all; return it.

    Members that would leave the folder (absolute paths, "..", links out of it) and devices are refused: Python's "data"
    filter. So is anything beside `top`. Raises ArtifactError naming the archive; then nothing is left.
    """
    if not hasattr(tarfile, "data_filter"):
        raise ArtifactError(f"{archive}: unpacking it safely needs Python 3.11.4 or newer")
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder / top)
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=f".{top}.", suffix=".tmp"))
    try:
        with tarfile.open(archive) as tar:
            _inside(tar, top)
            tar.extractall(scratch, filter="data")
        if not (scratch / top).is_dir():
            raise ArtifactError(f"{archive}: it holds no folder {top}")
        target = folder / top
        if target.exists():
            shutil.rmtree(target)
        os.replace(scratch / top, target)
        return target
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ArtifactError(f"{archive}: cannot be unpacked ({type(error).__name__}: {error})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _inside(tar: tarfile.TarFile, top: str) -> None:
    for member in tar:
        if member.name.split("/")[0] != top or ".." in member.name.split("/"):
            raise tarfile.TarError(f"member {member.name!r} is not inside {top}")
