"""FedDPCont: the claims of paper 000, and whole rounds against a second implementation from its equations alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core import losses, privacy
from fednoise_core.engine import federation as engine
from fednoise_core.methods import make, method_class
from fednoise_core.noise.sampling import transition
from fednoise_core.settings import parse
from fednoise_core.spec import Train

N = sum(toy.SIZES)


def expected(prior, **fields):
    """The method with its loss in expectation over a distribution [K], unbounded: logits [n, K], y [n] -> [n]."""
    method = make({"name": "feddpcont", "mode": "expect", "neg_log_floor": 0.0, **fields}, Train())
    prior = torch.as_tensor(prior, dtype=torch.float32)
    return lambda z, y: losses.ce(z, y) - method._contrast(z, torch.zeros(len(z), 1), prior)


# robustness: the loss on noisy labels is that on clean ones, times a number


def over_given_labels(loss, z, rows):
    """The expectation over the given label, which sample n has with probabilities rows[n] [K]."""
    labels = torch.arange(rows.shape[1])
    return sum(rows[:, k] * loss(z, labels[k].expand(len(z))) for k in labels)


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_symmetric_noise_only_scales_the_loss(rate):
    """E_noisy = (1 - rate K/(K-1)) E_clean, whatever the classes' shares and the logits; of cross entropy it is not."""
    K = 4
    pi = torch.tensor([0.4, 0.3, 0.2, 0.1])
    T = torch.full((K, K), rate / (K - 1)).fill_diagonal_(1 - rate)
    z = 3 * torch.randn(K, K, generator=torch.Generator().manual_seed(0))  # the logits of one image of each class
    noisy = (pi * over_given_labels(expected(pi @ T), z, T)).sum()
    clean = (pi * expected(pi)(z, torch.arange(K))).sum()
    torch.testing.assert_close(noisy, (1 - rate * K / (K - 1)) * clean, rtol=0, atol=1e-6)
    plain = (pi * over_given_labels(losses.ce, z, T)).sum(), (pi * losses.ce(z, torch.arange(K))).sum()
    assert abs(plain[0] - (1 - rate * K / (K - 1)) * plain[1]) > 0.1


@pytest.mark.parametrize(("e1", "e2"), [(0.1, 0.4), (0.45, 0.2)])
def test_two_classes_with_any_noise(e1, e2):
    """Proposition 1: E_noisy = (1 - e1 - e2) E_clean."""
    pi, T = torch.tensor([0.3, 0.7]), torch.tensor([[1 - e1, e1], [e2, 1 - e2]])
    z = torch.tensor([[2.0, -1.0], [0.3, 0.9]])
    noisy = (pi * over_given_labels(expected(pi @ T), z, T)).sum()
    clean = (pi * expected(pi)(z, torch.arange(2))).sum()
    torch.testing.assert_close(noisy, (1 - e1 - e2) * clean, rtol=0, atol=1e-6)


# section 3.4: three classes, of which a client sees two

REAL = np.array([[1, 0, 0], [1 / 3, 2 / 3, 0], [1 / 16, 3 / 16, 3 / 4]])
CLEAN = np.repeat(np.arange(3), 48)
GIVEN = np.concatenate([np.repeat(np.arange(3), np.rint(48 * row).astype(int)) for row in REAL])
SEES = GIVEN < 2  # the samples of the client that holds the given labels 1 and 2; another holds those of label 3


def test_the_local_matrix_of_the_three_class_example():
    np.testing.assert_allclose(transition(CLEAN, GIVEN, 3), REAL)
    local = transition(CLEAN[SEES], GIVEN[SEES], 3)
    np.testing.assert_allclose(local, [[1, 0, 0], [1 / 3, 2 / 3, 0], [1 / 4, 3 / 4, 0]])

    def best(T, given):
        """The class whose certain prediction has the least forward loss with this matrix."""
        certain = 30 * torch.eye(3)
        return int(losses.forward(certain, torch.full((3,), given), torch.tensor(T, dtype=torch.float32)).argmin())

    assert [best(REAL, k) for k in range(3)] == [0, 1, 2]
    assert best(local, 1) == 2  # loss correction with it takes class 2 for class 3


