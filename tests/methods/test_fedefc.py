"""FedEFC: invariants of methods.md 5.23, Theorem 1 of paper 002, what is told about Q, and whole rounds against a
second implementation.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
import toy
import toy64
from torch import nn

from fednoise_core import losses
from fednoise_core.methods import make
from fednoise_core.methods.fedefc import FedEFC, _pooled
from fednoise_core.methods.transition import counted
from fednoise_core.optim import Trained
from fednoise_core.rng import stream
from fednoise_core.stats import confident_counts

COMPENSATIONS = ["none", "paper", "code"]


def fedefc(**fields) -> FedEFC:
    return make({"name": "fedefc", **fields}, toy.federation().train)


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
    from cleanlab import count as cleanlab

    p, y = predictions(seed, classes=(0, 2, 3) if seed % 2 else (0, 1, 2, 3))
    raw = confident_counts(p, y, fill=False)
    joint = cleanlab.compute_confident_joint(y.numpy(), p.numpy(), calibrate=False)
    assert joint.sum() <= len(y) + 4
    assert raw.sum() <= len(y)
    Q = counted(raw).T
    np.testing.assert_allclose(Q.numpy(), joint / joint.sum(0), rtol=1e-12)
    torch.testing.assert_close(Q.sum(0), torch.ones(4, dtype=torch.float64))
    if seed % 2:  # nobody has class 1: its column is e_1
        assert Q[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_compensation_by_hand():
    """Labels 0, 0, 0, 1: shares 3/4, 1/4, 0. Counts (rows given, columns guesses) with a filled diagonal:
    [[2, 1, 0], [1, 1, 0], [0, 0, 1]]; times shares [[1.5, .75, 0], [.25, .25, 0], [0, 0, 0]]."""
    counts = torch.tensor([[2.0, 1, 0], [1, 0, 0], [0, 0, 0]])
    y = torch.tensor([0, 0, 0, 1])
    plain = torch.tensor([[2 / 3, 1 / 2, 0], [1 / 3, 1 / 2, 0], [0, 0, 1]])
    joint = torch.tensor([[1.5 / 1.75, 0.75, 0], [0.25 / 1.75, 0.25, 0], [0, 0, 0]])
    for name, Q in (("none", plain), ("paper", joint), ("code", joint.T)):
        T = fedefc(compensation=name).corrects(counts, y)
        torch.testing.assert_close(T, Q.T, rtol=1e-6, atol=0)
        assert T.is_contiguous()


def test_compensation_as_in_the_code_takes_classes_that_the_client_has_not_out_of_the_prediction():
    """Its loss is -log sum_i p_i pi_i C[i, y] up to a number of y: p of an absent class is in no sum."""
    p, y = predictions(3)
    z = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    T = fedefc(compensation="code").corrects(confident_counts(p, y, fill=False), y).float()
    z.requires_grad_()
    (grad,) = torch.autograd.grad(losses.forward(z, y, T).mean(), z)
    held = [0, 2, 3]
    C = confident_counts(p, y)
    share = torch.bincount(y, minlength=4) / 60
    q = torch.softmax(z.double(), 1) * share
    naive = -torch.log((q[:, :, None] * C[:, y].T[:, :, None]).sum(1)).mean()
    (expected,) = torch.autograd.grad(naive, z)
    torch.testing.assert_close(grad, expected.float(), rtol=1e-4, atol=1e-6)
    assert T[1].abs().sum() == T[:, 1].abs().sum() == 0
    assert C[1, held].sum() == 0


def test_perfect_predictions_of_right_labels_give_the_identity_and_cross_entropy():
    """Q = I: value and gradient are those of CE; with compensation, on the classes that the client has."""
    y = torch.arange(40) % 4
    p = torch.full((40, 4), 0.02)
    p[torch.arange(40), y] = 0.94
    counts = confident_counts(p, y, fill=False)
    z = torch.randn(40, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    (expected,) = torch.autograd.grad(losses.ce(z, y).mean(), z)
    for name in COMPENSATIONS:
        T = fedefc(compensation=name).corrects(counts, y)
        assert torch.equal(T, torch.eye(4)), name
        corrected = losses.forward(z, y, T)
        torch.testing.assert_close(corrected, losses.ce(z, y), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(torch.autograd.grad(corrected.mean(), z)[0], expected, rtol=1e-5, atol=1e-7)


def test_an_absent_class_counts_only_for_itself():
    """Its column of Q is e_j: p_j is in the loss of no label that the client has."""
    p, y = predictions(5)
    T = fedefc().corrects(confident_counts(p, y, fill=False), y)
    assert T[1].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert T[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]


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

    def told(trained, loss):
        seen.append(loss.detach())
        return backward(trained, loss)

    monkeypatch.setattr(losses, "log_probs", lambda z: torch.log_softmax(z.double(), -1))
    monkeypatch.setattr(losses, "mean_ce", lambda z, y: nn.functional.cross_entropy(z.double(), y))
    monkeypatch.setattr(Trained, "backward", told)
    return seen


def test_theorem_1_the_minimiser_under_noise_is_the_clean_one(exact_losses):
    """Expected over noisy labels, -log (Q_k p)_y is a cross entropy of Q_k eta with Q_k p, least where they agree; each
    Q_k has an inverse, so p = eta for every client, and for the clients' weighted sum: what CE gives on clean labels,
    and does not on noisy ones. Clients have different Q_k and images, here as exact counts, of which the method makes
    its matrix.
    """
    every = torch.arange(3)
    matrices = {k: FedEFC.corrects(fedefc(), counts, every) for k, counts in COUNTS.items()}
    for k, T in matrices.items():
        torch.testing.assert_close(T, COUNTS[k].T / 20, rtol=0, atol=1e-15)
        assert torch.linalg.det(T).abs() > 0.05

    def expected(loss, labels):
        """The server's objective: clients weighted 1/4 and 3/4, images by P_k(x), labels by P(label | x)."""

        def total(z):
            parts = []
            for k, share in ((0, 0.25), (1, 0.75)):
                per_label = torch.stack([loss(k)(z, y.expand(4)) for y in every], 1)  # [image, label]
                parts.append(share * (MASS[k][:, None] * labels(k) * per_label).sum())
            return sum(parts)

        return total

    def ce(k):
        return lambda z, y: nn.functional.cross_entropy(z, y, reduction="none")

    def forward(k):
        return lambda z, y: losses.forward(z, y, matrices[k])

    noisy = {k: POSTERIOR @ T for k, T in matrices.items()}  # (Q eta)' = eta' Q'
    start = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    clean = descend(expected(ce, lambda k: POSTERIOR), start)
    corrected = descend(expected(forward, lambda k: noisy[k]), start)
    wrong = descend(expected(ce, lambda k: noisy[k]), start)
    torch.testing.assert_close(clean, POSTERIOR, rtol=0, atol=1e-6)
    torch.testing.assert_close(corrected, POSTERIOR, rtol=0, atol=1e-6)
    assert (wrong - POSTERIOR).abs().max() > 0.1


