"""Statistics that several methods use."""

import functools
import importlib.util
import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fednoise_core.io import SpecError
from fednoise_core.ops import losses


def two_groups(
    values: np.ndarray, *, seed: int, max_iter: int = 100, tol: float = 1e-3, reg: float = 1e-6
) -> np.ndarray:
    """Posterior of the component with the larger mean in a two-component Gaussian mixture.

    It is scikit-learn's EM with full covariance and one start from k-means. In d dimensions the component with the
    larger sum of means counts. Values that are not finite count as the largest finite one. In degenerate input, which
    is fewer than two points or a range below 1e-12, all points belong to the low component.

    Args:
        values: Points [n] or [n, d].
        seed: Seed of k-means, from a stream of the run (`me.seed`, `fed.seed`).
        max_iter: Iterations of EM at most.
        tol: Gain of the likelihood at which EM stops.
        reg: Number added to the diagonal of the covariances.

    Returns:
        P(high component), float64 [n].
    """
    points = np.asarray(values, dtype=np.float64)
    points = points[:, None] if points.ndim == 1 else points
    finite = np.isfinite(points)
    if not finite.all():  # a loss that overflowed is a large one
        points = np.where(finite, points, points[finite].max() if finite.any() else 0.0)
    if len(points) < 2 or float(np.ptp(points, axis=0).max()) < 1e-12:
        return np.zeros(len(points))
    from sklearn.exceptions import ConvergenceWarning  # on first use: importing it costs more than torch
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(2, covariance_type="full", max_iter=max_iter, tol=tol, reg_covar=reg, random_state=seed)
    with warnings.catch_warnings():  # a few iterations may be all that is asked for
        warnings.simplefilter("ignore", ConvergenceWarning)
        posterior = mixture.fit(points).predict_proba(points)
    return posterior[:, int(mixture.means_.sum(1).argmax())]


def majority_group(values: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """Find the high group that `two_groups` returns for most of the seeds (Wu et al., IJCAI 2023, FedNoRo).

    Ties are resolved in favour of the group that was found first.

    Args:
        values: Points [n, d].
        seeds: Seeds of k-means.

    Returns:
        Mask bool [n] of the high group. It is empty if one of the two groups is.
    """
    splits = [tuple(two_groups(values, seed=seed) > 0.5) for seed in seeds]
    high = np.array(max(splits, key=splits.count), dtype=bool)
    return high & ~high.all()


def local_intrinsic_dim(x: Tensor, k: int = 20, eps: float = 1e-6) -> Tensor:
    """Local intrinsic dimension of each row from its nearest other rows.

    The value is -k_eff / (sum_i log(r_i / (r_k + eps)) + eps) with k_eff = min(k, n - 1) (Ma et al., ICML 2018; Xu et
    al., CVPR 2022, FedCorr).

    Args:
        x: Points [n, d].
        k: Neighbours of each point.
        eps: Small number that keeps the quotient finite. It is 0 in the paper.

    Returns:
        Dimensions, float64 [n]. They are 0 for a row with a zero distance, for a row with equal distances if eps is 0,
        and for all rows if n < 3.
    """
    n = len(x)
    if n < 3:
        return torch.zeros(n, dtype=torch.float64, device=x.device)
    points = x.to(torch.float64)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)  # itself is removed by position: a duplicate stays, at distance 0
    used = min(k, n - 1)
    r = distances.topk(used, largest=False).values
    total = (r / (r[:, -1:] + eps)).clamp_min(1e-300).log().sum(1) + eps
    return torch.where((r[:, 0] == 0) | (total == 0), 0.0, -used / total)


def scale_to_unit(x: Tensor) -> Tensor:
    """Scale min-max to 0..1 over all entries.

    Args:
        x: Tensor of any shape.

    Returns:
        Tensor of the same shape. It is 0 where all entries are equal.
    """
    low, high = x.amin(), x.amax()
    return (x - low) / torch.where(high > low, high - low, 1.0)


def cosine_similarity(a: Tensor, b: Tensor) -> Tensor:
    """Cosine a·b / max(|a||b|, 1e-8) over the last axis. The other axes broadcast.

    Args:
        a: Vectors [..., d].
        b: Vectors [..., d].

    Returns:
        Cosines [...], 0 for a vector of zeros.
    """
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(1e-8)


def low_loss(loss: Tensor, *, seed: int, max_iter: int = 100) -> Tensor:
    """Posterior of the low-loss component of min-max scaled losses.

    The settings are those of DivideMix (Li et al., ICLR 2020) and FedRN (Kim et al., CIKM 2022): tol 1e-2 and reg 5e-4.

    Args:
        loss: Losses [n].
        seed: Seed of k-means, from a stream of the run.
        max_iter: Iterations of EM at most.

    Returns:
        P(low component), float64 [n], on the device of `loss`.
    """
    high = two_groups(scale_to_unit(loss).cpu().numpy(), seed=seed, max_iter=max_iter, tol=1e-2, reg=5e-4)
    return torch.from_numpy(1.0 - high).to(loss.device)


