"""Co-teaching+: whole rounds against a second implementation, and its masks."""

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.methods.coteaching_plus import mask_small_losses


def chosen(z, losses, keep):
    """Positions of the samples to learn from: those with differing predictions, sorted by loss."""
    differ = [i for i in range(len(losses)) if int(z[0][i].argmax()) != int(z[1][i].argmax())]
    if not differ:
        return list(range(len(losses)))
    return sorted(differ, key=lambda i: losses[i])[: max(1, int(keep * len(differ) + 1e-9))]


@pytest.mark.parametrize(("rate", "batch"), [(0.4, 17), (0.4, 6), (0.8, 17), (0.0, 5)])
def test_a_fit_against_a_second_implementation(rate, batch):
    """Round 3: the full rate is reached, and the warm-up of a round is over."""
    fields = {"ramp": 1, "forget_rate": rate, "warmup": 1}
    seen = []
    fed, method, state = toy.started("coteaching_plus", fields, train={"batch": batch, "epochs": 2, "lr": 0.1})
    step = type(method).train_step

    def watched(self, net, carry, batch, *arguments):
        seen.append((batch.x.double(), batch.y.clone()))
        step(self, net, carry, batch, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(method), "train_step", watched)
        state.round = 2
        nets = {name: state.server[name].flat.double() for name in ("one", "two")}
        update = toy.round_of(method, fed, state, [0])[0]
    sizes = set()
    for x, y in seen:
        z = [toy64.module_of(nets[name])(x).detach() for name in ("one", "two")]
        loss = [F.cross_entropy(logits, y, reduction="none").tolist() for logits in z]
        picks = [chosen(z, values, 1 - rate) for values in loss]
        sizes.add(len(picks[0]))
        for name, pick in (("one", picks[1]), ("two", picks[0])):
            nets[name] = toy64.train(nets[name], [(x[pick], y[pick])], lambda theta: 0 * theta.sum(), 0.1)
    assert min(sizes) < batch
    for name in ("one", "two"):
        torch.testing.assert_close(update[name].flat.double(), nets[name], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("differ", "keep", "expected"),
    [
        ([1, 1, 0, 1], 0.5, [0, 1, 0, 0]),
        ([1, 1, 0, 1], 0.7, [1, 1, 0, 0]),
        ([1, 0, 0, 0], 0.1, [1, 0, 0, 0]),
        ([0, 0, 0, 0], 0.5, [1, 1, 1, 1]),
    ],
)
def test_masks(differ, keep, expected):
    loss = torch.tensor([2.0, 1.0, 0.5, 3.0])
    mask = mask_small_losses(loss, torch.tensor(differ).bool(), keep)
    assert mask.tolist() == expected
