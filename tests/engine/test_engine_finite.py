"""Updates and models that are not finite are dropped and reported, or end the run with advice."""

import io
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest
import torch
import toy

from fednoise_core.engine.evaluate import _name_scores, _score_logits
from fednoise_core.engine.local import Work
from fednoise_core.engine.loop import Diverged
from fednoise_core.engine.output import make_summary
from fednoise_core.engine.state import State
from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.settings.train import Train


@dataclass(frozen=True, kw_only=True)
class Blows(FedAvg):
    """The loss of some clients is multiplied by infinity from some round on; everyone keeps and relabels."""

    bad: tuple[int, ...] = ()
    since: int = 1

    def prepare_fit(self, client, broadcast):
        bad = client.id in self.bad and client.round >= self.since
        client.state["begun"] = client.round
        client.targets = (client.labels + client.round) % client.classes
        return Work(facts={"factor": math.inf if bad else 1.0})

    def compute_objective(self, net, w, batch, broadcast, client_state):
        return super().compute_objective(net, w, batch, broadcast, client_state) * client_state["factor"]

    def make_update(self, net, carry, broadcast, client_state, steps):
        model = carry["model"].values()
        return {"model": model, "client_state": {"own": model}, "relay": {"gift": torch.tensor(float(steps))}}


def blows(**fields: Any) -> Blows:
    train = {**toy.TRAIN, "fraction": 1.0, **fields.pop("train", {})}
    return Blows(train=Train(**train), **fields)


def test_an_update_that_is_not_finite_is_left_out_and_the_client_keeps_what_it_had(executor):
    method = blows(bad=(3, 6), since=2)
    with toy.federation_on(executor) as fed:
        state, model = State(), fed.init_weights("model")
        for state.round in (1, 2):
            clients, updates = fed.fit(method, state, [0, 3, 5, 6], {"model": model})
            if state.round == 1:
                assert clients == [0, 3, 5, 6]
                before = {c: dict(state.clients[c]) for c in (3, 6)}
                bytes_up = fed.bytes_up
    assert clients == [0, 5]
    assert len(updates) == 2
    assert all(torch.isfinite(update["model"].flat).all() for update in updates)
    assert fed.participants == [0, 3, 5, 6] * 2
    assert fed.dropped == [3, 6]
    labels = {c: toy.images_of(fed.world, c)[1] for c in (0, 3, 5, 6)}
    for c in (3, 6):
        assert toy.same_state(dict(state.clients[c]), before[c])
        assert state.clients[c]["begun"] == 1
        assert torch.equal(state.relabelled[c], (labels[c] + 1) % 5)
    for c in (0, 5):
        assert state.clients[c]["begun"] == 2
        assert torch.equal(state.relabelled[c], (labels[c] + 2) % 5)
    # the updates that were left out count as sent, and so do their messages to others, which were not taken in
    assert fed.bytes_up - bytes_up == bytes_up
    assert fed.passes == 2 * 2 * (17 + 12 + 14 + 11)


class KeepsInfinity(Blows):
    """A client may keep infinite numbers beside its models, but not send them."""

    def make_update(self, net, carry, broadcast, client_state, steps):
        model = carry["model"].values()
        bounds = {"bound": math.inf, "each": torch.full((3,), math.inf)}
        return {"model": model, "client_state": {**bounds, "own": model * math.nan} if self.bad else bounds}


def test_kept_models_count_and_other_kept_numbers_do_not(executor):
    with toy.federation_on(executor) as fed:
        state, model = State(round=1), fed.init_weights("model")
        assert fed.fit(KeepsInfinity(train=fed.train), state, [0], {"model": model}).participants == [0]
        assert math.isinf(state.clients[0]["bound"])
        assert fed.fit(KeepsInfinity(train=fed.train, bad=(9,)), state, [3], {"model": model}).participants == []
    assert 3 not in state.clients


def test_a_run_goes_on_without_them_and_says_so(executor):
    console = io.StringIO()
    outcome = toy.run_method(blows(bad=(3, 6), since=2), executor, console=console, label="study/x/seed0")
    dropped = [(row[0], row[6]) for row in outcome.record.metrics if row[5] == "dropped_updates"]
    assert dropped == [(2, 2.0), (3, 2.0)]
    summary = make_summary(outcome, {})
    assert summary["dropped_updates"] == 4
    assert "diverged" not in summary
    assert summary["accuracy"]["last"] is not None
    lines = [line for line in console.getvalue().splitlines() if "dropped" in line]
    assert lines == [f"study/x/seed0  round {r}: not finite, dropped: the update of clients 3, 6" for r in (2, 3)]
    # by hand: rounds 2 and 3 are those of a federation of the five others
    state = outcome.state
    assert torch.isfinite(state.server["model"].flat).all()
    with toy.federation_on(executor, train={"fraction": 1.0}) as fed:
        method, expected = blows(), State(server={"model": fed.init_weights("model")})
        for expected.round in (1, 2, 3):
            order = [c for c in fed.sample_cohort(expected.round) if expected.round == 1 or c not in (3, 6)]
            clients, updates = fed.fit(method, expected, order, method.make_broadcast(fed, expected))
            method.merge_updates(fed, expected, clients, updates)
    assert toy.same_state(expected.server, state.server)


