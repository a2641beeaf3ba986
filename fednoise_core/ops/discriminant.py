"""Linear discriminant analysis from sums over samples, which add over clients and folds."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Sums = Mapping[str, Tensor]  # "count" [K], "first" [K, d] and "second" [d, d], float64
GRID = tuple(10.0 ** (k / 2) for k in range(-6, 5))  # ridges that are tried, as multiples of the mean variance


def sum_classes(features: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """Sum the features [n, d] of each class, and their products."""
    x, one_hot = features.double(), F.one_hot(labels, classes).double()
    return {"count": one_hot.sum(0), "first": one_hot.T @ x, "second": x.T @ x}


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Add sums of several clients or folds."""
    return {name: torch.stack([part[name].double() for part in parts]).sum(0) for name in parts[0]}


def choose_ridge(folds: Sequence[Sums]) -> float:
    """Choose the ridge of the smallest squared error on held-out folds, by regression on the labels' indicators.

    Args:
        folds: Sums of each fold.

    Returns:
        The number to add to the diagonal of the covariance.
    """
    total = add_sums(folds)
    n = total["count"].sum()
    mean, prior = total["first"].sum(0) / n, total["count"] / n
    parts = []  # second moments of each fold about the common means: [d, d], [d, K]
    for fold in folds:
        first, size = fold["first"].sum(0), fold["count"].sum()
        among = fold["second"] - torch.outer(first, mean) - torch.outer(mean, first) + size * torch.outer(mean, mean)
        across = fold["first"].T - torch.outer(mean, fold["count"]) - torch.outer(first - size * mean, prior)
        parts.append((size, among, across))
    among, across = (torch.stack([part[i] for part in parts]).sum(0) for i in (1, 2))
    grid = torch.tensor(GRID).to(among) * (among.trace() / n / len(among)).clamp_min(1e-8)
    errors = torch.zeros_like(grid)
    for size, held_among, held_across in parts:
        values, vectors = torch.linalg.eigh((among - held_among) / (n - size))
        rotated = vectors.T @ ((across - held_across) / (n - size))
        # in the eigenbasis, where a ridge only rescales the weights
        squares, products = vectors.T @ held_among @ vectors, vectors.T @ held_across
        for k, ridge in enumerate(grid):
            weight = rotated / (values + ridge)[:, None]
            errors[k] += (weight * (squares @ weight - 2 * products)).sum()
    return float(grid[errors.argmin()])


def fit_discriminant(sums: Sums, ridge: float) -> tuple[Tensor, Tensor]:
    """Fit the weight [K, d] and bias [K] of the logits.

    Args:
        sums: Sums of the samples to fit.
        ridge: Number to add to the diagonal of the covariance within classes.
    """
    count, first = sums["count"], sums["first"]
    n, means = count.sum(), first / count.clamp_min(1)[:, None]
    within = (sums["second"] - first.T @ means) / n + ridge * torch.eye(first.shape[1]).to(first)
    weight = torch.linalg.solve(within, means.T).T
    return weight, ((count + 1) / (n + len(count))).log() - (means * weight).sum(1) / 2
