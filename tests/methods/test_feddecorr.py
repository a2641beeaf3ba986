"""FedDecorr: the regulariser against plain loops and numpy; whole rounds."""

import numpy as np
import pytest
import torch
import toy64
from torch.nn import functional as F

from fednoise_core.methods import make_method
from fednoise_core.settings.train import Train


def regulariser(h, scale):
    """Pair by pair, from the definitions."""
    (size, d), total = h.shape, 0.0
    z = [(h[:, i] - h[:, i].mean()) / torch.sqrt(h[:, i].var() + 1e-8) for i in range(d)]
    for i in range(d):
        for j in range(d):
            s = sum(z[i][b] * z[j][b] for b in range(size))
            if scale == "paper":
                total = total + (s / (size - 1)) ** 2 / d**2
            elif i != j:
                total = total + s**2 / (d * (d - 1)) / size
    return total


@pytest.mark.parametrize("scale", ["code", "paper"])
def test_whole_rounds_against_a_second_implementation(scale):
    with toy64.doubled():
        _, state, seen, theta = toy64.rounds("feddecorr", {"beta": 0.3, "scale": scale}, 2)
        for round in (1, 2):
            ends = {}
            for k in toy64.cohort(seen, round):
                flat = theta
                for x, y in seen[round, k]:

                    def loss(module, x=x, y=y):
                        h = module[:3](x)
                        return F.cross_entropy(module[3](h), y) + (0.3 * regulariser(h, scale) if len(y) > 1 else 0)

                    flat = toy64.step(flat, loss, 0.2)
                ends[k] = flat
            theta = toy64.mean(ends)
        toy64.close(state.server["model"], theta)


def test_the_paper_s_number_is_that_of_numpy_s_correlations():
    h = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    method = make_method({"name": "feddecorr", "scale": "paper"}, Train())
    expected = (np.corrcoef(h.numpy().T) ** 2).mean()
    assert float(method.measure_correlation(h)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", ["code", "paper"])
def test_features_that_do_not_move_and_a_single_one_give_finite_gradients(scale):
    method = make_method({"name": "feddecorr", "scale": scale}, Train())
    for h in (torch.ones(5, 3), torch.arange(5.0)[:, None]):
        h.requires_grad_()
        method.measure_correlation(h).backward()
        assert torch.isfinite(h.grad).all()
