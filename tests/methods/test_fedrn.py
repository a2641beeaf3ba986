"""FedRN, against a second implementation with modules, torch.optim and scikit-learn in float64."""

import numpy as np
import pytest
import torch
import toy
import toy64
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn import functional as F

from fednoise_core.engine.client import Client
from fednoise_core.methods import fedrn


def seed_of(fed, c: int, round: int, word: str) -> int:
    return Client(fed.world, c, {}, None, round).derive_seed("right", word)


def posterior(loss: torch.Tensor, seed: int) -> np.ndarray:
    """The posterior of the component with the lower mean. Losses are min-max scaled. 1 if they are equal."""
    x = loss.detach().double().numpy()
    if len(x) < 2 or np.ptp(x) < 1e-12:
        return np.ones(len(x))
    x = ((x - x.min()) / np.ptp(x))[:, None]
    gmm = GaussianMixture(2, max_iter=100, tol=1e-2, reg_covar=5e-4, random_state=seed).fit(x)
    return gmm.predict_proba(x)[:, int(gmm.means_[:, 0].argmin())]


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_if_every_posterior_is_1_or_none_above_a_half_it_is_fedavg_bit_for_bit(p, monkeypatch):
    base = toy.play("fedavg").outcome.state.server["model"]
    assert not torch.equal(toy.play("fedrn").outcome.state.server["model"].flat, base.flat)
    monkeypatch.setattr(fedrn, "score_labels", lambda client, w, word: torch.full((client.n,), p, dtype=torch.float64))
    run = toy.play("fedrn")
    assert torch.equal(run.outcome.state.server["model"].flat, base.flat)
    neighbours = [v for r, *_, metric, v in run.outcome.record.metrics if metric == "neighbours"]
    assert neighbours == [4, 4]  # they were asked


def scores_by_hand(w: float, skill: dict[int, float], answers: dict[int, np.ndarray], c: int, own_answer: np.ndarray):
    """{client: score} of those that have trained, and the client's own score: min-max over all, 0 where all are equal;
    the cosine with itself, 1, is among those scaled.
    """

    def cos(a, b):
        return float(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-8)

    def scaled(v, among):
        low, high = min(among), max(among)
        return (v - low) / (high - low) if high > low else 0.0

    like = {j: cos(own_answer, answers[j]) for j in skill}
    like_all = [*like.values(), 1.0]
    score = {j: w * scaled(skill[j], skill.values()) + (1 - w) * scaled(like[j], like_all) for j in skill}
    able = scaled(skill[c], skill.values()) if c in skill else 0.5
    return score, w * able + (1 - w)


@pytest.mark.parametrize(("w", "k"), [(0.0, 1), (0.6, 2), (1.0, 9)])
def test_neighbours_and_scores(w, k):
    draw = np.random.default_rng(round(10 * w) + k)
    fed, method, state = toy.started("fedrn", {"weight": w, "neighbours": k})
    for _ in range(30):
        clients = sorted(draw.choice(fed.all, draw.integers(2, 8), replace=False).tolist())
        skill = {j: float(draw.integers(5) / 4) for j in clients}  # with ties
        answers = {j: draw.normal(size=5) for j in clients}
        state.server["told"] = {j: {"skill": skill[j], "answer": torch.from_numpy(answers[j])} for j in clients}
        for c in fed.all:
            x = state.server["probe"]
            answer = answers[c] if c in skill else fed.net().predict(state.server["model"], x)[0].double().numpy()
            score, own_score = scores_by_hand(w, skill, answers, c, answer)
            neighbours, scores = method.choose_neighbours(fed, state, c)
            best = sorted((j for j in clients if j != c), key=lambda j, score=score: (-round(score[j], 9), j))[:k]
            expected = [own_score, *(score[j] for j in best)]
            assert neighbours == best
            assert scores == pytest.approx(expected if sum(expected) > 0 else [1.0] * len(expected), abs=1e-9)


