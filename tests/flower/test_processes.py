"""Real federations: SuperLink and SuperNodes of Flower as processes. `make test-flower`."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
import toy

pytest.importorskip("flwr", reason="needs Flower, which `make test-flower` installs")

from flower_processes import CountingProxy, Processes, kill_group

import fednoise_core as fn
from fednoise_core.api.simulate import run_federation
from fednoise_core.engine.state import State, load_checkpoint
from fednoise_core.flower.folders import RunSettings, write_folders
from fednoise_core.flower.site import Site
from fednoise_core.io import json_digest
from fednoise_core.testing.compare import same_state

SITES = 4
NINE = ["fedavg", "scaffold", "coteaching", "feddpcont", "fedcorr", "fednoro", "fedmd", "rhfl", "dividemix"]
OWN = "contract_methods:Pulled"  # in tests/support, which server and sites have on their path


def simulate_digits(name: str, out: Path, rounds: int = 5, fraction: float = 0.5, sites: int = SITES, **settings):
    """The simulation's run, and the folders of the same run."""
    arrays = fn.dataset("digits")
    labels = fn.inject(arrays, {"kind": "symmetric", "rate": 0.4}, seed=0)
    partition = fn.partition_of(arrays, {"kind": "iid", "clients": sites}, seed=0)
    method, train = toy.settings(name, rounds=rounds, fraction=fraction, batch=32, **settings)
    write_folders(out, arrays, labels.noisy, partition, method, train, 0)
    return run_federation(arrays, labels, partition, method, train, 0)


def list_sites(out: Path) -> range:
    return range(len(list(out.glob("site-*/site.npz"))))


def load_state(out: Path) -> State:
    """The server's state after the run."""
    sizes = [Site(out / f"site-{c}").world.sizes[c] for c in list_sites(out)]
    key = json_digest(RunSettings.load(out / "server").digest, sizes)
    return load_checkpoint(out / "server" / "checkpoint.pt", key, torch.device("cpu"))[0]


def assert_same_as_simulated(out: Path, expected: State) -> None:
    state = load_state(out)
    assert state.round == expected.round
    assert same_state(state.server, expected.server)
    assert same_state(state.notes, expected.notes)
    client_states = {c: Site(out / f"site-{c}").load_state(state.store.copy_for(c)["version"])[0] for c in state.store}
    assert same_state(client_states, {c: expected.store.copy_for(c) for c in expected.store})


@pytest.mark.parametrize(("name", "rounds"), [*((name, 5) for name in NINE), (OWN, 3)])
def test_a_method_is_bit_equal_to_the_simulation(name: str, rounds: int, tmp_path: Path):
    simulated = simulate_digits(name, tmp_path, rounds)
    with Processes(tmp_path) as running:
        for client in range(SITES):
            running.start_node(client)
        running.run_app()
    assert_same_as_simulated(tmp_path, simulated.outcome.state)
    for client in range(SITES):
        rows = np.genfromtxt(tmp_path / f"site-{client}" / "suspects.csv", delimiter=",", skip_header=1, usecols=0)
        assert len(rows) == simulated.world.sizes[client]


def start_all(running: Processes) -> None:
    for client in list_sites(running.out):
        running.start_node(client)


def test_bytes_on_the_wire_are_those_that_the_simulation_counts_and_frames(tmp_path: Path):
    rounds = 2
    net = {"name": "mlp", "hidden": 20000}  # a message of 6 MB
    counted = simulate_digits("fedavg", tmp_path, rounds, fraction=1.0, net=net).outcome.fed
    with Processes(tmp_path) as running, closing(CountingProxy(running.node_address)) as proxy:
        running.node_address = proxy.address
        start_all(running)
        running.run_app()
    down = counted.bytes_down * (rounds + 1) / rounds  # sites judge their labels with the final model
    assert 1 < proxy.up / counted.bytes_up < 1.02, (proxy.up, counted.bytes_up)
    assert 1 < proxy.down / down < 1.02, (proxy.down, down)


