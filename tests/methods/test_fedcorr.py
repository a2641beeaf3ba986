"""FedCorr (its LID and mixture: tests/ops/test_stats.py)."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core.engine.client import Client
from fednoise_core.engine.local import Batch
from fednoise_core.engine.phase import Phase
from fednoise_core.methods import make_method
from fednoise_core.methods.fedcorr import FedCorr
from fednoise_core.ops import stats
from fednoise_core.settings.train import Train


def method_of(train: Train | None = None, **fields) -> FedCorr:
    return make_method({"name": "fedcorr", **fields}, train or Train())


def after_stage_one(rounds: int = 1, seed: int = 0, **fields):
    """The toy federation after some iterations of stage 1."""
    fed = toy.toy_federation(seed=seed)
    method = method_of(fed.train, **{"confidence": 0.25, "relabel": 1.0, **fields})
    state = method.init_state(fed)
    for _ in range(rounds):
        state.round += 1
        method.find_noisy(fed, state)
    return fed, method, state


# stages and work


@pytest.mark.parametrize(
    ("rounds", "fields", "stages"),
    [
        (300, {}, (5, 132, 118)),  # 5 iterations cost 5 * 100/10 rounds: 250 are left, 53 % of them 132.5
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

    assert method_of(train=Train(rounds=rounds), **fields).split_rounds(World) == stages


def test_work_is_that_of_the_rounds_asked_for():
    """7 clients with samples, 4 a round: 2 iterations cost 3.5, rounded to 4 of 12 rounds."""
    run = toy.play("fedcorr", rounds=12, method={"iterations": 0, "tune_rounds": 0, "full_rounds": 0, "kappa": 1.0})
    assert [phase for _, _, phase, view, _, metric, _ in run.outcome.record.metrics if metric == "bytes_up"] == (
        ["start"] + ["find"] * 2 + ["tune"] * 4 + ["all"] * 4
    )
    passes = 2 * 2 * 72 + toy.count_passes(range(3, 11))  # everyone twice for 2 epochs, then 8 cohorts
    assert run.summary["work"] == pytest.approx(passes / toy.A_ROUND, rel=1e-12)


@pytest.mark.parametrize(("group", "groups"), [(1, [1] * 7), (3, [3, 3, 1])])
def test_an_iteration_takes_every_client_once_and_averages_after_each_group(group, groups, jobs):
    after_stage_one(group=group)
    assert sorted(job.client for call in jobs for job in call) == [0, 1, 3, 4, 5, 6, 7]
    assert [len(call) for call in jobs] == groups
    starts = [call[0].broadcast["model"].flat for call in jobs]
    assert all(not torch.equal(a, b) for a, b in pairwise(starts))


# finding noisy clients


def test_lid_is_accumulated_and_the_high_group_is_noisy():
    fed, method, state = after_stage_one(1)
    first = state.server["lid"].clone()
    state.round += 1
    method.find_noisy(fed, state)
    assert (state.server["lid"] - first)[fed.all].min() >= 0
    assert (state.server["lid"] - first)[[0, 3, 5]].min() > 0
    seed = fed.derive_seed("noisy clients", state.round)
    noisy = stats.two_groups(state.server["lid"][fed.all].numpy(), seed=seed) > 0.5
    assert state.notes["noisy"] == [c for c, is_noisy in zip(fed.all, noisy, strict=True) if is_noisy]
    assert 0 < len(state.notes["noisy"]) < 7


def test_a_client_reports_its_mean_lid_and_keeps_its_losses():
    """Both are of its own model and of the labels that it trains on."""
    fed, method, state = after_stage_one(0)
    x, y = toy.images_of(fed.world, 0)
    state.round, state.relabelled[0] = 1, (y + 1) % 5
    _, (update,) = fed.fit(
        method, state, [0], method.make_broadcast(fed, state), per_client=[{"level": torch.tensor(0.0)}]
    )
    assert set(update) == {"model", "lid"}
    z = fed.net().predict(update["model"], x)
    lid = stats.local_intrinsic_dim(torch.softmax(z, 1), 20, 1e-6).mean()
    assert update["lid"] == pytest.approx(float(lid), rel=1e-3)
    loss = F.cross_entropy(z, (y + 1) % 5, reduction="none")
    torch.testing.assert_close(state.clients[0]["loss"], loss, rtol=1e-4, atol=1e-5)


def test_levels_are_shares_of_high_losses_and_zero_for_clean_clients():
    fed, _, state = after_stage_one(1)
    level, noisy = state.notes["level"], state.notes["noisy"]
    assert any(level)
    assert all(level[c] == 0 for c in range(8) if c not in noisy)
    for c in noisy:
        seed = Client(fed.world, c, {}, None, 1).derive_seed("losses")
        high = stats.two_groups(state.clients[c]["loss"].numpy(), seed=seed) > 0.5
        assert level[c] == pytest.approx(high.mean())


def test_levels_of_the_iteration_before_are_sent_along(jobs):
    fed, method, state = after_stage_one(1)
    before = list(state.notes["level"])
    assert any(before)
    jobs.clear()
    state.round += 1
    method.find_noisy(fed, state)
    sent = {job.client: float(job.broadcast["level"]) for call in jobs for job in call}
    assert sent == {c: pytest.approx(before[c]) for c in fed.all}


# relabelling


def correct(confidence: float, relabel: float):
    """Stage 1's correction of client 7 (8 samples) with the losses LOSS: answer, targets before and after, global p."""
    fed, method, state = after_stage_one(0, confidence=confidence, relabel=relabel)
    state.clients[7] = {"loss": torch.tensor(LOSS)}
    answer = fed.run_on_clients(state, [7], method._correct_worst, method.make_broadcast(fed, state))[0]
    x, y = toy.images_of(fed.world, 7)
    p = torch.softmax(fed.net().predict(state.server["model"], x), 1)
    return answer, y, state.relabelled.get(7, y), p


