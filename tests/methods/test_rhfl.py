"""RHFL, and the skeleton that FedHNL shares with it: invariants of methods.md 5.18."""

from __future__ import annotations

import math

import pytest
import torch
import toy

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State
from fednoise_core.io import SpecError, canonical
from fednoise_core.methods import make, mutual
from fednoise_core.methods.mutual import Align, client_weights, mixtures
from fednoise_core.spec import Train

FIRST = [1 / 3] * 4


def started(fields: dict | None = None, name: str = "rhfl", **options):
    fed = toy.federation(**options)
    method = make({"name": name, **(fields or {})}, fed.train)
    return fed, method, method.init(fed)


# weights


def softmax(w: list[float]) -> list[float]:
    whole = sum(math.exp(v) for v in w)
    return [math.exp(v) / whole for v in w]


def test_weights_by_hand():
    """F = .5/.5, .2/.6, 0, 0.15/.75 = 1, 1/3, 0, 1/5; sum 23/15."""
    found = client_weights([0.5, 0.6, 0.9, 0.75], [1.0, 0.8, 0.9, 0.9], 0.5)
    assert found == pytest.approx(softmax([1 / 3 + 0.5 * f / (23 / 15) for f in (1, 1 / 3, 0, 1 / 5)]))
    assert found[0] > found[1] > found[3] > found[2]
    assert sum(found) == pytest.approx(1)


def test_weights_when_somebody_got_worse():
    """F = 1, -1/2, 1/10, 1/10: the signed sum, .7, stretches the shares; the sum of sizes, 1.7, does not."""
    now, before, gains = [0.5, 1.0, 1.0, 1.0], [1.0, 0.5, 1.1, 1.1], (1, -0.5, 0.1, 0.1)
    signed, unsigned = (client_weights(now, before, 0.5, kind) for kind in ("signed", "abs"))
    assert signed == pytest.approx(softmax([1 / 3 + 0.5 * f / 0.7 for f in gains]))
    assert unsigned == pytest.approx(softmax([1 / 3 + 0.5 * f / 1.7 for f in gains]))
    assert signed.index(min(signed)) == unsigned.index(min(unsigned)) == 1
    assert max(signed) > max(unsigned)


def test_when_all_got_worse_the_signed_sum_turns_the_order_round():
    """So the equations as printed; with "abs" who got worse most teaches least."""
    now, before = [1.0, 1.0, 1.0, 1.0], [0.5, 0.9, 0.9, 0.9]
    signed, unsigned = (client_weights(now, before, 0.5, kind) for kind in ("signed", "abs"))
    assert signed[0] == max(signed) > 0.25 > min(unsigned) == unsigned[0]


def test_gains_that_cancel_weigh_nobody():
    """F = 1/2 and -1/2: nothing to divide by with signs, half each without."""
    now, before = [1.0, 1.0], [1.5, 0.5]
    assert client_weights(now, before, 0.5) == [0.5, 0.5]
    assert client_weights(now, before, 0.5, "abs") == pytest.approx(softmax([1.25, 0.75]))


def test_gains_that_nearly_cancel_stay_finite():
    found = client_weights([1.0, 1.0], [1.5 + 1e-6, 0.5], 0.5)
    assert found == [1.0, 0.0]


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_a_client_without_a_loss_before_has_no_confidence(unknown):
    """As one whose loss stayed: F = 0."""
    assert client_weights([0.5, 0.7, 1.0], [1.0, unknown, 1.1], 0.5) == client_weights(
        [0.5, 0.7, 1.0], [1.0, 0.7, 1.1], 0.5
    )


def test_a_loss_of_zero_is_no_division_by_zero():
    found = client_weights([0.0, 1.0], [0.0, 2.0], 0.5)
    assert found == pytest.approx(softmax([1.0, 1.5]))


@pytest.mark.parametrize("denominator", ["signed", "abs"])
def test_without_eta_all_weights_are_equal(denominator):
    assert client_weights([0.5, 0.6, 0.9, 2.0], [1.0, 0.8, 0.9, 1.0], 0.0, denominator) == pytest.approx([0.25] * 4)


def test_weights_of_rhfl_plus():
    """w / sum w, not softmax: with beta 1.2 a client that got worse may have a negative weight. F = 1, -1/2, 0, 0."""
    now, before = [0.5, 1.0, 1.0, 1.0], [1.0, 0.5, 1.0, 1.0]
    w = [1 / 3 + 1.2 * f / 1.5 for f in (1, -0.5, 0, 0)]
    found = client_weights(now, before, 1.2, "abs", "sum")
    assert found == pytest.approx([v / sum(w) for v in w])
    assert found[1] < 0
    assert sum(found) == pytest.approx(1)


