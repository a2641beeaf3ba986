"""MOON: whole rounds against a second implementation, and its first round."""

import torch
import toy
import toy64
from torch import nn
from torch.nn import functional as F


def test_whole_rounds_against_a_second_implementation():
    """The contrast as a cross entropy over two similarities of which the first is right, as the authors write it."""
    with toy64.doubled():
        _, state, seen, theta = toy64.rounds("moon", {"mu": 2.0, "temperature": 0.4}, 4)
        last: dict[int, torch.Tensor] = {}
        for round in (1, 2, 3, 4):
            ends = {}
            for k in toy64.cohort(seen, round):
                old = [toy64.module_of(flat)[:3] for flat in (theta, last.get(k, theta))]
                module = toy64.module_of(theta)
                optimiser = torch.optim.SGD(module.parameters(), 0.2)
                for x, y in seen[round, k]:
                    z = module[:3](x)
                    similar = [nn.CosineSimilarity(-1)(z, body(x).detach()) for body in old]
                    contrast = F.cross_entropy(torch.stack(similar, 1) / 0.4, torch.zeros(len(y), dtype=torch.int64))
                    optimiser.zero_grad()
                    (F.cross_entropy(module[3](z), y) + 2.0 * contrast).backward()
                    optimiser.step()
                ends[k] = last[k] = toy64.vector(module)
            theta = toy64.mean(ends)
        toy64.close(state.server["model"], theta)
        assert len(last) > 4
        for k, flat in last.items():
            toy64.close(state.clients[k]["previous"], flat)


def test_at_first_the_contrast_has_no_gradient():
    """The previous model is the broadcast one, so the two similarities are equal whatever the client does."""
    ends = []
    for name in ("moon", "fedavg"):
        fed, method, state = toy.started(name)
        toy.round_of(method, fed, state)
        ends.append(state.server["model"].flat)
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)