def beta_from_uniform(u: Tensor, a: float) -> Tensor:
    """Turn uniform numbers into Beta(a, a) numbers, for use in a step.

    It reads a table of the inverse distribution function, which is made once for each device.

    Args:
        u: Uniform numbers in 0..1, of any shape.
        a: Parameter a ≥ 0 of the distribution.

    Returns:
        Beta numbers of the shape of `u`. a = 0 gives 1 (no mixing) and a = 1 gives `u` itself.
    """
    if a == 0.0:
        return torch.ones_like(u)
    if a == 1.0:
        return u
    table = _beta_quantiles(float(a), u.device)
    position = torch.asin(u.sqrt()) * (2 / math.pi * (len(table) - 1))  # knots lie closer at the steep ends
    below = position.long().clamp_max(len(table) - 2)
    low, high = (table.index_select(0, (below + k).flatten()).view_as(u) for k in (0, 1))
    return low + (position - below) * (high - low)


@functools.cache
def _beta_quantiles(a: float, device: torch.device, knots: int = 4097) -> Tensor:
    from scipy.special import betaincinv

    return torch.from_numpy(betaincinv(a, a, np.sin(np.linspace(0.0, math.pi / 2, knots)) ** 2)).float().to(device)


def p_wrong_by_confidence(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute P(given label is wrong) from the model's confidence, as a result of `FedAvg.suspect_labels`.

    Args:
        logits: Logits [n, K].
        y: Given labels [n].

    Returns:
        P(wrong) [n] = 1 - p(given label), and the predicted labels [n].
    """
    p = losses.log_probs(logits).exp()
    return 1.0 - p.gather(1, y[:, None]).squeeze(1), p.argmax(1)


def p_wrong_by_rank(loss: Tensor, share: float) -> Tensor:
    """P(given label is wrong) by the rank of the loss.

    Args:
        loss: Losses [n].
        share: Share of samples that counts as wrong.

    Returns:
        P(wrong), float64 [n]. It is above 1/2 for the `share` of largest losses.
    """
    rank = torch.argsort(torch.argsort(loss, stable=True)).to(torch.float64)
    above = (rank + 0.5) / max(len(loss), 1) - (1.0 - share)  # > 0 for those named
    return (0.5 + above / (2 * max(share, 1.0 - share))).clamp(0, 1)


def confident_counts(p: Tensor, y: Tensor, fill: bool = True) -> Tensor:
    """Confident joint before calibration (Northcutt, Jiang and Chuang, JAIR 2021), as in cleanlab.

    The threshold of class j is the mean p_j over the samples labelled j. The guess for a sample is the class above its
    threshold with the largest p. Samples without a class above its threshold are not counted.

    Args:
        p: Probabilities [n, K].
        y: Given labels [n].
        fill: Whether the diagonal is at least 1, as in cleanlab.

    Returns:
        Counts [K, K]. Rows are given labels and columns are confident guesses.
    """
    K = p.shape[1]
    one_hot = torch.nn.functional.one_hot(y, K).to(p.dtype)
    totals = one_hot.sum(0)
    threshold = torch.where(totals > 0, ((p * one_hot).sum(0) / totals.clamp_min(1)).clamp_min(2e-6), 2.0)
    above = p >= threshold - 1e-6
    guess = torch.where(above.sum(1) > 1, p.argmax(1), above.to(torch.int8).argmax(1))
    guesses = torch.nn.functional.one_hot(guess, K).to(p.dtype) * above.any(1, keepdim=True)
    counts = one_hot.T @ guesses
    return with_unit_diagonal(counts) if fill else counts


def with_unit_diagonal(counts: Tensor) -> Tensor:
    """Raise the diagonal to at least 1, so that each class has a count.

    Args:
        counts: Counts [K, K].

    Returns:
        Counts [K, K].
    """
    return counts + torch.diag((1 - counts.diagonal()).clamp_min(0))


def need_cleanlab() -> None:
    """Check that `label_issues` can run here.

    Raises:
        SpecError: The package cleanlab is not installed.
    """
    if importlib.util.find_spec("cleanlab") is None:
        raise SpecError("method.name: this method needs the package cleanlab: pip install cleanlab")


def label_issues(p: Tensor, y: Tensor) -> Tensor:
    """Samples whose label cleanlab considers wrong, with `filter_by="both"`.

    Args:
        p: Probabilities [n, K].
        y: Given labels [n].

    Returns:
        Mask bool [n]. It is empty if there is only one class.
    """
    if len(y.unique()) < 2:
        return torch.zeros_like(y, dtype=torch.bool)
    from cleanlab.filter import find_label_issues  # on first use

    with warnings.catch_warnings():  # cleanlab warns about classes with too few samples, which it skips
        warnings.simplefilter("ignore", UserWarning)
        issues = find_label_issues(y.cpu().numpy(), p.cpu().numpy(), filter_by="both", n_jobs=1)
    return torch.as_tensor(issues, device=y.device)
