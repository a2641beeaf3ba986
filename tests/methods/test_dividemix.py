"""DivideMix: division, co-guessing, mixing and penalty by hand."""

import pytest
import torch
import toy
import toy64

from fednoise_core.engine.client import Client
from fednoise_core.engine.local import Batch
from fednoise_core.methods import make_method
from fednoise_core.ops import losses
from fednoise_core.ops.stats import low_loss


def method(train=None, **fields):
    return make_method({"name": "dividemix", **fields}, toy.toy_world(train).train)


def batch_of(n: int, seed: int, clean: float | None = None, views: int = 2) -> Batch:
    """A batch of n random images."""
    draw = torch.Generator().manual_seed(seed)
    x = [torch.randn(n, 1, 8, 8, generator=draw) for _ in range(views)]
    y = torch.randint(5, (n,), generator=draw)
    u = torch.rand(n, 3, generator=draw)
    aux = {} if clean is None else {"clean": torch.full((n,), clean)}
    return Batch(x, y, torch.arange(n), u, torch.zeros(n, 0), aux)


def two_models(net):
    return [net.fresh(torch.Generator().manual_seed(k)) for k in range(2)]


def client(world, number: int = 0) -> Client:
    return Client(world, number, {}, None, 1)


def test_the_weight_of_the_unlabelled_rises_after_the_warm_up():
    """lambda_u * clip((t - t_warm) / 16, 0, 1)."""
    chosen = method({"rounds": 100}, warmup=10, unlabelled=8.0)
    fed = toy.toy_federation()
    state = chosen.init_state(fed)
    broadcasts = []
    for state.round in (5, 10, 11, 18, 26, 60):
        broadcast = chosen.make_broadcast(fed, state)
        broadcasts.append((broadcast["divide"], broadcast["unlabelled"]))
    assert broadcasts == [(False, 0), (False, 0), (True, 0.5), (True, 4.0), (True, 8.0), (True, 8.0)]


def test_warm_up_steps_are_cross_entropy_on_both_nets():
    """A warm-up round is a round of Co-teaching that forgets nothing."""
    ends = []
    for fields in ({"name": "coteaching", "forget_rate": 0.0}, {"name": "dividemix"}):
        fed = toy.toy_federation()
        chosen = make_method(fields, fed.train)
        state = chosen.init_state(fed)
        toy.round_of(chosen, fed, state)
        ends.append(state.server)
    assert toy.same_state(*ends)


def test_a_warm_up_step_with_the_confidence_penalty_by_hand():
    """CE - H(p)."""
    fed = toy.toy_federation(train={"epochs": 1, "batch": 100})
    chosen = make_method({"name": "dividemix", "confidence_penalty": True}, fed.train)
    state = chosen.init_state(fed)
    start = state.server["one"].flat.double()
    (update,) = toy.round_of(chosen, fed, state, [0])
    x, y = toy.images_of(fed.world, 0)

    def loss(module):
        log_p = torch.log_softmax(module(x.double()), 1)
        return -log_p[torch.arange(len(y)), y].mean() + (log_p.exp() * log_p).sum(1).mean()

    torch.testing.assert_close(update["one"].flat.double(), toy64.step(start, loss, 0.2), rtol=0, atol=1e-6)


def test_each_net_trains_on_what_the_other_trusts():
    world = toy.toy_world()
    chosen, own_side, nets = method(), client(world), two_models(world.net(0))
    first = chosen._make_work(own_side, nets, 0)
    posterior = [
        low_loss(
            losses.ce(own_side.predict(w), own_side.labels), seed=own_side.derive_seed("division", "0", k), max_iter=10
        )
        for k, w in enumerate(nets)
    ]
    assert torch.equal(first.samples, (posterior[1] > 0.5).nonzero().squeeze(1))
    assert first.facts["trains"] == "one"
    division = own_side.state["clean"].clone()
    second = chosen._make_work(own_side, two_models(world.net(0))[::-1], 1)  # the division is that of the epoch's start
    assert torch.equal(own_side.state["clean"], division)
    assert torch.equal(second.samples, (posterior[0] > 0.5).nonzero().squeeze(1))
    assert second.facts["trains"] == "two"
    for work in (first, second):
        samples = torch.cat([work.samples, work.more["unlabelled"]])
        assert sorted(samples.tolist()) == list(range(own_side.n))


def test_if_nothing_is_trusted_the_better_half_is_taken():
    world = toy.toy_world()
    own_side = client(world)
    work = method(threshold=1.0)._make_work(own_side, two_models(world.net(0)), 0)
    posterior = own_side.state["clean"][1]
    assert len(work.samples) >= own_side.n // 2
    assert posterior[work.samples].min() >= posterior.median()


