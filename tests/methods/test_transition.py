"""Estimates of a client's noise matrix, by hand and against numpy."""

import numpy as np
import pytest
import torch

from fednoise_core.methods.transition import anchor_rows, confident_rows, judge_by_matrix, tail_rows, weigh_by_shares
from fednoise_core.rng import stream


def predictions(n: int = 60, classes: int = 4) -> torch.Tensor:
    return torch.from_numpy(stream(1, "predictions").dirichlet(np.full(classes, 0.4), n)).float()


def test_confident_rows_by_hand():
    """Row 0: predictions .96 and .99 for class 0, given labels 0 and 2. Row 1: .95 is not above .95. Row 2: given 2."""
    p = torch.tensor([[0.96, 0.02, 0.02], [0.99, 0.01, 0.0], [0.05, 0.95, 0.0], [0.0, 0.03, 0.97], [0.9, 0.1, 0.0]])
    T = confident_rows(p, torch.tensor([0, 2, 0, 2, 1]), 0.95)
    assert torch.equal(T, torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))


def test_confident_rows_a_class_without_samples_has_a_column_of_zeros():
    """Clients that lack a class (Di et al., 2024, 3.4): no sample is labelled 1 here, so no row leads there; the row
    of a class without confident samples is the identity's."""
    y = torch.tensor([0, 2, 0, 2, 2, 0])
    truth = torch.tensor([0, 2, 2, 2, 0, 0])
    p = torch.eye(3)[truth] * 0.97 + 0.01
    T = confident_rows(p, y, 0.95)
    torch.testing.assert_close(T, torch.tensor([[2 / 3, 0, 1 / 3], [0, 1.0, 0], [1 / 3, 0, 2 / 3]]))
    real = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    assert (T[:, 1] - real[:, 1]).abs().max() > 0.2  # far from the global matrix, as the paper argues


@pytest.mark.parametrize("percentile", [97.0, 90.0, 50.0])
def test_anchor_rows_against_numpy(percentile):
    """Patrini's rule with a fresh copy of every column."""
    p = predictions().double().numpy()
    expected = np.empty((4, 4))
    for i in range(4):
        column = p[:, i].copy()
        column[column >= np.percentile(column, percentile, method="higher")] = 0.0
        expected[i] = p[column.argmax()] / p[column.argmax()].sum()
    np.testing.assert_allclose(anchor_rows(predictions(), percentile).numpy(), expected, rtol=1e-6)


def test_anchor_rows_without_a_percentile_are_the_most_confident_predictions():
    p = predictions()
    torch.testing.assert_close(anchor_rows(p, 100.0), p[p.argmax(0)])
    assert not torch.allclose(anchor_rows(p, 100.0), anchor_rows(p, 97.0))


def test_every_row_is_read_from_undamaged_predictions():
    """The original zeroes entries in place, so that rows read later lose mass: here both columns name the same sample
    as an outlier."""
    p = torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.4, 0.2], [0.3, 0.1, 0.6], [0.2, 0.3, 0.5]])
    T = anchor_rows(p, 90.0)
    assert torch.equal(T, torch.stack([p[1], p[1], p[3]]))
    torch.testing.assert_close(T.sum(1), torch.ones(3))


@pytest.mark.parametrize("percentile", [97.0, 80.0, 100.0, 0.0])
def test_tail_rows_against_numpy(percentile):
    p = predictions().double().numpy()
    limit = np.percentile(p, percentile, axis=0)
    expected = np.stack([p[p[:, i] >= limit[i] - 1e-15].mean(0) for i in range(4)])
    np.testing.assert_allclose(tail_rows(predictions(), percentile).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("p", [torch.tensor([[0.2, 0.8]]), torch.full((5, 2), 0.5), torch.tensor([[1.0, 0.0]] * 3)])
def test_estimates_of_hardly_any_data_are_distributions(p):
    """One sample, equal predictions, one class, K = 2."""
    y = torch.zeros(len(p), dtype=torch.int64)
    for T in (confident_rows(p, y, 0.95), anchor_rows(p, 97.0), anchor_rows(p, 100.0), tail_rows(p, 97.0)):
        assert T.shape == (2, 2)
        assert T.dtype == torch.float32
        torch.testing.assert_close(T.sum(1), torch.ones(2))


def test_weighted_is_forward_correction_of_reweighted_predictions():
    """-log (A' p)_y - (-log sum_i p_i pi_i T[i, y]) depends on y only; rows of absent classes are zero."""
    T, y = torch.softmax(predictions(4) * 3, 1), torch.tensor([0, 0, 1, 3, 3, 3])
    A = weigh_by_shares(T, y)
    assert A[2].tolist() == [0.0] * 4
    torch.testing.assert_close(A.sum(0), torch.ones(4))
    share = torch.tensor([2.0, 1.0, 0.0, 3.0]) / 6
    p = predictions(7)
    constant = -(p @ A).log() + (p @ (share[:, None] * T)).log()
    torch.testing.assert_close(constant, constant[:1].expand_as(constant), rtol=1e-4, atol=1e-5)
    nobody = weigh_by_shares(torch.eye(3), torch.tensor([0, 1]))
    assert nobody[:, 2].tolist() == [0.0] * 3  # a zero column stays zero


def test_bayes_rule():
    """p = (.5, .5), T = ((.9, .1), (.4, .6)): given 0, P(true 0) = .45/(.45 + .2)."""
    T = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    wrong, proposed = judge_by_matrix(torch.zeros(2, 2), torch.tensor([0, 1]), T)
    torch.testing.assert_close(wrong, torch.tensor([0.2 / 0.65, 0.05 / 0.35]))
    assert proposed.tolist() == [0, 1]
    sure = torch.tensor([[0.0, 5.0]])
    assert judge_by_matrix(sure, torch.tensor([0]), T)[1].tolist() == [1]
    assert judge_by_matrix(sure, torch.tensor([0]), torch.eye(2))[0].tolist() == pytest.approx(
        [0.0]
    )  # no noise, no doubt