def test_contrast_with_the_global_distribution_solves_the_example():
    """A free logit vector for each class: where the clients' joint loss leads from 0, with global and with local
    contrast. The client of a single label learns nothing from its own.
    """

    def leads_to(draw):
        z = torch.zeros(3, 3, requires_grad=True)
        for held in (SEES, ~SEES):
            y, given = torch.from_numpy(CLEAN[held]), torch.from_numpy(GIVEN[held])
            counted = GIVEN if draw == "global" else GIVEN[held]
            expected(np.bincount(counted, minlength=3) / len(counted))(z[y], given).sum().backward()
        return -z.grad

    assert leads_to("global").argmax(1).tolist() == [0, 1, 2]
    assert leads_to("local").argmax(1).tolist() == [0, 1, 1]


# theorem 2


@pytest.fixture
def double(monkeypatch):
    """Everything in float64, what the library computes in float32 too."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    with toy64.doubled():
        yield


def centralised(fed, start, steps, lr):
    """Full-gradient steps on the peer loss of all samples in one place, in expectation."""
    x, y = (torch.cat(parts) for parts in zip(*(toy.images_of(fed._world, c) for c in fed.all), strict=True))
    share = torch.bincount(y, minlength=5).double() / len(y)
    module = toy64.module_of(start)
    optimiser = torch.optim.SGD(module.parameters(), lr)
    for _ in range(steps):
        optimiser.zero_grad()
        p = F.softmax(module(x.double()), 1)
        (-p[range(len(y)), y].log() + (p.log() * share).sum(1)).mean().backward()
        optimiser.step()
    return toy64.vector(module)


@pytest.mark.parametrize(
    ("draw", "steps", "holds"), [("global", 1, True), ("local", 1, False), ("uniform", 1, False), ("global", 2, False)]
)
def test_one_step_of_all_is_the_centralised_step(double, draw, steps, holds):
    """Theorem 2: sum_c N_c/N Delta_c = Delta for one full-gradient step with global labels; not for more steps, which
    the proof passes over, nor for another distribution.
    """
    train = {"batch": 100, "epochs": steps, "fraction": 1.0}
    fed = toy.federation(train=train, net=toy.net(toy64.perceptron))
    fields = {"draw": draw, "dp": "none", "mode": "expect", "neg_log_floor": 0.0}
    method = make({"name": "feddpcont", **fields}, fed.train)
    state = method.init(fed)
    start = state.server["model"].flat.clone()
    toy.round_of(method, fed, state)
    moved, wanted = state.server["model"].flat - start, centralised(fed, start, steps, 0.2) - start
    assert wanted.norm() > 0.1
    if holds:
        torch.testing.assert_close(moved, wanted, rtol=0, atol=1e-7)
    else:
        assert (moved - wanted).norm() > 0.01 * wanted.norm()


# a second implementation: algorithms 1 and 2 with ordinary modules


class Listened:
    """What is read out of a run: labels before and after randomised response, batches, uniform numbers, losses."""

    def __init__(self, fields: dict[str, Any], count: int, monkeypatch):
        self.told: list[tuple[np.ndarray, np.ndarray]] = []
        self.steps: dict[tuple[int, int], list[Any]] = {}
        heard = self

        def randomise(labels, *how):
            said = privacy.randomise(labels, *how)
            heard.told.append((labels, said))
            return said

        class Watched(method_class("feddpcont")):  # type: ignore[misc]
            def prepare(self, me, down):
                heard.now = heard.steps[me.round, me.id] = []
                return super().prepare(me, down)

            def objective(self, net, w, batch, down, mine):
                value = super().objective(net, w, batch, down, mine)
                heard.now.append((batch.x.double(), batch.y.clone(), batch.u[:, 0].double(), value.item()))
                return value

        monkeypatch.setattr(engine, "randomise", randomise)
        self.fed = toy.federation(net=toy.net(toy64.perceptron), train={"rounds": count})
        method = parse(Watched, fields, "method", train=self.fed.train)
        state = method.init(self.fed)
        self.start = state.server["model"].flat.clone()
        for state.round in range(1, count + 1):
            method.round(self.fed, state)
        self.model = state.server["model"].flat


def onto_simplex(p):
    """The nearest distribution: max(p - t, 0) with the t at which it sums to 1, by bisection."""
    low, high = p.min() - 1, p.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(p - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(p - low, 0)


def released(told, epsilon, debias=True):
    """Algorithm 1: T_DP of definition 2, the pooled distribution of the private labels, and (T_DP')^-1 of it; section
    4.1: the private labels as they are.
    """
    K = toy.CLASSES
    T = np.full((K, K), 1 / (np.exp(epsilon) + K - 1))
    np.fill_diagonal(T, np.exp(epsilon) / (np.exp(epsilon) + K - 1))
    pooled = np.eye(K)[np.concatenate([said for _, said in told])].mean(0)
    if not debias:
        return pooled
    return onto_simplex(np.linalg.solve(T.T, pooled))


def contrast(logp, u, prior, mode, floor):
    """The bounded -log p of a drawn label, or its expectation."""
    surprise = torch.clamp(-logp, max=floor)
    if mode == "expect":
        return surprise @ torch.from_numpy(prior)
    drawn = [int(np.searchsorted(np.cumsum(prior), value, side="right")) for value in u.tolist()]
    return surprise[range(len(u)), drawn]


def cores(rounds, start, rise, last):
    return np.concatenate([np.zeros(start), np.linspace(0, last, rise), np.full(rounds - start - rise, last)])


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"keep": 0.6}, {"epsilon": np.log(6)}),  # ln(p (K-1)/(1-p))
    ({"epsilon": 0.3, "mode": "expect", "neg_log_floor": 1.2}, {"epsilon": 0.3, "mode": "expect", "floor": 1.2}),
    (
        {"epsilon": 2.0, "server_lr": 0.5, "beta": 0.4, "neg_log_floor": 1.2},
        {"epsilon": 2.0, "global_step": 0.5, "betas": [0.4] * 3, "floor": 1.2},
    ),
    ({"dp": "none", "neg_log_floor": 0.0}, {"floor": np.inf}),
    ({"draw": "local"}, {"own": True}),
    ({"keep": 0.6, "release": "every_round"}, {"epsilon": np.log(6), "anew": True}),
    ({"keep": 0.6, "debias": False}, {"epsilon": np.log(6), "debias": False}),
    (
        {"keep": 0.6, "beta_schedule": "cores", "beta_start": 1, "beta_rise": 2, "beta_lr": True},
        {"epsilon": np.log(6), "betas": cores(4, 1, 2, 2.0), "rescaled": True},
    ),
]


@pytest.mark.parametrize(("fields", "how"), CASES)
def test_whole_rounds_against_a_second_implementation(double, monkeypatch, fields, how):
    """Loss by loss, and the model after three rounds (four with the schedule, whose last beta is 2)."""
    how = {"epsilon": None, "mode": "sample", "floor": -np.log(1e-8), "betas": [1.0] * 3, "global_step": 1.0, **how}
    run = Listened(fields, len(how["betas"]), monkeypatch)
    labels = {c: toy.images_of(run.fed._world, c)[1].numpy() for c in run.fed.all}
    counts = {c: np.bincount(labels[c], minlength=5) for c in labels}
    prior = sum(counts.values()) / N
    priors = [prior] * len(how["betas"])
    if how["epsilon"]:
        times, many = len(priors) if how.get("anew") else 1, len(run.fed.all)
        assert [before.tolist() for before, _ in run.told] == [labels[c].tolist() for c in run.fed.all] * times
        messages = [run.told[k * many : (k + 1) * many] for k in range(times)]
        found = [released(told, how["epsilon"], how.get("debias", True)) for told in messages]
        assert min(np.abs(one - prior).sum() for one in found) > 0.05
        assert all(np.abs(a - b).sum() > 0.05 for a, b in itertools.pairwise(found))
        priors = found if how.get("anew") else found * len(priors)
    theta = run.start
    for round, (beta, prior) in enumerate(zip(how["betas"], priors, strict=True), 1):
        lr = 0.2 / (1 + beta) if how.get("rescaled") else 0.2
        who, moved = toy64.cohort(run.steps, round), torch.zeros_like(theta)
        for c in who:
            module = toy64.module_of(theta)
            optimiser = torch.optim.SGD(module.parameters(), lr)
            for x, y, u, value in run.steps[round, c]:
                optimiser.zero_grad()
                logp = F.log_softmax(module(x), 1)
                q = counts[c] / counts[c].sum() if how.get("own") else prior
                second = contrast(logp, u, q, how["mode"], how["floor"])
                loss = (-logp[range(len(y)), y] - beta * second).mean()
                assert loss.item() == pytest.approx(value, abs=1e-9)
                loss.backward()
                optimiser.step()
            moved += toy.SIZES[c] * (toy64.vector(module) - theta)
        theta = theta + how["global_step"] * moved / sum(toy.SIZES[c] for c in who)
    toy64.close(run.model, theta)
    assert (run.model - run.start).norm() > 0.3
