"""The methods under test, and a run of each on the small world, made once."""

from collections.abc import Callable
from typing import Any

import pytest

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.methods import METHODS
from fednoise_core.testing.plugin import recorded as recorded
from fednoise_core.testing.plugin import whole as whole


@pytest.fixture(autouse=True)
def _taped(taped: None) -> None:
    """Every method's captured steps run as on a GPU."""


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """What the executor is asked to do: for each call the requests."""
    asked: list[list[Any]] = []
    work = Sequential.run

    def run(self: Sequential, requests: Any) -> Any:
        asked.append(list(requests))
        return work(self, requests)

    monkeypatch.setattr(Sequential, "run", run)
    return asked


@pytest.fixture(params=METHODS)
def subject(request: pytest.FixtureRequest) -> Any:
    """Every method, as the contract suite takes it."""
    import toy

    return toy.subject(request.param)


@pytest.fixture(scope="session")
def played(recorded: Callable[[Any], Any]) -> Callable[[str], Any]:
    """A method's whole run by its name, with its files and checkpoints."""
    import toy

    return lambda name: recorded(toy.subject(name))
