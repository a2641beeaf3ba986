"""Statistics that several methods use: two-component splits, local intrinsic dimension, Beta numbers, suspects."""

from __future__ import annotations

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
    """Posterior [n] of the component with the larger mean, of a two-component Gaussian mixture on values [n] or [n, d].

    scikit-learn's EM from k-means, full covariance, one start. seed: of k-means, from a stream of the run (`me.seed`,
    `fed.seed`), as the authors' code of every method that splits so.

    Degenerate input (fewer than two points, or a range below 1e-12): all belong to the low component, posterior 0.
    In d dimensions the larger sum of means counts.
    """
    points = np.asarray(values, dtype=np.float64)
    points = points[:, None] if points.ndim == 1 else points
    known = np.isfinite(points)
    if not known.all():  # a loss that overflowed is a large one
        points = np.where(known, points, points[known].max() if known.any() else 0.0)
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
    """Mask [n] of the high group of `values` [n, d]: the set of points that `two_groups` finds from most of the seeds,
    of several the one found first (FedNoRo). Nobody if a group is empty.
    """
    found = [tuple(two_groups(values, seed=seed) > 0.5) for seed in seeds]
    high = np.array(max(found, key=found.count), dtype=bool)
    return high & ~high.all()


def lid(x: Tensor, k: int = 20, eps: float = 1e-6) -> Tensor:
    """Local intrinsic dimension [n] of each row of x [n, d] from its k nearest other rows (Ma et al.; FedCorr).

    -k_eff / (sum_i log(r_i / (r_k + eps)) + eps), k_eff = min(k, n - 1); 0 for a row with a zero distance, for one with
    equal distances if eps is 0 (the paper's form divides by zero), and for all rows if n < 3.
    """
    n = len(x)
    if n < 3:
        return torch.zeros(n, dtype=torch.float64, device=x.device)
    points = x.to(torch.float64)
    near = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    near.fill_diagonal_(torch.inf)  # itself is removed by position: a duplicate stays, at distance 0
    used = min(k, n - 1)
    r = near.topk(used, largest=False).values
    total = (r / (r[:, -1:] + eps)).clamp_min(1e-300).log().sum(1) + eps
    return torch.where((r[:, 0] == 0) | (total == 0), 0.0, -used / total)


def scaled(x: Tensor) -> Tensor:
    """Min-max to 0..1 over all entries; 0 where all are equal."""
    low, high = x.amin(), x.amax()
    return (x - low) / torch.where(high > low, high - low, 1.0)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """a·b / max(|a||b|, 1e-8) over the last axis, the others broadcast; 0 for a vector of zeros."""
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(1e-8)


def low_loss(loss: Tensor, *, seed: int, max_iter: int = 100) -> Tensor:
    """Posterior [n] of the low-loss component of min-max scaled losses, with the settings of DivideMix and
    FedRN: tol 1e-2, reg 5e-4.
    """
    high = two_groups(scaled(loss).cpu().numpy(), seed=seed, max_iter=max_iter, tol=1e-2, reg=5e-4)
    return torch.from_numpy(1.0 - high).to(loss.device)


def beta(u: Tensor, a: float) -> Tensor:
    """Beta(a, a) numbers from uniform u, for use in a step; a = 0 gives 1 (no mixing), a = 1 gives u itself.

    By a table of the inverse distribution function, made once per device: a captured step cannot leave the device.
    """
    if a == 0.0:
        return torch.ones_like(u)
    if a == 1.0:
        return u
    table = _quantiles(float(a), u.device)
    at = torch.asin(u.sqrt()) * (2 / math.pi * (len(table) - 1))  # knots lie closer at the steep ends
    below = at.long().clamp_max(len(table) - 2)
    low, high = (table.index_select(0, (below + k).flatten()).view_as(u) for k in (0, 1))
    return low + (at - below) * (high - low)


@functools.cache  # captured steps go on reading them
def _quantiles(a: float, device: torch.device, knots: int = 4097) -> Tensor:
    from scipy.special import betaincinv

    return torch.from_numpy(betaincinv(a, a, np.sin(np.linspace(0.0, math.pi / 2, knots)) ** 2)).float().to(device)


def by_confidence(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """P(wrong) = 1 - p(model, given label) and the model's own label, both [n], from logits [n, K] and labels y [n]: as
    `FedAvg.suspects` returns them.
    """
    p = losses.log_probs(logits).exp()
    return 1.0 - p.gather(1, y[:, None]).squeeze(1), p.argmax(1)


def by_rank(loss: Tensor, share: float) -> Tensor:
    """P(wrong) [n] by rank of the loss: above 1/2 for the `share` of largest losses."""
    rank = torch.argsort(torch.argsort(loss, stable=True)).to(torch.float64)
    above = (rank + 0.5) / max(len(loss), 1) - (1.0 - share)  # > 0 for those named
    return (0.5 + above / (2 * max(share, 1.0 - share))).clamp(0, 1)


def confident_counts(p: Tensor, y: Tensor, fill: bool = True) -> Tensor:
    """Counts [K, K], rows given labels, columns confident guesses: cleanlab's confident joint before
    calibration.

    p: probabilities [n, K]; y: given labels [n]. A class's threshold is its mean p_j over the samples labelled j. One
    class above its threshold is the guess; several: the largest p of all; none: not counted. fill: the diagonal is at
    least 1, as cleanlab's.
    """
    K = p.shape[1]
    own = torch.nn.functional.one_hot(y, K).to(p.dtype)
    held = own.sum(0)
    threshold = torch.where(held > 0, ((p * own).sum(0) / held.clamp_min(1)).clamp_min(2e-6), 2.0)
    above = p >= threshold - 1e-6
    guess = torch.where(above.sum(1) > 1, p.argmax(1), above.to(torch.int8).argmax(1))
    found = torch.nn.functional.one_hot(guess, K).to(p.dtype) * above.any(1, keepdim=True)
    counts = own.T @ found
    return filled(counts) if fill else counts


def filled(counts: Tensor) -> Tensor:
    """Counts [K, K] with a diagonal of at least 1, so that no class is without one."""
    return counts + torch.diag((1 - counts.diagonal()).clamp_min(0))


def need_cleanlab() -> None:
    """Raise SpecError if `label_issues` could not run here."""
    if importlib.util.find_spec("cleanlab") is None:
        raise SpecError("method.name: this method needs the package cleanlab: pip install cleanlab")


def label_issues(p: Tensor, y: Tensor) -> Tensor:
    """Mask [n] of the samples whose label cleanlab's `filter_by="both"` holds for wrong; none with a single class."""
    if len(y.unique()) < 2:
        return torch.zeros_like(y, dtype=torch.bool)
    from cleanlab.filter import find_label_issues  # on first use

    with warnings.catch_warnings():  # it warns of classes with too few samples, which it then leaves alone
        warnings.simplefilter("ignore", UserWarning)
        found = find_label_issues(y.cpu().numpy(), p.cpu().numpy(), filter_by="both", n_jobs=1)
    return torch.as_tensor(found, device=y.device)
