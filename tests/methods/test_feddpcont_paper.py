"""FedDPCont: the claims of Di et al. (2024), and whole rounds against a second implementation of its equations."""

from typing import Any

import numpy as np
import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.engine import federation as engine
from fednoise_core.methods import make_method
from fednoise_core.ops import label_dp, losses
from fednoise_core.settings.train import Train


def expected(prior, **fields):
    """The method with its loss in expectation over a distribution [K], unbounded: logits [n, K], y [n] -> [n]."""
    method = make_method({"name": "feddpcont", "mode": "expect", "neg_log_floor": 0.0, **fields}, Train())
    prior = torch.as_tensor(prior, dtype=torch.float32)
    return lambda z, y: losses.ce(z, y) - method._contrast_loss(z, torch.zeros(len(z), 1), prior)


# robustness: the loss on noisy labels is that on clean ones, times a number


@pytest.mark.parametrize(
    ("pi", "T", "scale"),
    [
        ([0.5, 0.3, 0.2], [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], 1 - 0.2 * 3 / 2),
        ([0.5, 0.3, 0.2], [[0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4]], 1 - 0.6 * 3 / 2),
        ([0.3, 0.7], [[0.9, 0.1], [0.4, 0.6]], 1 - 0.1 - 0.4),  # proposition 1
    ],
)
def test_symmetric_noise_and_any_noise_of_two_classes_only_scale_the_loss(pi, T, scale):
    """E_noisy = (1 - rate K/(K-1)) E_clean, whatever the classes' shares and the logits. Cross entropy fails this."""
    pi, T, labels = torch.tensor(pi), torch.tensor(T), torch.arange(len(pi))
    z = 3 * torch.randn(len(pi), len(pi), generator=torch.Generator().manual_seed(0))  # of one image of each class

    def difference(noisy_loss, clean_loss):
        noisy = sum(T[:, k] * noisy_loss(z, labels[k].expand(len(z))) for k in labels)
        return (pi * noisy).sum() - scale * (pi * clean_loss(z, labels)).sum()

    assert abs(difference(expected(pi @ T), expected(pi))) < 1e-5
    assert abs(difference(losses.ce, losses.ce)) > 0.1


# section 3.4: three classes, of which a client sees two


def test_contrast_with_the_global_distribution_solves_the_example():
    """Section 3.4: three classes, of which a client sees two. Each class has a free logit vector. The test takes one
    gradient step of the clients' joint loss from 0, with global and with local contrast. With its own labels as
    contrast, the client of a single label learns nothing.
    """
    real = np.array([[1, 0, 0], [1 / 3, 2 / 3, 0], [1 / 16, 3 / 16, 3 / 4]])
    clean = np.repeat(np.arange(3), 48)
    labels = np.concatenate([np.repeat(np.arange(3), np.rint(48 * row).astype(int)) for row in real])

    def step_from_zero(draw):
        z = torch.zeros(3, 3, requires_grad=True)
        for rows in (labels < 2, labels == 2):  # one client holds the given labels 1 and 2, another those of label 3
            prior = np.bincount(labels if draw == "global" else labels[rows], minlength=3)
            loss = expected(prior / prior.sum())
            loss(z[torch.from_numpy(clean[rows])], torch.from_numpy(labels[rows])).sum().backward()
        return -z.grad

    assert step_from_zero("global").argmax(1).tolist() == [0, 1, 2]
    assert step_from_zero("local").argmax(1).tolist() == [0, 1, 1]


# theorem 2


