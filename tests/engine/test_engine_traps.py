"""Traps of client-side code either raise or behave the same on every executor."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import toy
from toy import Plain

from fednoise_core.engine.federation import SERVER
from fednoise_core.engine.local import Work
from fednoise_core.engine.loop import Saving, Stopped
from fednoise_core.engine.phase import Phase
from fednoise_core.engine.state import State, load_checkpoint, save_checkpoint
from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import weights
from fednoise_core.ops.stats import two_groups


def fit(fed: Any, local: Any, state: State | None = None, clients: Any = (0, 3), **options: Any) -> Any:
    return fed.fit(local, state or State(round=1), list(clients), {"model": fed.init_weights("model")}, **options)


# rows and positions


class Rows(Plain):
    """Client 3 (12 samples) prepares `work`."""

    work: Work

    def prepare_fit(self, client, broadcast):
        return type(self).work if client.id == 3 else None


class Few(Rows):
    work = Work(targets=torch.zeros(3, dtype=torch.int64))


class FewAux(Rows):
    work = Work(aux={"w": torch.ones(13)})


class FewState(Rows):
    work = Work(state={"t": torch.ones(2, 5)})


class Beyond(Rows):
    work = Work(samples=torch.tensor([0, 12]))


class Below(Rows):
    work = Work(more={"rest": torch.tensor([-1, 3])})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Few, r"Few: client 3: Work\.targets has 3 rows; it needs one for each of the 12 samples"),
        (FewAux, r"client 3: Work\.aux\['w'\] has 13 rows"),
        (FewState, r"client 3: Work\.state\['t'\] has 2 rows"),
        (Beyond, r"client 3: Work\.samples names a position that is not among the 12 samples"),
        (Below, r"client 3: Work\.more\['rest'\] names a position"),
    ],
)
def test_work_that_does_not_fit_the_samples_is_refused(executor, kind, message):
    with toy.federation_on(executor) as fed, pytest.raises((ValueError, RuntimeError), match=message):
        fit(fed, kind(fed.train))


# rates by step


class Notes(Plain):
    """Sends up the rates that client-side code sees."""

    def prepare_fit(self, client, broadcast):
        return Work(facts={"prepared": float(broadcast["lr"])})

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {
            "rates": torch.tensor([client_state["prepared"], float(broadcast["lr"])]),
            "model": carry["model"].values(),
        }


def falling(step: int, steps: int) -> float:
    return 0.1 * (1 - step / (steps - 1))


def test_outside_the_steps_the_rate_is_that_of_the_first_step(executor):
    with toy.federation_on(executor) as fed:
        _, updates = fit(fed, Notes(fed.train), lr=falling)
    for update in updates:
        torch.testing.assert_close(update["rates"], torch.tensor([0.1, 0.1]))


def test_a_function_that_cannot_reach_a_worker_is_refused():
    with toy.federation_on("workers:2") as fed, pytest.raises(TypeError, match="stand at the top level of a module"):
        fit(fed, Plain(fed.train), lr=lambda step, steps: 0.1)


# between epochs


class Relabels(Plain):
    """Gives every sample class 1 after the first epoch, and counts this in its state."""

    def between_epochs(self, client, carry, broadcast, epoch):
        client.targets = torch.ones_like(client.labels)
        client.state["count"] = client.state.get("count", 0) + 1

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {"model": carry["model"].values(), "count": client_state["count"]}


class Ones(Plain):
    """The same by a Work."""

    def between_epochs(self, client, carry, broadcast, epoch):
        return Work(targets=torch.ones_like(client.labels))


def test_relabelling_between_epochs_acts_at_once(executor):
    with toy.federation_on(executor, train={"batch": 20}) as fed:
        _, (update,) = fit(fed, Relabels(fed.train), clients=[0])
        _, (same,) = fit(fed, Ones(fed.train), State(round=1), clients=[0], tag="other")
    assert update["count"] == 1
    torch.testing.assert_close(update["model"].flat, same["model"].flat, rtol=1e-4, atol=1e-6)


class Breaks(FedAvg):
    """Client 3's model is not a number after its first epoch; code between epochs and afterwards would trip over it."""

    def prepare_fit(self, client, broadcast):
        return Work(facts={"bad": float(client.id == 3)})

    def compute_objective(self, net, w, batch, broadcast, client_state):
        return super().compute_objective(net, w, batch, broadcast, client_state) * (
            1 + torch.nan * client_state["bad"] if client_state["bad"] else 1
        )

    def between_epochs(self, client, carry, broadcast, epoch):
        assert torch.isfinite(carry["model"].values().flat).all()

    def after_fit(self, client, update, broadcast):
        assert torch.isfinite(update["model"].flat).all()
        return update