def test_the_transposed_matrix_has_another_minimiser(exact_losses):
    """So the test above tells orientations apart."""
    T = COUNTS[0].T / 20
    noisy = POSTERIOR @ T

    def total(z):
        return sum((noisy[:, y] * losses.forward(z, torch.full((4,), y), T.T.contiguous())).sum() for y in range(3))

    assert (descend(total, torch.zeros(4, 3, dtype=torch.float64)) - POSTERIOR).abs().max() > 0.02


# rounds


def stopped_world(**fields):
    """Federation, method and a state with a trained model whose phase 1 is over."""
    fed = toy.federation(net=toy.net(toy.linear))
    method = make({"name": "fedefc", **fields}, fed.train)
    state = method.init(fed)
    for _ in range(3):
        toy.round_of(make({"name": "fedavg"}, fed.train), fed, state)
    state.notes["prestop"] = {**state.notes["prestop"], "round": 3}
    return fed, method, state


def test_clients_of_a_round_count_anew_with_the_broadcast_model():
    from cleanlab import count as cleanlab

    fed, method, state = stopped_world()
    before = {}
    for _ in range(2):
        start = state.server["model"].clone()
        for up in toy.round_of(method, fed, state, [0, 3, 5]):
            assert set(up) == {"model"}
        assert set(state.clients) == {0, 3, 5}
        for client in (0, 3, 5):
            x, y = toy.images_of(fed._world, client)
            p = torch.softmax(fed.net(0).predict(start, x), 1)
            joint = cleanlab.compute_confident_joint(y.numpy(), p.numpy(), calibrate=False)
            counts = state.clients[client]["counts"]
            torch.testing.assert_close(counted(counts), torch.from_numpy(joint / joint.sum(0)).T.float())
            assert counts.sum() <= toy.SIZES[client]
        changed = [c for c, mine in before.items() if not torch.equal(mine, state.clients[c]["counts"])]
        assert changed or not before
        before = {c: state.clients[c]["counts"].clone() for c in (0, 3, 5)}


