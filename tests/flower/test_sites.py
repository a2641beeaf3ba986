"""The federation of sites, with the messages carried inside this process: what the sites compute is bit-equal."""

from pathlib import Path

import pytest
import toy

from fednoise_core.engine.state import State
from fednoise_core.flower.folders import write_folders
from fednoise_core.flower.server import run_on_sites
from fednoise_core.flower.site import Site
from fednoise_core.methods import METHODS
from fednoise_core.testing import world
from fednoise_core.testing.compare import same_state
from fednoise_core.testing.subject import Subject


class Desk:
    """Carries requests to sites in this process, each made anew for each request, and counts bytes."""

    def __init__(self, out: Path):
        self.out, self.down, self.up = out, 0, 0

    def __call__(self, requests, wait):
        answers = {client: Site(self.out / f"site-{client}").answer(one) for client, one in requests.items()}
        self.down += sum(map(len, requests.values()))
        self.up += sum(map(len, answers.values()))
        return answers


def write_toy_sites(out: Path, method, train) -> None:
    write_folders(out, world.arrays(), world.toy_labels().noisy, world.toy_partition(), method, train, 0)


def collect_client_states(out: Path, state: State) -> dict:
    """What the sites hold, by the versions that the server names."""
    return {c: Site(out / f"site-{c}").load_state(state.store.copy_for(c)["version"]) for c in state.store}


@pytest.mark.parametrize("name", METHODS.keys() - {"centralised"})
def test_every_method_is_bit_equal_to_the_simulation(name: str, tmp_path: Path):
    fields, train = toy.settings(name)
    subject = Subject(fields, train)
    whole = subject.play()
    write_toy_sites(tmp_path, subject.method, subject.train)
    desk = Desk(tmp_path)
    made = run_on_sites(tmp_path / "server", desk, dict(enumerate(world.SIZES)))
    expected = whole.outcome.state
    assert same_state(made.state.server, expected.server)
    assert same_state(made.state.notes, expected.notes)
    kept = {c: expected.store.copy_for(c) for c in expected.store}
    assert same_state(collect_client_states(tmp_path, made.state), kept)
    assert (made.fed.bytes_down, made.fed.bytes_up) == (whole.outcome.fed.bytes_down, whole.outcome.fed.bytes_up)