def test_equal_accuracies_and_answers_count_nothing():
    """max = min in the scaling gives 0; then the lower number comes first. With w = 1 all scores are 0: all count 1."""
    fed, method, state = toy.started("fedrn", {"weight": 0.6})
    state.server["told"] = {j: {"skill": 0.5, "answer": torch.ones(5)} for j in (0, 3, 5)}
    assert method.choose_neighbours(fed, state, 3) == ([0, 5], pytest.approx([0.4, 0, 0]))
    fed, method, second_state = toy.started("fedrn", {"weight": 1.0})
    second_state.server |= state.server
    assert method.choose_neighbours(fed, second_state, 3) == ([0, 5], [1.0, 1.0, 1.0])
    second_state.server["told"] = {}
    assert method.choose_neighbours(fed, second_state, 3) == ([], [1.0])


@pytest.mark.parametrize("k", [0, 2])
def test_a_round_with_neighbours_against_a_second_implementation(k, monkeypatch):
    """Two rounds in float64: FedAvg, then with neighbours. The library's losses and posteriors pass through float32, so
    posteriors agree to 1e-4 (scaled losses of 1e-7, EM stopped at 1e-2), choices and models exactly and to 1e-9.
    """
    positions: dict[int, list[torch.Tensor]] = {}  # of the batches that a client tunes heads on

    class Watched(fedrn.Heads):
        def prepare_fit(self, client, broadcast):
            positions[client.id] = positions[-1] = []
            return super().prepare_fit(client, broadcast)

        def train_step(self, net, carry, batch, broadcast, client_state):
            positions[-1].append(batch.i.clone())
            super().train_step(net, carry, batch, broadcast, client_state)

    def choose_round(self, fed, state):
        (warm_up if state.round == 1 else fedrn.FedRN.round_with_neighbours)(self, fed, state)

    w, warm_up = 0.6, fedrn.FedRN.run_round
    monkeypatch.setattr(fedrn, "Heads", Watched)
    monkeypatch.setattr(fedrn.FedRN, "run_round", choose_round)
    with toy64.doubled():
        fed, state, seen, start = toy64.rounds("fedrn", {"warmup": 1, "neighbours": k, "weight": w}, 2)
        data = {c: toy.images_of(fed.world, c) for c in fed.all}
        x_of = {c: data[c][0].double() for c in fed.all}
        probe = state.server["probe"].double()

        def loss_of(module, c):
            return F.cross_entropy(module(x_of[c]), data[c][1], reduction="none")

        first = {c: toy64.train(start, seen[1, c], lambda theta: 0 * theta.sum(), 0.2) for c in toy64.cohort(seen, 1)}
        theta = toy64.mean(first)
        modules = {c: toy64.module_of(first[c]) for c in first}
        skill = {c: float((modules[c](x_of[c]).argmax(1) == data[c][1]).double().mean()) for c in first}
        answers = {c: modules[c](probe)[0].detach().numpy() for c in first}

        new, second = {}, toy64.cohort(seen, 2)
        assert set(second) & set(first)
        assert set(second) - set(first)
        for c in second:
            own_flat = first.get(c, theta)
            answer = toy64.module_of(own_flat)(probe)[0].detach().numpy()
            score, own_score = scores_by_hand(w, skill, answers, c, answer)
            neighbours = sorted((j for j in score if j != c), key=lambda j, score=score: (-score[j], j))[:k]
            p = posterior(loss_of(toy64.module_of(own_flat), c), seed_of(fed, c, 2, "own"))
            assert k == 0 or {int(i) for batch in positions[c] for i in batch} == set(np.flatnonzero(p > 0.5))
            total, weight = own_score * p, own_score
            for n, j in enumerate(neighbours):
                model = toy64.module_of(first[j])
                tune_head(model, x_of[c], data[c][1], positions[c], 0.2)
                estimate = posterior(loss_of(model, c), seed_of(fed, c, 2, f"near{n}"))
                total, weight = total + score[j] * estimate, weight + score[j]
            clean = total / weight
            np.testing.assert_allclose(state.clients[c]["clean"], clean, rtol=0, atol=1e-4)
            trusted = clean > 0.5 if (clean > 0.5).any() else np.ones(len(clean), bool)
            assert sum(len(y) for _, y in seen[2, c]) == 2 * trusted.sum()  # two epochs
            used = {tuple(row) for x, _ in seen[2, c] for row in x.flatten(1).tolist()}
            assert used == {tuple(row) for row in x_of[c][torch.from_numpy(trusted)].flatten(1).tolist()}
            new[c] = toy64.train(theta, seen[2, c], lambda theta: 0 * theta.sum(), 0.2)
            toy64.close(state.clients[c]["model"], new[c])
        toy64.close(state.server["model"], toy64.mean(new))


