"""Client-side code between epochs, numbers per sample that steps change, and rates that follow a schedule."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import toy
from torch import nn
from toy import Plain
from toy_jobs import apart

from fednoise_core.engine.fit import ClientFit, FitRequest, Workspace
from fednoise_core.engine.local import Local, Work
from fednoise_core.engine.state import State
from fednoise_core.rng import torch_stream
from fednoise_core.settings.train import Train


def fitted(executor: str, local: type[Local], clients: Any, train: dict[str, Any] | None = None, **options: Any):
    """One fit of the toy's first model; (federation, state, who, ups)."""
    with toy.federation_on(executor, train=train) as fed:
        state = State(round=1)
        clients, updates = fed.fit(local(fed.train), state, clients, {"model": fed.init_weights("model")}, **options)
    return fed, state, clients, updates


# its calls


class Diary(Plain):
    """Records its calls: the epoch, and the model."""

    def between_epochs(self, client, carry, broadcast, epoch):
        client.state = {
            **client.state,
            "days": [*client.state.get("days", []), (epoch, float(carry["model"].values().flat.sum()))],
        }

    def after_fit(self, client, update, broadcast):
        return {**update, "days": client.state.get("days", [])}


def test_it_is_called_after_each_epoch_but_the_last_with_the_model_so_far(executor):
    *_, updates = fitted(executor, Diary, [3, 0, 1], epochs=3)
    for client, update in zip([3, 0, 1], updates, strict=True):
        assert [epoch for epoch, _ in update["days"]] == [1, 2]
        for epoch, total in update["days"]:  # a fit of so many epochs ends where the longer fit was after them
            *_, (short,) = fitted(executor, Plain, [client], epochs=epoch)
            assert total == pytest.approx(float(short["model"].flat.sum()), abs=1e-4)
    *_, updates = fitted(executor, Diary, [3], epochs=1)
    assert updates[0]["days"] == []


class Quiet(Plain):
    """Has a hook that does nothing."""

    draws = 2

    def between_epochs(self, client, carry, broadcast, epoch):
        return None

    def compute_objective(self, net, w, batch, broadcast, client_state):
        return (self.compute_loss(net.train(w, batch.x, batch.drop(net)), batch.y) * batch.u[:, 0]).mean()


class Without(Quiet):
    between_epochs = Local.between_epochs


@pytest.mark.parametrize("train", [{"augment": "flip"}, {"net": "toy_drop"}, {"last_batch": "wrap", "momentum": 0.9}])
def test_a_hook_that_returns_nothing_changes_no_bit(executor, train, toy_nets):
    (fed, *_, a), (plain, *_, b) = (fitted(executor, kind, [3, 0, 1, 6], train, epochs=3) for kind in (Quiet, Without))
    assert toy.same_state(a, b)
    filled = 3 * (3 + 3 + 4) if "last_batch" in train else 0  # 17, 12 and 11 samples are filled up to 20, 15 and 15
    assert fed.passes == plain.passes == 3 * (17 + 1 + 12 + 11) + filled


@dataclass
class Spy(Plain):
    """Records its batches, and returns the next of `works` between epochs."""

    train: Train
    works: dict[int, Work] = field(default_factory=dict)  # 0: from `prepare_fit`
    draws: int = 2
    seen: list[Any] = field(default_factory=list)

    def prepare_fit(self, client, broadcast):
        return self.works.get(0)

    def between_epochs(self, client, carry, broadcast, epoch):
        return self.works.get(epoch)

    def train_step(self, net, carry, batch, broadcast, client_state):
        self.seen.append((batch, dict(client_state)))
        super().train_step(net, carry, batch, broadcast, client_state)


def spied(works: dict[int, Work], epochs: int, client: int = 3, **train: Any) -> tuple[Spy, Any]:
    world = toy.toy_world(train)
    spy = Spy(world.train, works)
    model = world.net(client).fresh(torch.Generator().manual_seed(0))
    request = FitRequest(spy, client, 1, epochs, {"model": model, "lr": 0.1}, client_state={"kept": torch.ones(2)})
    fit = ClientFit(world, request, Workspace()).open()
    for steps in fit.iterate_stretches():
        for k in steps:
            fit.step(k)
    return spy, fit.close()


