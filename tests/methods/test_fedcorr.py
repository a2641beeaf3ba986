"""FedCorr: methods.md 5.14 (its LID and mixture: tests/test_stats.py)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core import stats
from fednoise_core.engine.client import Client
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.local import Batch
from fednoise_core.engine.phase import Phase
from fednoise_core.methods import make
from fednoise_core.methods.fedcorr import FedCorr
from fednoise_core.optim import SGD, Trained
from fednoise_core.spec import Train


def method_of(fed=None, **fields) -> FedCorr:
    return make({"name": "fedcorr", **fields}, fed.train if fed else Train())


def found(rounds: int = 1, train: dict | None = None, **fields):
    """The toy after some iterations of stage 1."""
    fed = toy.federation(train=train)
    method = method_of(fed, **{"confidence": 0.25, "relabel": 1.0, **fields})
    state = method.init(fed)
    for _ in range(rounds):
        state.round += 1
        method.find(fed, state)
    return fed, method, state


# stages and work


@pytest.mark.parametrize(
    ("rounds", "fields", "stages"),
    [
        (300, {}, (5, 133, 117)),  # 5 iterations cost 5 * 100/10 rounds: 250 are left, 53 % of them 132.5
        (100, {}, (2, 42, 38)),
        (200, {}, (5, 80, 70)),
        (100, {"iterations": 4}, (4, 32, 28)),
        (100, {"tune_rounds": 10}, (2, 10, 70)),
        (100, {"tune_rounds": 10, "full_rounds": 3}, (2, 10, 3)),
        (10, {}, (2, 1, 1)),
    ],
)
def test_stages_at_the_cost_of_the_rounds(rounds, fields, stages):
    class World:
        all, cohort = list(range(100)), 10

    method = make({"name": "fedcorr", **fields}, Train(rounds=rounds))
    first, tune, full = method.stages(World)
    assert abs(tune - stages[1]) <= (rounds == 300)  # 132.5 rounds to even
    assert (first, tune + full) == (stages[0], stages[1] + stages[2])
    if not fields and rounds > 20:
        assert first * 10 + tune + full == rounds
        assert tune / (tune + full) == pytest.approx(0.53, abs=0.02)


def test_the_servers_rate_acts_in_stage_1():
    """All clients in one group: one averaging, and half the rate moves the model half as far."""
    start = toy.federation().fresh("model").trained
    whole, half = (found(group=8, server_lr=rate)[2].server["model"].trained - start for rate in (1.0, 0.5))
    assert whole.abs().max() > 0.01
    torch.testing.assert_close(half, whole / 2, rtol=0, atol=1e-6)


def test_work_is_that_of_the_rounds_asked_for():
    """7 clients with samples, 4 a round: 2 iterations cost 3.5, rounded to 4 of 12 rounds."""
    made = toy.play("fedcorr", rounds=12, method={"iterations": 0, "tune_rounds": 0, "full_rounds": 0, "kappa": 1.0})
    assert [phase for _, _, phase, view, _, metric, _ in made.outcome.record.metrics if metric == "bytes_up"] == (
        ["start"] + ["find"] * 2 + ["tune"] * 4 + ["all"] * 4
    )
    passes = 2 * 2 * 72 + toy.passes(range(3, 11))  # everyone twice for 2 epochs, then 8 cohorts
    assert made.summary["work"] == pytest.approx(passes / toy.A_ROUND, rel=1e-12)


def test_work_is_that_of_fedavg_where_clients_are_equal():
    """8 clients of 9 samples, 4 a round: 2 iterations cost 4 of 12 rounds."""
    even = toy.partition((9,) * 8)
    fields = {"iterations": 0, "tune_rounds": 0, "full_rounds": 0, "kappa": 1.0}
    made = toy.play("fedcorr", rounds=12, method=fields, split=even)
    assert made.summary["work"] == toy.play("fedavg", rounds=12, split=even).summary["work"] == 12.0


@pytest.mark.parametrize("group", [1, 3])
def test_an_iteration_takes_every_client_once_and_averages_after_each_group(group, monkeypatch):
    jobs = []
    work = Sequential.run
    monkeypatch.setattr(Sequential, "run", lambda self, some: (jobs.append(list(some)), work(self, some))[1])
    found(group=group)
    assert sorted(job.client for some in jobs for job in some) == [0, 1, 3, 4, 5, 6, 7]
    assert [len(some) for some in jobs] == ([1] * 7 if group == 1 else [3, 3, 1])
    starts = [some[0].down["model"].flat for some in jobs]
    assert all(not torch.equal(a, b) for a, b in pairwise(starts))


def test_averaging_within_a_group_is_by_samples():
    fed, method, _ = found(0)
    state = method.init(fed)
    start = state.server["model"].clone()
    state.round = 1
    who = next(iter(fed.sweep(1, 3)))
    each = [{"level": torch.tensor(0.0)}] * 3
    _, ups = fed.fit(method, state, who, {"model": start}, each=each, tag="find0")
    expected = sum(fed.sizes[c] * up["model"].flat for c, up in zip(who, ups, strict=True)) / sum(
        fed.sizes[c] for c in who
    )
    other = toy.federation()
    other.sweep = lambda round, size: [who]
    again = method.init(other)
    again.round = 1
    method.find(other, again)
    torch.testing.assert_close(again.server["model"].flat, expected, rtol=0, atol=1e-6)


# finding noisy clients


def test_lid_is_accumulated_and_the_high_group_is_noisy():
    fed, method, state = found(1)
    first = state.server["lid"].clone()
    assert first[2] == 0  # nobody there
    state.round += 1
    method.find(fed, state)
    assert (state.server["lid"] >= first).all()
    assert (state.server["lid"] - first)[[0, 3, 5]].min() > 0
    seed = fed.seed("noisy clients", state.round)
    noisy = stats.two_groups(state.server["lid"][fed.all].numpy(), seed=seed) > 0.5
    assert state.notes["noisy"] == [c for c, n in zip(fed.all, noisy, strict=True) if n]
    assert 0 < len(state.notes["noisy"]) < 7


def test_a_client_reports_the_mean_lid_of_its_own_models_outputs():
    fed = toy.federation()
    method = method_of(fed)
    state = method.init(fed)
    state.round = 1
    up = fed.fit(method, state, [0], method.down(fed, state), each=[{"level": torch.tensor(0.0)}], tag="find0").ups[0]
    assert set(up) == {"model", "lid"}
    x, y = toy.images_of(fed._world, 0)
    z = fed.net().predict(up["model"], x)
    assert up["lid"] == pytest.approx(float(stats.lid(torch.softmax(z, 1), 20, 1e-6).mean()), rel=1e-3)
    torch.testing.assert_close(state.clients[0]["loss"], F.cross_entropy(z, y, reduction="none"), rtol=1e-4, atol=1e-5)
    later = fed.fit(method, state, [0], method.down(fed, state)).ups[0]
    assert set(later) == {"model"}


def test_levels_are_shares_of_high_losses_and_zero_for_clean_clients():
    for rounds in (1, 2, 3):
        fed, _, state = found(rounds)
        level, noisy = state.notes["level"], state.notes["noisy"]
        assert all(0 <= mu <= 1 for mu in level)
        assert all(level[c] == 0 for c in range(8) if c not in noisy)
        for c in noisy:
            loss = state.clients[c]["loss"].numpy()
            seed = Client(fed._world, c, {}, None, rounds).seed("losses")
            assert level[c] == pytest.approx((stats.two_groups(loss, seed=seed) > 0.5).mean())
            assert len(loss) == toy.SIZES[c]


def test_levels_of_the_iteration_before_are_sent_along(monkeypatch):
    fed, method, state = found(1)
    before = list(state.notes["level"])
    assert any(before)
    sent = {}
    work = Sequential.run

    def watched(self, jobs):
        sent.update({job.client: float(job.down["level"]) for job in jobs})
        return work(self, jobs)

    monkeypatch.setattr(Sequential, "run", watched)
    state.round += 1
    method.find(fed, state)
    assert sent == {c: pytest.approx(before[c]) for c in fed.all}


# relabelling


def correct(confidence: float, relabel: float, loss: list[float]):
    """Stage 1's correction of client 7 (8 samples) with these local losses: targets before, after, global p."""
    fed = toy.federation()
    method = method_of(fed, confidence=confidence, relabel=relabel)
    state = method.init(fed)
    state.clients[7] = {"loss": torch.tensor(loss)}
    said = fed.on_clients(state, [7], method._correct_worst, method.down(fed, state))[0]
    x, y = toy.images_of(fed._world, 7)
    p = torch.softmax(fed.net().predict(state.server["model"], x), 1)
    return said, y, state.relabelled.get(7, y), p


