"""The general federated methods at the edges: a cohort of one that cannot be normalised, updates that are dropped."""

from __future__ import annotations

import pytest
import torch
import toy
from cases import FIELDS

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.methods import make

NAMES = (
    "fedprox", "feddyn", "feddyn_efc", "fedbn", "ditto", "ditto_efc", "fedexp", "median", "trimmed_mean", "krum", "rfa",
)  # fmt: skip
every_one = pytest.mark.parametrize("name", NAMES)


def finite(made) -> None:
    for view in made.outcome.views:
        for _, several in made.outcome.models(view):
            assert all(torch.isfinite(w.flat).all() for w in several)


@every_one
@pytest.mark.parametrize("net", ["toy_norm", "toy_norm_point"])
def test_a_cohort_of_one(name, net, toy_nets):
    """Also where the one client cannot take a step: a single sample that the net cannot normalise."""
    fed = toy.federation(train={"fraction": 0.01})
    alone = next(r for r in range(1, 100) if [toy.SIZES[c] for c in fed.sample(r)] == [1])
    made = toy.play(name, fraction=0.01, rounds=alone + 1, lr=0.05, net=net)
    finite(made)
    assert made.outcome.fed.sample(alone) == [1]
    assert [row[6] for row in made.outcome.record.metrics if row[5] == "clients"] == [1.0] * (alone + 1)


@every_one
def test_an_update_that_is_not_finite_is_left_out_with_all_that_goes_with_it(name, monkeypatch):
    """The round is then as if the client had not been asked."""
    work = Sequential.run

    def poisoned(self, requests):
        for request, result in zip(requests, work(self, requests), strict=True):
            if request.client == 3:
                result.up["model"].flat[0] = torch.nan
            yield result

    states = []
    for who, run in (([0, 5, 6], work), ([0, 3, 5, 6], poisoned)):
        monkeypatch.setattr(Sequential, "run", run)
        fed = toy.federation()
        method = make({"name": name, **FIELDS[name]}, fed.train)
        state = method.init(fed)
        for _ in range(2):
            state.round += 1
            answered, ups = fed.fit(method, state, who, method.down(fed, state))
            assert answered == [0, 5, 6]
            method.merge(fed, state, answered, ups)
        states.append(state)
    assert toy.same(states[0].server, states[1].server)
    assert toy.same(dict(states[0].clients), dict(states[1].clients))

