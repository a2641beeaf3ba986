"""Methods that break the contract in one way each, for the tests of the suite."""

from typing import ClassVar

import torch

from fednoise_core.methods.fedavg import FedAvg


class ChangesInPlace(FedAvg):
    """It adds to a tensor that the client keeps."""

    def prepare_fit(self, client, broadcast):
        if "seen" in client.state:
            client.state["seen"] += 1
        else:
            client.state["seen"] = torch.zeros(client.n)


class DrawsGlobally(FedAvg):
    """Its clients choose labels by torch's global generator."""

    def prepare_fit(self, client, broadcast):
        client.targets = torch.randint(client.classes, (client.n,))


class Peeks(FedAvg):
    """Its server looks at what clients keep."""

    def run_round(self, fed, state, candidates=None):
        state.clients.get(0)
        return super().run_round(fed, state, candidates)


class ReachesInside(FedAvg):
    """Its server counts labels by the engine's private parts."""

    def run_round(self, fed, state, candidates=None):
        state.server["counts"] = torch.bincount(fed.world.labels, minlength=fed.classes).float()
        return super().run_round(fed, state, candidates)


class SaysMore(FedAvg):
    """Its clients send something that the class does not declare."""

    def after_fit(self, client, update, broadcast):
        return {**update, "samples": client.n}


class TellsLabels(FedAvg):
    """Its clients send their labels, which it declares."""

    wire: ClassVar = {"broadcast": ("model",), "update": ("model", "told")}

    def after_fit(self, client, update, broadcast):
        return {**update, "told": [client.labels.flip(0).float()]}


class LosesCount(FedAvg):
    """It remembers in the object, not in the state, how many rounds there were: a resume starts from zero."""

    def merge_updates(self, fed, state, clients, updates):
        super().merge_updates(fed, state, clients, updates)
        rounds = vars(self).setdefault("rounds", [])
        rounds.append(state.round)
        state.server["model"] = state.server["model"] * (1 - 0.1 * len(rounds))


NO_METHOD = dict
