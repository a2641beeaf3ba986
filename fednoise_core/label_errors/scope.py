"""Detection of samples out of scope, and of near copies with another label, by distances between features of models.

A sample is out of scope if it is far from all other samples and the models are unsure about it. The distance is that of
cleanlab's OutOfDistribution (Kuan and Mueller, 2022), the mean over nearest neighbours, here averaged over several
models. Similar images have near neighbours even if they show none of the classes. Models are also unsure about blurred
images of the classes. So neither the distance nor the entropy suffices alone.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

NEIGHBOURS = 25
COMPARED = 20_000  # samples that each one of a client is compared with, at most
CHUNK = 512  # samples compared at a time
FAR = 1.3  # score above which a sample is out of scope
NEAR = 0.25  # share of the distance to the nearest neighbours at which a sample is a near copy
CHANCE = 2e-5  # probability that a neighbour is that near by chance; it limits the share in few dimensions


def measure_distances(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Measure the distance of each sample to its nearest neighbours, and to the nearest sample with another label.

    Args:
        features: float [n, d]. With more than three dimensions, only their directions are compared.
        labels: int64 [n]. -1 differs from no label, and does not vote.
        classes: K.

    Returns:
        Mean distance to the 25 nearest other samples, float64 [n], 0 where there are none. Distance to the nearest
        sample with another label, float64 [n], infinite where there is none. The votes of these 25 for each class, and
        one vote spread evenly, as shares, float64 [n, K].
    """
    points = features.double()
    points = F.normalize(points) if points.shape[1] > 3 else points
    n = len(points)
    step = max(1, -(-n // COMPARED))
    others, other_labels = points[::step], labels[::step]
    count = max(min(NEIGHBOURS, len(others) - 1), 1)
    mean, nearest = points.new_zeros(n), points.new_full((n,), torch.inf)
    votes = points.new_full((n, classes + 1), 1 / classes)  # the last column is for labels of -1
    if n < 2:
        return mean, nearest, votes[:, :-1]
    for rows in torch.arange(n, device=points.device).split(CHUNK):
        apart = torch.cdist(points[rows], others)
        is_reference = rows % step == 0  # no sample is its own neighbour
        apart[is_reference, rows[is_reference] // step] = torch.inf
        distances, neighbours = apart.topk(count, largest=False)
        mean[rows] = distances.mean(1)
        voted = other_labels[neighbours] % (classes + 1)
        votes[rows] = votes[rows].scatter_add(1, voted, distances.new_ones(voted.shape))
        agree = (labels[rows, None] == other_labels) | (labels[rows, None] < 0) | (other_labels < 0)
        nearest[rows] = apart.masked_fill(agree, torch.inf).min(1).values
    return mean, nearest, votes[:, :-1] / votes[:, :-1].sum(1, keepdim=True)


def score_scope(distance: Tensor, p: Tensor) -> Tensor:
    """Score how far out of scope each sample of a client is.

    Args:
        distance: Distance of each sample to its nearest neighbours [n].
        p: Mean probabilities of the models [n, K].

    Returns:
        Distance as a multiple of the client's median, times the entropy of p as a share of log K, float64 [n].
    """
    if not len(distance):
        return distance.double()
    entropy = torch.special.entr(p.double()).sum(1) / math.log(p.shape[1])
    return distance / distance.median().clamp_min(1e-12) * entropy


def find_near_copies(mean: Tensor, nearest: Tensor, width: int) -> Tensor:
    """Find samples that have a near copy with another label.

    Args:
        mean: Distance to the nearest neighbours [n].
        nearest: Distance to the nearest sample with another label [n].
        width: Number of features, d. In few dimensions some samples are near by chance, so a copy must be nearer there.

    Returns:
        bool [n].
    """
    return nearest <= min(NEAR, CHANCE ** (1 / width)) * mean
