"""Centralised training: equal to torch on the pooled samples, its work and traffic, and the samples left out."""

import numpy as np
import pytest
import torch
import toy
import toy64

from fednoise_core.data.partition import Partition
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import World
from fednoise_core.settings.train import Train


def pooled(split: Partition | None = None, **train):
    """A federation whose world is pooled."""
    settings = Train(**{**toy.TRAIN, **train})
    world = World(toy.arrays(), toy.toy_labels().noisy, split or toy.toy_partition(), settings, 0, pooled=True)
    return Federation(world, Sequential(world))


def test_two_rounds_are_torchs_own_sgd_with_momentum_over_all_samples():
    """Full batches make the order irrelevant. Momentum carries over from round to round."""
    rule = {"momentum": 0.9, "weight_decay": 1e-3}
    train = {"epochs": 2, "fraction": 1.0, "batch": 100, "lr": 0.1, "rounds": 2, **rule}
    parts = [toy.images_of(toy.toy_world(), c) for c in range(8)]
    x, y = (torch.cat([part[k] for part in parts]) for k in (0, 1))
    start = pooled(**train).init_weights("model").flat.double()
    expected = toy64.train(start, [(x.double(), y)] * 4, lambda theta: 0.0, 0.1, **rule)
    ((client, (end,)),) = toy.play("centralised", **train).outcome.models()
    assert client == -1
    torch.testing.assert_close(end.flat.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("fraction", "epochs", "per_round"), [(0.5, 2, 1), (0.1, 5, 1), (1.0, 2, 2), (0.5, 5, 2)])
def test_a_round_is_about_fedavgs_work(fraction, epochs, per_round):
    """The unit is a round of FedAvg: cohort x epochs x 72/7, the mean size of clients with samples."""
    run = toy.play("centralised", fraction=fraction, epochs=epochs, rounds=2)
    unit = min(max(1, int(fraction * 8)), 7) * epochs * 72 / 7  # one of 8 clients has no samples
    assert run.summary["work"] == pytest.approx(2 * per_round * 72 / unit)


def test_every_sample_once_without_those_for_validation_only():
    """Clients overlap in sample 3; 5 is for validation here and for training there; 7 for validation only."""
    split = Partition.from_parts(
        [np.array([1, 3, 5]), np.array([], np.int64), np.array([3, 5, 7])],
        {"artifact": "partition", "partition": {"kind": "toy"}, "notes": {"samples": toy.N, "overlap": True}},
        np.array([False, False, True, False, False, True]),
    )
    fed = pooled(split)
    assert fed.n == 1
    assert fed.world.index[0].tolist() == [1, 3, 5]
    assert fed.world.valid[0].tolist() == [7]
    assert fed.sizes == [3]
    assert fed.bytes_up == 4 * (64 + 8)  # both copies of sample 3 went up
    assert toy.toy_federation(split=split).bytes_up == 0


def test_samples_and_noise_rate_are_those_of_fedavg():
    run = toy.play("centralised")
    assert run.summary["clients"] == 1
    assert run.summary["samples"] == sum(toy.SIZES)
    noise = {row[3] for row in run.outcome.record.diagnostics if row[2] == "noise_rate" and row[1] == -1}
    plain = toy.play("fedavg").outcome.record.diagnostics
    assert noise == {row[3] for row in plain if row[2] == "noise_rate" and row[1] == -1}
    assert not [row for row in run.outcome.record.metrics if row[4] >= 0]  # no client has a model of its own
