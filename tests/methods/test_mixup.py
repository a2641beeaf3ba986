"""Mixup: its loss by hand."""

import pytest
import torch
import toy

from fednoise_core.engine.local import Batch
from fednoise_core.methods.mixup import mixup_loss
from fednoise_core.ops.stats import beta_from_uniform


def test_the_loss_by_hand():
    """Softmax regression is linear before the softmax, so the logits of a mixture are the mixture of the logits."""
    net = toy.toy_net(toy.linear_body)
    w = net.fresh(torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(2)
    x, y, u = torch.rand(7, 1, 8, 8, generator=draw), torch.arange(7) % 5, torch.rand(7, 2, generator=draw)
    batch = Batch([x], y, torch.arange(7), u, torch.zeros(7, 0), {})
    loss = mixup_loss(net, w, batch, lambda z, y: torch.nn.functional.cross_entropy(z, y, reduction="none"), 0.4)
    share = float(beta_from_uniform(u[:1, 0], 0.4))
    assert 0 < share < 1
    order = sorted(range(7), key=lambda k: float(u[k, 1]))
    logits = x.double().flatten(1) @ w["head.weight"].double().T + w["head.bias"].double()
    log_p = torch.log_softmax(share * logits + (1 - share) * logits[order], 1)
    own_loss, partner_loss = (-log_p[torch.arange(7), labels] for labels in (y, y[order]))
    assert loss.item() == pytest.approx(float((share * own_loss + (1 - share) * partner_loss).mean()), rel=1e-5)
