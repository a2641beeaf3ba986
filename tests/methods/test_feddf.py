"""FedDF: methods.md 5.21. Averages by architecture, and what distillation on public images makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy
from torch.nn import functional as F

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import SERVER
from fednoise_core.io import SpecError
from fednoise_core.methods import make
from fednoise_core.methods.feddf import Distil, architectures
from fednoise_core.optim import SGD, Adam
from fednoise_core.spec import Train
from workflow_scripts.compatible import check_method
from workflow_scripts.config_file import Place, read_yaml
from workflow_scripts.project import Project

MLP = {"name": "mlp", "hidden": 6}
X = (torch.from_numpy(toy.arrays().x_public).float()[:, None] / 255 - 0.25) / 0.2


def started(train: dict | None = None, **fields):
    fed = toy.federation(train={"net": toy.PAIR, **(train or {})})
    method = make({"name": "feddf", **fields}, fed.train)
    return fed, method, method.init(fed)


def received(fed, who: list[int], spread: float = 0.3) -> list[dict]:
    """Models as they could come up from these clients."""
    draw = torch.Generator().manual_seed(0)
    models = [fed.fresh("model", client=c) for c in who]
    return [{"model": m.like(m.flat + spread * torch.randn(m.flat.shape, generator=draw))} for m in models]


def averages(who: list[int], ups: list[dict]) -> dict[int, torch.Tensor]:
    """By hand, by samples, of the two architectures of the toy world."""
    out = {}
    for kind in {c % 2 for c in who}:
        mine = [(toy.SIZES[c], up["model"].flat) for c, up in zip(who, ups, strict=True) if c % 2 == kind]
        out[kind] = sum(n * flat for n, flat in mine) / sum(n for n, _ in mine)
    return out


# averages


def test_clients_of_one_architecture_share_a_model():
    fed, _, state = started()
    assert architectures(fed) == {0: 0, 1: 1, 3: 1, 4: 0, 5: 1, 6: 0, 7: 1}  # client 2 holds nothing
    assert {c: w.layout for c, w in state.server["models"].items()} == {c: fed.net(c).layout for c in (0, 1)}
    twice = toy.federation(train={"net": [MLP, dict(MLP)]})
    assert set(architectures(twice).values()) == {0}
    assert set(architectures(toy.federation(train={"net": toy.TWO_NETS})).values()) == {0, 1}


def test_without_distillation_it_is_fedavg():
    a, b = toy.play("feddf", net=MLP, method={"distil_epochs": 0}), toy.play("fedavg", net=MLP)
    assert torch.equal(a.outcome.state.server["models"][0].flat, b.outcome.state.server["model"].flat)
    assert a.curve == b.curve
    c = toy.play("feddf", net=MLP, method={"distil_lr": 0.0})
    torch.testing.assert_close(c.outcome.state.server["models"][0].flat, b.outcome.state.server["model"].flat)


def test_without_distillation_it_is_fedavg_for_each_architecture():
    fed, method, state = started(distil_epochs=0)
    who = [0, 1, 4, 5, 7]
    ups = received(fed, who)
    method.merge(fed, state, who, ups)
    for first, expected in averages(who, ups).items():
        torch.testing.assert_close(state.server["models"][first].flat, expected, rtol=0, atol=1e-6)


def test_an_architecture_of_which_nobody_answered_stays_as_it_is():
    fed, method, state = started()
    before = {c: w.clone() for c, w in state.server["models"].items()}
    method.merge(fed, state, [0, 4], received(fed, [0, 4]))
    assert torch.equal(state.server["models"][1].flat, before[1].flat)
    assert not torch.equal(state.server["models"][0].flat, before[0].flat)


def test_every_client_gets_the_model_of_its_architecture(monkeypatch):
    fed, method, state = started()
    jobs = []
    work = Sequential.run
    monkeypatch.setattr(Sequential, "run", lambda self, some: (jobs.extend(some), work(self, some))[1])
    before = dict(state.server["models"])
    state.round = 1
    method.round(fed, state)
    sent = {job.client: job.down["model"] for job in jobs if job.client != SERVER}
    assert sent.keys() == set(fed.sample(1))
    assert all(torch.equal(w.flat, before[c % 2].flat) for c, w in sent.items())


# distillation


def test_the_loss_by_hand():
    z, y = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.0, 2.5, 3.0]])
    p, q = torch.softmax(y / 2, 1), torch.softmax(z / 2, 1)
    found = Distil(Train(), SGD(), 2.0).loss(z, y)
    assert found.tolist() == pytest.approx([4 * float((p * (p / q).log()).sum())], rel=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_equal_logits_have_no_loss_and_no_gradient(temperature):
    z = 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    free = z.clone().requires_grad_()
    loss = Distil(Train(), SGD(), temperature).loss(free, z)
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), torch.zeros(6), rtol=0, atol=1e-5)
    torch.testing.assert_close(free.grad, torch.zeros_like(z), rtol=0, atol=1e-6)


def test_if_all_models_are_identical_nothing_changes():
    """With SGD; Adam's first steps are as long as its rate, whatever the gradient's rounding errors are."""
    fed, method, state = started({"net": MLP}, distil_optimiser="sgd", distil_lr=1.0, distil_epochs=5)
    start = state.server["models"][0].clone()
    method.merge(fed, state, [0, 3, 5], [{"model": start.clone()} for _ in range(3)])
    torch.testing.assert_close(state.server["models"][0].flat, start.flat, rtol=0, atol=1e-6)


@pytest.mark.parametrize("public", [0, 6])
def test_students_learn_the_mean_logits_of_all_received_models(public, monkeypatch):
    fed, method, state = started(public=public, distil_epochs=3, distil_batch=4, temperature=2.0)
    jobs = []
    work = Sequential.run
    monkeypatch.setattr(Sequential, "run", lambda self, some: (jobs.extend(some), work(self, some))[1])
    who = [4, 5, 0, 7]
    ups = received(fed, who)
    state.round = 2
    method.merge(fed, state, who, ups)
    ids = fed.draw(2, "distillation", public)
    assert len(ids) == (public or 10)
    logits = [fed.net(c).predict(up["model"], X[ids]) for c, up in zip(who, ups, strict=True)]
    expected = averages(who, ups)
    assert [(job.client, job.net_of, job.on, job.epochs, job.batch) for job in jobs] == [
        (SERVER, 0, "public", 3, 4),
        (SERVER, 1, "public", 3, 4),
    ]
    for job, first in zip(jobs, (0, 1), strict=True):
        torch.testing.assert_close(job.pool_targets, torch.stack(logits).mean(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(job.down["model"].flat, expected[first], rtol=0, atol=1e-6)
        assert torch.equal(job.ids, ids)
        assert job.local.temperature == 2.0
    assert (fed.bytes_down, fed.bytes_up, fed.passes) == (0, 0, 0)


def step_by_hand(net, start, teacher, lr: float, clip: float):
    """One step on all public images by autograd: the weights, and the gradient's norm."""
    leaves = {n: v.detach().clone().requires_grad_() for n, v in start.views.items()}
    w = start.clone()
    w.__dict__["views"] = leaves
    F.kl_div(torch.log_softmax(net.predict(w, X), 1), torch.softmax(teacher, 1), reduction="batchmean").backward()
    norm = torch.sqrt(sum(leaf.grad.square().sum() for leaf in leaves.values()))
    scale = min(1.0, clip / float(norm)) if clip else 1.0
    return {n: (leaf - lr * scale * leaf.grad).detach() for n, leaf in leaves.items()}, float(norm)