@pytest.fixture
def double(monkeypatch):
    """Everything in float64, also computations that the library does in float32."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    with toy64.doubled():
        yield


def centralised(fed, start, steps, lr):
    """Full-gradient steps on the peer loss of all samples in one place, in expectation."""
    x, y = (torch.cat(parts) for parts in zip(*(toy.images_of(fed.world, c) for c in fed.all), strict=True))
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
    """Theorem 2: sum_c N_c/N Delta_c = Delta for one full-gradient step with global labels. It fails for more steps,
    which the proof does not treat, and for other distributions.
    """
    train = {"batch": 100, "epochs": steps, "fraction": 1.0}
    fed = toy.toy_federation(train=train, net=toy.toy_net(toy64.perceptron))
    fields = {"draw": draw, "dp": "none", "mode": "expect", "neg_log_floor": 0.0}
    method = make_method({"name": "feddpcont", **fields}, fed.train)
    state = method.init_state(fed)
    start = state.server["model"].flat.clone()
    toy.round_of(method, fed, state)
    moved, reference = state.server["model"].flat - start, centralised(fed, start, steps, 0.2) - start
    assert reference.norm() > 0.1
    if holds:
        torch.testing.assert_close(moved, reference, rtol=0, atol=1e-7)
    else:
        assert (moved - reference).norm() > 0.01 * reference.norm()


# a second implementation: algorithms 1 and 2 with ordinary modules


def onto_simplex(p):
    """The nearest distribution: max(p - t, 0) with the t at which it sums to 1, by bisection."""
    low, high = p.min() - 1, p.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(p - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(p - low, 0)


def released(responses, epsilon, debias=True):
    """Algorithm 1: T_DP of definition 2, the pooled distribution of the private labels, and (T_DP')^-1 of it; section
    4.1: the private labels as they are.
    """
    K = toy.CLASSES
    T = np.full((K, K), 1 / (np.exp(epsilon) + K - 1))
    np.fill_diagonal(T, np.exp(epsilon) / (np.exp(epsilon) + K - 1))
    pooled = np.eye(K)[np.concatenate([private for _, private in responses])].mean(0)
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


@pytest.mark.parametrize(("fields", "options"), CASES)
def test_whole_rounds_against_a_second_implementation(double, monkeypatch, fields, options):
    """The model after three rounds (four with the schedule, whose last beta is 2)."""
    defaults = {"epsilon": None, "mode": "sample", "floor": -np.log(1e-8), "betas": [1.0] * 3, "global_step": 1.0}
    options = {**defaults, **options}
    responses: list[tuple[np.ndarray, np.ndarray]] = []  # labels before and after randomised response

    def randomise(labels, *arguments):
        responses.append((labels, label_dp.randomise_labels(labels, *arguments)))
        return responses[-1][1]

    def keep(batch):
        return batch.x.double(), batch.y.clone(), batch.u[:, 0].double()

    monkeypatch.setattr(engine, "randomise_labels", randomise)
    rounds = len(options["betas"])
    fed, state, seen, theta = toy64.rounds("feddpcont", fields, rounds, keep, rounds=rounds)
    labels = {c: toy.images_of(fed.world, c)[1].numpy() for c in fed.all}
    counts = {c: np.bincount(labels[c], minlength=5) for c in labels}
    prior = sum(counts.values()) / sum(toy.SIZES)
    priors = [prior] * rounds
    if options["epsilon"]:
        times = rounds if options.get("anew") else 1
        assert [before.tolist() for before, _ in responses] == [labels[c].tolist() for c in fed.all] * times
        messages = [responses[k : k + len(labels)] for k in range(0, len(responses), len(labels))]
        estimates = [released(message, options["epsilon"], options.get("debias", True)) for message in messages]
        assert min(np.abs(estimate - prior).sum() for estimate in estimates) > 0.05
        priors = estimates if options.get("anew") else estimates * rounds
    for round, (beta, prior) in enumerate(zip(options["betas"], priors, strict=True), 1):
        lr = 0.2 / (1 + beta) if options.get("rescaled") else 0.2
        clients, moved = toy64.cohort(seen, round), torch.zeros_like(theta)
        for c in clients:
            module = toy64.module_of(theta)
            optimiser = torch.optim.SGD(module.parameters(), lr)
            for x, y, u in seen[round, c]:
                optimiser.zero_grad()
                logp = F.log_softmax(module(x), 1)
                q = counts[c] / counts[c].sum() if options.get("own") else prior
                second = contrast(logp, u, q, options["mode"], options["floor"])
                (-logp[range(len(y)), y] - beta * second).mean().backward()
                optimiser.step()
            moved += toy.SIZES[c] * (toy64.vector(module) - theta)
        theta = theta + options["global_step"] * moved / sum(toy.SIZES[c] for c in clients)
    toy64.close(state.server["model"], theta)