def test_new_work_replaces_samples_targets_aux_pools_and_facts():
    """12 samples; epochs 1 and 2 all of them, epoch 3 the last seven, epochs 4 and 5 the first five."""
    y = torch.eye(5)[torch.arange(12) % 5]
    works = {
        0: Work(targets=y, aux={"a": torch.arange(12.0)}, more={"rest": torch.tensor([1, 2])}, facts={"f": 1}),
        2: Work(samples=torch.arange(5, 12), targets=1 - y, aux={"b": -torch.arange(12.0)}, facts={"g": 2}),
        3: Work(samples=torch.arange(5), more={"other": torch.tensor([7])}),
    }
    spy, result = spied(works, 5)
    sizes = [5, 5, 2] * 2 + [5, 2] + [5] * 2
    assert [len(b.i) for b, _ in spy.seen] == sizes
    assert result.steps == len(sizes)
    first, second, third = spy.seen[:6], spy.seen[6:8], spy.seen[8:]
    for batch, client_state in first:
        assert torch.equal(batch.y, y[batch.i])
        assert torch.equal(batch.aux["a"], batch.i.float())
        assert set(batch.more) == {"rest"}
        assert sorted(batch.more["rest"].i.tolist()) == [1, 2]
        assert (client_state["f"], client_state.keys()) == (1, {"kept", "f"})
    assert sorted(torch.cat([b.i for b, _ in second]).tolist()) == list(range(5, 12))
    for batch, client_state in second:
        assert torch.equal(batch.y, (1 - y)[batch.i])
        assert torch.equal(batch.aux["b"], -batch.i.float())
        assert batch.aux.keys() == {"b"}
        assert not batch.more
        assert client_state.keys() == {"kept", "g"}
    labels = toy.images_of(toy.toy_world(), 3)[1]
    for batch, client_state in third:
        assert sorted(batch.i.tolist()) == list(range(5))
        assert torch.equal(batch.y, labels[batch.i])  # without targets: the client's
        assert not batch.aux
        assert batch.more["other"].i.tolist() == [7]
        assert client_state.keys() == {"kept"}
    # by hand: 2 epochs of 12, each of 3 steps with 2 more; then 7; then 2 epochs of 5, each of one step with 1 more
    assert result.passes == 2 * (12 + 3 * 2) + 7 + 2 * (5 + 1)
    assert result.client_state is None  # nothing of it is kept


def test_the_epochs_of_new_work_have_numbers_of_their_own():
    work = Work(samples=torch.arange(12))
    plain, _ = spied({}, 3)
    spy, _ = spied({1: work, 2: work}, 3)
    again, _ = spied({1: work, 2: work}, 3)

    def by_epoch(name: str) -> list[list[torch.Tensor]]:
        runs = [[getattr(batch, name) for batch, _ in recorder.seen] for recorder in (plain, spy, again)]
        return [[torch.cat(seen[k : k + 3]) for k in (0, 3, 6)] for seen in runs]

    orders, numbers = by_epoch("i"), by_epoch("u")
    assert torch.equal(orders[0][0], orders[1][0])  # the first epoch is that of a fit without the hook
    assert torch.equal(numbers[0][0], numbers[1][0])
    for kind in (orders, numbers):
        for k in range(3):
            assert torch.equal(kind[1][k], kind[2][k])
            assert not torch.equal(kind[1][k], kind[1][(k + 1) % 3])
    stream = torch_stream(0, "batches", "fit", 1, 3, "epoch", 2)
    assert torch.equal(orders[1][2], torch.randperm(12, generator=stream))


# numbers per sample


class Counts(Plain):
    """Counts how often each sample was seen: in place, or by another tensor; halves the count between epochs."""

    def prepare_fit(self, client, broadcast):
        start = client.state.get("seen", torch.zeros(client.n))
        pools = {"rest": torch.arange(0, client.n, 2)} if client.n > 9 else {}
        return Work(state={"seen": start, "same": torch.arange(float(client.n)).double()}, more=pools)

    def between_epochs(self, client, carry, broadcast, epoch):
        client.state["was"] = [*client.state.get("was", []), client.state["seen"]]
        return Work(state={"seen": client.state["seen"] / 2}) if epoch == 2 else None

    def train_step(self, net, carry, batch, broadcast, client_state):
        self.count(batch)
        super().train_step(net, carry, batch, broadcast, client_state)

    def count(self, batch):
        batch.state["seen"].add_(1)


class CountsAnew(Counts):
    def count(self, batch):
        batch.state["seen"] = batch.state["seen"].double() + 1


