"""What each method's page says in its front matter is what its class and its runs say."""

import pytest
from cases import MODEL, traffic

from fednoise_core.methods import METHODS, method_class
from workflow_scripts.docgen.pages import read_facts

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_passes_are_those_of_the_code(name: str) -> None:
    assert read_facts(name)["passes"] == method_class(name).passes


@every_method
def test_what_crosses_and_stays_is_what_a_run_shows(name: str, played) -> None:
    """On the toy world: bytes of FedAvg where the page says "the model" and nothing else, and things that clients keep
    unless it says "nothing". (Its net has no normalisation layers, so that FedBN sends what FedAvg does.)
    """
    made, row = played(name).run, read_facts(name)
    sends_the_model = traffic(name, made) == [(0, 0)] + [(4 * MODEL, 4 * MODEL)] * 3
    assert sends_the_model == (row["traffic"] == "the model" or name == "fedbn")
    assert any(made.outcome.state.clients.values()) == (row["client_state"] != "nothing")
