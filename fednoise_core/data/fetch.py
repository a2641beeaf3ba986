"""Downloads with a checksum. An incomplete download leaves no file. Standard library only."""

import hashlib
import http.client
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from fednoise_core.io import ArtifactError, open_atomic, sha256_file


def is_intact(path: Path, sha256: str) -> bool:
    """Return True if `path` is a file with this SHA-256 (hex)."""
    return path.is_file() and sha256_file(path) == sha256


def fetch(urls: Sequence[str], path: Path, sha256: str, timeout: float = 30.0) -> Path:
    """Download the file with this SHA-256 (hex) to `path`, unless it is already there. Return the path.

    The addresses are tried in order. A server may be silent for `timeout` seconds. Raises ArtifactError with the file
    and the problem at each address.
    """
    if is_intact(path, sha256):
        return path
    problems = []
    for url in urls:
        request = urllib.request.Request(url, headers={"User-Agent": "fednoise_core"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"{url}: {type(error).__name__}: {error}")
            continue
        digest = hashlib.sha256(content).hexdigest()
        if digest == sha256:
            with open_atomic(path, "wb") as file:
                file.write(content)
            return path
        problems.append(f"{url}: wrong content: SHA-256 {digest}, {sha256} expected")
    raise ArtifactError(f"{path.name} could not be downloaded ({'; '.join(problems)})")
