"""The small world of fednoise_core.testing, and runs of the methods on it with the settings of their cases."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fednoise_core.api.simulate import FinishedRun
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State
from fednoise_core.methods import make_method, method_class
from fednoise_core.testing.compare import same_state as same_state
from fednoise_core.testing.subject import Subject
from fednoise_core.testing.world import *  # noqa: F403
from fednoise_core.testing.world import PAIR, TRAIN, arrays, toy_federation

# one method of each kind: plain, variates of client and server, two nets, another loss, phases and relabelling,
# released labels and a prior, logits of public images and nets of several kinds, no server
KINDS = ("fedavg", "scaffold", "coteaching", "sce", "fedcorr", "feddpcont", "fedmd", "local")


def subject(name: str) -> Subject:
    """A method with settings under which three rounds on the small world do all that it can do."""
    from cases import FIELDS

    net = {"net": PAIR} if method_class(name).several_nets else {}
    return Subject({"name": name, **FIELDS.get(name, {})}, {**TRAIN, **net})


def settings(name: str = "fedavg", **train: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Method and training settings of the same."""
    made = subject(name)
    return dict(made.method), {**made.train, **train}


def play(name: str, **how: Any) -> FinishedRun:
    """A whole run of a method on the small world; how: see Subject.play."""
    return subject(name).play(**how)


def started(name: str, fields: dict[str, Any] | None = None, **options: Any) -> tuple[Federation, Any, State]:
    """Federation, method and first state on the small world. options: of `federation`."""
    fed = toy_federation(**options)
    method = make_method({"name": name, **(fields or {})}, fed.train)
    return fed, method, method.init_state(fed)


def public_images() -> Tensor:
    """The public images [10, 1, 8, 8], normalised."""
    return (torch.from_numpy(arrays().x_public).float()[:, None] / 255 - 0.25) / 0.2