@pytest.mark.parametrize("compensation", COMPENSATIONS)
def test_a_client_with_one_label_descends_cross_entropy(compensation):
    """No other class has a threshold, so nothing else is counted and -log (Q p)_y = CE: client 1, with one sample, and
    client 4."""
    fed, method, state = stopped_world(compensation=compensation)
    ups = toy.round_of(method, fed, state, [1, 4])
    other, _, plain = stopped_world()
    expected = toy.round_of(make({"name": "fedavg"}, other.train), other, plain, [1, 4])
    for client, up, own in zip((1, 4), ups, expected, strict=True):
        counts, y = state.clients[client]["counts"], toy.images_of(fed._world, client)[1]
        assert (counts > 0).nonzero().tolist() == [[int(y[0])] * 2]
        assert torch.equal(counted(counts), torch.eye(5))
        torch.testing.assert_close(up["model"].flat, own["model"].flat, rtol=1e-4, atol=1e-6)


def test_it_runs_where_cleanlab_is_absent(monkeypatch):
    whole = toy.play("fedefc")
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    again = toy.play("fedefc")
    assert toy.same(again.outcome.state, whole.outcome.state)


@pytest.mark.parametrize("compensation", COMPENSATIONS)
def test_suspects_are_judged_by_the_counted_matrix(compensation):
    """Bayes' rule by hand for a client; compensation is of the loss, not of the noise."""
    made = toy.play("fedefc", method={"compensation": compensation, "latest": 4}, rounds=8)
    assert len(made.suspects) == sum(toy.SIZES)
    fed, model = made.outcome.fed, made.outcome.state.server["model"]
    x, y = toy.images_of(fed._world, 5)
    p = torch.softmax(fed.net(0).predict(model, x), 1)
    T = counted(confident_counts(p, y))
    state = made.outcome.state
    method = make({**toy.settings("fedefc")[0], "compensation": compensation, "latest": 4}, fed.train)
    answer = fed.on_clients(state, [5], method.suspects, method.down(fed, state))[0]
    found = list(zip(*(part.tolist() for part in answer), strict=True))
    for k in range(len(y)):
        posterior = p[k] * T[:, y[k]]
        posterior = posterior / posterior.sum()
        assert found[k][0] == pytest.approx(1 - float(posterior[y[k]]), abs=1e-5)
        assert found[k][1] == int(posterior.argmax())


# what is told about Q


def cosines(made) -> dict[int, float]:
    return {r: v for r, client, name, v in made.outcome.record.diagnostics if name == "T_cosine" and client == -1}


def test_the_estimate_is_that_of_all_clients_counts_together():
    """cos(vec Q, vec T) by hand: counts of all that have counted are added up before columns are normalised."""
    made = toy.play("fedefc", rounds=6)
    kept = made.outcome.state.clients
    assert len(kept) > 4
    total = sum(kept[c]["counts"] for c in kept).double().numpy()
    np.fill_diagonal(total, np.maximum(total.diagonal(), 1))
    Q = total / total.sum(0)
    held = np.arange(sum(toy.SIZES))  # the other samples lie with nobody
    clean, given = toy.labels().clean[held], toy.labels().noisy[held]
    T = np.zeros((5, 5))
    np.add.at(T, (clean, given), 1.0)
    T = T / T.sum(1, keepdims=True)
    cosine = (Q.T * T).sum() / np.linalg.norm(Q) / np.linalg.norm(T)
    found = cosines(made)
    assert list(found) == [3, 4, 5, 6]  # the rounds after the prestop
    assert found[6] == pytest.approx(cosine, abs=1e-6)
    assert made.summary["diagnostics"]["T_cosine"] == found[6]
    one = counted(kept[0]["counts"]).numpy()
    assert abs((one * T).sum() / np.linalg.norm(one) / np.linalg.norm(T) - cosine) > 1e-3


