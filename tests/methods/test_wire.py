"""Traffic and access of methods: bytes of every method, no clean labels, no private parts."""

import ast
from pathlib import Path

import numpy as np
import pytest
import toy
from cases import FIELDS, MODEL, traffic

from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.state import State
from fednoise_core.methods import METHODS, make_method
from fednoise_core.methods.local import LocalOnly
from fednoise_core.settings.train import Train
from fednoise_core.testing.wire import Trap, find_reaches, reachable_ids
from workflow_scripts.docgen.pages import read_facts

FOLDER = Path(__file__).parents[2] / "fednoise_core" / "methods"

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_bytes_are_those_of_the_table(name, played):
    run = played(name).run
    expected = traffic(name, run)
    rows = {(row[0], row[5]): row[6] for row in run.outcome.record.metrics if row[3] == ""}
    assert len(expected) == 1 + run.summary["rounds"]
    assert [(rows[r, "bytes_down"], rows[r, "bytes_up"]) for r in range(len(expected))] == expected


@every_method
def test_passes_on_the_page_are_those_of_the_code(name: str) -> None:
    assert read_facts(name)["passes"] == make_method({"name": name, **FIELDS.get(name, {})}, Train()).passes


@every_method
def test_traffic_and_client_state_on_the_page_are_those_of_a_run(name: str, played) -> None:
    """On the toy world: bytes of FedAvg if the page says "the model" and nothing else, and client state unless it says
    "nothing". (Its net has no normalisation layers, so that FedBN sends what FedAvg does.)
    """
    run, row = played(name).run, read_facts(name)
    sends_the_model = traffic(name, run) == [(0, 0)] + [(4 * MODEL, 4 * MODEL)] * 3
    assert sends_the_model == (row["traffic"] == "the model" or name == "fedbn")
    assert any(run.outcome.state.clients.values()) == (row["client_state"] != "nothing")


def test_the_trap_works():
    with pytest.raises(AssertionError, match="clean labels were read"):
        Trap(np.zeros(3))[0]
    with pytest.raises(AssertionError, match="clean labels were read"):
        np.asarray(Trap(np.zeros(3)))
    trap = Trap(np.zeros(3))
    world = toy.toy_world()
    world.hidden = {"deep": [trap]}
    assert id(trap) in reachable_ids(world)


OUTSIDE = {
    "__future__",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "numpy",
    "pydantic",
    "scipy.special",
    "torch",
    "torch.nn.functional",
    "typing",
}
ALLOWED = {
    "fednoise_core.engine.api",
    "fednoise_core.engine.client",
    "fednoise_core.engine.evaluate",
    "fednoise_core.engine.federation",
    "fednoise_core.engine.local",
    "fednoise_core.engine.phase",
    "fednoise_core.engine.state",
    "fednoise_core.io",
    "fednoise_core.ops.discriminant",
    "fednoise_core.ops.losses",
    "fednoise_core.nets.net",
    "fednoise_core.ops.optim",
    "fednoise_core.ops.label_dp",
    "fednoise_core.label_errors.scope",
    "fednoise_core.settings.declare",
    "fednoise_core.settings.train",
    "fednoise_core.ops.stats",
    "fednoise_core.ops.weights",
}


def trespasses(source: str) -> list[str]:
    """Forbidden accesses (`find_reaches`) and imports of a method file."""
    reaches = find_reaches(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module in ("fednoise_core", "fednoise_core.ops"):  # then each name is a module, or gives access to data
                reaches += [f"import {a.name}" for a in node.names if f"{module}.{a.name}" not in ALLOWED]
            elif module not in ALLOWED | OUTSIDE and not module.startswith("fednoise_core.methods"):
                reaches.append(f"import {module}")
            drawn = ("rand", "load", "gc", "seed")
            if module == "fednoise_core.io":  # for its exception, not to read files
                reaches += [f"import {a.name}" for a in node.names if a.name != "SpecError"]
            reaches += [f"import {a.name}" for a in node.names if a.name.startswith(("_", *drawn))]
        if isinstance(node, ast.Import):
            reaches += [f"import {alias.name}" for alias in node.names if alias.name not in OUTSIDE]
    return reaches


NO_METHODS = ("__init__.py", "own.py")  # the registry, and the reader of a user's own class


@pytest.mark.parametrize("file", sorted(p.name for p in FOLDER.glob("*.py") if p.name not in NO_METHODS))
def test_method_files_keep_out_of_private_parts(file):
    assert trespasses((FOLDER / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "fed.world.labels",
        "client._targets",
        "state.relabelled[0]",
        "getattr(fed, '_world')",
        "torch.randperm(3)",
        "np.random.rand()",
        "from fednoise_core.engine.world import World",
        "import fednoise_core.engine.truth",
        "torch.manual_seed(0)",
        "client._world.index",
        "state.clients[0]['y']",
        "from fednoise_core import dataset",
        "from sklearn.datasets import load_digits",
        "np.load('labels.npz')",
        "open('labels.npz')",
        "import gc",
        "from fednoise_core.io import load_npz",
        "from random import random",
        "from torch import rand",
        "torch.rand_like(x)",
    ],
)
def test_the_search_for_trespasses_finds_them(line):
    assert trespasses(line)


@pytest.mark.parametrize(
    "peek",
    [
        lambda clients: next(iter(clients.values())),
        lambda clients: clients[next(iter(clients))],
        lambda clients: clients.get(next(iter(clients))),
        lambda clients: next(iter(clients.items())),
    ],
)
def test_server_code_cannot_read_what_clients_keep(peek, monkeypatch):
    def nosy(self, fed, state, candidates=None):
        peek(state.clients)

    monkeypatch.setattr(LocalOnly, "run_round", nosy)
    with pytest.raises(WireError, match="what a client keeps is its own"):
        toy.play("local")
    state = State(clients={3: {"model": 1}})
    assert peek(state.clients)  # open to the engine, and after the run
