"""Losses of single samples [B] from logits [B, K] and targets.

Targets are class numbers [B] (int64). `ce` also takes distributions [B, K]. All losses are computed in float32 from
log_softmax, also under autocast.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

RCE_SCALE = -math.log(1e-4)  # -log of the clamped zero of a one-hot target: 9.2103
GCE_FLOOR = -math.log(1e-7)  # 16.12, of p_y >= 1e-7
CONTRAST_FLOOR = -math.log(1e-8)  # 18.42, bounds the negative term of contrastive losses (CORES)


def to_float32(x: Tensor) -> Tensor:
    """Convert to float32. float64 stays, so that tests can compare in it.

    Args:
        x: Tensor of any shape.

    Returns:
        `x` as float32 or float64.
    """
    return x if x.dtype == torch.float64 else x.float()


def log_probs(logits: Tensor) -> Tensor:
    """Log softmax over the last axis.

    Args:
        logits: Logits [..., K] of any float type.

    Returns:
        Log-probabilities [..., K] in float32, or float64 for float64 logits.
    """
    return torch.log_softmax(to_float32(logits), -1)


def matmul_full_precision(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product in the precision of the operands. Autocast would round it to bfloat16.

    Args:
        a: Left operand [..., m, k].
        b: Right operand [..., k, n].

    Returns:
        a @ b.
    """
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


def ce(logits: Tensor, y: Tensor) -> Tensor:
    """Cross entropy.

    It is one kernel without a gather, because the gradient of a gather is not deterministic on a GPU.

    Args:
        logits: Logits [B, K].
        y: Class numbers [B], or distributions q [B, K], for which the loss is -sum q log p.

    Returns:
        Losses [B], float32.
    """
    return F.cross_entropy(logits.float(), y, reduction="none")


def mean_ce(logits: Tensor, y: Tensor) -> Tensor:
    """Mean of `ce` over the batch, in one kernel.

    Args:
        logits: Logits [B, K].
        y: Class numbers [B], or distributions [B, K].

    Returns:
        A scalar.
    """
    return F.cross_entropy(to_float32(logits), y)


def rce(logits: Tensor, y: Tensor) -> Tensor:
    """Reverse cross entropy -sum p log clip(onehot, 1e-4, 1) = 9.2103 (1 - p_y) (Wang et al., ICCV 2019).

    Args:
        logits: Logits [B, K].
        y: Class numbers [B].

    Returns:
        Losses [B].
    """
    return RCE_SCALE * mae(logits, y)


def sce(logits: Tensor, y: Tensor, alpha: float, beta: float) -> Tensor:
    """Symmetric cross entropy alpha*CE + beta*RCE (Wang et al., ICCV 2019).

    Args:
        logits: Logits [B, K].
        y: Class numbers [B].
        alpha: Weight of the cross entropy.
        beta: Weight of the reverse cross entropy.

    Returns:
        Losses [B].
    """
    return alpha * ce(logits, y) + beta * rce(logits, y)


def gce(logits: Tensor, y: Tensor, q: float) -> Tensor:
    """Generalised cross entropy (1 - p_y^q)/q with p_y >= 1e-7 (Zhang and Sabuncu, NeurIPS 2018).

    Args:
        logits: Logits [B, K].
        y: Class numbers [B].
        q: Exponent in (0, 1]. Towards 0 it is the cross entropy, at 1 it is `mae`.

    Returns:
        Losses [B].
    """
    return (1.0 - (-q * ce(logits, y).clamp_max(GCE_FLOOR)).exp()) / q


def mae(logits: Tensor, y: Tensor) -> Tensor:
    """Mean absolute error 1 - p_y, half the L1 distance to the one-hot target (Ghosh, Kumar and Sastry, AAAI 2017).

    Losses made of p_y start at -log p_y. Otherwise 1 - (1 - p_y) would keep no digit of a small p_y, and neither would
    the derivative of expm1.

    Args:
        logits: Logits [B, K].
        y: Class numbers [B].

    Returns:
        Losses [B].
    """
    return 1.0 - (-ce(logits, y)).exp()


def forward_correction(logits: Tensor, y: Tensor, T: Tensor) -> Tensor:
    """Forward correction -log (T' p)_y (Patrini et al., CVPR 2017, Theorem 2).

    Args:
        logits: Logits [B, K].
        y: Given labels [B].
        T: Transition matrix [K, K] with T[i, j] = P(given j | true i).

    Returns:
        Losses [B].
    """
    return F.nll_loss(matmul_full_precision(log_probs(logits).exp(), T).clamp_min(1e-12).log(), y, reduction="none")


def reweighted_ce(logits: Tensor, y: Tensor, T: Tensor) -> Tensor:
    """Cross entropy weighed by beta = p_y / (T' p)_y (Xia et al., NeurIPS 2019).

    beta is the likelihood ratio of the clean and the given label. Gradients go through beta, to the logits and to T.

    Args:
        logits: Logits [B, K].
        y: Given labels [B].
        T: Transition matrix [K, K] with T[i, j] = P(given j | true i).

    Returns:
        Losses [B].
    """
    p = log_probs(logits).exp()
    clean, noisy = (-F.nll_loss(probs, y, reduction="none") for probs in (p, matmul_full_precision(p, T)))
    return clean / noisy.clamp_min(1e-12) * ce(logits, y)


def sharpen_probs(p: Tensor, temperature: float) -> Tensor:
    """Sharpen distributions to p^(1/T) / sum p^(1/T) (Berthelot et al., NeurIPS 2019, Eq. 7).

    Args:
        p: Distributions [..., K].
        temperature: T > 0. Below 1 it sharpens.

    Returns:
        Distributions [..., K].
    """
    return torch.softmax(p.clamp_min(1e-38).log() / temperature, -1)


def small_loss_mask(per_sample: Tensor, keep_rate: float) -> Tensor:
    """Mask of the r smallest losses, with r = max(1, floor(keep_rate*B + 1e-9)). Ties go to the earlier sample.

    Args:
        per_sample: Losses [B].
        keep_rate: Share that is kept, in 0..1.

    Returns:
        1 for kept samples and 0 for others, float [B].
    """
    n = per_sample.shape[0]
    rank = torch.argsort(torch.argsort(per_sample.detach(), stable=True))
    return (rank < max(1, math.floor(keep_rate * n + 1e-9))).to(per_sample.dtype)


def forget_rate_at(round: int, rate: float, ramp: int, exponent: float = 1.0) -> float:
    """Share tau_t = tau*min(t^c/T_k, 1) that small-loss selection leaves out (Han et al., NeurIPS 2018, Alg. 1).

    Args:
        round: Number t of the round, from 0.
        rate: Final share tau.
        ramp: Rounds T_k until the share is reached.
        exponent: c, the shape of the ramp.

    Returns:
        The share of round t.
    """
    return rate * min(round**exponent / ramp, 1.0)
