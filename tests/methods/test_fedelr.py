"""FedELR: the regulariser, and targets that steps change and clients keep."""

import torch
import toy
import toy64
from torch.nn import functional as F


def loss_of(x, y, targets, strength, rate):
    """The loss of a module on a full batch; targets [n, K] move as it is taken."""

    def loss(module):
        z = module(x.double())
        p = torch.softmax(z, 1).clamp(1e-4, 1 - 1e-4)
        targets.copy_(rate * targets + (1 - rate) * (p / p.sum(1, keepdim=True)).detach())
        return F.cross_entropy(z, y) + strength * torch.log(1 - (p * targets).sum(1)).mean()

    return loss


def test_two_steps_by_hand():
    fed, method, state = toy.started(
        "fedelr", {"strength": 2.0, "memory_rate": 0.6}, train={"epochs": 2, "batch": 20, "lr": 0.1}
    )
    state.server["model"].flat.mul_(8)  # some predictions are so sure that they are clamped
    flat, t = state.server["model"].flat.double(), torch.zeros(17, 5, dtype=torch.float64)
    for _ in range(2):
        flat = toy64.step(flat, loss_of(*toy.images_of(fed.world, 0), t, 2.0, 0.6), 0.1)
    _, (update,) = fed.fit(method, state, [0], method.make_broadcast(fed, state))
    torch.testing.assert_close(update["model"].flat.double(), flat, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(state.clients[0]["targets"].double(), t, rtol=1e-4, atol=1e-6)