def tune_head(module: nn.Sequential, x: torch.Tensor, y: torch.Tensor, batches: list[torch.Tensor], lr: float) -> None:
    """Plain gradient descent of the last layer alone."""
    optimiser = torch.optim.SGD(module[3].parameters(), lr)
    for i in batches:
        optimiser.zero_grad()
        F.cross_entropy(module(x[i]), y[i]).backward()
        optimiser.step()


def test_a_body_with_normalisation_stays_in_evaluation_mode(toy_nets):
    """Heads are tuned on features [n, d] of the neighbour's model as it predicts."""
    fed, method, state = toy.started("fedrn", train={"net": "toy_norm", "lr": 0.05, "fraction": 1.0})
    method.run_round(fed, state)
    model = state.clients[5]["model"]
    local = fedrn.Heads(fed.train)
    client = Client(fed.world, 0, dict(state.clients[0]), None, 2)
    work = local.prepare_fit(client, {"near0": model})
    x, _ = toy.images_of(fed.world, 0)
    torch.testing.assert_close(work.aux["near0"], fed.net().features(model, x), rtol=0, atol=1e-6)
    head = local.init_carry(fed.net(), {"near0": model}, {})["near0"]
    assert [e.name for e in head.layout.entries] == ["head.weight", "head.bias"]
    torch.testing.assert_close(fed.net().head(head, work.aux["near0"]), fed.net().predict(model, x), rtol=0, atol=1e-5)


def test_dropout_that_stays_on_in_evaluation():
    fed, method, state = toy.started("fedrn", net=toy.toy_net(toy.dropping_body, dropout_at_eval=True))
    state.round = 1
    method.run_round(fed, state)
    answers = torch.stack([message["answer"] for message in state.server["told"].values()])
    assert torch.isfinite(answers).all()
    assert answers.abs().sum() > 0


def test_suspects_are_those_that_the_last_posterior_doubts():
    fed, method, state = toy.started("fedrn")
    for state.round, play in ((1, method.run_round), (2, method.round_with_neighbours)):
        play(fed, state)
    broadcast = method.make_broadcast(fed, state)
    seen = [c for c in fed.all if "clean" in state.clients[c]]
    unseen = [c for c in fed.all if "clean" not in state.clients[c]]
    for c, (p, proposed) in zip(seen, fed.run_on_clients(state, seen, method.suspect_labels, broadcast), strict=True):
        assert torch.equal(p, 1 - state.clients[c]["clean"])
        x, _ = toy.images_of(fed.world, c)
        assert torch.equal(proposed, fed.net().predict(state.server["model"], x).argmax(1))
    for c, (p, _) in zip(unseen, fed.run_on_clients(state, unseen, method.suspect_labels, broadcast), strict=True):
        x, y = toy.images_of(fed.world, c)
        loss = F.cross_entropy(fed.net().predict(state.server["model"], x), y, reduction="none")
        np.testing.assert_allclose(1 - p, posterior(loss, seed_of(fed, c, 2, "suspects")), rtol=0, atol=1e-4)
