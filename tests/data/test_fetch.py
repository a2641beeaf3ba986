import hashlib
from pathlib import Path
from typing import Any

import pytest
from toy_data import web as web

from fednoise_core.data.fetch import fetch, is_intact
from fednoise_core.io import ArtifactError

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def get(web: Any, path: Path, *names: str) -> Path:
    return fetch([web.url + name for name in names], path, SHA256, timeout=0.5)


def test_a_file_arrives_whole_from_the_next_address_and_is_not_asked_for_again(web: Any, tmp_path: Path) -> None:
    web.files["/good"] = CONTENT
    path = get(web, tmp_path / "new" / "file.bin", "gone", "good")
    assert path.read_bytes() == CONTENT
    assert is_intact(path, SHA256)
    assert get(web, path, "good") == path
    assert web.asked == ["/gone", "/good"]
    path.write_bytes(CONTENT[:1000])  # a damaged file from before is replaced
    assert get(web, path, "good").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (CONTENT[:-1], "wrong content: SHA-256 [0-9a-f]{64}, [0-9a-f]{64} expected"),
        (503, "HTTP Error 503"),
        (2.0, "timed out"),
    ],
)
def test_a_failure_is_named_and_leaves_nothing(web: Any, tmp_path: Path, answer: bytes | float, message: str) -> None:
    web.files["/bad"] = answer
    with pytest.raises(ArtifactError, match=rf"file\.bin could not be downloaded \(http.*/bad: .*{message}"):
        get(web, tmp_path / "file.bin", "bad")
    assert list(tmp_path.iterdir()) == []
