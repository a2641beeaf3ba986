"""The two views of FedLSR and FedMixCon: how they are made, and that each is a pass of its own."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import toy
from test_fedlsr import BOTH, batch_of, method_of

import fednoise_core as fn
from fednoise_core.data.augment import build
from fednoise_core.io import SpecError
from fednoise_core.methods import method_class


@functools.cache
def views_of(name, client=0, **fields):
    """[(x, x', u)] of every step of one fit."""
    seen = []

    class Watches(method_class(name)):
        def objective(self, net, w, batch, down, mine):
            seen.append((*(x.clone() for x in batch.views), batch.u.clone()))
            return super().objective(net, w, batch, down, mine)

    fed = toy.federation()
    method = Watches(train=fed.train, **fields)
    state = method.init(fed)
    fed.fit(method, state, [client], method.down(fed, state))
    return seen


def angle(image, turned):
    """The angle whose nearest-pixel rotation, worked out pixel by pixel, is `turned`; None if there is none."""
    for degrees in torch.arange(-30, 30.01, 0.1).tolist():
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        other = torch.full_like(image, -1.25)  # black: (0 - .25)/.2
        for row in range(8):
            for col in range(8):
                x, y = col - 3.5, 3.5 - row
                from_col, from_row = round(x * cos + y * sin + 3.5), round(3.5 - (y * cos - x * sin))
                if 0 <= from_col < 8 and 0 <= from_row < 8:
                    other[0, row, col] = image[0, from_row, from_col]
        if torch.allclose(other, turned, atol=1e-5):
            return degrees
    return None


@BOTH
def test_the_second_view_is_the_image_turned_by_an_angle_of_its_own_or_of_the_batch(name):
    for x, turned, _ in views_of(name)[:2]:
        found = [angle(*pair) for pair in zip(x, turned, strict=True)]
        assert None not in found
        assert max(found) - min(found) > 10
    angles = []
    for x, turned, _ in views_of(name, per="batch")[:4]:
        first = angle(x[0], turned[0])
        angles.append(first)
        again = build({"name": "rotation", "degrees": 30.0})
        u = torch.full((len(x), 1), (first / 30 + 1) / 2)
        assert torch.allclose(again.parts[0]((x * 0.2 + 0.25), u), turned * 0.2 + 0.25, atol=1e-5)
    assert len(set(angles)) == 4


@BOTH
def test_without_a_turn_the_second_view_is_the_first(name):
    for x, same, _ in views_of(name, degrees=0.0):
        torch.testing.assert_close(same, x, rtol=0, atol=1e-6)


@BOTH
def test_after_the_normalisation_corners_are_the_mean(name):
    corners = [turned[..., [0, 0, 7, 7], [0, 7, 0, 7]] for _, turned, _ in views_of(name, view_on="normalised")]
    blacks = [turned[..., [0, 0, 7, 7], [0, 7, 0, 7]] for _, turned, _ in views_of(name)]
    assert sum(int((c == 0).sum()) for c in corners) > 20
    assert sum(int((c == -1.25).sum()) for c in blacks) > 20
    assert not any((c == 0).any() for c in blacks)


@BOTH
def test_each_batch_has_one_share(name):
    shares = [float(u[0, 0]) for *_, u in views_of(name)]
    assert len(set(shares)) == len(shares) == 8  # 17 samples in batches of 5, twice
    assert all(u.shape[1] == 1 for *_, u in views_of(name))


def test_views_by_name():
    for name in ("rotation", "flip", "crop_flip", "colour"):
        for per in ("sample", "batch"):
            for on in ("image", "normalised"):
                first, second = method_of(view=name, per=per, view_on=on, degrees=7.0).augments()
                made = build(second)
                assert first == "none"
                assert {(part.per, part.on) for part in made.parts} == {(per, on)}
                assert name != "rotation" or made.parts[0].degrees == 7.0
    assert method_of(train={"augment": "flip"}).augments()[0] == "flip"


@BOTH
def test_colour_of_grey_images_is_refused_before_training(name):
    data = fn.dataset({"source": "digits", "subset": {"train": 100, "test": 20}})
    given = fn.inject(data, {"kind": "symmetric", "rate": 0.2}, 0)
    split = fn.partition_of(data, {"kind": "iid", "clients": 4}, 0)
    with pytest.raises(SpecError, match=r"^method: a view of its own: changes of colour need images of 3 channels, th"):
        fn.run(data, given, split, {"name": name, "view": "colour"}, {"rounds": 1})


@BOTH
def test_each_view_is_a_pass_of_its_own_in_training_mode(name):
    """Batch statistics are those of one view; running ones move twice, first by the first view."""
    net = toy.net(toy.normed)
    w = net.fresh(torch.Generator().manual_seed(0))
    again, batch = w.clone(), batch_of()
    batch.views[1] = batch.views[1] * 3 + 1
    found = method_of(name).objective(net, w, batch, {"ramp": 1.0}, {})
    z = [net.train(again, x) for x in batch.views]
    torch.testing.assert_close(w.flat, again.flat)
    assert not torch.equal(w["norm.running_mean"], torch.zeros(3))
    assert math.isfinite(float(found))
    features = method_of(name).features(net, w, batch)
    for mine, theirs in zip(features, z, strict=True):
        torch.testing.assert_close(net.head(w, mine), theirs)
    together = net.train(again, torch.cat(batch.views))
    assert (together - torch.cat(z)).abs().max() > 0.1


@BOTH
def test_each_pass_has_its_own_dropout(name):
    net = toy.net(toy.dropping)
    w, batch = net.fresh(torch.Generator().manual_seed(0)), batch_of(draws=net.draws)
    found = method_of(name).features(net, w, batch)
    for k, x in enumerate(batch.views):
        kept = batch.masks[:, k * net.draws : (k + 1) * net.draws]
        assert torch.equal(found[k], net.features(w, x, train=True, u=kept))
    assert not torch.equal(found[0] == 0, found[1] == 0)