LOSS = [0.1, 5.0, 0.2, 5.2, 0.1, 5.1, 0.3, 4.9]  # four in the high group: 3, 5, 1, 7


@pytest.mark.parametrize(
    ("relabel", "looked_at"), [(1.0, [3, 5, 1, 7]), (0.5, [3, 5]), (0.25, [3]), (0.7, [3, 5]), (0.2, []), (0.0, [])]
)
def test_of_the_largest_local_losses_a_share_is_corrected(relabel, looked_at):
    said, before, after, p = correct(0.0, relabel, LOSS)
    expected = before.clone()
    expected[looked_at] = p.argmax(1)[looked_at]
    assert torch.equal(after, expected)
    assert said == {"level": 0.5, "changed": int((before != after).sum())}


def test_only_samples_that_the_global_model_is_sure_about():
    *_, p = correct(0.0, 1.0, LOSS)
    sure = p.max(1).values
    threshold = float(sure[[1, 3, 5, 7]].sort().values[1:3].mean())
    _, before, after, _ = correct(threshold, 1.0, LOSS)
    expected = before.clone()
    confident = [k for k in (1, 3, 5, 7) if sure[k] > threshold]
    expected[confident] = p.argmax(1)[confident]
    assert len(confident) == 2
    assert torch.equal(after, expected)
    assert torch.equal(correct(1.0, 1.0, LOSS)[2], before)