LOSS = [0.1, 5.0, 0.2, 5.2, 0.1, 5.1, 0.3, 4.9]  # four in the high group: 3, 5, 1, 7


@pytest.mark.parametrize(("relabel", "looked_at"), [(1.0, [3, 5, 1, 7]), (0.25, [3]), (0.7, [3, 5]), (0.2, [])])
def test_of_the_largest_local_losses_a_share_is_corrected(relabel, looked_at):
    answer, before, after, p = correct(0.0, relabel)
    expected = before.clone()
    expected[looked_at] = p.argmax(1)[looked_at]
    assert torch.equal(after, expected)
    assert answer == {"level": 0.5, "changed": int((before != after).sum())}


def test_only_samples_that_the_global_model_is_sure_about():
    sure = correct(0.0, 1.0)[3].max(1).values
    threshold = float(sure[[1, 3, 5, 7]].sort().values[1:3].mean())
    _, before, after, p = correct(threshold, 1.0)
    confident = [k for k in (1, 3, 5, 7) if sure[k] > threshold]
    assert len(confident) == 2
    before[confident] = p.argmax(1)[confident]
    assert torch.equal(after, before)


def test_only_clients_of_the_noisy_set_are_relabelled():
    run = toy.play("fedcorr")
    noisy = set(run.summary["notes"]["noisy"])
    assert set() < run.outcome.state.relabelled.keys() <= noisy < set(run.outcome.fed.all)


def test_before_stage_three_noisy_clients_take_all_sure_labels():
    """Other labels stay as stage 1 left them."""
    fed, method, state = after_stage_one(2, confidence=0.5)
    state.notes["noisy"], state.relabelled = [3, 7], {7: torch.zeros(8, dtype=torch.int64)}
    method.relabel_noisy(fed, state)
    for c, before in ((3, toy.images_of(fed.world, 3)[1]), (7, torch.zeros(8, dtype=torch.int64))):
        p = torch.softmax(fed.net().predict(state.server["model"], toy.images_of(fed.world, c)[0]), 1)
        assert 0 < (p.max(1).values > 0.5).sum() < len(p)
        after = state.relabelled.get(c, before)
        assert torch.equal(after, torch.where(p.max(1).values > 0.5, p.argmax(1), before))
    assert 7 in state.relabelled.keys() <= {3, 7}


def test_fine_tuning_takes_clients_below_kappa_only():
    fed, method, state = after_stage_one(1, kappa=0.3)
    for level, clients in (([0.0, 0.3, 0.0, 0.31, 0.5, 0.9, 0.2, 1.0], 3), ([0.5] * 8, 4)):  # none below: all
        state.notes["level"] = level
        for state.round in range(2, 6):
            assert method.fine_tune(fed, state)["clients"] == clients


# the step


class Last(FedCorr):
    """Stage 3 alone."""

    def list_phases(self, fed):
        return [Phase("all", self.run_round, self.train.rounds)]


