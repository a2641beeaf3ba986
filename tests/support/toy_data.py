"""Small copies of every data set's layout, for the tests of the readers."""

import gc
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fednoise_core.data import human
from fednoise_core.data.arrays import content_sha256
from fednoise_core.data.facts import Facts
from fednoise_core.data.settings import load_source

Content = dict[str, np.ndarray]
CLOTHES = "T-Shirt Shirt Knitwear Chiffon Sweater Hoodie Windbreaker Jacket Downcoat Suit Shawl Dress Vest Underwear"


def toy(shape: tuple[int, ...], n: int = 30, m: int = 20, classes: int = 10) -> Content:
    """Random images; labels count up."""
    draw = np.random.default_rng(0)
    return {
        "x_train": draw.integers(0, 256, (n, *shape), dtype=np.uint8),
        "y_train": (np.arange(n) % classes).astype(np.uint8),
        "x_test": draw.integers(0, 256, (m, *shape), dtype=np.uint8),
        "y_test": (np.arange(m) % classes).astype(np.uint8),
    }


def pretend(monkeypatch: pytest.MonkeyPatch, source: str, content: Content) -> None:
    """Let `content` be the published data set of that name."""
    kind = load_source(source)
    facts = kind.published
    hashes = {name: content_sha256(array) for name, array in content.items()}
    n, m, shape = len(content["y_train"]), len(content["y_test"]), content["x_train"].shape[1:]
    monkeypatch.setattr(kind, "published", Facts(n, m, shape, facts.names, facts.mean, facts.std, hashes))


def pretend_human(monkeypatch: pytest.MonkeyPatch, source: str, content: Content) -> Content:
    """Human labels of `content`: set number i is the label plus i; let them be the published ones."""
    labels = {key: ((content["y_train"] + i) % 10).astype(np.uint8) for i, key in enumerate(human.KEYS[source])}
    monkeypatch.setitem(human.KEYS, source, {key: content_sha256(value) for key, value in labels.items()})
    return labels


def picture(path: Path, value: int, size: tuple[int, int] = (8, 6)) -> None:
    """A plain colour image (width, height) whose red is `value`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 255 - value, 0)).save(path)


def photos(root: Path) -> Path:
    """train: cat 0..3, dog 4..7; test: cat 8, dog 9, emu 10; red is 10 times the number."""
    for number in range(8):
        picture(root / "train" / ("cat" if number < 4 else "dog") / f"{number}.png", 10 * number)
    for number, name in ((8, "cat"), (9, "dog"), (10, "emu")):
        picture(root / "test" / name / f"{number}.png", 10 * number)
    return root


def photo_table(root: Path) -> Path:
    """labels.csv: given labels and owners 0, 1 of the training photos, last file first."""
    labels = ["cat", "dog", "cat", "cat", "emu", "emu", "emu", "emu"]
    rows = [f"{'cat' if i < 4 else 'dog'}/{i}.png,{label},{i % 2}" for i, label in enumerate(labels)]
    (root / "labels.csv").write_text("file,label,client\n" + "\n".join(reversed(rows)))
    return root / "labels.csv"


def clothing(root: Path) -> Path:
    """Clothing1M's official layout: 24 web images, 4 clean test and 2 clean validation images, 14 classes."""
    draw = np.random.default_rng(0)
    paths = [f"images/{i % 10}/{i // 10}/{i},{i * 7}.jpg" for i in range(30)]
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shape = (int(draw.integers(40, 60)), int(draw.integers(40, 60)), 3)
        Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8)).save(root / path)
    lists = {
        "category_names_eng.txt": CLOTHES.split(),
        "noisy_train_key_list.txt": paths[:24],
        "noisy_label_kv.txt": [f"{path} {i % 14}" for i, path in enumerate(paths[:26])],
        "clean_train_key_list.txt": paths[:2],
        "clean_test_key_list.txt": paths[24:28],
        "clean_val_key_list.txt": paths[28:],
        "clean_label_kv.txt": [f"{path} {(i + 1) % 14}" for i, path in enumerate(paths)],
    }
    for name, lines in lists.items():
        (root / name).write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A local server of the dict `files` (path → bytes; an int is a status, a float a silence in seconds); what is not
    in it is 404. `asked` lists the paths.
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    files: dict[str, bytes | int | float] = {}
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = files.get(self.path, 404)
            if isinstance(body, int):
                self.send_error(body)
                return
            if isinstance(body, float):
                time.sleep(body)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield SimpleNamespace(files=files, asked=asked, url=f"http://127.0.0.1:{server.server_port}/")
        server.shutdown()
    gc.collect()  # torchvision leaves answers open that are an error