def test_a_node_that_dies_and_one_that_hangs_are_left_out_until_they_are_back(tmp_path: Path):
    simulate_digits("fedavg", tmp_path, rounds=9, fraction=1.0)
    with Processes(tmp_path, deadline=60.0) as running:
        start_all(running)
        run = running.start_app()
        running.wait_for_log("run", "round 1/9")
        os.killpg(running.nodes[2].pid, signal.SIGSTOP)
        kill_group(running.nodes[3])
        running.wait_for_log("run", "left out: clients 2, 3")
        os.killpg(running.nodes[2].pid, signal.SIGCONT)
        running.start_node(3)
        assert run.wait(400) == 0
        log = running.read_log("run")
    assert "client 3: no answer before the deadline" in log
    state = load_state(tmp_path)
    assert state.round == 9
    last = log.partition("round 8/9")[2]
    assert "left out" not in last, "both are back"


def test_a_killed_server_resumes(tmp_path: Path):
    simulated = simulate_digits("scaffold", tmp_path, rounds=4, sites=2)
    for killed in (True, False):
        with Processes(tmp_path) as running:
            start_all(running)
            if killed:
                running.start_app()
                running.wait_for_log("run", "round 2/4")
            else:
                assert "resumed from round" in running.run_app()
    assert_same_as_simulated(tmp_path, simulated.outcome.state)


def test_encrypted_with_authenticated_nodes(tmp_path: Path):
    """A node whose key is not registered cannot take part."""
    simulated = simulate_digits("fedavg", tmp_path, rounds=1, fraction=1.0, sites=2)
    with Processes(tmp_path, secure=True) as running:
        keys = tmp_path / "keys"
        running.start_node(0, "--auth-supernode-private-key", f"{keys}/node0")
        running.wait_for_log("link", "No SuperNode found with the given public key")
        for client in list_sites(tmp_path):
            command = ("flwr", "supernode", "register", f"{keys}/node{client}.pub", "here")
            assert running.start(*command, log="register").wait(60) == 0
            kill_group(running.nodes[client]) if client in running.nodes else None
            running.start_node(client, "--auth-supernode-private-key", f"{keys}/node{client}")
        running.run_app()
    assert_same_as_simulated(tmp_path, simulated.outcome.state)


def test_a_node_with_other_settings_is_refused(tmp_path: Path):
    simulate_digits("fedavg", tmp_path, rounds=1, fraction=1.0)
    file = tmp_path / "site-3" / "run.json"
    file.write_text(file.read_text().replace('"lr": 0.', '"lr": 1.'))
    with Processes(tmp_path, deadline=60.0) as running:
        start_all(running)
        run = running.start_app()
        running.wait_for_log("run", "the server has other settings or other code")
        kill_group(run)


def can_start_for_users() -> bool:
    try:
        return subprocess.run([sys.executable, "-c", ""], user=60001).returncode == 0
    except PermissionError:
        return False


@pytest.mark.skipif(not can_start_for_users(), reason="needs root, and a Python that other users can start")
def test_sites_of_four_users_cannot_read_each_other():
    with tempfile.TemporaryDirectory() as folder:
        out, users = Path(folder), [60001 + client for client in range(SITES)]
        out.chmod(0o711)
        simulated = simulate_digits("fedavg", out, rounds=1, fraction=1.0)
        with Processes(out) as running:
            for client, user in enumerate(users):
                home = out / f"home-site-{client}"
                home.mkdir()
                for path in (home, out / f"site-{client}", *(out / f"site-{client}").iterdir()):
                    os.chown(path, user, user)
                running.start_node(client, user=user)
            running.run_app()
        assert_same_as_simulated(out, simulated.outcome.state)
        for reader, user in enumerate(users):
            for client in range(SITES):
                read = subprocess.run(["cat", out / f"site-{client}" / "site.npz"], user=user, capture_output=True)
                assert (read.returncode == 0) == (reader == client)
