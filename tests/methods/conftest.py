"""The methods under test, and one run of each on the toy world."""

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
    """Runs with equal ends share one estimate of label errors, which takes half of a short run."""
    judged, estimate = {}, suspects.estimate_label_errors

    def estimate_once(*arguments: Any) -> Any:
        key = pickle.dumps(arguments)
        if key not in judged:
            judged[key] = estimate(*arguments)
        return copy.deepcopy(judged[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspects, "estimate_label_errors", estimate_once)
        yield


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The requests of each call of the executor."""
    calls: list[list[Any]] = []
    work = Sequential.run

    def run(self: Sequential, requests: Any) -> Any:
        calls.append(list(requests))
        return work(self, requests)

    monkeypatch.setattr(Sequential, "run", run)
    return calls


@pytest.fixture(params=METHODS)
def subject(request: pytest.FixtureRequest) -> Any:
    """Every method, in the form that the contract suite expects."""
    import toy

    return toy.subject(request.param)


@pytest.fixture(scope="session")
def played(recorded: Callable[[Any], Any]) -> Callable[[str], Any]:
    """A method's whole run by its name, with its files and checkpoints."""
    import toy

    return lambda name: recorded(toy.subject(name))
