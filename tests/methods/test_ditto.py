"""Ditto and Yu et al.'s (2025) FedDitto: invariants."""

import pytest
import torch
import toy
import toy64

from fednoise_core.methods import make_method


@pytest.mark.parametrize("net", ["mlp", *toy.NETS])
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_the_model_that_is_averaged_is_fedavgs_bit_for_bit(strength, net, toy_nets):
    train = {"net": net if net != "mlp" else toy.TRAIN["net"], "lr": 0.05}
    base = toy.play("fedavg", **train).outcome.state.server["model"].flat
    run = toy.play("ditto", method={"strength": strength}, **train)
    assert torch.equal(run.outcome.state.server["model"].flat, base)


@pytest.mark.parametrize("train", [{}, {"momentum": 0.5}, {"net": "toy_norm"}, {"net": "toy_drop"}])
def test_without_a_pull_personal_models_are_trained_alone_bit_for_bit(train, toy_nets):
    """Equal to local-only training from the same start on the same batches. v_k starts at the first broadcast."""
    fed, local_fed = (toy.toy_federation(train={"lr": 0.05, **train}) for _ in range(2))
    ditto, local = (
        make_method({"name": "ditto", "strength": 0.0}, fed.train),
        make_method({"name": "local"}, local_fed.train),
    )
    state, alone = ditto.init_state(fed), local.init_state(local_fed)
    first = {}
    for round in (1, 2, 3, 4):
        state.round = alone.round = round
        for c in fed.sample_cohort(round):
            if c not in first:
                first[c] = state.server["model"].clone()
                alone.clients[c] = {"model": first[c]}
        ditto.run_round(fed, state)
        local.run_round(local_fed, alone)
    assert len(first) > 4
    for c in first:
        assert torch.equal(state.clients[c]["personal"].flat, alone.clients[c]["model"].flat)
        assert not torch.equal(first[c].flat, state.clients[c]["personal"].flat) or toy.SIZES[c] == 1
    assert state.server["trained"] == sorted(first)


def test_views_are_those_who_trained_and_the_averaged_model():
    """Before the first round both views are the broadcast model."""
    summary, base = toy.play("ditto").summary, toy.play("fedavg").summary
    assert list(summary["views"]) == ["personal", "global"]
    assert summary["views"]["personal"]["round0"] == summary["views"]["global"]["round0"]
    assert summary["views"]["global"] == base["views"]["global"]
    assert summary["work"] == 2 * base["work"]


def test_whole_rounds_against_a_second_implementation():
    """Three rounds in float64: the uploaded branch on CE, the personal one on CE + (lambda/2) ||v - theta_g||^2."""
    strength = 0.7
    options = {"momentum": 0.5, "weight_decay": 0.01}
    with toy64.doubled():
        _, state, seen, start = toy64.rounds("ditto", {"strength": strength}, **options)
        personal: dict[int, torch.Tensor] = {}
        for round in (1, 2, 3):
            new = {}
            for c in toy64.cohort(seen, round):

                def pull(v, start=start):
                    return strength / 2 * (v - start).square().sum()

                new[c] = toy64.train(start, seen[round, c], lambda v: 0.0, 0.2, **options)
                personal[c] = toy64.train(personal.get(c, start), seen[round, c], pull, 0.2, **options)
            start = toy64.mean(new)
        toy64.close(state.server["model"], start)
        assert sorted(personal) == sorted(state.clients)
        for c, v in personal.items():
            toy64.close(state.clients[c]["personal"], v)


def test_the_form_of_fedefc_has_no_personal_models():
    assert len(toy.play("ditto_efc").outcome.state.clients) == 0
