"""FedDF: averages by architecture, and distillation on public images."""

import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core.engine.federation import SERVER
from fednoise_core.methods import make_method
from fednoise_core.methods.feddf import group_architectures
from fednoise_core.settings.train import Train

MLP = {"name": "mlp", "hidden": 6}
X = toy.public_images()


def started(train: dict | None = None, **fields):
    return toy.started("feddf", fields, train={"net": toy.PAIR, **(train or {})})


def received(fed, clients: list[int], spread: float = 0.3) -> list[dict]:
    """Random models that these clients could have sent."""
    draw = torch.Generator().manual_seed(0)
    models = [fed.init_weights("model", client=c) for c in clients]
    return [{"model": m.like(m.flat + spread * torch.randn(m.flat.shape, generator=draw))} for m in models]


def averages(clients: list[int], updates: list[dict]) -> dict[int, torch.Tensor]:
    """Averages by hand of the two architectures of the toy world, weighted by samples."""
    out = {}
    for kind in {c % 2 for c in clients}:
        models = [
            (toy.SIZES[c], update["model"].flat) for c, update in zip(clients, updates, strict=True) if c % 2 == kind
        ]
        out[kind] = sum(n * flat for n, flat in models) / sum(n for n, _ in models)
    return out


# averages


def test_clients_of_one_architecture_share_a_model():
    fed, _, state = started()
    assert group_architectures(fed) == {0: 0, 1: 1, 3: 1, 4: 0, 5: 1, 6: 0, 7: 1}  # client 2 has no samples
    assert {c: w.layout for c, w in state.server["models"].items()} == {c: fed.net(c).layout for c in (0, 1)}
    twice = toy.toy_federation(train={"net": [MLP, dict(MLP)]})
    assert set(group_architectures(twice).values()) == {0}
    assert set(group_architectures(toy.toy_federation(train={"net": toy.TWO_NETS})).values()) == {0, 1}


def test_without_distillation_it_is_fedavg():
    a, b = toy.play("feddf", net=MLP, method={"distil_epochs": 0}), toy.play("fedavg", net=MLP)
    assert torch.equal(a.outcome.state.server["models"][0].flat, b.outcome.state.server["model"].flat)
    assert a.curve == b.curve
    c = toy.play("feddf", net=MLP, method={"distil_lr": 0.0})
    torch.testing.assert_close(c.outcome.state.server["models"][0].flat, b.outcome.state.server["model"].flat)


def test_without_distillation_it_is_fedavg_for_each_architecture():
    """An architecture without answers stays as it is."""
    for clients in ([0, 1, 4, 5, 7], [0, 4]):
        fed, method, state = started(distil_epochs=0)
        before, updates = {c: w.flat.clone() for c, w in state.server["models"].items()}, received(fed, clients)
        method.merge_updates(fed, state, clients, updates)
        for first, expected in {**before, **averages(clients, updates)}.items():
            torch.testing.assert_close(state.server["models"][first].flat, expected, rtol=0, atol=1e-6)


# distillation


def test_if_all_models_are_identical_nothing_changes():
    """With SGD; Adam's first steps are as long as its rate, whatever the gradient's rounding errors are."""
    fed, method, state = started({"net": MLP}, distil_optimiser="sgd", distil_lr=1.0, distil_epochs=5)
    start = state.server["models"][0].clone()
    method.merge_updates(fed, state, [0, 3, 5], [{"model": start.clone()} for _ in range(3)])
    torch.testing.assert_close(state.server["models"][0].flat, start.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("public", [0, 6])
def test_students_learn_the_mean_logits_of_all_received_models(public, jobs):
    fed, method, state = started(public=public, distil_epochs=3, distil_batch=4, temperature=2.0)
    clients = [4, 5, 0, 7]
    updates = received(fed, clients)
    state.round = 2
    method.merge_updates(fed, state, clients, updates)
    ids = fed.draw_public_ids(2, "distillation", public)
    assert len(ids) == (public or 10)
    logits = [fed.net(c).predict(update["model"], X[ids]) for c, update in zip(clients, updates, strict=True)]
    expected = averages(clients, updates)
    assert [(job.client, job.net_of, job.on, job.epochs, job.batch) for job in jobs[0]] == [
        (SERVER, 0, "public", 3, 4),
        (SERVER, 1, "public", 3, 4),
    ]
    for job, first in zip(jobs[0], (0, 1), strict=True):
        torch.testing.assert_close(job.pool_targets, torch.stack(logits).mean(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(job.broadcast["model"].flat, expected[first], rtol=0, atol=1e-6)
        assert torch.equal(job.ids, ids)
        assert job.local.temperature == 2.0
    assert (fed.bytes_down, fed.bytes_up, fed.passes) == (0, 0, 0)


def step_by_hand(net, w, teacher, lr: float, clip: float, t: float):
    """One step on all public images by autograd: the weights, and the gradient's norm."""
    for view in w.views.values():
        view.requires_grad_()
    log_q, p = torch.log_softmax(net.predict(w, X) / t, 1), torch.softmax(teacher / t, 1)
    (t**2 * F.kl_div(log_q, p, reduction="batchmean")).backward()
    norm = torch.sqrt(sum(view.grad.square().sum() for view in w.views.values()))
    scale = min(1.0, clip / float(norm)) if clip else 1.0
    return {n: (view - lr * scale * view.grad).detach() for n, view in w.views.items()}, float(norm)


@pytest.mark.parametrize(("clip", "temperature"), [(0.0, 1.0), (5.0, 1.0), (1e3, 2.0)])
def test_a_step_by_hand_with_its_gradient_clipped(clip, temperature):
    options = {"distil_optimiser": "sgd", "distil_lr": 0.3, "schedule": "constant"}
    fed, method, state = started({"net": MLP}, **options, distil_clip=clip, temperature=temperature)
    updates = received(fed, [0, 3], spread=2.0)
    start = updates[0]["model"].like((17 * updates[0]["model"].flat + 12 * updates[1]["model"].flat) / 29)
    teacher = torch.stack([fed.net().predict(update["model"], X) for update in updates]).mean(0)
    expected, norm = step_by_hand(fed.net(), start, teacher, 0.3, clip, temperature)
    assert norm > 5
    method.merge_updates(fed, state, [0, 3], updates)
    for name, value in expected.items():
        torch.testing.assert_close(state.server["models"][0][name], value, rtol=1e-4, atol=1e-4)


def test_the_cosine_is_torchs():
    method = make_method({"name": "feddf", "distil_lr": 0.5}, Train())
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=7)
    for step in range(7):
        assert method.rate(step, 7) == pytest.approx(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()


def test_where_logits_overflow_nothing_is_distilled():
    fed, method, state = started({"net": MLP})
    updates = [{"model": update["model"] * 1e25} for update in received(fed, [0, 3])]
    assert torch.isfinite(updates[0]["model"].flat).all()
    method.merge_updates(fed, state, [0, 3], updates)
    average = (17 * updates[0]["model"].flat.double() + 12 * updates[1]["model"].flat.double()) / 29
    torch.testing.assert_close(state.server["models"][0].flat.double(), average, rtol=1e-5, atol=0)


# evaluation


def test_views():
    fed, method, state = started()
    (view,) = method.list_models(fed, state)
    assert view == "personal"
    assert method.list_models(fed, state)[view] == [(c, state.server["models"][c % 2]) for c in (0, 1, 3, 4, 5, 6, 7)]
    fed, method, state = started({"net": MLP})
    assert method.list_models(fed, state) == {"global": [(SERVER, state.server["models"][0])]}
