"""Two-component splits, the local intrinsic dimension, numbers for steps, suspects."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import beta as reference

from fednoise_core.ops import stats
from fednoise_core.ops.stats import confident_counts, label_issues, local_intrinsic_dim, low_loss, two_groups
from fednoise_core.rng import stream


def test_two_clear_groups():
    draw = stream(0, "groups")
    values = np.concatenate([draw.normal(0, 0.1, 30), draw.normal(5, 0.1, 10)])
    posterior = two_groups(values, seed=0)
    assert (posterior[:30] < 1e-6).all()
    assert (posterior[30:] > 1 - 1e-6).all()
    order = draw.permutation(40)
    np.testing.assert_allclose(two_groups(values[order], seed=0), posterior[order], atol=1e-9)


def test_the_high_group_is_the_one_with_the_larger_mean_also_in_several_dimensions():
    draw = stream(0, "groups in the plane")
    points = np.concatenate([draw.normal(3, 0.1, (25, 2)), draw.normal(0, 0.1, (12, 2))])
    posterior = two_groups(points, seed=0)
    assert (posterior[:25] > 0.999).all()
    assert (posterior[25:] < 0.001).all()


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0, 2.0], [1.0, 1.0 + 1e-13]])
def test_without_spread_everything_is_in_the_low_group(values):
    assert two_groups(np.array(values), seed=0).tolist() == [0.0] * len(values)


def test_many_equal_values_warn_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = two_groups(np.array([0.0] * 20 + [1.0]), seed=0)
    assert (posterior > 0.5).tolist() == [False] * 20 + [True]


def test_the_seed_is_that_of_k_means():
    """Values without clear groups fall apart in several ways, by where k-means starts; one seed gives one of them."""
    values = stream(3, "no groups").random(12)
    results = {tuple(np.round(two_groups(values, seed=seed), 6)) for seed in range(20)}
    assert len(results) > 1
    assert all(np.array_equal(two_groups(values, seed=k), two_groups(values, seed=k)) for k in range(5))
    loss = torch.from_numpy(values)
    assert len({tuple(low_loss(loss, seed=seed).round(decimals=4).tolist()) for seed in range(20)}) > 1


@pytest.mark.parametrize(("dimension", "ratio"), [(1, 1.12), (2, 1.16), (5, 1.08)])
def test_lid_of_gaussians_in_twenty_dimensions(dimension, ratio):
    """n = 500, k = 20: mean LID / d."""
    means = []
    for repeat in range(4):
        flat = stream(repeat, "gaussian", dimension).normal(size=(500, dimension))
        turn, _ = np.linalg.qr(stream(repeat, "turn").normal(size=(20, 20)))
        means.append(float(local_intrinsic_dim(torch.from_numpy(flat @ turn[:dimension])).mean()) / dimension)
    assert np.mean(means) == pytest.approx(ratio, abs=0.03)


def points(n: int, d: int = 4) -> torch.Tensor:
    return torch.from_numpy(stream(7, "points").normal(size=(n, d)))


def test_lid_by_hand():
    """Points on a line at 0, 1, 3: distances of the first are 1 and 3, of the second 1 and 2, of the third 2 and 3."""
    value = local_intrinsic_dim(torch.tensor([[0.0], [1.0], [3.0]]), k=2, eps=0.0)
    expected = [-2 / np.log(1 / 3), -2 / np.log(1 / 2), -2 / np.log(2 / 3)]
    np.testing.assert_allclose(value.numpy(), expected, rtol=1e-12)
    with_eps = local_intrinsic_dim(torch.tensor([[0.0], [1.0], [3.0]]), k=2, eps=0.1)
    assert with_eps[0].item() == pytest.approx(-2 / (np.log(1 / 3.1) + np.log(3 / 3.1) + 0.1))


def test_lid_does_not_change_under_rotation_and_without_eps_under_scaling():
    x = points(60)
    turn, _ = torch.linalg.qr(points(4))
    torch.testing.assert_close(local_intrinsic_dim(x @ turn), local_intrinsic_dim(x), rtol=1e-9, atol=0)
    torch.testing.assert_close(
        local_intrinsic_dim(x * 1e-4, eps=0.0), local_intrinsic_dim(x, eps=0.0), rtol=1e-9, atol=0
    )
    # the code's eps matters for confident models
    assert local_intrinsic_dim(x * 1e-7).mean() < local_intrinsic_dim(x).mean() / 2


def test_lid_of_few_points_uses_those_there_are():
    x = points(12)
    torch.testing.assert_close(local_intrinsic_dim(x, k=20), local_intrinsic_dim(x, k=11), rtol=0, atol=0)
    assert local_intrinsic_dim(points(2)).tolist() == [0.0, 0.0]
    assert local_intrinsic_dim(points(0)).shape == (0,)
    assert (local_intrinsic_dim(points(3)) > 0).all()


def test_a_duplicate_has_lid_zero():
    x = points(10)
    x[4] = x[7]
    value = local_intrinsic_dim(x, k=5)
    assert [k for k in range(10) if value[k] == 0] == [4, 7]
    assert local_intrinsic_dim(torch.ones(5, 3)).tolist() == [0.0] * 5


def test_lid_without_eps_of_equidistant_points_is_finite():
    corners = torch.eye(4)  # every distance is sqrt(2)
    assert torch.isfinite(local_intrinsic_dim(corners, k=3, eps=0.0)).all()


@pytest.mark.parametrize("seed", range(20))
def test_confident_counts_and_issues_are_those_of_cleanlab(seed):
    """Also with classes that nobody has."""
    from cleanlab import count as cleanlab

    draw = np.random.default_rng(seed)
    y = draw.choice([0, 2, 3], 60) if seed % 2 else draw.integers(0, 4, 60)
    p = draw.dirichlet(np.full(4, 0.5), 60)
    p[np.arange(60), y] += 0.3
    p = p / p.sum(1, keepdims=True)
    expected = cleanlab.compute_confident_joint(y, p, calibrate=False)
    assert np.array_equal(confident_counts(torch.from_numpy(p), torch.from_numpy(y)).numpy(), expected)
    issues = label_issues(torch.from_numpy(p), torch.from_numpy(y))
    assert issues.dtype == torch.bool
    assert not issues.all()


def test_sure_predictions_leave_nothing_to_prune():
    y = torch.arange(12) % 3
    p = torch.full((12, 3), 0.05)
    p[torch.arange(12), y] = 0.9
    assert torch.equal(confident_counts(p, y), 4 * torch.eye(3))
    assert not label_issues(p, y).any()
    wrong = y.clone()
    wrong[:2] = (y[:2] + 1) % 3
    assert label_issues(p, wrong).nonzero().flatten().tolist() == [0, 1]
    assert not label_issues(p, torch.zeros_like(y)).any()  # cleanlab refuses a single class


@pytest.mark.parametrize("a", [0.2, 0.5, 4.0])
def test_beta_numbers_are_the_quantiles(a):
    u = torch.rand(2000, generator=torch.Generator().manual_seed(0))
    numbers = stats.beta_from_uniform(u, a)
    assert (numbers - torch.from_numpy(reference.ppf(u.double().numpy(), a, a))).abs().max() < 2e-3
    assert torch.equal(stats.beta_from_uniform(u[:, None], a)[:, 0], numbers)


def test_beta_at_its_ends():
    u = torch.tensor([0.0, 0.25, 1.0 - 2.0**-24])
    assert torch.equal(stats.beta_from_uniform(u, 1.0), u)
    assert stats.beta_from_uniform(u, 0.0).tolist() == [1, 1, 1]
    assert stats.beta_from_uniform(torch.tensor([0.0, 0.5, 1.0]), 4.0).tolist() == pytest.approx([0, 0.5, 1])


def test_scaled_and_low_loss():
    assert stats.scale_to_unit(torch.tensor([2.0, 4.0, 3.0])).tolist() == [0, 1, 0.5]
    assert stats.scale_to_unit(torch.tensor([2.0, 2.0])).tolist() == [0, 0]
    p = stats.low_loss(torch.tensor([0.1, 0.2, 0.15, 5.0, 5.2]), seed=0)
    assert [round(x) for x in p.tolist()] == [1, 1, 1, 0, 0]


def test_suspects():
    logits = torch.tensor([[math.log(0.75), math.log(0.25)]])
    p, proposed = stats.p_wrong_by_confidence(logits, torch.tensor([1]))
    assert p.tolist() == pytest.approx([0.75])
    assert proposed.tolist() == [0]
    p = stats.p_wrong_by_rank(torch.tensor([3.0, 1.0, 4.0, 2.0, 0.0]), 0.4)
    assert (p > 0.5).tolist() == [True, False, True, False, False]
