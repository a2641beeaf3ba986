"""Fixtures that several test files share. torch is imported by the tests that need it, not here."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: two threads are slower than one on steps this small

EXECUTORS = ["sequential", "workers:2"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden numbers of methods instead of comparing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that take minutes first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: (item.path.name != "test_smoke.py", item.path.parent.name != "workflow"))


def pytest_collection_finish() -> None:
    """Keep imported and collected objects out of later garbage collections, also in forked processes."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Modules that pytest's plugins import at the end may ask for the referrers of an object."""
    gc.unfreeze()


def pytest_unconfigure() -> None:
    """Let only one of pytest's five collections at the end look at all objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def toy_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nets of the tests' own, by name: with batch normalisation, and with dropout."""
    import toy

    from fednoise_core.nets import NETS

    for name, where in toy.NETS.items():
        monkeypatch.setitem(NETS, name, where)


@pytest.fixture
def double() -> Iterator[None]:
    """Tensors of the test are float64, so that tolerances can be tight."""
    from toy64 import doubled

    with doubled():
        yield


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files with the small world's arrays, labels and partition, by these names."""
    import toy

    folder = tmp_path_factory.mktemp("inputs")
    parts = {"arrays": toy.arrays(), "labels": toy.toy_labels(), "partition": toy.toy_partition()}
    for name, part in parts.items():
        part.save(folder / f"{name}.npz")
    return {name: str(folder / f"{name}.npz") for name in parts}


@pytest.fixture
def config_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a copy of config/ to edit, and no data."""
    shutil.copytree(Path(__file__).parents[1] / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDNOISE_DATA", raising=False)
    return tmp_path


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> str:
    """Every way to run clients' work. Results do not depend on it."""
    return request.param
