"""One client's work: batches, dropout, batch normalisation, augmentation, and the changes of `prepare_fit`."""

from dataclasses import dataclass, field
from typing import Any

import torch
import toy

from fednoise_core.engine.fit import ClientFit, FitRequest, Workspace
from fednoise_core.engine.local import Local, Work
from fednoise_core.engine.world import World
from fednoise_core.methods import make_method
from fednoise_core.settings.train import Train


@dataclass
class Spy(Local):
    """FedAvg's client that records its batches."""

    train: Train
    work: Work | None = None
    draws: int = 2
    passes: int = 2
    views: list[Any] | None = None
    seen: list[Any] = field(default_factory=list)

    def get_augmentations(self):
        return self.views or super().get_augmentations()

    def prepare_fit(self, client, broadcast):
        return self.work

    def train_step(self, net, carry, batch, broadcast, client_state):
        self.seen.append(batch)
        super().train_step(net, carry, batch, broadcast, client_state)


def task(world: World, local: Local, client: int = 0, epochs: int = 2, **job) -> ClientFit:
    model = world.net(client).fresh(torch.Generator().manual_seed(0))
    request = FitRequest(local, client, 1, epochs, {"model": model, "lr": 0.1}, **job)
    return ClientFit(world, request, Workspace())


def run(opened: ClientFit):
    opened.open()
    for k in range(len(opened.plan.steps)):
        opened.step(k)
    return opened.close()


def test_batches_hold_the_clients_images_and_labels():
    world = toy.toy_world()
    spy = Spy(world.train)
    result = run(task(world, spy, client=3))
    x, y = toy.images_of(world, 3)
    assert [len(b.y) for b in spy.seen] == [5, 5, 2] * 2
    assert result.steps == 6
    for batch in spy.seen:
        torch.testing.assert_close(batch.x, x[batch.i], rtol=0, atol=0)
        assert torch.equal(batch.y, y[batch.i])
        assert batch.x.is_contiguous(memory_format=torch.channels_last)
        assert batch.u.shape == (len(batch.y), 2)
        assert 0 <= batch.u.min() < batch.u.max() < 1
    assert sorted(torch.cat([b.i for b in spy.seen[:3]]).tolist()) == list(range(12))
    assert not torch.equal(spy.seen[0].u, spy.seen[3].u)


# further pools


def test_a_further_pool_of_one_sample_is_left_out_where_it_cannot_be_normalised():
    for body, there in ((toy.normed_point, False), (toy.normed_body, True), (toy.linear_body, True)):
        world = toy.toy_world(net=toy.toy_net(body))
        spy = Spy(world.train, Work(more={"one": torch.tensor([3]), "none": torch.zeros(0, dtype=torch.int64)}))
        result = run(task(world, spy, client=3))
        assert result.steps == 6
        assert all(set(batch.more) == ({"one"} if there else set()) for batch in spy.seen)
        assert all(batch.more["one"].i.tolist() == [3] for batch in spy.seen if there)


# dropout


def test_every_pass_has_its_own_dropout_and_methods_share_it():
    world = toy.toy_world(net=toy.toy_net(toy.dropping_body))
    plain, drawing = Spy(world.train, draws=0, passes=1), Spy(world.train, draws=3, passes=2)
    run(task(world, plain))
    run(task(world, drawing))
    net = world.net(0)
    for a, b in zip(plain.seen, drawing.seen, strict=True):
        assert torch.equal(a.i, b.i)
        assert torch.equal(a.drop(net), b.drop(net, 0))
        assert not torch.equal(b.drop(net, 0), b.drop(net, 1))
        assert b.drop(net, 1).shape == (len(b.i), 6)
    assert drawing.seen[0].drop(toy.toy_net(toy.linear_body)) is None


# batch normalisation


def test_a_client_with_one_sample_does_no_step_where_it_cannot_be_normalised():
    world = toy.toy_world(net=toy.toy_net(toy.normed_point))
    assert not world.net(0).single_ok
    assert toy.toy_net(toy.normed_body).single_ok
    opened = task(world, make_method({"name": "fedavg"}, world.train), client=1)
    result = run(opened)
    assert result.steps == 0
    assert torch.equal(result.update["model"].flat, opened.request.broadcast["model"].flat)
    assert (
        run(task(world, make_method({"name": "fedavg"}, world.train), client=6)).steps == 4
    )  # 11 samples: 5, 5 and a skipped one


def test_several_clients_on_one_bench_do_not_see_each_other():
    """Buffers are made once and loaded for each client: values, statistics and momentum must start afresh."""
    world = toy.toy_world({"momentum": 0.9}, net=toy.toy_net(toy.normed_body))
    local, bench = make_method({"name": "fedavg"}, world.train), Workspace()
    model = world.net(0).fresh(torch.Generator().manual_seed(0))

    def fit(client: int, where: Workspace):
        request = FitRequest(local, client, 1, 2, {"model": model, "lr": 0.1})
        return run(ClientFit(world, request, where)).update["model"].flat

    alone = [fit(c, Workspace()) for c in (0, 3, 0)]
    shared = [fit(c, bench) for c in (0, 3, 0)]
    assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))
    assert not torch.equal(alone[0], alone[1])
    assert model["norm.running_mean"].tolist() == [0.0] * 3  # what is broadcast stays as it is


# augmentation


def test_augmented_batches_are_the_augmentation_of_the_clients_images():
    from fednoise_core.data.augment import make_augmentation, prepare_images

    world = toy.toy_world({"augment": "flip"})
    spy = Spy(world.train)
    run(task(world, spy, client=3))
    flip = make_augmentation("flip")
    images = torch.from_numpy(toy.arrays().x_train)[world.index[3]]
    plain, _ = toy.images_of(world, 3)
    stream = world.random_stream("augment", 0, "fit", 1, 3)
    u = torch.rand(24, flip.draws, generator=stream)
    start, flipped = 0, 0
    for batch in spy.seen:
        drawn = u[start : start + len(batch.i)]
        start += len(batch.i)
        expected = prepare_images(
            images[batch.i][:, None], drawn, flip, torch.tensor([0.25]).view(1, 1, 1), torch.tensor([0.2]).view(1, 1, 1)
        )
        torch.testing.assert_close(batch.x, expected, rtol=0, atol=1e-6)
        flipped += int((batch.x != plain[batch.i]).flatten(1).any(1).sum())
    assert 3 < flipped < 21


def test_views_are_augmented_each_on_its_own():
    world = toy.toy_world()
    spy = Spy(world.train, views=["none", "flip", "flip"])
    run(task(world, spy, client=0))
    plain, _ = toy.images_of(world, 0)
    different = 0
    for batch in spy.seen:
        assert len(batch.views) == 3
        torch.testing.assert_close(batch.x, plain[batch.i])
        assert batch.u.shape[1] == 2  # the method's own numbers, not the augmentations'
        for view in batch.views[1:]:
            same = (view - plain[batch.i]).abs().flatten(1).amax(1) < 1e-5
            mirrored = (view - plain[batch.i].flip(3)).abs().flatten(1).amax(1) < 1e-5
            assert (same | mirrored).all()
        different += int((batch.views[1] - batch.views[2]).abs().flatten(1).amax(1).gt(1e-5).sum())
    assert different > 3


# precision


def test_bf16_changes_the_numbers_and_not_their_type():
    exact, rough = (
        run(task(world, make_method({"name": "fedavg"}, world.train))).update["model"].flat
        for world in (toy.toy_world(), toy.toy_world({"precision": "bf16"}))
    )
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(exact, rough, rtol=0, atol=0.05)