@pytest.mark.parametrize("kind", [Counts, CountsAnew])
def test_numbers_that_steps_write_per_sample_are_seen_between_epochs_and_kept(executor, kind):
    with toy.federation_on(executor) as fed:
        state, local, model = State(), kind(fed.train), fed.init_weights("model")
        for state.round in (1, 2):
            fed.fit(local, state, [0, 1, 4], {"model": model}, epochs=3)
    for client, n in ((0, 17), (1, 1), (4, 9)):
        client_state = state.clients[client]
        ones = torch.ones(n)
        # 1 and 2 after two epochs, halved to 1, and 2 at the end; the second fit goes on from there: 3, 4, 2, 3
        assert [t.tolist() for t in client_state["was"]] == [x.tolist() for x in (ones, 2 * ones, 3 * ones, 4 * ones)]
        assert torch.equal(client_state["seen"], 3 * ones)  # float32, as it came
        assert torch.equal(client_state["same"], torch.arange(float(n)).double())


class FromFurther(Plain):
    """Writes by a further pool only."""

    def prepare_fit(self, client, broadcast):
        return Work(
            state={"seen": torch.zeros(client.n)}, samples=torch.arange(5), more={"rest": torch.arange(5, client.n)}
        )

    def train_step(self, net, carry, batch, broadcast, client_state):
        batch.more["rest"].state["seen"] += batch.more["rest"].u.sum() * 0 + 1
        super().train_step(net, carry, batch, broadcast, client_state)


def test_a_further_pool_writes_its_rows_only(executor):
    _, state, *_ = fitted(executor, FromFurther, [6], epochs=4)  # 11 samples: 4 steps, of which each sees 5 of 6
    seen = state.clients[6]["seen"]
    assert seen[:5].tolist() == [0] * 5
    assert seen[5:].sum() == 4 * 5


# rates


def falling(step: int, steps: int) -> float:
    return 0.3 * (1 - step / steps)


def test_a_rate_by_step_is_sgd_by_hand_with_these_rates(executor):
    """12 samples in batches of 5, 5 and 2, two epochs: six steps at .3, .25, .2, .15, .1, .05."""
    fed, *_, updates = fitted(executor, Plain, [3], lr=falling)
    start = fed.init_weights("model")
    w = {name: start[name].clone().requires_grad_() for name in start.views}
    x, y = toy.images_of(fed.world, 3)
    order = torch_stream(0, "batches", "fit", 1, 3)
    rates = iter([0.3, 0.25, 0.2, 0.15, 0.1, 0.05])
    for _ in range(2):
        for rows in torch.randperm(12, generator=order).split(5):
            hidden = torch.relu(x[rows].flatten(1) @ w["hidden.weight"].T + w["hidden.bias"])
            loss = nn.functional.cross_entropy(hidden @ w["head.weight"].T + w["head.bias"], y[rows])
            rate = next(rates)
            for name, grad in zip(w, torch.autograd.grad(loss, list(w.values())), strict=True):
                w[name] = (w[name] - rate * grad).detach().requires_grad_()
    for name, expected in w.items():
        torch.testing.assert_close(updates[0]["model"][name], expected.detach(), rtol=0, atol=1e-5)
    *_, constant = fitted(executor, Plain, [3], lr=0.3)
    assert apart(constant, updates) > 1e-2


def constant(step: int, steps: int) -> float:
    return 0.07


def test_a_rate_that_never_changes_is_that_rate_bit_for_bit(executor):
    clients = [0, 3, 1, 6]
    for train in ({}, {"optimiser": "adam"}, {"momentum": 0.9, "clip": 0.5}):
        *_, a = fitted(executor, Plain, clients, train, lr=constant)
        *_, b = fitted(executor, Plain, clients, train, lr=0.07)
        assert toy.same_state(a, b)


class Shrinks(Plain):
    """Half of its samples from the second epoch on; sends the sum of its rates."""

    def between_epochs(self, client, carry, broadcast, epoch):
        return Work(samples=torch.arange(5)) if epoch == 1 else None


def test_steps_are_counted_on_over_new_work(monkeypatch):
    asked = []
    fitted("sequential", Shrinks, [3], epochs=3, lr=lambda k, n: asked.append((k, n)) or 0.1)
    # 3 steps of the first epoch, of 9 planned; then one step for each of two epochs
    # the first two calls give the rate in `broadcast`, for `prepare_fit` and for the other code outside the steps
    assert asked == [(0, 9)] * 2 + [(0, 9), (1, 9), (2, 9), (3, 5), (4, 5)]