def test_targets_lie_on_the_simplex_and_are_refined_by_the_posterior():
    net = toy.toy_world().net(0)
    w, peer = two_models(net)
    for clean in (0.0, 0.3, 1.0):
        pool = batch_of(6, 0, clean)
        q = method(temperature=1.0)._make_targets(net, w, peer, pool, labelled=True)
        prediction = sum(torch.softmax(net.predict(w, x), 1) for x in pool.views) / 2
        labels = torch.eye(5)[pool.y]
        torch.testing.assert_close(q, clean * labels + (1 - clean) * prediction)
        torch.testing.assert_close(q.sum(1), torch.ones(6))
    pool = batch_of(4, 1)
    q = method(temperature=0.5)._make_targets(net, w, peer, pool, labelled=False)
    guess = sum(torch.softmax(net.predict(m, x), 1) for m in (w, peer) for x in pool.views) / 4
    torch.testing.assert_close(q, guess**2 / (guess**2).sum(1, keepdim=True))


def penalty(logits: torch.Tensor, prior: torch.Tensor) -> torch.Tensor:
    mean = torch.softmax(logits, 1).mean(0)
    return sum(prior[k] * (prior[k] / mean[k]).log() for k in range(5) if prior[k] > 0)


def test_without_mixing_and_doubt_the_loss_is_cross_entropy_and_the_penalty():
    """w = 1, Beta(alpha -> 0) gives l = 1, no unlabelled images: CE of the given labels, over both views."""
    net = toy.toy_world().net(0)
    w, peer = two_models(net)
    pool = batch_of(6, 2, clean=1.0)
    prior = torch.full((5,), 0.2)
    loss = method(mixup=0.0)._mixed_loss(net, w, peer, pool, 0.0, prior)
    logits = torch.cat([net.predict(w, x) for x in pool.views])
    ce = torch.nn.functional.cross_entropy(logits, pool.y.repeat(2))
    torch.testing.assert_close(loss, ce + penalty(logits, prior))


def test_the_loss_of_a_mixed_batch_by_hand():
    """Both pools, the mixing weight l = max(u, 1 - u) of Beta(1, 1), partners by the order of the random numbers."""
    net = toy.toy_world().net(0)
    w, peer = two_models(net)
    pool, unlabelled = batch_of(4, 3, clean=0.7), batch_of(3, 4)
    pool.more["unlabelled"], pool.u[0, 2] = unlabelled, 0.3
    chosen = method(mixup=1.0)
    prior = torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0])
    loss = chosen._mixed_loss(net, w, peer, pool, 2.5, prior)

    labelled, guessed = (chosen._make_targets(net, w, peer, p, p is pool) for p in (pool, unlabelled))
    x = torch.cat([*pool.views, *unlabelled.views])
    q = torch.cat([labelled, labelled, guessed, guessed])
    order = torch.cat([pool.u[:, 0], pool.u[:, 1], unlabelled.u[:, 0], unlabelled.u[:, 1]]).argsort()
    share = max(float(pool.u[0, 2]), 1 - float(pool.u[0, 2]))
    logits = net.predict(w, share * x + (1 - share) * x[order])
    q = share * q + (1 - share) * q[order]
    labelled_loss = -(q[:8] * torch.log_softmax(logits[:8], 1)).sum(1).mean()
    unlabelled_loss = ((torch.softmax(logits[8:], 1) - q[8:]) ** 2).mean()
    torch.testing.assert_close(loss, labelled_loss + 2.5 * unlabelled_loss + penalty(logits, prior))


def test_the_local_prior_is_that_of_the_given_labels():
    world = toy.toy_world()
    own_side = client(world, 4)  # one class only
    work = method(prior="local")._make_work(own_side, two_models(world.net(0)), 0)
    assert work.facts["prior"].tolist() == [float(k == int(own_side.labels[0])) for k in range(5)]
    assert method()._make_work(own_side, two_models(world.net(0)), 0).facts["prior"].tolist() == pytest.approx(
        [0.2] * 5
    )


def test_suspects_are_doubted_by_both_nets():
    world = toy.toy_world()
    own_side, nets = client(world, 3), two_models(world.net(0))
    p, proposed = method().suspect_labels(own_side, dict(zip(("one", "two"), nets, strict=True)))
    clean = [
        low_loss(
            losses.ce(own_side.predict(w), own_side.labels),
            seed=own_side.derive_seed("division", "suspects", k),
            max_iter=10,
        )
        for k, w in enumerate(nets)
    ]
    torch.testing.assert_close(p, 1 - (clean[0] + clean[1]) / 2)
    assert torch.equal(proposed, sum(own_side.predict(w) for w in nets).argmax(1))