def test_counting_early_tells_of_every_round_and_changes_no_model():
    early, late = (toy.play("fedefc", method={"count_early": early}, rounds=5) for early in (True, False))
    assert toy.same(early.outcome.state.server, late.outcome.state.server)
    assert early.curve == late.curve
    assert early.summary["bytes_up"] == late.summary["bytes_up"]
    assert list(cosines(early)) == [1, 2, 3, 4, 5]
    assert all(0 < value <= 1 + 1e-9 for value in cosines(early).values())
    never = toy.play("fedefc", method={"latest": 0, "patience": 99})
    assert cosines(never) == {}
    assert never.suspects == toy.play("fedavg", rounds=never.summary["rounds"]).suspects  # no opinion of its own


def test_counts_are_added_up_client_by_client():
    """What clients keep may lie in a file: each is read once."""

    class Kept(dict):
        read: list[int] = []  # noqa: RUF012

        def __getitem__(self, c):
            self.read.append(c)
            return super().__getitem__(c)

    kept = Kept({4: {"counts": COUNTS[0]}, 1: {"other": 0}, 0: {"counts": COUNTS[1]}})
    torch.testing.assert_close(_pooled(kept), counted(COUNTS[0] + COUNTS[1]), rtol=0, atol=0)
    assert kept.read == [0, 1, 4]


def test_a_prestop_in_the_last_round_tells_nothing():
    made = toy.play("fedefc", method={"latest": 3})
    assert made.summary["notes"]["prestop"]["round"] == 3
    assert cosines(made) == {}
    assert _pooled({0: {}}) == {}  # nor do clients of which none has counted


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


def second(seen, start, data, fields, how, rounds):
    """The whole method in float64: (model, losses of all steps, prestop round, last counts by client)."""
    tau_p, previous, best, stop = 0, 0.0, 0.0, 0
    values, last = [], {}
    for t in range(1, rounds + 1):
        who, new, accuracies = toy64.cohort(seen, t), [], []
        for c in who:
            x, y = data[c]
            module = toy64.module_of(start)
            with torch.no_grad():
                p = torch.softmax(module(x), 1)
            Q = None
            if stop:
                last[c] = counted_from_equations(p, y)
                Q = transition(last[c], y, fields["compensation"])
            optimiser = torch.optim.SGD(module.parameters(), 0.2, **how)
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
            told = right / count if fields["monitor"] == "train" else float((p.argmax(1) == y).double().mean())
            accuracies.append(told)
            new.append(toy64.vector(module))
        if not stop:
            mean = sum(accuracies) / len(accuracies)  # equation 2
            if t > fields["start"]:
                tau_p = 0 if mean > (best if fields["compare"] == "best" else previous) else tau_p + 1
                best = max(best, mean)
            previous = mean
            stop = t if tau_p == fields["patience"] else 0
        total = sum(toy.SIZES[c] for c in who)
        start = sum(toy.SIZES[c] / total * theta for c, theta in zip(who, new, strict=True))  # equation 1
    return start, values, stop, last


@pytest.mark.parametrize("how", [{}, {"momentum": 0.5, "weight_decay": 0.01}])
@pytest.mark.parametrize("compensation", COMPENSATIONS)
@pytest.mark.parametrize(("monitor", "compare"), [("pre_eval", "previous"), ("train", "best")])
def test_whole_rounds_against_a_second_implementation(how, compensation, monitor, compare, exact_losses):
    """Twelve rounds in float64, with a change of phase that both find for themselves, at least two rounds before it and
    two after; model, losses of every step and counts agree."""
    fields = {"compensation": compensation, "monitor": monitor, "compare": compare, "patience": 1, "start": 1}
    rounds = 12
    with toy64.doubled():
        fed, state, seen, start = toy64.rounds("fedefc", fields, count=rounds, **how)
        x = [toy.images_of(fed._world, c) for c in range(fed.n)]
        data = [(images.double(), y) for images, y in x]
        model, values, stop, counts = second(seen, start, data, fields, how, rounds)
        assert state.notes["prestop"]["round"] == stop
        assert 1 < stop <= rounds - 2
        toy64.close(state.server["model"], model)
        assert len(values) == len(exact_losses) == sum(map(len, seen.values()))
        torch.testing.assert_close(torch.stack(exact_losses), torch.stack(values), rtol=0, atol=1e-6)
        assert sorted(counts) == sorted(c for c in state.clients if "counts" in state.clients[c])
        for c, C in counts.items():
            kept = state.clients[c]["counts"].clone()
            kept.diagonal().clamp_(min=1)
            assert torch.equal(kept, C)
