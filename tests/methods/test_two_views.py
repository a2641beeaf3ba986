"""The two views of FedLSR and FedMixCon: their augmentations, and a separate pass for each."""

import math

import pytest
import torch
import toy
from test_fedlsr import BOTH, batch_of, method_of

import fednoise_core as fn
from fednoise_core.data.augment import make_augmentation
from fednoise_core.io import SpecError
from fednoise_core.methods.fedlsr import FedLSR


@pytest.mark.parametrize(("view_on", "corner"), [("image", -1.25), ("normalised", 0.0)])
def test_corners_of_a_turned_image_are_black_or_after_the_normalisation_the_mean(view_on, corner):
    corners = []

    class Watches(FedLSR):
        def compute_objective(self, net, w, batch, broadcast, client_state):
            corners.append(batch.views[1][..., [0, 0, 7, 7], [0, 7, 0, 7]].flatten())
            return super().compute_objective(net, w, batch, broadcast, client_state)

    fed = toy.toy_federation()
    method = Watches(train=fed.train, view_on=view_on)
    state = method.init_state(fed)
    fed.fit(method, state, [0], method.make_broadcast(fed, state))
    values = torch.cat(corners)
    assert (values == corner).sum() > 20
    assert not (values == -1.25 - corner).any()


def test_views_by_name():
    for name in ("rotation", "flip", "crop_flip", "colour"):
        for per in ("sample", "batch"):
            for on in ("image", "normalised"):
                first, second = method_of(view=name, per=per, view_on=on, degrees=7.0).get_augmentations()
                augmentation = make_augmentation(second)
                assert first == "none"
                parts = getattr(augmentation, "parts", (augmentation,))
                assert {(part.per, part.on) for part in parts} == {(per, on)}
                assert name != "rotation" or parts[0].degrees == 7.0
    assert method_of(train={"augment": "flip"}).get_augmentations()[0] == "flip"


def test_colour_of_grey_images_is_refused_before_training():
    data = fn.dataset({"source": "digits", "subset": {"train": 100, "test": 20}})
    labels = fn.inject(data, {"kind": "symmetric", "rate": 0.2}, 0)
    split = fn.partition_of(data, {"kind": "iid", "clients": 4}, 0)
    with pytest.raises(SpecError, match=r"^method: a view of its own: changes of colour"):
        fn.run(data, labels, split, {"name": "fedlsr", "view": "colour"}, {"rounds": 1})


@BOTH
def test_each_view_is_a_pass_of_its_own_in_training_mode(name):
    """Batch statistics are those of one view; running ones move twice, first by the first view."""
    net = toy.toy_net(toy.normed_body)
    w = net.fresh(torch.Generator().manual_seed(0))
    again, batch = w.clone(), batch_of()
    batch.views[1] = batch.views[1] * 3 + 1
    loss = method_of(name).compute_objective(net, w, batch, {"ramp": 1.0}, {})
    z = [net.train(again, x) for x in batch.views]
    torch.testing.assert_close(w.flat, again.flat)
    assert not torch.equal(w["norm.running_mean"], torch.zeros(3))
    assert math.isfinite(float(loss))
    features = method_of(name).features(net, w, batch)
    for hidden, logits in zip(features, z, strict=True):
        torch.testing.assert_close(net.head(w, hidden), logits)
    together = net.train(again, torch.cat(batch.views))
    assert (together - torch.cat(z)).abs().max() > 0.1


@BOTH
def test_each_pass_has_its_own_dropout(name):
    net = toy.toy_net(toy.dropping_body)
    w, batch = net.fresh(torch.Generator().manual_seed(0)), batch_of(draws=net.draws)
    features = method_of(name).features(net, w, batch)
    for k, x in enumerate(batch.views):
        masks = batch.masks[:, k * net.draws : (k + 1) * net.draws]
        assert torch.equal(features[k], net.features(w, x, train=True, u=masks))
    assert not torch.equal(features[0] == 0, features[1] == 0)
