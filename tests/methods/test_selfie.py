"""SELFIE: whole rounds against a second implementation."""

import collections
import math

import numpy as np
import pytest
import torch
import toy
import toy64
from torch.nn import functional as F


def chosen(losses, sure, rate):
    """Positions in the batch: the smallest losses, and the sure ones."""
    order = sorted(range(len(losses)), key=lambda position: losses[position])
    return sorted(set(order[: math.ceil((1 - rate) * len(losses) - 1e-9)]) | {i for i, yes in enumerate(sure) if yes})


@pytest.mark.parametrize(("uncertainty", "rate"), [(0.05, 0.4), (0.45, 0.5)])
def test_whole_rounds_against_a_second_implementation(uncertainty, rate):
    """A queue of classes and a label for each sample, in dicts; numpy's entropy; ordinary modules."""
    fields = {"warmup": 2, "memory": 3, "uncertainty": uncertainty, "noise_rate": rate}
    with toy64.doubled():
        fed, state, seen, theta = toy64.rounds(
            "selfie",
            fields,
            5,
            keep=lambda batch: (batch.x.double(), (batch.y.clone(), batch.i.clone())),
            fraction=1.0,
            lr=0.3,
        )
        queues = collections.defaultdict(lambda: collections.deque(maxlen=3))
        labels: dict[tuple[int, int], int] = {}
        left_out = 0
        for round in range(1, 6):
            ends = {}
            for k in toy64.cohort(seen, round):
                flat = theta
                for x, (y, i) in seen[round, k]:
                    z = toy64.module_of(flat)(x).detach()
                    target, pick = y.clone(), list(range(len(y)))
                    if round > 2:
                        for sample in i.tolist():
                            p = np.bincount(queues[k, sample], minlength=5) / 3
                            entropy = -sum(q * np.log(q) for q in p if q) / np.log(5)
                            if len(queues[k, sample]) == 3 and entropy <= uncertainty:
                                labels[k, sample] = int(p.argmax())
                        sure = [(k, sample) in labels for sample in i.tolist()]
                        pick = chosen(F.cross_entropy(z, y, reduction="none").tolist(), sure, rate)
                        target = torch.tensor(
                            [labels.get((k, sample), int(t)) for sample, t in zip(i.tolist(), y, strict=True)]
                        )
                        left_out += len(y) - len(pick)
                    for sample, row in zip(i.tolist(), z, strict=True):
                        queues[k, sample].append(int(row.argmax()))
                    flat = toy64.train(flat, [(x[pick], target[pick])], lambda t: 0 * t.sum(), 0.3)
                ends[k] = flat
            theta = toy64.mean(ends)
        assert labels
        assert left_out
        toy64.close(state.server["model"], theta)
        for k in fed.all:
            assert state.clients[k]["corrected"].tolist() == [labels.get((k, n), -1) for n in range(toy.SIZES[k])]
