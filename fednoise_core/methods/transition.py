"""What a client can find out about its noise matrix T [K, K], T[i, j] = P(given j | true i), from a model's predictions
and its given labels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fednoise_core.ops import losses
from fednoise_core.ops.stats import with_unit_diagonal

__all__ = ["anchor_rows", "confident_rows", "judge_by_matrix", "normalise_counts", "tail_rows", "weigh_by_shares"]


def confident_rows(p: Tensor, y: Tensor, threshold: float) -> Tensor:
    """T by counting (Di et al., 2024, 9.2): row i is the histogram of the given labels y [n] of samples whose
    prediction p [n, K] is i with more than `threshold`; e_i where there are none.
    """
    K = p.shape[1]
    sure, guess = p.max(1)
    picked = sure > threshold
    counts = torch.bincount(guess[picked] * K + y[picked], minlength=K * K).view(K, K).to(torch.float64)
    held = counts.sum(1, keepdim=True)
    return torch.where(held > 0, counts / held.clamp_min(1), torch.eye(K, dtype=torch.float64, device=p.device)).float()


def anchor_rows(p: Tensor, percentile: float) -> Tensor:
    """T by anchor points (Patrini et al., CVPR 2017): row i is p(x*), x* the sample of largest p_i after those at or
    above the percentile (a data point, the higher one) are left out. 100: none is left out.

    Every column is looked at as it is: the original writes zeros into p and reads later rows from what is left of it.
    """
    p = p.double()
    left = p
    if percentile < 100:
        limit = torch.quantile(p, percentile / 100, dim=0, interpolation="higher")
        left = torch.where((p >= limit) & (p > p.amin(0)), -1.0, p)  # a column of equal numbers keeps them all
    rows = p[left.argmax(0)]
    return (rows / rows.sum(1, keepdim=True)).float()


def tail_rows(p: Tensor, percentile: float) -> Tensor:
    """T by tails (002's code): row i is the mean of p over the samples with p_i at or above the percentile (linear
    interpolation) of column i.
    """
    p = p.double()
    limit = torch.minimum(torch.quantile(p, percentile / 100, dim=0), p.amax(0))  # rounding must not leave nobody
    top = (p >= limit).double()  # [n, K]
    return (top.T @ p / top.sum(0)[:, None]).float()


def normalise_counts(counts: Tensor) -> Tensor:
    """T from counts [K, K], rows given labels, columns guesses (002, equation 9): T[i, j] = C[j, i] / sum_k C[k, i],
    the diagonal of C filled first; e_i where nothing was counted for class i. The printed equation sums over the row,
    but P(given | true), which it names, needs the column, as in 002's code.
    """
    C = with_unit_diagonal(counts)
    return (C / C.sum(0)).T.contiguous()


def weigh_by_shares(T: Tensor, y: Tensor) -> Tensor:
    """002's matrix: rows of T (of counts in FedEFC) times the client's share of each given label, columns made to sum
    to 1 or left at 0. In the forward loss it weighs p by that share, so that classes that the client has not drop out.
    """
    share = torch.bincount(y, minlength=len(T)).to(T.dtype) / max(len(y), 1)
    joint = share[:, None] * T
    return joint / joint.sum(0).clamp_min(1e-12)


def judge_by_matrix(logits: Tensor, y: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    """P(wrong) and the proposed label, both [n], by Bayes' rule: P(true i | x, given y) is proportional to
    p_i T[i, y].
    """
    joint = losses.log_probs(logits).exp() * T.clamp_min(0).T[y] + 1e-30
    posterior = joint / joint.sum(1, keepdim=True)
    return 1.0 - posterior.gather(1, y[:, None]).squeeze(1), posterior.argmax(1)
