"""FedRN: methods.md 5.15. A second implementation stands below: modules, torch.optim, scikit-learn, float64."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch
import toy
import toy64
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn import functional as F

from fednoise_core.engine.client import Client
from fednoise_core.engine.state import State
from fednoise_core.methods import fedrn, make
from fednoise_core.spec import Train

MODEL = 4 * (64 * 6 + 6 + 6 * 5 + 5)


def started(fields: dict | None = None, **options):
    fed = toy.federation(**options)
    method = make({"name": "fedrn", "warmup": 1, **(fields or {})}, fed.train)
    return fed, method, method.init(fed)


def played(fields: dict | None = None, rounds: int = 2, **options):
    """Rounds as the phases have them: one of warm-up, then with neighbours."""
    fed, method, state = started(fields, **options)
    for state.round in range(1, rounds + 1):
        (method.round if state.round == 1 else method.round_with_neighbours)(fed, state)
    return fed, method, state


def seed_of(fed, c: int, round: int, word: str) -> int:
    return Client(fed._world, c, {}, None, round).seed("right", word)


def posterior(loss: torch.Tensor, seed: int) -> np.ndarray:
    """Of the component with the lower mean; losses min-max scaled (methods.md 5.15, step 1). 1 if they are equal."""
    x = loss.detach().double().numpy()
    if len(x) < 2 or np.ptp(x) < 1e-12:
        return np.ones(len(x))
    x = ((x - x.min()) / np.ptp(x))[:, None]
    gmm = GaussianMixture(2, max_iter=100, tol=1e-2, reg_covar=5e-4, random_state=seed).fit(x)
    return gmm.predict_proba(x)[:, int(gmm.means_[:, 0].argmin())]


@pytest.mark.parametrize(("rounds", "warm"), [(500, 100), (120, 24), (3, 1), (1, 1), (12, 2), (13, 3)])
def test_warm_up_is_a_fifth_of_the_rounds(rounds, warm):
    assert make({"name": "fedrn"}, Train(rounds=rounds)).warm_rounds == warm
    assert make({"name": "fedrn", "warmup": 7}, Train(rounds=rounds)).warm_rounds == min(7, rounds)


def test_the_warm_up_is_fedavg_bit_for_bit():
    ours = toy.play("fedrn", method={"warmup": 3}).outcome.state.server["model"]
    assert torch.equal(ours.flat, toy.play("fedavg").outcome.state.server["model"].flat)


def test_if_every_posterior_is_1_it_is_fedavg_bit_for_bit(monkeypatch):
    base = toy.play("fedavg").outcome.state.server["model"]
    assert not torch.equal(toy.play("fedrn").outcome.state.server["model"].flat, base.flat)
    monkeypatch.setattr(fedrn, "right", lambda me, w, word: torch.ones(me.n, dtype=torch.float64))
    made = toy.play("fedrn")
    assert torch.equal(made.outcome.state.server["model"].flat, base.flat)
    neighbours = [v for r, *_, metric, v in made.outcome.record.metrics if metric == "neighbours"]
    assert neighbours == [4, 4]  # they were asked


def test_if_no_label_is_trusted_all_are_used():
    base = toy.play("fedavg").outcome.state.server["model"]
    assert torch.equal(toy.play("fedrn", method={"threshold": 1.0}).outcome.state.server["model"].flat, base.flat)


def test_without_neighbours_a_client_trusts_its_own_last_model():
    fed, _, one = played({"neighbours": 0}, 1, train={"fraction": 1.0})
    before = {c: one.clients[c]["model"].clone() for c in fed.all}
    fed, _, state = played({"neighbours": 0}, 2, train={"fraction": 1.0})
    assert fed.bytes_down == 7 * (256 + MODEL + MODEL + 8)  # nobody's model comes down
    for c in fed.all:
        x, y = toy.images_of(fed._world, c)
        loss = F.cross_entropy(fed.net().predict(before[c], x), y, reduction="none")
        own = posterior(loss, seed_of(fed, c, 2, "own"))
        np.testing.assert_allclose(state.clients[c]["clean"], own, rtol=0, atol=1e-4)


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


@pytest.mark.parametrize("w", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_neighbours_and_scores(w, k):
    draw = np.random.default_rng(round(10 * w) + k)
    fed, method, state = started({"weight": w, "neighbours": k})
    for _ in range(30):
        known = sorted(draw.choice(fed.all, draw.integers(2, 8), replace=False).tolist())
        skill = {j: float(draw.integers(5) / 4) for j in known}  # with ties
        answers = {j: draw.normal(size=5) for j in known}
        state.server["known"] = known
        for j in known:
            state.server["skill"][j] = skill[j]
            state.server["answers"][j] = torch.from_numpy(answers[j])
        for c in fed.all:
            x = state.server["probe"]
            answer = answers[c] if c in skill else fed.net().predict(state.server["model"], x)[0].double().numpy()
            score, own = scores_by_hand(w, skill, answers, c, answer)
            near, told = method.choose(fed, state, c)
            assert c not in near
            assert set(near) <= set(known)
            assert len(near) == min(k, len([j for j in known if j != c])) == len(told) - 1
            if told[0] or any(told[1:]):
                assert all(0 <= s <= 1 for s in told)
            if sum(score[j] for j in near) + own > 0:
                assert told == pytest.approx([own, *(score[j] for j in near)], abs=1e-9)
            others = [score[j] for j in known if j != c and j not in near]
            assert min((score[j] for j in near), default=1) >= max(others, default=0) - 1e-9


WORKED = [  # client, whom it asks, scores: its own, then theirs
    # cosines 0, 1, .6: scores 0, .3 + .4, .6 + .24
    (3, [5, 0], [0.7, 0.84, 0.0]),
    # cosines 1, 0, .8: its own .4, the others' .3 + 0, .6 + .32
    (0, [5, 3], [0.4, 0.92, 0.3]),
    # cosines .8, .6, 1, scaled .5, 0, 1: .2, .3 and its own 1
    (5, [3, 0], [1.0, 0.3, 0.2]),
    # has not trained: half of the skill; cosines .6, .8, .96 and 1 to itself, scaled 0, .5, .9, 1
    (6, [5, 3], [0.7, 0.96, 0.5]),
]


@pytest.mark.parametrize(("c", "near", "scores"), WORKED)
@pytest.mark.parametrize("k", [1, 2])
def test_neighbours_and_scores_worked_out_on_paper(c, near, scores, k, monkeypatch):
    """w = .6; accuracies .2, .6, 1 scale to 0, .5, 1; answers as arrows of length 1, 2, 1 and, of client 6, 1."""
    fed, method, state = started({"weight": 0.6, "neighbours": k})
    state.server["known"] = [0, 3, 5]
    state.server["skill"][[0, 3, 5]] = torch.tensor([0.2, 0.6, 1.0], dtype=torch.float64)
    arrows = [[0.0, 1.0, 0, 0, 0], [2.0, 0.0, 0, 0, 0], [0.6, 0.8, 0, 0, 0]]
    state.server["answers"][[0, 3, 5]] = torch.tensor(arrows, dtype=torch.float64)
    monkeypatch.setattr(fedrn, "_answer", lambda net, w, probe: torch.tensor([0.8, 0.6, 0, 0, 0], dtype=torch.float64))
    assert method.choose(fed, state, c) == (near[:k], pytest.approx(scores[: 1 + k], abs=1e-9))


def test_equal_accuracies_and_answers_count_nothing():
    """max = min in the scaling gives 0; then the lower number comes first. With w = 1 all scores are 0: all count 1."""
    fed, method, state = started({"weight": 0.6})
    state.server["known"] = [0, 3, 5]
    state.server["skill"][[0, 3, 5]] = 0.5
    state.server["answers"][[0, 3, 5]] = torch.ones(5, dtype=torch.float64)
    assert method.choose(fed, state, 3) == ([0, 5], pytest.approx([0.4, 0, 0]))
    fed, method, other = started({"weight": 1.0})
    other.server |= state.server
    assert method.choose(fed, other, 3) == ([0, 5], [1.0, 1.0, 1.0])
    other.server["known"] = []
    assert method.choose(fed, other, 3) == ([], [1.0])


@contextmanager
def watched_heads():
    """(client, in order) -> positions and labels of the batches that heads are tuned on; features by neighbour."""
    seen: list[tuple[int, list[torch.Tensor]]] = []
    prepare, step = fedrn.Heads.prepare, fedrn.Heads.step

    def started(self, me, down):
        seen.append((me.id, []))
        return prepare(self, me, down)

    def stepped(self, net, carry, batch, down, mine):
        seen[-1][1].append(batch.i.clone())
        step(self, net, carry, batch, down, mine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fedrn.Heads, "prepare", started)
        patch.setattr(fedrn.Heads, "step", stepped)
        yield seen


def test_a_round_with_neighbours_against_a_second_implementation(monkeypatch):
    """Two rounds in float64: FedAvg, then with neighbours. The library's losses and posteriors pass through float32, so
    posteriors agree to 1e-4 (scaled losses of 1e-7, EM stopped at 1e-2), choices and models exactly and to 1e-9.
    """
    k, w = 2, 0.6
    with toy64.doubled(), watched_heads() as tuned:
        monkeypatch.setattr(fedrn.FedRN, "round", two_kinds(fedrn.FedRN.round))
        fed, state, seen, start = toy64.rounds("fedrn", {"warmup": 1, "neighbours": k, "weight": w}, 2)
        data = {c: toy.images_of(fed._world, c) for c in fed.all}
        x_of = {c: data[c][0].double() for c in fed.all}
        probe = state.server["probe"].double()

        first = {c: toy64.train(start, seen[1, c], lambda theta: 0 * theta.sum(), 0.2) for c in toy64.cohort(seen, 1)}
        sizes = {c: len(data[c][1]) for c in fed.all}
        theta = sum(sizes[c] * first[c] for c in first) / sum(sizes[c] for c in first)
        modules = {c: toy64.module_of(first[c]) for c in first}
        skill = {c: float((modules[c](x_of[c]).argmax(1) == data[c][1]).double().mean()) for c in first}
        answers = {c: modules[c](probe)[0].detach().numpy() for c in first}

        positions, new = dict(tuned), {}
        second = toy64.cohort(seen, 2)
        assert set(second) & set(first)
        assert set(second) - set(first)
        for c in second:
            own_flat = first.get(c, theta)
            answer = toy64.module_of(own_flat)(probe)[0].detach().numpy()
            score, own = scores_by_hand(w, skill, answers, c, answer)
            near = sorted((j for j in score if j != c), key=lambda j, score=score: (-score[j], j))[:k]
            p = posterior(losses_of(toy64.module_of(own_flat), x_of[c], data[c][1]), seed_of(fed, c, 2, "own"))
            assert {int(i) for batch in positions[c] for i in batch} == set(np.flatnonzero(p > 0.5))
            total, weight = own * p, own
            for n, j in enumerate(near):
                model = toy64.module_of(first[j])
                tune_head(model, x_of[c], data[c][1], positions[c], 0.2)
                told = posterior(losses_of(model, x_of[c], data[c][1]), seed_of(fed, c, 2, f"near{n}"))
                total, weight = total + score[j] * told, weight + score[j]
            clean = total / weight
            np.testing.assert_allclose(state.clients[c]["clean"], clean, rtol=0, atol=1e-4)
            trusted = clean > 0.5 if (clean > 0.5).any() else np.ones(len(clean), bool)
            assert sum(len(y) for _, y in seen[2, c]) == 2 * trusted.sum()  # two epochs
            used = {tuple(row) for x, _ in seen[2, c] for row in x.flatten(1).tolist()}
            assert used == {tuple(row) for row in x_of[c][torch.from_numpy(trusted)].flatten(1).tolist()}
            new[c] = toy64.train(theta, seen[2, c], lambda theta: 0 * theta.sum(), 0.2)
            toy64.close(state.clients[c]["model"], new[c])
        toy64.close(state.server["model"], sum(sizes[c] * new[c] for c in new) / sum(sizes[c] for c in new))


def two_kinds(plain):
    """The first round is the warm-up's, others those with neighbours."""

    def round(self, fed, state, among=None):
        return plain(self, fed, state) if state.round == 1 else self.round_with_neighbours(fed, state)

    return round


