"""FedBN (Li et al., ICLR 2021): normalisation layers stay with the clients, all else is averaged."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fednoise_core.engine.api import (
    SERVER,
    EvaluatedModels,
    Federation,
    FromClientState,
    Layout,
    Net,
    State,
    Trained,
    Weights,
    weighted_mean,
)
from fednoise_core.methods.fedavg import FedAvg


@functools.cache
def _split_layout(layout: Layout) -> tuple[Layout, Layout]:
    """Split a layout into averaged entries and normalisation layers. Both are slices, as entries are sorted by kind."""
    entries = layout.entries
    return Layout(e for e in entries if e.kind == "weight"), Layout(e for e in entries if e.kind != "weight")


def _split_weights(w: Weights) -> tuple[Weights, Weights]:
    """Copy the weights that are averaged, and those of the normalisation layers."""
    shared, norms = _split_layout(w.layout)
    return Weights(shared, w.flat[: shared.size].clone()), Weights(norms, w.flat[shared.size :].clone())


def _join_weights(layout: Layout, shared: Weights, norms: Weights) -> Weights:
    return Weights(layout, torch.cat([shared.flat, norms.flat]))


def _average_norms(
    layout: Layout,
    shared: Weights,
    clients: Sequence[int],
    shares: Sequence[float],
    client_states: Mapping[int, Mapping[str, Any]],
) -> Weights:
    return _join_weights(layout, shared, weighted_mean([client_states[c]["own"] for c in clients], shares))


@dataclass(frozen=True, kw_only=True)
class FedBN(FedAvg):
    """FedBN (Li et al., ICLR 2021): normalisation layers stay with the clients, all else is averaged.

    Normalisation layers are identified by the kind of their entries ("norm" and "stat"), not by their names.
    """

    family = "personal"

    def init_state(self, fed: Federation) -> State:
        shared, norms = _split_weights(fed.init_weights("model"))
        state = State.of_clients((c, {"own": norms}) for c in fed.all)
        state.server |= {"model": shared, "cohort": [], "trained": []}
        return state

    def init_carry(self, net: Net, broadcast: Mapping[str, Any], client_state: Mapping[str, Any]) -> dict[str, Weights]:
        return {"model": _join_weights(net.layout, broadcast["model"], client_state["own"])}

    def make_update(
        self,
        net: Net,
        carry: Mapping[str, Trained],
        broadcast: Mapping[str, Any],
        client_state: Mapping[str, Any],
        steps: int,
    ) -> dict[str, Any]:
        shared, norms = _split_weights(carry["model"].values())
        return {"model": shared, "client_state": {"own": norms}}

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        super().merge_updates(fed, state, clients, updates)
        state.server["cohort"] = list(clients)
        state.server["trained"] = sorted({*state.server["trained"], *clients})

    def list_models(self, fed: Federation, state: State) -> EvaluatedModels:
        """List the views "personal" and "avg_bn".

        The first view has the models of the round's clients, each with its own layers. After the last round it has the
        models of all clients that have trained. The second view is one model with the mean of the cohort's layers.
        """
        layout, shared, cohort = fed.net().layout, state.server["model"], state.server["cohort"]
        if not cohort:  # before the first round all clients have the same layers
            start = [(SERVER, fed.init_weights("model"))]
            return {"personal": start, "avg_bn": start}  # type: ignore[dict-item]
        evaluated = state.server["trained"] if state.round >= self.train.rounds else cohort
        shares = self.weigh_updates(fed, state, cohort)
        return {
            "personal": [(c, FromClientState(partial(_average_norms, layout, shared, [c], [1.0]))) for c in evaluated],
            "avg_bn": [(SERVER, FromClientState(partial(_average_norms, layout, shared, cohort, shares)))],
        }
