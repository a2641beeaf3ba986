"""FedBN (Li et al., ICLR 2021): normalisation layers stay with the clients, all else is averaged."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fednoise_core.engine.api import (
    SERVER,
    Federation,
    FromKept,
    Layout,
    Net,
    State,
    Trained,
    Views,
    Weights,
    weighted_mean,
)
from fednoise_core.methods.fedavg import FedAvg


@functools.cache
def _layouts(whole: Layout) -> tuple[Layout, Layout]:
    """Of what is averaged, and of the normalisation layers. Both are stretches of the whole: it is sorted by kind."""
    entries = whole.entries
    return Layout(e for e in entries if e.kind == "weight"), Layout(e for e in entries if e.kind != "weight")


def _parts(w: Weights) -> tuple[Weights, Weights]:
    """Copies of what is averaged, and of the normalisation layers."""
    shared, own = _layouts(w.layout)
    return Weights(shared, w.flat[: shared.size].clone()), Weights(own, w.flat[shared.size :].clone())


def _whole(layout: Layout, shared: Weights, own: Weights) -> Weights:
    return Weights(layout, torch.cat([shared.flat, own.flat]))


def _averaged(
    layout: Layout,
    shared: Weights,
    who: Sequence[int],
    shares: Sequence[float],
    kept: Mapping[int, Mapping[str, Any]],
) -> Weights:
    return _whole(layout, shared, weighted_mean([kept[c]["own"] for c in who], shares))


@dataclass(frozen=True, kw_only=True)
class FedBN(FedAvg):
    """FedBN (Li et al., ICLR 2021): normalisation layers stay with the clients, all else is averaged.

    A normalisation layer is known by what it is (entries of kind "norm" and "stat"), not by its name.
    """

    def init(self, fed: Federation) -> State:
        shared, own = _parts(fed.fresh("model"))
        state = State.of_clients((c, {"own": own}) for c in fed.all)
        state.server |= {"model": shared, "cohort": [], "trained": []}
        return state

    def begin(self, net: Net, down: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": _whole(net.layout, down["model"], mine["own"])}

    def finish(
        self, net: Net, carry: Mapping[str, Trained], down: Mapping[str, Any], mine: Mapping[str, Any], steps: int
    ) -> dict[str, Any]:
        shared, own = _parts(carry["model"].values())
        return {"model": shared, "mine": {"own": own}}

    def merge(self, fed: Federation, state: State, who: list[int], ups: list[dict[str, Any]]) -> None:
        super().merge(fed, state, who, ups)
        state.server["cohort"] = list(who)
        state.server["trained"] = sorted({*state.server["trained"], *who})

    def views(self, fed: Federation, state: State) -> Views:
        """personal: the round's clients, each with its own layers; in the end all that ever trained. avg_bn: one model
        with the mean of their layers.
        """
        layout, shared, cohort = fed.net().layout, state.server["model"], state.server["cohort"]
        if not cohort:  # before the first round all have the same layers
            start = [(SERVER, fed.fresh("model"))]
            return {"personal": start, "avg_bn": start}  # type: ignore[dict-item]
        shown = state.server["trained"] if state.round >= self.train.rounds else cohort
        shares = self.weights(fed, state, cohort)
        return {
            "personal": [(c, FromKept(partial(_averaged, layout, shared, [c], [1.0]))) for c in shown],
            "avg_bn": [(SERVER, FromKept(partial(_averaged, layout, shared, cohort, shares)))],
        }