def test_a_sum_of_nothing_weighs_all_alike():
    """Both got worse: w = 1 - eta/2 each, which is 0 for eta = 2."""
    assert client_weights([1.0, 1.0], [0.5, 0.5], 2.0, "abs", "sum") == [0.5, 0.5]


def test_one_client_alone():
    assert client_weights([0.5], [1.0], 0.5) == [1.0]


# what is learnt from others


def four(generator: int = 0) -> torch.Tensor:
    """Log-probabilities [4, 3, 5] of four clients about three images."""
    return torch.log_softmax(torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(generator)).double() * 2, -1)


W = [0.4, 0.1, 0.3, 0.2]


class Net:
    """Logits that are the weights themselves."""

    def train(self, w, x, u=None):
        return w


class OneBatch:
    x = None

    def drop(self, net):
        return None


def loss_and_gradient(kl: str, heard, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    free = logits.clone().requires_grad_()
    loss = Align(Train(), kl, False).objective(Net(), free, OneBatch(), heard, {})  # type: ignore[arg-type]
    loss.backward()
    return loss.detach(), free.grad


def divergences(kl: str, log_p: torch.Tensor, k: int, logits: torch.Tensor) -> torch.Tensor:
    """sum_{i != k} W_i KL, image by image and teacher by teacher."""
    log_q = torch.log_softmax(logits, -1)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(4):
        for b in range(3 if i != k else 0):
            a, c = (log_p[i, b], log_q[b]) if kl == "forward" else (log_q[b], log_p[i, b])
            total = total + W[i] * (a.exp() * (a - c)).sum() / 3
    return total


@pytest.fixture
def exact(monkeypatch):
    """The library's logarithms are of float32."""
    monkeypatch.setattr(mutual.losses, "log_probs", lambda z: torch.log_softmax(z, -1))


@pytest.mark.parametrize("kl", ["forward", "reverse"])
@pytest.mark.parametrize("k", range(4))
def test_one_tensor_tells_all_that_the_others_divergences_need(kl, k, exact):
    log_p = four()
    logits = four(1)[k] * 1.3
    heard = mixtures([{"log_p": one} for one in log_p], W, kl)[k]
    loss, gradient = loss_and_gradient(kl, heard, logits)
    free = logits.clone().requires_grad_()
    whole = divergences(kl, log_p, k, free)
    whole.backward()
    torch.testing.assert_close(gradient, free.grad, rtol=0, atol=1e-14)
    entropy = sum(W[i] * -(log_p[i].exp() * log_p[i]).sum(-1).mean() for i in range(4) if i != k)
    constant = entropy if kl == "forward" else 0.0
    torch.testing.assert_close(loss, whole.detach() + constant, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kl", ["forward", "reverse"])
def test_equal_clients_have_nothing_to_learn(kl, exact):
    """The divergences are 0, and so is their gradient."""
    log_p = four()[:1].expand(4, 3, 5)
    heard = mixtures([{"log_p": one} for one in log_p], W, kl)[2]
    loss, gradient = loss_and_gradient(kl, heard, log_p[0])
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-15)
    entropy = 0.7 * -(log_p[0].exp() * log_p[0]).sum(-1).mean()
    torch.testing.assert_close(loss, entropy if kl == "forward" else torch.zeros_like(loss), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kl", ["forward", "reverse"])
def test_who_diverges_teaches_nobody(kl):
    log_p = four()
    log_p[1, 0, 0] = torch.nan
    found = mixtures([{"log_p": one} for one in log_p], W, kl)
    rest = mixtures([{"log_p": one} for one in log_p[[0, 2, 3]]], [W[0], W[2], W[3]], kl)
    for k, other in zip((0, 2, 3), rest, strict=True):
        assert found[k].keys() == other.keys()
        for name in other:
            torch.testing.assert_close(found[k][name], other[name], rtol=0, atol=1e-15)


def aligned(method, fed: Federation, state: State, weights: list[float], monkeypatch) -> list[list[dict]]:
    """One alignment of clients 0, 3, 5, 6; returns what they said before each batch."""
    heard = []
    work = mutual.mixtures
    monkeypatch.setattr(mutual, "mixtures", lambda said, **how: (heard.append(said), work(said, **how))[1])
    state.round += 1
    method._align(fed, state, [0, 3, 5, 6], weights)
    return heard


def test_equal_models_stay_where_they_are(monkeypatch):
    fed, method, state = started(train={"lr": 0.5})
    model = fed.fresh("model")
    for c in fed.all:
        state.clients[c] = {"model": model.clone()}
    aligned(method, fed, state, FIRST, monkeypatch)
    for c in (0, 3, 5, 6):
        torch.testing.assert_close(state.clients[c]["model"].flat, model.flat, rtol=0, atol=1e-6)


def test_teachers_have_no_gradient_and_speak_before_any_update(monkeypatch):
    fed, method, state = started({"public_batch": 10}, train={"net": toy.PAIR})
    who = [0, 3, 5, 6]
    x = (torch.from_numpy(toy.arrays().x_public).float()[:, None] / 255 - 0.25) / 0.2
    expected = [torch.log_softmax(fed.net(c).predict(state.clients[c]["model"], x), -1) for c in who]
    (said,) = aligned(method, fed, state, FIRST, monkeypatch)
    for one, all_ten in zip(said, expected, strict=True):
        assert not one["log_p"].requires_grad
        # one batch of all ten images in some order
        torch.testing.assert_close(one["log_p"].sort(0).values, all_ten.sort(0).values, rtol=0, atol=1e-5)


def test_public_images_are_not_augmented(monkeypatch):
    """All must speak about the same images; each client's augmentations are its own."""
    states = []
    for augment in ("none", "flip"):
        fed, method, state = started(train={"augment": augment})
        aligned(method, fed, state, FIRST, monkeypatch)
        monkeypatch.undo()
        states.append(state)
    assert toy.same(*states)


@pytest.mark.parametrize("kl", ["forward", "reverse"])
def test_aligning_moves_models_together(kl, monkeypatch):
    fed, method, state = started({"kl": kl}, train={"lr": 0.5, "net": toy.PAIR})
    spread = []
    for _ in range(40):
        said = aligned(method, fed, state, FIRST, monkeypatch)[-1]
        spread.append(float(torch.stack([one["log_p"].exp() for one in said]).std(0).mean()))
        monkeypatch.undo()
    assert spread[-1] < 0.6 * spread[0]


def test_statistics_move_once_a_batch(toy_nets, monkeypatch):
    """Speaking and stepping pass the same images; as one pass of the authors' code, they move running means once."""
    fed, method, state = started({"public_batch": 10}, train={"net": "toy_norm", "lr": 0.0})
    before = state.clients[3]["model"].clone()
    aligned(method, fed, state, FIRST, monkeypatch)
    x = (torch.from_numpy(toy.arrays().x_public).float()[:, None] / 255 - 0.25) / 0.2
    fed.net(3).train(before, x)
    after = state.clients[3]["model"]
    torch.testing.assert_close(after["norm.running_mean"], before["norm.running_mean"], rtol=0, atol=1e-6)


def test_a_fresh_optimiser_moves_every_number_by_the_rate(monkeypatch):
    """Adam's first step is the rate times the gradient's sign; three batches are at most three of them."""
    moved = {}
    for fresh in (True, False):
        fields = {"fresh_optimizer_per_batch": fresh, "public_batch": 4}
        fed, method, state = started(fields, train={"optimiser": "adam", "lr": 0.01, "net": "mlp"})
        before = state.clients[3]["model"].flat.clone()
        aligned(method, fed, state, FIRST, monkeypatch)
        monkeypatch.undo()
        moved[fresh] = state.clients[3]["model"].flat - before
    steps = moved[True] / 0.01
    whole = torch.isclose(steps, steps.round(), atol=1e-2)
    assert whole.float().mean() > 0.95
    assert set(steps[whole].round().int().tolist()) >= {-3, -1, 1, 3}
    assert not torch.allclose(moved[True], moved[False], atol=1e-3)


# rounds


def watch(monkeypatch) -> list[list[float]]:
    """The weights of each alignment from now on."""
    used = []
    work = mutual.mixtures
    monkeypatch.setattr(mutual, "mixtures", lambda said, weights, kl: used.append(weights) or work(said, weights, kl))
    return used


def test_weights_sum_to_one_from_the_second_round_on(monkeypatch):
    used = watch(monkeypatch)
    made = toy.play("rhfl", method={"public_batch": 10, "normalise": "softmax", "denominator": "signed"})
    assert [sum(w) for w in used] == pytest.approx([4 / 3, 1, 1])
    assert used[0] == [1 / 3] * 4
    assert len(set(used[2])) > 1
    rows = {(r[0], r[5]): r[6] for r in made.outcome.record.metrics if r[3] == ""}
    assert rows[4, "weight_max"] == max(used[2])
    assert rows[4, "weight_min"] == min(used[2])


def mean_loss(fed: Federation, state: State, c: int) -> float:
    """The symmetric loss of a client's model on all of its samples, in evaluation mode, by hand."""
    x, y = toy.images_of(fed._world, c)
    p = torch.softmax(fed.net(c).predict(state.clients[c]["model"], x), -1)[torch.arange(len(y)), y]
    return float((-0.1 * p.log() - math.log(1e-4) * (1 - p)).mean())


def test_weights_are_those_of_the_losses_of_this_and_the_last_round(monkeypatch):
    used = watch(monkeypatch)
    fed, method, state = started({"public_batch": 10}, train={"fraction": 1.0, "net": toy.PAIR})
    losses = []
    for state.round in (1, 2):
        losses.append({c: mean_loss(fed, state, c) for c in fed.all})
        method.round(fed, state)
        assert [state.notes["losses"][c] for c in fed.all] == pytest.approx(list(losses[-1].values()), rel=1e-5)
    before, now = losses
    gains = [(before[c] - now[c]) / now[c] for c in fed.sample(2)]
    assert used[1] == pytest.approx(softmax([1 / 6 + 0.5 * f / sum(gains) for f in gains]), rel=1e-4)
    assert state.notes["losses"][2] is None  # the client without samples


def test_who_takes_part_for_the_first_time_later_has_no_confidence_yet(monkeypatch):
    """F = 0 for it, so its weight is that of a client whose loss stayed; earlier participants have gained or lost."""
    used = watch(monkeypatch)
    fed, method, state = started({"public_batch": 10})
    before = {}
    for state.round in (1, 2):
        now = {c: mean_loss(fed, state, c) for c in fed.sample(state.round)}
        method.round(fed, state)
        if state.round == 1:
            before = now
    gains = [(before[c] - now[c]) / now[c] if c in before else 0.0 for c in fed.sample(2)]
    assert gains.count(0.0) in (1, 2, 3)
    assert used[1] == pytest.approx(softmax([1 / 3 + 0.5 * f / sum(gains) for f in gains]), rel=1e-4)


def test_a_loss_that_overflows_is_remembered_as_none():
    """Logits of 3e38 and -3e38 are finite, the cross entropy of the second is not; the summary is JSON."""
    fed, method, state = started()
    _, y = toy.images_of(fed._world, 4)  # all of one class
    model = state.clients[4]["model"].clone()
    model["head.bias"].copy_(torch.full((5,), 3e38).index_fill(0, y[:1], -3e38))
    state.clients[4] = {"model": model}
    said = fed.on_clients(state, [4], method._measure)[0]
    assert said["loss"] == math.inf
    assert method._weigh(fed, state, [0, 4], [1.0, 1.0]) == [1.0, 1.0]
    known = state.notes["losses"]
    assert known[0] > 0
    assert known[4] is None
    canonical(known)  # raises for infinity
    assert method._weigh(fed, state, [0, 4], [1.0, 1.0]) == [0.5, 0.5]


@pytest.mark.parametrize(("public", "expected"), [(0, [1, 10, 1]), (8, [1, 8, 1]), (99, [1, 10, 1])])
def test_epochs_by_size(public, expected):
    fed, method, _ = started({"epochs_by_size": True, "public": public})
    assert method._epochs(fed, [0, 1, 4]) == expected  # 17, 1 and 9 samples


def test_epochs_of_a_round(monkeypatch):
    jobs = []
    work = Sequential.run
    monkeypatch.setattr(Sequential, "run", lambda self, some: (jobs.extend(some), work(self, some))[1])
    for fields, epochs in (({}, 2), ({"revisit": 3}, 3)):
        fed, method, state = started(fields)
        state.round = 1
        method.round(fed, state)
        assert {job.epochs for job in jobs} == {epochs}
        assert fed.passes == toy.passes([1], per_sample=epochs) + 4 * 10  # and 4 clients look at 10 public images
        jobs.clear()


def test_a_cohort_of_one_trains_alone():
    made = toy.play("rhfl", fraction=0.01, seed=0)
    alone = toy.play("local", method={"pretrain": 2}, fraction=0.01, seed=0)
    assert made.summary["work"] == alone.summary["work"]


def test_the_losses_tell_of_noisy_clients():
    """Of the run of the case: the state holds the losses, and diagnostics compare them with the truth."""
    made = toy.play("rhfl", rounds=6)
    losses = made.summary["notes"]["losses"]
    assert [loss is None for loss in losses] == [c == 2 for c in range(8)]
    found = {r[2]: r[3] for r in made.outcome.record.diagnostics if r[0] == 7}
    pairs = [(losses[c], losses[d]) for c in toy.NOISY for d in (0, 1, 4, 7)]
    above = [float(noisy > clean) for noisy, clean in pairs]
    assert found["noisy_client_auroc"] == pytest.approx(sum(above) / len(above))


def test_without_public_images_it_says_so():
    fed = toy.federation()
    fed._world.pools.pop("public")
    with pytest.raises(SpecError, match="RHFL needs public images"):
        make({"name": "rhfl"}, Train()).init(fed)