def test_without_mixup_and_earlier_stages_it_is_fedavg_bit_for_bit():
    fed = toy.toy_federation(train={"augment": "flip"})
    ends = []
    for method in (Last(train=fed.train, mixup=0.0), make_method({"name": "fedavg"}, fed.train)):
        state = method.init_state(fed)
        for _ in range(3):
            state.round += 1
            method.list_phases(fed)[0].run_round(fed, state)
        ends.append(state.server["model"].flat)
    assert torch.equal(*ends)


def test_the_proximal_gradient_is_autograds():
    """d/d theta of beta mu ||theta - theta_g||, not squared; 0 at theta_g, and in stages 2 and 3."""
    fed = toy.toy_federation()
    start, moved = fed.init_weights("model"), fed.init_weights("other")
    theta = moved.trained.clone().requires_grad_()
    (5.0 * 0.4 * (theta - start.trained).norm()).backward()
    level = {"level": torch.tensor(0.4)}
    for w, broadcast, expected in ((moved, level, theta.grad), (start, level, 0.0), (moved, {}, 0.0)):
        grad = torch.full_like(start.trained, 0.25)
        method_of(beta=5.0).correct_gradient(grad, w, {"model": start, **broadcast}, {})
        torch.testing.assert_close(grad, expected + torch.full_like(grad, 0.25), rtol=1e-4, atol=1e-6)


def mixed(method, u):
    fed = toy.toy_federation()
    w = fed.init_weights("model")
    x, y = toy.images_of(fed.world, 7)
    batch = Batch([x], y, torch.arange(8), u, torch.zeros(8, 0), {}, {})
    return method.compute_objective(fed.net(), w, batch, {"model": w}, {}), fed.net(), w, x, y


def test_mixup_by_hand():
    u = torch.rand(8, 2, generator=torch.Generator().manual_seed(3))
    value, net, w, x, y = mixed(method_of(), u)
    weight, partner = u[0, 0], u[:, 1].argsort()  # a = 1: the uniform number itself
    z = net.predict(w, weight * x + (1 - weight) * x[partner])
    torch.testing.assert_close(value, weight * F.cross_entropy(z, y) + (1 - weight) * F.cross_entropy(z, y[partner]))
    plain, *_ = mixed(method_of(mixup=0.0), u)
    torch.testing.assert_close(plain, F.cross_entropy(net.predict(w, x), y))


def seeds_of(run_seed: int, monkeypatch) -> list[int]:
    """Seeds that the mixtures of two iterations started from."""
    seen: list[int] = []

    def noted(values, *, seed):
        seen.append(seed)
        return stats.two_groups(values, seed=seed)

    with monkeypatch.context() as patch:
        patch.setattr("fednoise_core.methods.fedcorr.two_groups", noted)
        after_stage_one(2, seed=run_seed)
    return seen


def test_mixtures_start_from_the_runs_seed_each_from_its_own(monkeypatch):
    first, again, shifted = (seeds_of(seed, monkeypatch) for seed in (0, 0, 1))
    assert first == again
    assert len(first) >= 4  # of the server in two rounds, and of clients
    assert len({*first, *shifted}) == len(first) + len(shifted)


# diagnostics


def test_estimates_score_the_detection_of_noisy_clients():
    run = toy.play("fedcorr", method={"iterations": 3})
    rows = {r: v for r, c, m, v in run.outcome.record.diagnostics if m == "noisy_client_auroc"}
    assert list(rows) == [1, 2, 3, 4, 5]
    lid = run.outcome.state.server["lid"].numpy()
    pairs = [(lid[a] > lid[b]) + (lid[a] == lid[b]) / 2 for a in toy.NOISY for b in (0, 1, 4, 7)]
    assert rows[5] == pytest.approx(np.mean(pairs))


def test_suspects_are_the_relabelled_samples():
    fed, method, state = after_stage_one(1)
    targets = toy.images_of(fed.world, 3)[1].clone()
    targets[[2, 5]] = (targets[[2, 5]] + 1) % 5
    state.relabelled[3] = targets
    p, proposed = fed.run_on_clients(state, [3], method.suspect_labels, method.make_broadcast(fed, state))[0]
    assert [k for k in range(12) if p[k] > 0.5] == [2, 5]
    assert torch.equal(proposed[[2, 5]], targets[[2, 5]])
