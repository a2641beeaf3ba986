"""Real federations: SuperLink and SuperNodes of Flower as processes. `make test-flower`."""

from pathlib import Path

import numpy as np
import pytest
import torch
import toy

pytest.importorskip("flwr", reason="needs Flower: pip install fednoise_core[flower]")

from flower_processes import Processes

import fednoise_core as fn
from fednoise_core.api.simulate import run_federation
from fednoise_core.engine.state import State, load_checkpoint
from fednoise_core.flower.folders import RunSettings, write_folders
from fednoise_core.flower.site import Site
from fednoise_core.io import json_digest
from fednoise_core.testing.compare import same_state

SITES = 4
NINE = ["fedavg", "scaffold", "coteaching", "feddpcont", "fedcorr", "fednoro", "fedmd", "rhfl", "dividemix"]


def simulate_digits(name: str, out: Path, rounds: int = 5, fraction: float = 0.5):
    """The simulation's run, and the folders of the same run."""
    arrays = fn.dataset("digits")
    labels = fn.inject(arrays, {"kind": "symmetric", "rate": 0.4}, seed=0)
    partition = fn.partition_of(arrays, {"kind": "iid", "clients": SITES}, seed=0)
    method, train = toy.settings(name, rounds=rounds, fraction=fraction, batch=32)
    write_folders(out, arrays, labels.noisy, partition, method, train, 0)
    return run_federation(arrays, labels, partition, method, train, 0)


def load_state(out: Path) -> State:
    """The server's state after the run."""
    sizes = [Site(out / f"site-{c}").world.sizes[c] for c in range(SITES)]
    key = json_digest(RunSettings.load(out / "server").digest, sizes)
    return load_checkpoint(out / "server" / "checkpoint.pt", key, torch.device("cpu"))[0]


def assert_same_as_simulated(out: Path, expected: State) -> None:
    state = load_state(out)
    assert state.round == expected.round
    assert same_state(state.server, expected.server)
    assert same_state(state.notes, expected.notes)
    held = {c: Site(out / f"site-{c}").load_state(state.store.copy_for(c)["version"]) for c in state.store}
    assert same_state(held, {c: expected.store.copy_for(c) for c in expected.store})


@pytest.mark.parametrize("name", NINE)
def test_a_method_is_bit_equal_to_the_simulation(name: str, tmp_path: Path):
    simulated = simulate_digits(name, tmp_path)
    with Processes(tmp_path) as running:
        for client in range(SITES):
            running.start_node(client)
        running.run_app()
    assert_same_as_simulated(tmp_path, simulated.outcome.state)
    for client in range(SITES):
        rows = np.genfromtxt(tmp_path / f"site-{client}" / "suspects.csv", delimiter=",", skip_header=1, usecols=0)
        assert len(rows) == simulated.world.sizes[client]
