"""A method may weigh clients by what they sent."""

from __future__ import annotations

import toy

from fednoise_core.methods.fedavg import FedAvg


class ByWord(FedAvg):
    def after(self, me, up, down):
        return {**up, "votes": float(me.id == 3)}

    def weights(self, fed, state, who, ups=()):
        return [up["votes"] for up in ups]


def test_weights_see_what_came_up():
    fed = toy.federation()
    method = ByWord(train=fed.train)
    state = method.init(fed)
    ups = toy.round_of(method, fed, state, [0, 3, 5])
    assert toy.same(state.server["model"], ups[1]["model"])
