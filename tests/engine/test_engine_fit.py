"""`fed.fit` with its own number of epochs, batch size and learning rate."""

import pytest
import torch
import toy

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State
from fednoise_core.methods import make_method
from fednoise_core.methods.local import LocalOnly


def test_a_fit_may_have_its_own_epochs_batch_and_rate():
    def fitted(train, **options):
        world = toy.toy_world(train)
        fed = Federation(world, Sequential(world))
        method = make_method({"name": "fedavg"}, world.train)
        state = method.init_state(fed)
        state.round = 1
        return fed, fed.fit(method, state, [0, 3, 5], method.make_broadcast(fed, state), **options)

    fed, fit = fitted({}, epochs=3, batch=4, lr=0.05)
    assert toy.same_state(fit, fitted({"epochs": 3, "batch": 4, "lr": 0.05})[1])
    assert fed.passes == 3 * (17 + 12 + 14)
    fed, fit = fitted({}, epochs=[1, 2, 3])
    assert fed.passes == 1 * 17 + 2 * 12 + 3 * 14
    for k, epochs in enumerate((1, 2, 3)):
        assert toy.same_state(fit.updates[k], fitted({"epochs": epochs})[1].updates[k])


class GoesOn(LocalOnly):
    """Keeps the optimiser's memory from fit to fit."""

    def restore_optimiser(self, name, broadcast, client_state):
        return client_state.get("memory")

    def make_update(self, net, carry, broadcast, client_state, steps):
        return {"client_state": {"model": carry["model"].values(), "memory": carry["model"].copy_memory()}}


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"optimiser": "adam", "lr": 0.01}])
def test_the_optimiser_may_go_on_from_fit_to_fit(settings):
    """Two fits of one epoch equal one fit of two epochs, on a client whose samples fit into one batch."""
    world = toy.toy_world({**settings, "batch": 20})

    def end(method, *epochs):
        fed = Federation(world, Sequential(world))
        state = method.init_state(fed)
        for state.round, count in enumerate(epochs, start=1):
            fed.fit(method, state, [3], {}, epochs=count)
        return state.clients[3]["model"].flat

    on, fresh = GoesOn(train=world.train), LocalOnly(train=world.train)
    torch.testing.assert_close(end(on, 1, 1), end(fresh, 2), rtol=1e-4, atol=1e-6)
    assert (end(fresh, 1, 1) - end(fresh, 2)).abs().max() > 1e-3


def test_a_rate_among_what_is_sent_is_refused():
    for sent in ({"broadcast": {"lr": 0.1}}, {"broadcast": {}, "per_client": [{"lr": 0.1}]}):
        fed = toy.toy_federation()
        with pytest.raises(ValueError, match="lr="):
            fed.fit(make_method({"name": "fedavg"}, fed.train), State(round=1), [0], **sent)
