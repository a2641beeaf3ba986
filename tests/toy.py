"""The small world of fednoise_core.testing, and runs of the methods on it with the settings of their cases."""

from __future__ import annotations

from typing import Any

from fednoise_core.simulate import FinishedRun
from fednoise_core.testing.compare import same as same
from fednoise_core.testing.subject import Subject
from fednoise_core.testing.world import *  # noqa: F403
from fednoise_core.testing.world import PAIR, TRAIN

# one method of each kind: plain, variates of client and server, two nets, another loss, phases and relabelling,
# released labels and a prior, logits of public images and nets of several kinds, no server
KINDS = ("fedavg", "scaffold", "coteaching", "sce", "fedcorr", "feddpcont", "fedmd", "local")


def subject(name: str) -> Subject:
    """A method with settings under which three rounds on the small world do all that it can do."""
    from cases import FIELDS, several_nets

    net = {"net": PAIR} if several_nets(name) else {}
    return Subject({"name": name, **FIELDS[name]}, {**TRAIN, **net})


def settings(name: str = "fedavg", **train: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Method and training settings of the same."""
    made = subject(name)
    return dict(made.method), {**made.train, **train}


def play(name: str, **how: Any) -> FinishedRun:
    """A whole run of a method on the small world; how: see Subject.play."""
    return subject(name).play(**how)
