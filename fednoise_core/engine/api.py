"""All names of the engine that a method needs, in one module."""

from fednoise_core.engine.client import Client
from fednoise_core.engine.evaluate import ClientEntry, EvaluatedModels, FromClientState
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Batch, Local, Work
from fednoise_core.engine.phase import Phase
from fednoise_core.engine.state import State
from fednoise_core.engine.world import SERVER
from fednoise_core.nets.net import Net
from fednoise_core.ops.optim import Optimiser, Trained
from fednoise_core.ops.weights import Entry, Layout, Weights, weighted_mean
from fednoise_core.settings.train import Train, resolve_rounds, resolve_warmup

__all__ = [
    "SERVER",
    "Batch",
    "Client",
    "ClientEntry",
    "Entry",
    "EvaluatedModels",
    "Federation",
    "FromClientState",
    "Layout",
    "Local",
    "Net",
    "Optimiser",
    "Phase",
    "State",
    "Train",
    "Trained",
    "Weights",
    "Work",
    "resolve_rounds",
    "resolve_warmup",
    "weighted_mean",
]