def losses_of(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return F.cross_entropy(module(x), y, reduction="none")


def tune_head(module: nn.Sequential, x: torch.Tensor, y: torch.Tensor, batches: list[torch.Tensor], lr: float) -> None:
    """Plain gradient descent of the last layer alone."""
    head = module[3]
    for i in batches:
        loss = F.cross_entropy(module(x[i]), y[i])
        grads = torch.autograd.grad(loss, head.parameters())
        with torch.no_grad():
            for p, g in zip(head.parameters(), grads, strict=True):
                p -= lr * g


def noting(choose, asked):
    def noted(*args):
        asked.append(choose(*args))
        return asked[-1]

    return noted


def test_a_neighbours_own_model_is_not_changed_by_tuning_its_copy():
    """Messages of clients beside the round's cohort are bit for bit what they were; yet tuning changes posteriors."""
    clean = []
    for tune in (0, 1):
        fed, method, state = played({"tune": tune}, 1, train={"fraction": 1.0})
        before = {c: m["model"].flat.clone() for c, m in state._relay.items()}
        state.round = 2
        asked = []
        choose = type(method).choose
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fed, "sample", lambda round, among=None: [0, 3])
            patch.setattr(type(method), "choose", noting(choose, asked))
            method.round_with_neighbours(fed, state)
        after = {c: m["model"].flat for c, m in state._relay.items()}
        others = {j for near, _ in asked for j in near} - {0, 3}
        assert others
        assert all(torch.equal(before[j], after[j]) for j in others)
        assert not torch.equal(before[0], after[0])
        clean.append(torch.cat([state.clients[c]["clean"] for c in (0, 3)]))
    assert (clean[0] - clean[1]).abs().max() > 1e-3