def test_equal_losses_are_no_noise():
    said, before, after, _ = correct(0.0, 1.0, [0.5] * 8)
    assert said == {"level": 0.0, "changed": 0}
    assert torch.equal(before, after)


def test_only_clients_of_the_noisy_set_are_relabelled():
    for rounds in (1, 2):
        _, _, state = found(rounds, confidence=0.0)
        assert state.relabelled
    made = toy.play("fedcorr")
    noisy = set(made.summary["notes"]["noisy"])
    assert made.outcome.state.relabelled.keys() <= noisy < set(made.outcome.fed.all)
    everyone = toy.play("fedcorr", method={"confidence": 1.0})
    assert everyone.outcome.state.relabelled == {}


def test_before_stage_three_noisy_clients_take_all_sure_labels():
    fed, method, state = found(2)
    state.notes["noisy"] = [3, 7]
    state.relabelled = {7: torch.zeros(8, dtype=torch.int64)}
    method.relabel_noisy(fed, state)
    for c in (3, 7):
        x, y = toy.images_of(fed._world, c)
        p = torch.softmax(fed.net().predict(state.server["model"], x), 1)
        before = torch.zeros(8, dtype=torch.int64) if c == 7 else y
        expected = torch.where(p.max(1).values > 0.25, p.argmax(1), before)
        assert torch.equal(state.relabelled[c], expected)
    assert state.relabelled.keys() == {3, 7}


def test_fine_tuning_takes_clients_below_kappa_only():
    fed, method, state = found(1, kappa=0.3)
    state.notes["level"] = [0.0, 0.3, 0.0, 0.31, 0.5, 0.9, 0.2, 1.0]
    for round in range(2, 12):
        state.round = round
        assert method.tune(fed, state)["clients"] == 3
    assert {c for c in state.clients if "loss" in state.clients[c]} == set(fed.all)
    state.notes["level"], state.round = [0.5] * 8, 12
    assert method.tune(fed, state)["clients"] == 4  # nobody is clean: everybody


# the step


class Last(FedCorr):
    """Stage 3 alone."""

    def phases(self, fed):
        return [Phase("all", self.round, self.train.rounds)]


@pytest.mark.parametrize("net", [{"name": "mlp", "hidden": 6}, "toy_drop"])
def test_without_mixup_and_earlier_stages_it_is_fedavg_bit_for_bit(net, toy_nets):
    fed = toy.federation(train={"net": net, "augment": "flip"})
    runs = []
    for method in (
        Last(train=fed.train, beta=0.0, mixup=0.0),
        make({"name": "fedavg"}, fed.train),
        Last(train=fed.train),
    ):
        state = method.init(fed)
        for _ in range(3):
            state.round += 1
            method.phases(fed)[0].round(fed, state)
        runs.append(state.server["model"].flat)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("level", [0.0, 0.4])
