"""The methods under test, and a run of each on the small world, made once."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fednoise_core.engine import suspects
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.methods import METHODS
from fednoise_core.testing.plugin import recorded as recorded
from fednoise_core.testing.plugin import whole as whole


@pytest.fixture(scope="module", autouse=True)
def _judged_once() -> Iterator[None]:
    """Runs that end alike judge their labels once: the estimate is half of a short run, and its own tests show it."""
    judged, estimate = {}, suspects.estimate_label_errors

    def estimate_once(*given: Any) -> Any:
        key = pickle.dumps(given)
        if key not in judged:
            judged[key] = estimate(*given)
        return copy.deepcopy(judged[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspects, "estimate_label_errors", estimate_once)
        yield


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