@pytest.mark.parametrize("clip", [0.0, 5.0, 1e3])
def test_a_step_by_hand_with_its_gradient_clipped(clip):
    fed, method, state = started(
        {"net": MLP}, distil_optimiser="sgd", distil_lr=0.3, schedule="constant", distil_clip=clip
    )
    ups = received(fed, [0, 3], spread=2.0)
    start = ups[0]["model"].like((17 * ups[0]["model"].flat + 12 * ups[1]["model"].flat) / 29)
    teacher = torch.stack([fed.net().predict(up["model"], X) for up in ups]).mean(0)
    expected, norm = step_by_hand(fed.net(), start, teacher, 0.3, clip)
    assert norm > 5
    method.merge(fed, state, [0, 3], ups)
    for name, value in expected.items():
        torch.testing.assert_close(state.server["models"][0][name], value, rtol=1e-4, atol=1e-4)


def test_the_default_is_adam_with_its_gradient_clipped():
    method = make({"name": "feddf"}, Train(optimiser="sgd", momentum=0.9, weight_decay=0.1))
    fed = toy.federation()
    jobs = []
    fed.fit = lambda local, *args, **how: (jobs.append((local, how)), ([SERVER], [{"model": 0}]))[1]
    method.merge(fed, method.init(fed), [0], received(fed, [0]))
    ((local, how),) = jobs
    assert local.optimiser("model") == Adam(clip=5.0)
    assert local.augments() == ["none"]
    assert how["lr"](0, 10) == 1e-3