def test_the_proximal_gradient_is_autograds(level):
    """d/d theta of beta mu ||theta - theta_g||, not squared."""
    method = method_of(beta=5.0)
    fed = toy.federation()
    start, here = fed.fresh("model"), fed.fresh("other")
    down = {"model": start, "level": torch.tensor(level)}
    grad = torch.full_like(start.trained, 0.25)
    method.correct(grad, here, down, {})
    theta = here.trained.clone().requires_grad_()
    (5.0 * level * (theta - start.trained).norm()).backward()
    torch.testing.assert_close(grad - 0.25, theta.grad, rtol=1e-4, atol=1e-6)
    assert (grad - 0.25).norm() == pytest.approx(5.0 * level, rel=1e-4, abs=1e-6)
    grad = torch.zeros_like(start.trained)
    method.correct(grad, start, down, {})
    assert torch.equal(grad, torch.zeros_like(grad))  # at theta_g the root is kept away from 0
    method.correct(grad, here, {"model": start}, {})  # stages 2 and 3
    assert not grad.any()


def test_the_proximal_term_pulls_in_training():
    moved = []
    for mu in (0.0, 0.3):
        fed = toy.federation()
        method = method_of(fed, mixup=0.0)
        state = method.init(fed)
        state.round = 1
        start = state.server["model"]
        up = fed.fit(method, state, [0], {"model": start}, each=[{"level": torch.tensor(mu)}]).ups[0]
        moved.append((up["model"].flat - start.flat).norm())
    assert moved[1] < 0.7 * moved[0]


def mixed(method, u, double: bool = False):
    fed = toy.federation()
    w = fed.fresh("model")
    x, y = toy.images_of(fed._world, 7)
    batch = Batch([x], y, torch.arange(8), u, torch.zeros(8, 0), {}, {})
    return method.objective(fed.net(), w, batch, {"model": w}, {}), fed.net(), w, x, y


def test_mixup_by_hand():
    u = torch.rand(8, 2, generator=torch.Generator().manual_seed(3))
    value, net, w, x, y = mixed(method_of(), u)
    weight, partner = u[0, 0], u[:, 1].argsort()  # a = 1: the uniform number itself
    z = net.predict(w, weight * x + (1 - weight) * x[partner])
    torch.testing.assert_close(value, weight * F.cross_entropy(z, y) + (1 - weight) * F.cross_entropy(z, y[partner]))
    plain, *_ = mixed(method_of(mixup=0.0), u)
    torch.testing.assert_close(plain, F.cross_entropy(net.predict(w, x), y))
    doubled, *_ = mixed(method_of(mixup=0.0, double_softmax=True), u)
    assert torch.equal(doubled, plain)  # it acts on the losses of samples only


@pytest.mark.parametrize("name", ["sequential", "workers:2", "lanes:2"])
def test_the_authors_double_softmax_acts_on_losses_of_samples_only(name):
    """Training is the same to the bit; the losses that feed mixture, level and ranking are those of p taken for z."""
    ends = []
    for double in (False, True):
        with toy.federation_on(name) as fed:
            method = method_of(fed, confidence=1.0, double_softmax=double)  # no label is corrected
            state = method.init(fed)
            state.round = 1
            each = [{"level": torch.tensor(0.25)}] * 7
            _, ups = fed.fit(method, state, fed.all, {"model": state.server["model"]}, each=each, tag="before")
            method.find(fed, state)
        ends.append((state, ups))
    (plain, ups), (doubled, again) = ends
    assert toy.same(ups, again)  # weights and LID
    assert toy.same(plain.server, doubled.server)
    assert plain.notes["noisy"] == doubled.notes["noisy"]
    assert plain.relabelled == doubled.relabelled == {}
    assert all(not toy.same(plain.clients[c]["loss"], doubled.clients[c]["loss"]) for c in fed.all)
    for state in (plain, doubled):
        for c in state.notes["noisy"]:
            seed = Client(fed._world, c, {}, None, 1).seed("losses")
            high = stats.two_groups(state.clients[c]["loss"].numpy(), seed=seed) > 0.5
            assert state.notes["level"][c] == pytest.approx(high.mean())
    assert plain.notes["level"] != doubled.notes["level"]


def test_the_authors_losses_of_samples_by_hand():
    fed = toy.federation()
    method = method_of(fed, double_softmax=True)
    state = method.init(fed)
    state.round = 1
    _, (up,) = fed.fit(method, state, [0], method.down(fed, state), each=[{"level": torch.tensor(0.0)}])
    x, y = toy.images_of(fed._world, 0)
    p = torch.softmax(fed.net().predict(up["model"], x), 1)
    expected = p.exp().sum(1).log() - p[torch.arange(17), y]  # log-sum-exp of p, less p of the label
    torch.testing.assert_close(state.clients[0]["loss"], expected, rtol=1e-5, atol=1e-6)
    assert up["lid"] == pytest.approx(float(stats.lid(p, 20, 1e-6).mean()), rel=1e-3)


