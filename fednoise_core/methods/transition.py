"""Estimate a client's noise matrix T [K, K], T[i, j] = P(given j | true i).

Only a model's predictions and the client's given labels are used.
"""

import torch
from torch import Tensor

from fednoise_core.ops import losses
from fednoise_core.ops.stats import with_unit_diagonal


def confident_rows(p: Tensor, y: Tensor, threshold: float) -> Tensor:
    """Estimate T by counting (Di et al., 2024, section 9.2).

    Row i is the histogram of the given labels of samples that the model takes for class i with more than `threshold`.

    Args:
        p: Predictions [n, K].
        y: Given labels [n].
        threshold: Probability above which a sample is counted.

    Returns:
        float32 [K, K]. Row i is e_i if no sample was counted.
    """
    K = p.shape[1]
    sure, guess = p.max(1)
    picked = sure > threshold
    counts = torch.bincount(guess[picked] * K + y[picked], minlength=K * K).view(K, K).to(torch.float64)
    totals = counts.sum(1, keepdim=True)
    return torch.where(
        totals > 0, counts / totals.clamp_min(1), torch.eye(K, dtype=torch.float64, device=p.device)
    ).float()


def anchor_rows(p: Tensor, percentile: float) -> Tensor:
    """Estimate T by anchor points (Patrini et al., CVPR 2017).

    Row i is p(x*). x* is the sample with the largest p_i among those below the percentile (which is a data point, the
    higher one). Every column is used unchanged, whereas the original writes zeros into p and computes later rows from
    the changed p.

    Args:
        p: Predictions [n, K].
        percentile: In 0..100. 100 leaves nothing out.

    Returns:
        float32 [K, K].
    """
    p = p.double()
    left = p
    if percentile < 100:
        limit = torch.quantile(p, percentile / 100, dim=0, interpolation="higher")
        left = torch.where((p >= limit) & (p > p.amin(0)), -1.0, p)  # a column of equal numbers keeps them all
    rows = p[left.argmax(0)]
    return (rows / rows.sum(1, keepdim=True)).float()


def tail_rows(p: Tensor, percentile: float) -> Tensor:
    """Estimate T by tails (the code of Yu et al., 2025).

    Row i is the mean of p over the samples with p_i at or above the percentile (linear interpolation) of column i.

    Args:
        p: Predictions [n, K].
        percentile: In 0..100.

    Returns:
        float32 [K, K].
    """
    p = p.double()
    limit = torch.minimum(torch.quantile(p, percentile / 100, dim=0), p.amax(0))  # rounding must not leave nobody
    top = (p >= limit).double()  # [n, K]
    return (top.T @ p / top.sum(0)[:, None]).float()


def normalise_counts(counts: Tensor) -> Tensor:
    """Compute T from counts (Yu et al., 2025, equation 9): T[i, j] = C[j, i] / sum_k C[k, i].

    The printed equation sums over the row, but P(given | true), which it names, needs the column, as in the authors'
    code.

    Args:
        counts: [K, K], given labels in rows, guesses in columns. The diagonal is filled first.

    Returns:
        [K, K]. Row i is e_i if nothing was counted for class i.
    """
    C = with_unit_diagonal(counts)
    return (C / C.sum(0)).T.contiguous()


def weigh_by_shares(T: Tensor, y: Tensor) -> Tensor:
    """Weigh a matrix by the client's share of each given label (Yu et al., 2025).

    Rows of T (of counts in FedEFC) are multiplied by the shares. Columns are then normalised to sum 1, or left at 0. So
    the matrix weighs p by these shares in the forward loss, and classes that the client lacks drop out.

    Args:
        T: [K, K].
        y: Given labels [n].
    """
    share = torch.bincount(y, minlength=len(T)).to(T.dtype) / max(len(y), 1)
    joint = share[:, None] * T
    return joint / joint.sum(0).clamp_min(1e-12)


def judge_by_matrix(logits: Tensor, y: Tensor, T: Tensor) -> tuple[Tensor, Tensor]:
    """Score labels by Bayes' rule: P(true i | x, given y) is proportional to p_i T[i, y].

    Args:
        logits: [n, K].
        y: Given labels [n].
        T: [K, K].

    Returns:
        P(wrong) and the proposed label, both [n].
    """
    joint = losses.log_probs(logits).exp() * T.clamp_min(0).T[y] + 1e-30
    posterior = joint / joint.sum(1, keepdim=True)
    return 1.0 - posterior.gather(1, y[:, None]).squeeze(1), posterior.argmax(1)
