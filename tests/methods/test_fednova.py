"""FedNova: whole rounds against a second implementation, and when it is FedAvg."""

import pytest
import torch
import toy
import toy64

from fednoise_core.io import SpecError


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_whole_rounds_against_a_second_implementation(momentum, server_lr):
    """a_i is counted step by step, as in the authors' code: the path of a constant gradient of 1 at rate 1."""
    with toy64.doubled():
        fields = {"server_lr": server_lr}
        _, state, seen, theta = toy64.rounds("fednova", fields, 3, momentum=momentum)
        for round in (1, 2, 3):
            total = sum(toy.SIZES[k] for k in toy64.cohort(seen, round))
            direction, tau = torch.zeros(425), 0.0
            for k in toy64.cohort(seen, round):
                end = toy64.train(theta, seen[round, k], lambda t: 0 * t.sum(), 0.2, momentum=momentum)
                velocity = path = 0.0
                for _ in seen[round, k]:
                    velocity = momentum * velocity + 1
                    path += velocity
                direction += toy.SIZES[k] / total * (end - theta) / path
                tau += toy.SIZES[k] / total * path
            theta = theta + server_lr * tau * direction
        toy64.close(state.server["model"], theta)


def test_equally_many_steps_are_fedavg():
    same, plain = (
        toy.play(name, split=toy.toy_partition((10, 10, 10, 10))).outcome.state.server["model"].flat
        for name in ("fednova", "fedavg")
    )
    torch.testing.assert_close(same, plain, rtol=1e-5, atol=1e-6)
    unequal = [toy.play(name).outcome.state.server["model"].flat for name in ("fednova", "fedavg")]
    assert not torch.allclose(*unequal, atol=1e-3)


def test_a_client_without_a_step_shortens_the_path_and_adds_nothing():
    """Client 1 has one sample, which this net cannot normalise; client 0 takes 8 steps."""
    fed, method, state = toy.started("fednova", net=toy.toy_net(toy.normed_point))
    old = state.server["model"].trained.clone()
    updates = toy.round_of(method, fed, state, [0, 1])
    assert [update["steps"] for update in updates] == [8, 0]
    weight = 17 / 18  # of client 0, in the direction and in the mean path
    moved = (updates[0]["model"].trained - old) * weight**2
    torch.testing.assert_close(state.server["model"].trained, old + moved, rtol=1e-5, atol=1e-6)
    toy.round_of(method, fed, state, [1])
    assert torch.isfinite(state.server["model"].flat).all()


def test_another_optimiser_is_refused():
    with pytest.raises(SpecError, match=r"train\.optimiser"):
        toy.started("fednova", train={"optimiser": "adam"})