def test_the_order_of_the_cohort_does_not_matter():
    """All clients use the models of the round's start (the authors' code lets later ones use those just stored)."""
    ends = []
    for order in ([0, 3, 5, 6], [6, 5, 3, 0]):
        fed, method, state = played({}, 1, train={"fraction": 1.0})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fed, "sample", lambda round, among=None, order=order: order)
            for state.round in (2, 3):
                state.server["model"] = method.init(fed).server["model"]  # its mean is summed in the cohort's order
                method.round_with_neighbours(fed, state)
        ends.append({c: (state.clients[c]["model"].flat, state.clients[c]["clean"]) for c in order})
    for c in (0, 3, 5, 6):
        assert torch.equal(ends[0][c][0], ends[1][c][0])
        assert torch.equal(ends[0][c][1], ends[1][c][1])


def test_a_body_with_normalisation_stays_in_evaluation_mode(toy_nets):
    """Heads are tuned on features [n, d] of the neighbour's model as it predicts."""
    fed, _, state = played({}, 1, train={"net": "toy_norm", "lr": 0.05, "fraction": 1.0})
    near = state._relay[5]["model"]
    local = fedrn.Heads(fed.train, 0.5)
    me = Client(fed._world, 0, dict(state.clients[0]), None, 2)
    work = local.prepare(me, {"near0": near})
    x, _ = toy.images_of(fed._world, 0)
    torch.testing.assert_close(work.aux["near0"], fed.net().features(near, x), rtol=0, atol=1e-6)
    head = local.begin(fed.net(), {"near0": near}, {})["near0"]
    assert [e.name for e in head.layout.entries] == ["head.weight", "head.bias"]
    torch.testing.assert_close(fed.net().head(head, work.aux["near0"]), fed.net().predict(near, x), rtol=0, atol=1e-5)