def seeds_of(run_seed: int, monkeypatch) -> dict[tuple[int, int], list[int]]:
    """(round, values) -> seeds that the mixtures of two iterations started from."""
    seen: dict[tuple[int, int], list[int]] = {}
    fed = toy.federation(seed=run_seed)
    method = method_of(fed, confidence=0.25, relabel=1.0)
    state = method.init(fed)

    def noted(values, *, seed):
        seen.setdefault((state.round, len(values)), []).append(seed)
        return stats.two_groups(values, seed=seed)

    with monkeypatch.context() as patch:
        patch.setattr("fednoise_core.methods.fedcorr.two_groups", noted)
        for state.round in (1, 2):
            method.find(fed, state)
    return seen


def test_mixtures_start_from_the_runs_seed_each_from_its_own(monkeypatch):
    first, again, other = (seeds_of(seed, monkeypatch) for seed in (0, 0, 1))
    assert first == again
    flat = [seed for seeds in first.values() for seed in seeds]
    assert len(flat) >= 4  # of the server in two rounds, and of clients
    assert len(set(flat)) == len(flat)  # by round and client
    assert not set(flat) & {seed for seeds in other.values() for seed in seeds}


@pytest.mark.parametrize("a", [0.2, 1.0, 4.0])
def test_mixing_weights_follow_the_beta_distribution(a):
    """Beta(a, a) has mean 1/2 and variance 1/(4 (2a + 1))."""
    u = (torch.arange(4000.0) + 0.5) / 4000
    weight = torch.cat([stats.beta(u[k : k + 1], a) for k in range(0, 4000, 10)])
    assert 0 <= weight.min() <= weight.max() <= 1
    assert weight.mean().item() == pytest.approx(0.5, abs=0.01)
    assert weight.var().item() == pytest.approx(1 / (4 * (2 * a + 1)), rel=0.02)


def test_partners_are_a_permutation_of_the_batch():
    u = torch.rand(32, 2, generator=torch.Generator().manual_seed(0))
    assert sorted(torch.argsort(u[:, 1]).tolist()) == list(range(32))
    assert FedCorr.draws == 2


# diagnostics


def test_estimates_score_the_detection_of_noisy_clients():
    made = toy.play("fedcorr", method={"iterations": 3})
    rows = [(r, v) for r, c, m, v in made.outcome.record.diagnostics if m == "noisy_client_auroc"]
    assert [r for r, _ in rows] == [1, 2, 3, 4, 5]
    lid = made.outcome.state.server["lid"].numpy()
    pairs = [(lid[a] > lid[b]) + (lid[a] == lid[b]) / 2 for a in toy.NOISY for b in (0, 1, 4, 7)]
    assert rows[-1][1] == pytest.approx(np.mean(pairs))
    assert {m for _, _, m, _ in made.outcome.record.diagnostics} >= {"target_noise_rate", "suspects_precision"}


def test_suspects_are_the_relabelled_samples():
    fed, method, state = found(1)
    _, y = toy.images_of(fed._world, 3)
    targets = y.clone()
    targets[[2, 5]] = (y[[2, 5]] + 1) % 5
    state.relabelled[3] = targets
    p, proposed = fed.on_clients(state, [3], method.suspects, method.down(fed, state))[0]
    assert [k for k in range(12) if p[k] > 0.5] == [2, 5]
    assert torch.equal(proposed[[2, 5]], targets[[2, 5]])
    assert 0 <= p.min() <= p.max() <= 1


def test_trained_is_what_correct_sees():
    """`correct` gets the weights in training: the displacement is of this moment, not of the start."""
    fed = toy.federation()
    start = fed.fresh("model")
    trained = Trained(start.layout, SGD())
    trained.load(start)
    with torch.no_grad():
        trained.w.flat.add_(0.01)
    grad = torch.zeros_like(start.trained)
    method_of(beta=1.0).correct(grad, trained.w, {"model": start, "level": torch.tensor(1.0)}, {})
    torch.testing.assert_close(grad, torch.full_like(grad, 1 / math.sqrt(len(grad))), rtol=1e-4, atol=0)
