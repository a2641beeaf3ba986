"""FedEFC: invariants, Theorem 1 of Yu et al. (2025), reports about Q, and whole rounds against a
second implementation.
"""

import sys

import numpy as np
import pytest
import torch
import toy
import toy64
from cleanlab import count
from torch import nn

from fednoise_core.methods import make_method
from fednoise_core.methods.fedefc import FedEFC
from fednoise_core.methods.transition import normalise_counts
from fednoise_core.ops import losses
from fednoise_core.ops.optim import Trained
from fednoise_core.ops.stats import confident_counts
from fednoise_core.rng import stream

COMPENSATIONS = ["none", "paper", "code"]


def fedefc(**fields) -> FedEFC:
    return make_method({"name": "fedefc", **fields}, toy.toy_federation().train)


def predictions(seed: int, classes=(0, 2, 3), n: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities [n, 4] that lean towards given labels of these classes."""
    draw = stream(seed, "predictions")
    y = draw.choice(classes, n)
    p = draw.dirichlet(np.full(4, 0.5), n)
    p[np.arange(n), y] += 0.3
    return torch.from_numpy(p / p.sum(1, keepdims=True)), torch.from_numpy(y)


# the matrix


@pytest.mark.parametrize("seed", range(10))
def test_columns_of_q_sum_to_one_and_are_those_of_cleanlabs_joint(seed):
    """Rows of T = Q'; counts are at most one a sample, and one a class."""
    p, y = predictions(seed, classes=(0, 2, 3) if seed % 2 else (0, 1, 2, 3))
    raw = confident_counts(p, y, fill=False)
    assert raw.sum() <= len(y)
    joint = count.compute_confident_joint(y.numpy(), p.numpy(), calibrate=False)
    np.testing.assert_allclose(normalise_counts(raw).T.numpy(), joint / joint.sum(0), rtol=1e-12)
    if seed % 2:  # nobody has class 1: its column is e_1
        assert normalise_counts(raw)[1].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_compensation_by_hand():
    """Labels 0, 0, 0, 1: shares 3/4, 1/4, 0. Counts (rows given, columns guesses) with a filled diagonal:
    [[2, 1, 0], [1, 1, 0], [0, 0, 1]]; times shares [[1.5, .75, 0], [.25, .25, 0], [0, 0, 0]]."""
    counts = torch.tensor([[2.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    y = torch.tensor([0, 0, 0, 1])
    plain = torch.tensor([[2 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 0], [0, 0, 1]])
    joint = torch.tensor([[1.5 / 1.75, 0.75, 0], [0.25 / 1.75, 0.25, 0], [0, 0, 0]])
    for name, Q in (("none", plain), ("paper", joint), ("code", joint.T)):
        T = fedefc(compensation=name).correction_matrix(counts, y)
        torch.testing.assert_close(T, Q.T, rtol=1e-6, atol=0)
        assert T.is_contiguous()


@pytest.mark.parametrize("compensation", COMPENSATIONS)
def test_perfect_predictions_of_right_labels_give_the_identity(compensation):
    """With compensation, on the classes that the client has. With the identity the forward loss is cross entropy."""
    y = torch.arange(40) % 4
    p = torch.full((40, 4), 0.02)
    p[torch.arange(40), y] = 0.94
    T = fedefc(compensation=compensation).correction_matrix(confident_counts(p, y, fill=False), y)
    assert torch.equal(T, torch.eye(4))


# Theorem 1

POSTERIOR = torch.tensor(  # P(y | x) of four images
    [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.35, 0.4], [0.05, 0.05, 0.9]], dtype=torch.float64
)
COUNTS = {  # of two clients that predict perfectly: columns true labels, rows given ones; Q are the columns over 20
    0: torch.tensor([[14.0, 2, 0], [4, 16, 8], [2, 2, 12]], dtype=torch.float64),
    1: torch.tensor([[12.0, 8, 4], [0, 12, 4], [8, 0, 12]], dtype=torch.float64),
}
MASS = {0: torch.tensor([0.4, 0.3, 0.2, 0.1]), 1: torch.tensor([0.1, 0.1, 0.2, 0.6])}  # P(x) on each client


def descend(loss, z: torch.Tensor) -> torch.Tensor:
    """The minimiser of a smooth function, by LBFGS."""
    z = z.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [z], max_iter=2000, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        value = loss(z)
        value.backward()
        return value

    optimiser.step(closure)
    return torch.softmax(z.detach(), 1)


@pytest.fixture
def exact_losses(monkeypatch):
    """The library's losses in float64; the value of each that a step descended, in order."""
    seen: list[torch.Tensor] = []
    backward = Trained.backward

    def noted(trained, loss):
        seen.append(loss.detach())
        return backward(trained, loss)

    monkeypatch.setattr(losses, "log_probs", lambda z: torch.log_softmax(z.double(), -1))
    monkeypatch.setattr(losses, "mean_ce", lambda z, y: nn.functional.cross_entropy(z.double(), y))
    monkeypatch.setattr(Trained, "backward", noted)
    return seen


def test_theorem_1_the_minimiser_under_noise_is_the_clean_one(exact_losses):
    """Expected over noisy labels, -log (Q_k p)_y is a cross entropy of Q_k eta with Q_k p, least where they agree; each
    Q_k has an inverse, so p = eta for every client, and for the clients' weighted sum; cross entropy on noisy labels
    ends elsewhere. Clients have different Q_k and images, here as exact counts, of which the method makes its matrix.
    """
    labels = torch.arange(3)
    matrices = {k: FedEFC.correction_matrix(fedefc(), counts, labels) for k, counts in COUNTS.items()}

    def expected(loss):
        """The server's objective: clients weighted 1/4 and 3/4, images by P_k(x), labels by (Q eta)' = eta' Q'."""

        def total(z):
            parts = []
            for k, share in ((0, 0.25), (1, 0.75)):
                per_label = torch.stack([loss(k, z, y.expand(4)) for y in labels], 1)  # [image, label]
                parts.append(share * (MASS[k][:, None] * (POSTERIOR @ COUNTS[k].T / 20) * per_label).sum())
            return sum(parts)

        return total

    start = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    corrected = descend(expected(lambda k, z, y: losses.forward_correction(z, y, matrices[k])), start)
    torch.testing.assert_close(corrected, POSTERIOR, rtol=0, atol=1e-6)
    wrong = descend(expected(lambda k, z, y: nn.functional.cross_entropy(z, y, reduction="none")), start)
    assert (wrong - POSTERIOR).abs().max() > 0.1


# rounds


def test_it_runs_where_cleanlab_is_absent(monkeypatch):
    first = toy.play("fedefc")
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    again = toy.play("fedefc")
    assert toy.same_state(again.outcome.state, first.outcome.state)


@pytest.mark.parametrize("compensation", COMPENSATIONS)
def test_suspects_are_judged_by_the_counted_matrix(compensation):
    """Bayes' rule by hand for a client; compensation is of the loss, not of the noise."""
    fields = {"compensation": compensation, "latest": 2}
    outcome = toy.play("fedefc", method=fields).outcome
    x, y = toy.images_of(outcome.fed.world, 5)
    p = torch.softmax(outcome.fed.net(0).predict(outcome.state.server["model"], x), 1)
    method, broadcast = fedefc(**fields), {"model": outcome.state.server["model"], "stopped": True}
    ((wrong, proposed),) = outcome.fed.run_on_clients(outcome.state, [5], method.suspect_labels, broadcast)
    posterior = p * normalise_counts(confident_counts(p, y)).T[y]
    posterior /= posterior.sum(1, keepdim=True)
    torch.testing.assert_close(wrong, 1 - posterior[torch.arange(len(y)), y], rtol=0, atol=1e-5)
    assert torch.equal(proposed, posterior.argmax(1))


# reports about Q


def cosines(run) -> dict[int, float]:
    return {r: v for r, client, name, v in run.outcome.record.diagnostics if name == "T_cosine" and client == -1}


def test_the_estimate_is_that_of_all_clients_counts_together():
    """cos(vec Q, vec T) by hand: counts of all that have counted are added up before columns are normalised."""
    run = toy.play("fedefc", rounds=6)
    states = run.outcome.state.clients
    total = sum(states[c]["counts"] for c in states).double().numpy()
    np.fill_diagonal(total, np.maximum(total.diagonal(), 1))
    rows = np.arange(sum(toy.SIZES))  # no client has the other samples
    T = np.zeros((5, 5))
    np.add.at(T, (toy.toy_labels().clean[rows], toy.toy_labels().noisy[rows]), 1.0)
    Q, T = total / total.sum(0), T / T.sum(1, keepdims=True)
    cosine = (Q.T * T).sum() / np.linalg.norm(Q) / np.linalg.norm(T)
    assert list(cosines(run)) == [3, 4, 5, 6]  # the rounds after the prestop
    assert cosines(run)[6] == run.summary["diagnostics"]["T_cosine"] == pytest.approx(cosine, abs=1e-6)


def test_counting_early_reports_every_round_and_changes_no_model():
    early, late = (toy.play("fedefc", method={"count_early": early}, rounds=5) for early in (True, False))
    assert toy.same_state(early.outcome.state.server, late.outcome.state.server)
    assert list(cosines(early)) == [1, 2, 3, 4, 5]
    assert cosines(toy.play("fedefc", method={"latest": 3})) == {}  # stopped in its last round
    never = toy.play("fedefc", method={"latest": 0, "patience": 99})
    assert cosines(never) == {}
    assert never.suspects == toy.play("fedavg", rounds=never.summary["rounds"]).suspects  # it makes no estimate


# a second implementation


def counted_from_equations(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Equations 3 to 8 of the paper, sample by sample: rows given labels, columns true ones. A sample that several
    classes claim goes to the most probable one (equation 3); a class without a count has one of its own."""
    K = p.shape[1]
    tau = [p[y == j, j].mean() if (y == j).any() else None for j in range(K)]
    C = torch.zeros(K, K, dtype=torch.float64)
    for n in range(len(y)):
        claims = [j for j in range(K) if tau[j] is not None and p[n, j] >= tau[j] - 1e-6]
        if claims:
            C[y[n], claims[0] if len(claims) == 1 else int(p[n].argmax())] += 1
    for j in range(K):
        C[j, j] = max(float(C[j, j]), 1.0)
    return C


def transition(C: torch.Tensor, y: torch.Tensor, compensation: str) -> torch.Tensor:
    """Q of equation 9 with columns normalised; with class shares, and transposed as in the code."""
    share = torch.stack([(y == i).double().mean() for i in range(len(C))])
    joint = C if compensation == "none" else torch.diag(share) @ C
    Q = torch.zeros_like(C)
    for j in range(len(C)):
        if joint[:, j].sum() > 0:
            Q[:, j] = joint[:, j] / joint[:, j].sum()
    return Q.T if compensation == "code" else Q


def second(seen, start, data, fields, options, rounds):
    """The whole method in float64: (model, losses of all steps, prestop round, last counts by client)."""
    tau_p, previous, best, stop = 0, 0.0, 0.0, 0
    values, last = [], {}
    for t in range(1, rounds + 1):
        new, accuracies = {}, []
        for c in toy64.cohort(seen, t):
            x, y = data[c]
            module = toy64.module_of(start)
            with torch.no_grad():
                p = torch.softmax(module(x), 1)
            Q = None
            if stop:
                last[c] = counted_from_equations(p, y)
                Q = transition(last[c], y, fields["compensation"])
            optimiser = torch.optim.SGD(module.parameters(), 0.2, **options)
            right = count = 0
            for xb, yb in seen[t, c]:
                optimiser.zero_grad()
                z = module(xb)
                if Q is None:
                    loss = nn.functional.cross_entropy(z, yb)
                else:  # equation 15
                    loss = -torch.log((torch.softmax(z, 1) @ Q.T)[torch.arange(len(yb)), yb]).mean()
                loss.backward()
                optimiser.step()
                values.append(loss.detach())
                right, count = right + int((z.argmax(1) == yb).sum()), count + len(yb)
            accuracy = right / count if fields["monitor"] == "train" else float((p.argmax(1) == y).double().mean())
            accuracies.append(accuracy)
            new[c] = toy64.vector(module)
        if not stop:
            mean = sum(accuracies) / len(accuracies)  # equation 2
            if t > fields["start"]:
                tau_p = 0 if mean > (best if fields["compare"] == "best" else previous) else tau_p + 1
                best = max(best, mean)
            previous = mean
            stop = t if tau_p == fields["patience"] else 0
        start = toy64.mean(new)  # equation 1
    return start, values, stop, last


@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "weight_decay": 0.01}])
@pytest.mark.parametrize("compensation", COMPENSATIONS)
@pytest.mark.parametrize(("monitor", "compare"), [("pre_eval", "previous"), ("train", "best")])
def test_whole_rounds_against_a_second_implementation(options, compensation, monitor, compare, exact_losses):
    """Twelve rounds in float64, with a change of phase that both find for themselves, at least two rounds before it and
    two after; model, losses of every step and counts agree."""
    fields = {"compensation": compensation, "monitor": monitor, "compare": compare, "patience": 1, "start": 1}
    rounds = 12
    with toy64.doubled():
        fed, state, seen, start = toy64.rounds("fedefc", fields, count=rounds, **options)
        x = [toy.images_of(fed.world, c) for c in range(fed.n)]
        data = [(images.double(), y) for images, y in x]
        model, values, stop, counts = second(seen, start, data, fields, options, rounds)
        assert state.notes["prestop"]["round"] == stop
        assert 1 < stop <= rounds - 2
        toy64.close(state.server["model"], model)
        assert len(values) == len(exact_losses) == sum(map(len, seen.values()))
        torch.testing.assert_close(torch.stack(exact_losses), torch.stack(values), rtol=0, atol=1e-6)
        assert sorted(counts) == sorted(c for c in state.clients if "counts" in state.clients[c])
        for c, C in counts.items():
            client_counts = state.clients[c]["counts"].clone()
            assert client_counts.sum() <= toy.SIZES[c]  # the diagonal is not filled
            client_counts.diagonal().clamp_(min=1)
            assert torch.equal(client_counts, C)