def test_the_probe_is_one_image_for_all_and_another_in_another_run():
    fed, _, state = started()
    kept = [state.clients[c]["probe"] for c in fed.all]
    assert all(torch.equal(one, state.server["probe"]) for one in kept)
    assert kept[0].shape == (1, 1, 8, 8)
    other = toy.federation(seed=1)
    assert not torch.equal(kept[0], make({"name": "fedrn"}, other.train).init(other).server["probe"])


def test_dropout_that_stays_on_in_evaluation():
    fed = toy.federation(net=toy.net(toy.dropping, dropout_at_eval=True))
    method, state = make({"name": "fedrn", "warmup": 1}, fed.train), State()
    state = method.init(fed)
    state.round = 1
    method.round(fed, state)
    answers = state.server["answers"][state.server["known"]]
    assert torch.isfinite(answers).all()
    assert answers.abs().sum() > 0


def test_suspects_are_those_that_the_last_posterior_doubts():
    fed, method, state = played({}, 2)
    down = method.down(fed, state)
    seen = [c for c in fed.all if "clean" in state.clients[c]]
    unseen = [c for c in fed.all if "clean" not in state.clients[c]]
    for c, (p, proposed) in zip(seen, fed.on_clients(state, seen, method.suspects, down), strict=True):
        assert torch.equal(p, 1 - state.clients[c]["clean"])
        x, _ = toy.images_of(fed._world, c)
        assert torch.equal(proposed, fed.net().predict(state.server["model"], x).argmax(1))
    for c, (p, _) in zip(unseen, fed.on_clients(state, unseen, method.suspects, down), strict=True):
        x, y = toy.images_of(fed._world, c)
        loss = F.cross_entropy(fed.net().predict(state.server["model"], x), y, reduction="none")
        np.testing.assert_allclose(1 - p, posterior(loss, seed_of(fed, c, 2, "suspects")), rtol=0, atol=1e-4)
