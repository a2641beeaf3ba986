"""Methods that break the contract in one way each, for the tests of the suite."""

from __future__ import annotations

from typing import ClassVar

import torch

from fednoise_core.methods.fedavg import FedAvg


class ReadsANumber(FedAvg):
    """Its step looks at its loss."""

    def objective(self, net, w, batch, down, mine):
        loss = super().objective(net, w, batch, down, mine)
        return loss * 2 if loss.item() > 1 else loss


class ChangesInPlace(FedAvg):
    """It adds to a tensor that the client keeps."""

    def prepare(self, me, down):
        if "seen" in me.mine:
            me.mine["seen"] += 1
        else:
            me.mine["seen"] = torch.zeros(me.n)


class DrawsGlobally(FedAvg):
    """Its clients choose labels by torch's global generator."""

    def prepare(self, me, down):
        me.targets = torch.randint(me.classes, (me.n,))


class Peeks(FedAvg):
    """Its server looks at what clients keep."""

    def round(self, fed, state, among=None):
        state.clients.get(0)
        return super().round(fed, state, among)


class ReachesInside(FedAvg):
    """Its server counts labels by the engine's private parts."""

    def round(self, fed, state, among=None):
        state.server["counts"] = torch.bincount(fed._world.given, minlength=fed.classes).float()
        return super().round(fed, state, among)


class SaysMore(FedAvg):
    """Its clients send something that the class does not declare."""

    def after(self, me, up, down):
        return {**up, "samples": me.n}


class TellsLabels(FedAvg):
    """Its clients send their labels, which it declares."""

    wire: ClassVar = {"down": ("model",), "up": ("model", "told")}

    def after(self, me, up, down):
        return {**up, "told": [me.labels.flip(0).float()]}


class LosesCount(FedAvg):
    """It remembers in the object, not in the state, how many rounds there were: a resume starts from zero."""

    def merge(self, fed, state, who, ups):
        super().merge(fed, state, who, ups)
        rounds = vars(self).setdefault("rounds", [])
        rounds.append(state.round)
        state.server["model"] = state.server["model"] * (1 - 0.1 * len(rounds))


NO_METHOD = dict