def test_if_no_update_is_finite_the_run_ends_and_says_what_to_do(executor):
    method = blows(bad=tuple(range(8)), since=2, train={"lr": 0.125, "clip": 3.0})
    with pytest.raises(Diverged) as caught:
        toy.run_method(method, executor, label="study/x/seed0")
    assert isinstance(caught.value, SpecError)
    named = ", ".join(map(str, sorted(toy.toy_federation(train={"fraction": 1.0}).sample_cohort(2))))
    assert str(caught.value) == (
        f"study/x/seed0: round 2: no update is finite (clients {named}): the training diverges. "
        "Lower train.lr (now 0.125), or limit gradients by train.clip (now 3)"
    )


@dataclass(frozen=True, kw_only=True)
class Empties(FedAvg):
    """Sends class means, of which a client without samples of a class has none."""

    wire: ClassVar = {"broadcast": ("model",), "update": ("model", "means")}

    def make_update(self, net, carry, broadcast, client_state, steps):
        update = super().make_update(net, carry, broadcast, client_state, steps)
        return {**update, "means": torch.full((5,), float("nan"))}


def test_an_entry_that_is_not_finite_is_named_and_the_rate_not_blamed():
    with pytest.raises(Diverged, match=r"round 1: no update is finite \(clients .*\): 'means' has numbers that are"):
        toy.run_method(Empties(train=Train(**toy.TRAIN)))


def test_models_that_are_not_called_model_diverge_by_the_rate():
    with pytest.raises(Diverged, match=r"Lower train\.lr \(now 1e\+20\)"):
        toy.play("coteaching", lr=1e20)


@dataclass(frozen=True, kw_only=True)
class Trips(Blows):
    """Its server code does not expect an empty list."""

    def run_round(self, fed, state, candidates=None):
        _, updates = fed.fit(self, state, fed.sample_cohort(state.round), self.make_broadcast(fed, state))
        state.server["model"] = updates[0]["model"]


def test_server_code_that_trips_over_nobody_is_not_blamed():
    with pytest.raises(Diverged, match="no update is finite") as caught:
        toy.run_method(Trips(train=Train(**toy.TRAIN), bad=tuple(range(8))))
    assert isinstance(caught.value.__cause__, IndexError)


@dataclass(frozen=True, kw_only=True)
class Errs(Blows):
    def run_round(self, fed, state, candidates=None):
        fed.fit(self, state, fed.sample_cohort(state.round), self.make_broadcast(fed, state))
        raise IndexError("its own mistake")


def test_other_errors_of_server_code_stay_what_they_are():
    with pytest.raises(IndexError, match="its own mistake"):
        toy.run_method(Errs(train=Train(**toy.TRAIN), bad=(3,)))


# evaluation


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_of_logits_that_are_not_finite_are_no_numbers(value):
    logits = torch.eye(3)
    logits[1, 2] = value
    scores = _name_scores(_score_logits(logits, torch.arange(3), 3).tolist(), 3)
    assert scores.keys() == {"accuracy", "loss", "accuracy_class_0", "accuracy_class_1", "accuracy_class_2"}
    assert all(math.isnan(v) for v in scores.values())


def test_a_model_that_gives_no_numbers_is_a_diverged_run_with_valid_files(monkeypatch, tmp_path):
    """Every update is finite, but a step of the server is not: evaluations from round 2 on have no value."""
    merge = FedAvg.merge_updates

    def broken(self, fed, state, clients, updates):
        merge(self, fed, state, clients, updates)
        if state.round == 2:
            state.server["model"].flat[-1] = math.inf  # the last class's bias

    monkeypatch.setattr(FedAvg, "merge_updates", broken)
    # what clients make of that model is not finite either, so the run ends there
    run = toy.play("fedavg", rounds=2, out=tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    written = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert written == json.loads(json.dumps(run.summary))
    assert written["diverged"] is True
    curve = dict(run.curve)
    assert written["accuracy"] == {
        "best": curve[1],
        "best_round": 1,
        "last": None,
        "last10_mean": None,
        "round0": curve[0],
    }
    rows = pq.read_table(tmp_path / "metrics.parquet").to_pylist()
    last = {r["metric"]: r["value"] for r in rows if (r["round"], r["view"]) == (2, "global")}
    assert last.keys() >= {"accuracy", "loss", "accuracy_class_4"}
    assert all(math.isnan(value) for value in last.values())
    assert not any(math.isnan(r["value"]) for r in rows if r["round"] < 2)


@dataclass(frozen=True, kw_only=True)
class Weighs(FedAvg):
    """Weights of shape [B, 1] make a loss of [B, B] from one of [B]."""

    def compute_loss(self, logits, y):
        return logits.softmax(1).amax(1, keepdim=True) * super().compute_loss(logits, y)


def test_a_loss_that_is_none_of_each_sample_is_refused():
    with pytest.raises(SpecError, match=r"Weighs\.compute_loss: it gives \[5, 5\] for 5 samples; the loss of each"):
        toy.run_method(Weighs(train=Train(**toy.TRAIN)))
