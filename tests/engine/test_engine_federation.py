"""Server code: sampling, the wire and its bytes, the one label release."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import toy
from scipy import stats
from toy import Plain

from fednoise_core.engine import federation as engine
from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import SERVER, Federation
from fednoise_core.engine.state import State, load_checkpoint, save_checkpoint
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError
from fednoise_core.noise.asymmetric import asymmetric
from fednoise_core.noise.registry import inject
from fednoise_core.noise.sampling import continue_cohorts
from fednoise_core.ops import label_dp
from fednoise_core.settings.train import Train

PARAMETERS = 64 * 6 + 6 + 6 * 5 + 5  # of the toy's perceptron


class Chatty(Plain):
    """Sends more than a model, and keeps something."""

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {"model": carry["model"].values(), "steps": steps, "client_state": {"secret": torch.zeros(1000)}}

    def after_fit(self, client, update, broadcast):
        return {**update, "extra": torch.zeros(3, dtype=torch.float64)}


# client-side functions; workers find them by name


def look(client, broadcast):
    model = broadcast["model"]
    return {
        "id": client.id,
        "n": client.n,
        "labels": client.labels,
        "targets": client.targets,
        "logits": client.predict(model),
        "features": client.features(model),
        "public": client.predict(model, on="public", ids=torch.tensor([1, 3])),
    }


def keep(client, broadcast):
    client.state["seen"] = client.state.get("seen", 0) + broadcast["add"]
    if client.id == 3:
        client.targets = (client.labels + 1) % 5


def count(client, broadcast):
    return {"n": client.n}


# sampling


def test_cohort_is_the_floor_of_the_share_and_at_least_one():
    for fraction, expected in ((0.5, 4), (0.49, 3), (1.0, 8), (0.01, 1), (0.375, 3)):
        assert toy.toy_federation(train={"fraction": fraction}).cohort == expected
    assert toy.toy_federation(train={"fraction": 0.3}).cohort == 2  # 2.4
    split = toy.toy_partition((1,) * 50)
    assert toy.toy_federation(train={"fraction": 0.58}, split=split).cohort == 29  # .58 * 50 is 28.999… in floats


def test_sampling_is_uniform():
    fed = toy.toy_federation()
    count = np.bincount(np.concatenate([fed.sample_cohort(r) for r in range(1400)]), minlength=8)
    expected = 1400 * 4 / 7
    assert count[2] == 0
    assert np.abs(np.delete(count, 2) - expected).max() < 5 * math.sqrt(expected * 3 / 7)


def test_sampling_follows_seed_and_round_and_restricts_to_those_allowed():
    fed = toy.toy_federation()
    assert fed.sample_cohort(3) == toy.toy_federation(train={"lr": 9.0}).sample_cohort(3)
    assert fed.sample_cohort(3) != fed.sample_cohort(4)
    assert [fed.sample_cohort(r) for r in range(5)] != [toy.toy_federation(seed=1).sample_cohort(r) for r in range(5)]
    assert sorted(fed.sample_cohort(1, 5, candidates=[0, 2, 7])) == [0, 7]
    order = fed.sample_cohort(2, 7)
    assert fed.sample_cohort(2, 2, candidates=[4, 5, 6]) == [c for c in order if c in (4, 5, 6)][:2]
    with pytest.raises(ValueError, match="no client"):
        fed.sample_cohort(1, candidates=[2])


@pytest.mark.parametrize("size", [1, 3, 100])
def test_sweep_takes_everyone_once(size):
    groups = list(toy.toy_federation().iterate_cohorts(2, size))
    assert sorted(c for group in groups for c in group) == [0, 1, 3, 4, 5, 6, 7]
    assert all(len(group) == size for group in groups[:-1])
    assert groups != list(toy.toy_federation().iterate_cohorts(3, size))


def test_draws_from_the_public_pool():
    fed = toy.toy_federation()
    assert fed.public == 10
    ids = fed.draw_public_ids(1, "word", 4).tolist()
    assert len(set(ids)) == 4
    assert fed.draw_public_ids(1, "word", 4).tolist() == ids
    assert fed.draw_public_ids(2, "word", 4).tolist() != ids
    assert fed.draw_public_ids(1, "other", 4).tolist() != ids
    for k in (0, 10, 11, -1):
        assert fed.draw_public_ids(1, "word", k).tolist() == list(range(10))
    fed.world.pools.pop("public")
    with pytest.raises(SpecError, match="public"):
        fed.draw_public_ids(1, "word", 4)
    with pytest.raises(SpecError, match="public"):
        fed.predict(fed.init_weights("model"))


# the wire


def test_the_server_cannot_use_samples_of_clients():
    fed, state = toy.toy_federation(), State()
    model = fed.init_weights("model")
    for on in ("train", "valid"):
        with pytest.raises(WireError, match="predict"):
            fed.predict(model, on=on)
    for picked in ({"targets": torch.zeros(17, dtype=torch.int64)}, {"ids": torch.tensor([3])}):
        with pytest.raises(WireError, match="prepare"):
            fed.fit(Plain(fed.train), state, [0], {"model": model}, **picked)
    assert fed.predict(model).shape == (10, 5)
    torch.testing.assert_close(fed.predict(model, ids=torch.tensor([4, 2])), fed.predict(model)[[4, 2]])


def test_a_client_sees_its_own_samples_only(executor):
    with toy.federation_on(executor) as fed:
        model = fed.init_weights("model")
        answers = fed.run_on_clients(State(), [3, 2, 1], look, {"model": model})
    assert [s["id"] for s in answers] == [3, 2, 1]
    for s, client in zip(answers, (3, 2, 1), strict=True):
        x, labels = toy.images_of(fed.world, client)
        assert s["n"] == toy.SIZES[client] == len(labels)
        assert torch.equal(s["labels"], labels)
        assert torch.equal(s["targets"], labels)
        assert s["features"].shape == (len(labels), 6)
        torch.testing.assert_close(s["logits"], fed.net().predict(model, x))
        torch.testing.assert_close(s["public"], fed.predict(model)[[1, 3]])


def test_state_and_new_labels_of_a_client_stay_with_it(executor):
    state = State(round=1)
    with toy.federation_on(executor) as fed:
        fed.run_on_clients(state, [3, 4], keep, per_client=[{"add": 1}, {"add": 10}])
        fed.run_on_clients(state, [3], keep, {"add": 5})
    assert state.clients == {3: {"seen": 6}, 4: {"seen": 10}}
    assert state.relabelled.keys() == {3}
    _, labels = toy.images_of(fed.world, 3)
    assert torch.equal(state.relabelled[3], (labels + 1) % 5)


def test_targets_must_be_as_many_as_samples():
    fed = toy.toy_federation()

    def wrong(client, broadcast):
        client.targets = client.labels[:-1]

    with pytest.raises(ValueError, match="client 3 has 12 samples, got 11"):
        fed.run_on_clients(State(), [3], wrong)


def test_bytes_and_work_by_hand(executor):
    state, each = State(round=1), [{"level": torch.zeros(())}, {"level": 0.5}]
    with toy.federation_on(executor) as fed:
        model = fed.init_weights("model")
        clients, updates = fed.fit(Chatty(fed.train), state, [0, 4], {"model": model}, per_client=each, epochs=3)
        assert clients == [0, 4]
        assert fed.bytes_down == 2 * PARAMETERS * 4 + 4 + 8  # the learning rate is a setting, not traffic
        assert fed.bytes_up == 2 * (PARAMETERS * 4 + 8 + 24)
        assert fed.passes == 3 * (17 + 9)  # epochs times samples
        assert [update["steps"] for update in updates] == [3 * 4, 3 * 2]  # of 17 and 9 samples in batches of 5
        assert "client_state" not in updates[0]
        assert state.clients[4]["secret"].shape == (1000,)
        fed.run_on_clients(state, [0, 1, 3], count, {"a": torch.zeros(5)})
    assert fed.bytes_down == 2 * PARAMETERS * 4 + 12 + 3 * 20
    assert fed.bytes_up == 2 * (PARAMETERS * 4 + 32) + 3 * 8


def test_public_training_is_work_of_clients_and_the_server_has_neither_work_nor_traffic():
    fed, state = toy.toy_federation(), State(round=1)
    model = fed.init_weights("model")
    targets = torch.arange(10) % 5
    update = fed.fit(Plain(fed.train), state, [SERVER], {"model": model}, on="public", targets=targets).updates[0]
    assert (fed.bytes_up, fed.bytes_down, fed.passes) == (0, 0, 0)
    assert not torch.equal(update["model"].flat, model.flat)
    ids = torch.tensor([5, 1, 8])
    fed.fit(Plain(fed.train), state, [0], {"model": model}, on="public", ids=ids, targets=targets[ids], tag="again")
    assert (fed.passes, fed.bytes_down) == (2 * 3, PARAMETERS * 4)  # 2 epochs of 3 images


def test_public_targets_belong_to_the_images_picked():
    fed = toy.toy_federation(train={"batch": 16, "epochs": 1, "lr": 1.0})
    model = fed.init_weights("model")
    ids, y = torch.tensor([7, 2]), torch.tensor([4, 0])
    update = fed.fit(
        Plain(fed.train), State(round=1), [SERVER], {"model": model}, on="public", ids=ids, targets=y
    ).updates[0]["model"]
    w = model.clone()
    for view in w.views.values():
        view.requires_grad_()
    x = (torch.from_numpy(toy.arrays().x_public)[ids].float()[:, None] / 255 - 0.25) / 0.2
    torch.nn.functional.cross_entropy(fed.net().predict(w, x), y).backward()
    stepped = torch.cat([(w[e.name] - w[e.name].grad).detach().flatten() for e in w.layout.entries])
    torch.testing.assert_close(update.flat, stepped, rtol=0, atol=1e-6)


def test_one_model_needs_one_architecture():
    fed = toy.toy_federation(train={"net": toy.TWO_NETS})
    assert fed.net(0).features_size == fed.net().features_size == 6
    assert fed.net(3).features_size == 4
    with pytest.raises(SpecError, match=r"train\.net.*one architecture"):
        fed.init_weights("model")
    assert fed.init_weights("model", client=3).layout == fed.net(3).layout
    for name in ("fedavg", "coteaching", "scaffold", "feddpcont", "fedcorr"):
        with pytest.raises(SpecError, match=r"train\.net"):
            toy.play(name, net=toy.TWO_NETS)


# label-DP


@pytest.mark.parametrize("budgets", [(1.0, 1.0), (1.0, 2.0)], ids=["two rounds", "two runs, one seed"])
def test_releases_are_independent_and_their_costs_add_up(budgets, monkeypatch):
    """A label i is released as k and l with P = T[i, k] U[i, l]. So the log-likelihood ratio of two labels is at most
    the sum of the budgets, and reaches it. Equal or correlated noise would be noticed. Two budgets are two runs with
    one seed, each in its first round.
    """
    world = toy.toy_world(split=toy.toy_partition((60,)))
    world.labels = torch.full_like(world.labels, 3)
    world.index[0] = torch.arange(60).repeat(200)
    world.sizes[0] = 12000
    fed, state, released = toy.toy_federation(), State(), []
    fed.world, fed.all = world, [0]
    draw = label_dp.randomise_labels
    monkeypatch.setattr(engine, "randomise_labels", lambda *args: released.append(draw(*args)) or released[-1])
    for round, epsilon in enumerate(budgets, 1):
        state = state if len(set(budgets)) == 1 else State()
        state.round = round if len(set(budgets)) == 1 else 1
        fed.release_labels(state, epsilon, times=2)
    pairs = np.bincount(5 * released[0] + released[1], minlength=25).reshape(5, 5)
    T, U = (np.full((5, 5), 1.0) + (np.exp(epsilon) - 1) * np.eye(5) for epsilon in budgets)
    T, U = T / T.sum(1), U / U.sum(1)
    assert stats.chisquare(pairs.ravel(), 12000 * np.outer(T[3], U[3]).ravel()).pvalue > 1e-3
    ratios = np.log([np.outer(T[i], U[i]) / np.outer(T[j], U[j]) for i in range(5) for j in range(5)])
    assert ratios.max() == pytest.approx(sum(budgets))
    assert state.notes["release"]["releases"] == 2 - (len(set(budgets)) > 1)


def test_a_release_in_every_round_is_the_rounds_own_also_after_a_resume(tmp_path):
    fed, state, counts = toy.toy_federation(), State(), []
    for state.round in (1, 2, 3):
        if state.round == 3:
            save_checkpoint(tmp_path / "c.pt", "key", state, {})
        counts.append(fed.release_labels(state, 1.5, times=3).counts.tolist())
    assert counts[0] != counts[1] != counts[2] != counts[0]
    back, _ = load_checkpoint(tmp_path / "c.pt", "key", torch.device("cpu"))
    assert back.round == 3
    assert toy.toy_federation().release_labels(back, 1.5, times=3).counts.tolist() == counts[2]
    state.round = 4
    with pytest.raises(RuntimeError, match=r"as often as allowed \(3\)"):
        fed.release_labels(state, 1.5, times=3)


def test_a_release_is_made_once_a_round_at_one_price():
    fed, state = toy.toy_federation(), State(round=1)
    fed.release_labels(state, 1.5, times=3)
    with pytest.raises(RuntimeError, match="round 1: the labels were released already"):
        fed.release_labels(state, 1.5, times=3)
    state.round = 2
    for epsilon, times in ((0.5, 3), (1.5, 4)):
        with pytest.raises(ValueError, match="share epsilon and times"):
            fed.release_labels(state, epsilon, times)


def test_the_release_sends_one_histogram_a_client_and_little_privacy_sends_the_truth():
    fed, state = toy.toy_federation(), State()
    release = fed.release_labels(state, 60.0)
    assert (fed.bytes_up, fed.bytes_down) == (7 * 5 * 8, 7 * 8)
    histogram = np.bincount(toy.toy_labels().noisy[: sum(toy.SIZES)], minlength=5)
    assert release.counts.tolist() == histogram.tolist()
    np.testing.assert_allclose(release.estimate_prior(), histogram / histogram.sum(), atol=1e-12)
    noisy = toy.toy_federation().release_labels(State(), 0.5)
    assert noisy.counts.tolist() != histogram.tolist()
    assert toy.toy_federation().release_labels(State(), 0.5).counts.tolist() == noisy.counts.tolist()
    assert toy.toy_federation(seed=5).release_labels(State(), 0.5).counts.tolist() != noisy.counts.tolist()


def test_cohorts_can_go_on_from_the_generator_that_drew_the_labels():
    """FedEFC's code: one legacy stream for matrix, flips and clients, whatever the run's seed."""
    noise = {"kind": "asymmetric", "rate": 0.2, "sparsity": 0.4, "noise_seed": 42}
    labels = [inject(toy.arrays(), noise, seed=seed) for seed in (0, 1)]
    stream = np.random.RandomState(42)
    asymmetric(toy.arrays().y_train, toy.CLASSES, stream, rate=0.2, sparsity=0.4)
    expected = [stream.choice(range(8), 4, replace=False, p=[1 / 8] * 8).tolist() for _ in range(5)]
    for seed in (0, 1):
        world = World(
            toy.arrays(),
            labels[seed].noisy,
            toy.toy_partition(),
            Train(**{**toy.TRAIN, "sampling": "continued"}),
            seed,
            cohorts=partial(continue_cohorts, labels[seed].generator),
        )
        fed = Federation(world, Sequential(world))
        assert fed.sample_cohort(5) == [c for c in expected[4] if c != 2]  # as after a resume; client 2 holds nothing
        assert [fed.sample_cohort(r) for r in (1, 2)] == [[c for c in clients if c != 2] for clients in expected[:2]]
    run = toy.play("fedavg", labels=labels[0], sampling="continued")
    assert run.outcome.fed.sample_cohort(3) == [c for c in expected[2] if c != 2]
    with pytest.raises(SpecError, match=r"train\.sampling"):
        toy.play("fedavg", sampling="continued")