def test_client_code_never_meets_a_model_that_is_not_finite():
    fed = toy.toy_federation()
    clients, _ = fit(fed, Breaks(train=fed.train))
    assert clients == [0]
    assert fed.dropped == [3]


def test_a_loss_that_overflowed_is_a_large_one():
    p = two_groups(np.array([0.1, 0.11, 0.12, 5.0, np.nan, np.inf]), seed=0)
    assert (p > 0.5).tolist() == [False] * 3 + [True] * 3
    assert two_groups(np.full(3, np.nan), seed=0).tolist() == [0.0] * 3


# clients' state and the wire


def lengthens(client, broadcast):
    client.state["history"].append(1.0)


@pytest.mark.parametrize("room", [0, 1 << 30])
def test_a_list_that_is_changed_in_place_is_kept(executor, room):
    with toy.federation_on(executor) as fed:
        state = State(clients={0: {"history": [0.0]}}, round=1)
        state.move_to(None, room, torch.device("cpu"))
        fed.run_on_clients(state, [0], lengthens)
        assert state.clients[0]["history"] == [0.0, 1.0]


def test_arrays_are_neither_sent_nor_kept():
    for tree_of in ({"x": np.zeros(3)}, [np.int64(1)], {1, 2}):
        with pytest.raises(TypeError, match=r"torch\.from_numpy"):
            weights.count_bytes(tree_of)
    with pytest.raises(TypeError, match="a checkpoint holds tensors"):
        weights.to_plain({"x": np.zeros(3)})
    assert type(weights.to_plain(np.float64(0.5))) is float


# drops and draws on the way into a phase


class Enters(FedAvg):
    """Fits with the cohort's own tag on the way into its second phase."""

    def list_phases(self, fed):
        return [Phase("one", self.run_round, 1), Phase("two", self.run_round, 3, enter=self.look)]

    def look(self, fed, state):
        fed.fit(self, state, fed.sample_cohort(state.round), self.make_broadcast(fed, state))


def test_a_fit_on_the_way_into_a_phase_has_draws_of_its_own(tmp_path):
    method, path, stop = Enters(train=toy.toy_federation().train), tmp_path / "checkpoint.pt", iter([True])
    full_run = toy.run_method(method)
    with pytest.raises(Stopped):
        toy.run_method(method, saving=Saving(path, "key", stop=lambda: next(stop)))
    resumed = toy.run_method(method, saving=Saving(path, "key", rounds=1))
    assert toy.same_state(resumed.state, full_run.state)


class Loses(Enters):
    """Client 0 is not finite on the way in."""

    def look(self, fed, state):
        broadcast = self.make_broadcast(fed, state)
        fed.fit(
            self, state, [0, 3], broadcast, per_client=[{"bad": torch.tensor(torch.inf)}, {"bad": torch.tensor(1.0)}]
        )

    def correct_gradient(self, grad, w, broadcast, client_state):
        if "bad" in broadcast:
            grad.mul_(broadcast["bad"])


def test_updates_dropped_on_the_way_into_a_phase_are_reported():
    record = toy.run_method(Loses(train=toy.toy_federation().train)).record
    assert [(row[0], row[6]) for row in record.metrics if row[5] == "dropped_updates"] == [(2, 1.0)]


# the server's own training, and checkpoints


def test_diverging_training_on_the_server_is_reported():
    fed = toy.toy_federation()
    with pytest.raises(SpecError, match=r"the server's own training .* diverges"):
        fed.fit(
            Plain(fed.train), State(round=1), [SERVER], {"model": fed.init_weights("model")}, on="public", lr=math.inf
        )


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("no room"), PermissionError(13, "no")])
def test_a_checkpoint_is_not_blamed_for_the_machine(error, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, "key", State(server={"x": torch.zeros(2)}), {})

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(torch, "load", fails)
    with pytest.raises(type(error)):
        load_checkpoint(path, "key", torch.device("cpu"))
    assert path.exists()


def test_mixed_nets_take_the_same_steps_together(toy_nets):
    """If one net cannot normalise a last batch of one, no net takes it."""
    fed = toy.toy_federation(train={"net": ["toy_norm_point", "mlp"]})

    class Says(Plain):
        def make_message(self, net, carry, batch, broadcast, client_state):
            return {"i": batch.i}

        def train_step(self, net, carry, batch, broadcast, client_state):
            seen.append(batch.i.tolist())

    seen: list[list[int]] = []
    each = [{"model": fed.init_weights("m", client=c)} for c in (0, 3)]
    options = {"ids": torch.arange(10), "batch": 3, "epochs": 2, "per_client": each}
    fed.fit_lockstep(Says(fed.train), State(round=1), [0, 3], {}, lambda messages: [{}] * 2, **options)
    assert seen[::2] == seen[1::2]
    assert all(len(i) == 3 for i in seen)