def test_the_cosine_is_torchs():
    method = make({"name": "feddf", "distil_lr": 0.5}, Train())
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=7)
    for step in range(7):
        assert method.rate(step, 7) == pytest.approx(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_distilling_moves_students_towards_the_ensemble(schedule):
    fed, method, state = started(distil_epochs=60, distil_lr=0.01, schedule=schedule)
    who = [0, 1, 4, 5]
    ups = received(fed, who)
    teacher = torch.stack([fed.net(c).predict(up["model"], X) for c, up in zip(who, ups, strict=True)]).mean(0)

    def apart(models) -> list[float]:
        q = torch.softmax(teacher, 1)
        z = [fed.net(c).predict(models[c], X) for c in (0, 1)]
        return [float(F.kl_div(torch.log_softmax(one, 1), q, reduction="batchmean")) for one in z]

    before = {c: fed.fresh("model", client=c).like(flat) for c, flat in averages(who, ups).items()}
    method.merge(fed, state, who, ups)
    assert all(b < 0.5 * a for a, b in zip(apart(before), apart(state.server["models"]), strict=True))


def test_where_logits_overflow_nothing_is_distilled():
    fed, method, state = started({"net": MLP})
    ups = [{"model": up["model"] * 1e25} for up in received(fed, [0, 3])]
    assert torch.isfinite(ups[0]["model"].flat).all()
    method.merge(fed, state, [0, 3], ups)
    average = (17 * ups[0]["model"].flat.double() + 12 * ups[1]["model"].flat.double()) / 29
    torch.testing.assert_close(state.server["models"][0].flat.double(), average, rtol=1e-5, atol=0)


# what is evaluated, and settings


def test_views():
    fed, method, state = started()
    (view,) = method.views(fed, state)
    assert view == "personal"
    assert method.views(fed, state)[view] == [(c, state.server["models"][c % 2]) for c in (0, 1, 3, 4, 5, 6, 7)]
    fed, method, state = started({"net": MLP})
    assert method.views(fed, state) == {"global": [(SERVER, state.server["models"][0])]}


def test_without_public_images_it_says_so_before_any_training():
    fed = toy.federation()
    fed._world.pools.pop("public")
    with pytest.raises(SpecError, match="give the data set a `public` part"):
        make({"name": "feddf"}, Train()).init(fed)


def test_without_public_images_it_says_so():
    fed = toy.federation()
    fed._world.pools.pop("public")
    with pytest.raises(SpecError, match="feddf needs public images"):
        make({"name": "feddf"}, Train()).init(fed)


def test_a_study_may_give_its_clients_several_nets_and_must_give_it_public_images(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    project = Project(read_yaml("config/config.yaml"))
    mixed, place = {"net": ["small_cnn", "mlp"]}, Place("a study")
    check_method(project, {"name": "feddf"}, mixed, "digits", place)
    with pytest.raises(SpecError, match="feddf needs public images: give 'mnist' a `public` part"):
        check_method(project, {"name": "feddf"}, mixed, "mnist", place)
    with pytest.raises(SpecError, match="fedavg has one model for all clients"):
        check_method(project, {"name": "fedavg"}, mixed, "digits", place)
