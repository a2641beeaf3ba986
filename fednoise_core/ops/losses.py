"""Per-sample losses [B] from logits [B, K] and targets: class numbers [B] (int64), of `ce` also distributions [B, K].

All are computed in float32 from log_softmax, also under autocast.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

RCE_SCALE = -math.log(1e-4)  # -log of the clamped zero of a one-hot target: 9.2103
GCE_FLOOR = -math.log(1e-7)  # 16.12, of p_y >= 1e-7
CONTRAST_FLOOR = -math.log(1e-8)  # 18.42, bounds the negative term of contrastive losses (CORES)


def wide(x: Tensor) -> Tensor:
    """x in float32; float64 stays, so that tests can compare in it."""
    return x if x.dtype == torch.float64 else x.float()


def log_probs(logits: Tensor) -> Tensor:
    """log softmax in float32, or float64 of float64."""
    return torch.log_softmax(wide(logits), -1)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in the precision of its operands, also under autocast, which would round it to bfloat16."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


def ce(logits: Tensor, y: Tensor) -> Tensor:
    """Cross entropy; for a distribution q: -sum q log p. One kernel, and no gather, whose gradient is not deterministic
    on a GPU.
    """
    return F.cross_entropy(logits.float(), y, reduction="none")


def mean_ce(logits: Tensor, y: Tensor) -> Tensor:
    """The mean of `ce`, a scalar, in one kernel."""
    return F.cross_entropy(wide(logits), y)


def rce(logits: Tensor, y: Tensor) -> Tensor:
    """Reverse cross entropy -sum p log clip(onehot, 1e-4, 1) = 9.2103 (1 - p_y) of class numbers (Wang et al., ICCV
    2019).
    """
    return RCE_SCALE * mae(logits, y)


def sce(logits: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    """Symmetric cross entropy alpha*CE + beta*RCE (Wang et al., ICCV 2019)."""
    return alpha * ce(logits, y) + beta * rce(logits, y)


def gce(logits: Tensor, y: Tensor, q: float) -> Tensor:
    """Generalised cross entropy (1 - p_y^q)/q of class numbers, p_y >= 1e-7 (Zhang and Sabuncu, NeurIPS 2018)."""
    return (1.0 - (-q * ce(logits, y).clamp_max(GCE_FLOOR)).exp()) / q


def mae(logits: Tensor, y: Tensor) -> Tensor:
    """1 - p_y of class numbers, half the L1 distance to the one-hot target. Losses made of p_y start at -log p_y, since
    1 - (1 - p_y) keeps no digit of a small p_y; nor does the derivative of expm1.
    """
    return 1.0 - (-ce(logits, y)).exp()


def forward(logits: Tensor, y: Tensor, T: Tensor) -> Tensor:
    """Forward correction -log (T' p)_y with T [K, K], T[i, j] = P(given j | true i) (Patrini et al., CVPR 2017)."""
    return F.nll_loss(product(log_probs(logits).exp(), T).clamp_min(1e-12).log(), y, reduction="none")


def reweighted(logits: Tensor, y: Tensor, T: Tensor) -> Tensor:
    """CE weighed by beta = p_y / (T' p)_y, the likelihood ratio of the clean and the given label (Xia et al., NeurIPS
    2019). Gradients go through beta, to the logits and to T.
    """
    p = log_probs(logits).exp()
    clean, given = (-F.nll_loss(one, y, reduction="none") for one in (p, product(p, T)))
    return clean / given.clamp_min(1e-12) * ce(logits, y)


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p^(1/T) / sum p^(1/T) over the last axis."""
    return torch.softmax(p.clamp_min(1e-38).log() / temperature, -1)


def smallest(per_sample: Tensor, keep_rate: float | Tensor) -> Tensor:
    """Mask [B] (float) of the r smallest entries, r = max(1, floor(keep_rate*B + 1e-9)); ties go to the earlier sample.

    Ranks and a mask instead of a shorter tensor, so that the rate may change from round to round inside a captured
    step.
    """
    n = per_sample.shape[0]
    rank = torch.argsort(torch.argsort(per_sample.detach(), stable=True))
    rate = torch.as_tensor(keep_rate, dtype=torch.float64, device=rank.device)
    r = torch.floor(rate * n + 1e-9).clamp_min(1)
    return (rank < r).to(per_sample.dtype)


def forgotten(round: int, rate: float, ramp: int, exponent: float = 1.0) -> float:
    """The share tau_t = tau*min(t^c/T_k, 1) that small-loss selection leaves out in the 0-based round t (Han et al.,
    NeurIPS 2018).
    """
    return rate * min(round**exponent / ramp, 1.0)
