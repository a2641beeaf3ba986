"""The reference executor, which runs one client after another, and lockstep fits of several clients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fednoise_core.engine.client import Client, call_on
from fednoise_core.engine.client_store import MappingSource, load_mapping
from fednoise_core.engine.fit import ClientFit, FitRequest, FitResult, Workspace
from fednoise_core.engine.local import Batch
from fednoise_core.engine.world import World


class Together:
    """Lockstep fits of several clients. Each step can depend on messages that all clients send before it.

    Each fit has its own workspace.

    Attributes:
        steps: Number of steps of each fit.
    """

    def __init__(self, world: World, requests: Sequence[FitRequest]):
        self.fits = [ClientFit(world, request, Workspace()).open() for request in requests]
        self._steps = [[k for stretch in fit.iterate_stretches() for k in stretch] for fit in self.fits]
        self._batches: list[Batch] = []
        self.steps = [len(steps) for steps in self._steps]

    def collect_messages(self, k: int) -> list[dict[str, Any]]:
        """Collect the message of each client before step k.

        The batches of the step are made here and stored for `take_step`.
        Messages are computed without gradients.

        Returns:
            The results of `Local.make_message`, one per client.
        """
        self._batches = [fit.make_batch(k) for fit in self.fits]
        with torch.no_grad():
            return [
                fit.local.make_message(fit.net, fit.carry, batch, fit.broadcast, fit.client_state)
                for fit, batch in zip(self.fits, self._batches, strict=True)
            ]

    def take_step(self, k: int, replies: Sequence[Mapping[str, Any]]) -> None:
        """Take step k of each client, on the batch from `collect_messages`.

        Args:
            k: The step. `collect_messages` must have been called for it.
            replies: Further entries of `broadcast` for this step, one mapping per client.
        """
        for fit, batch, reply in zip(self.fits, self._batches, replies, strict=True):
            fit.train_batch(k, batch, reply)

    def close(self) -> list[FitResult]:
        """Close the fits and return their results, in the order of the requests."""
        return [fit.close() for fit in self.fits]


class Sequential:
    """Runs fits and client-side functions one by one.

    It is the base class of all executors. Other executors run `count` clients in parallel. They also return results in
    the order of the requests, not in the order in which clients finish.
    """

    name = "sequential"
    count = 1

    def __init__(self, world: World):
        self.world = world
        self.workspace = Workspace()

    def run(self, requests: Sequence[FitRequest]) -> Iterator[FitResult]:
        """Run these fits.

        Yields:
            Results in the order of the requests.
        """
        for request in requests:
            fit = ClientFit(self.world, request, self.workspace).open()
            for steps in fit.iterate_stretches():
                for k in steps:
                    fit.step(k)
            yield fit.close()

    def call(
        self, fn: Callable[[Client, Any], Any], clients: Sequence[Client], broadcasts: Sequence[MappingSource]
    ) -> Iterator[tuple[Any, Client]]:
        """Call fn(client, broadcast) for each client.

        Args:
            fn: Client-side code.
            clients: The clients.
            broadcasts: The broadcast of each.

        Yields:
            (result, client), where the client has its new state and targets.
        """
        for client, broadcast in zip(clients, broadcasts, strict=True):
            yield call_on(client, fn, load_mapping(broadcast)), client

    def together(self, requests: Sequence[FitRequest]) -> Together:
        """Open these fits together, for `Federation.fit_lockstep`.

        Every executor runs them in this process, because the server answers before each step.
        """
        return Together(self.world, requests)

    def close(self) -> None:
        """Free the executor's resources. This executor has none."""
