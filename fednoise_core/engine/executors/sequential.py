"""The reference executor, which runs one client after another, and fits that take each step together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fednoise_core.engine.client import Client, call_on
from fednoise_core.engine.client_store import MappingSource, load_mapping
from fednoise_core.engine.fit import ClientFit, FitRequest, FitResult, Workspace
from fednoise_core.engine.local import Batch
from fednoise_core.engine.world import World


class Together:
    """Fits of several clients that are open at once, so that each step can depend on the messages of all before it.

    Each has a workspace of its own.

    Attributes:
        steps: How many steps each fit takes.
    """

    def __init__(self, world: World, requests: Sequence[FitRequest]):
        self.fits = [ClientFit(world, request, Workspace()).open() for request in requests]
        self._steps = [[k for stretch in fit.iterate_stretches() for k in stretch] for fit in self.fits]
        self._batches: list[Batch] = []
        self.steps = [len(steps) for steps in self._steps]

    def collect_messages(self, k: int) -> list[dict[str, Any]]:
        """Collect the message of each client before step k.

        The step's batches are made here, and kept for `take_step`.
        Messages are computed without gradients.

        Returns:
            The answers of `Local.make_message`, one per client.
        """
        self._batches = [fit.make_batch(k) for fit in self.fits]
        with torch.no_grad():
            return [
                fit.local.make_message(fit.net, fit.carry, batch, fit.broadcast, fit.client_state)
                for fit, batch in zip(self.fits, self._batches, strict=True)
            ]

    def take_step(self, k: int, replies: Sequence[Mapping[str, Any]]) -> None:
        """Take step k of each client, on the batch of its message.

        Args:
            k: The step, for which `collect_messages` was called before.
            replies: What `broadcast` holds beside the rest in this step, one mapping per client.
        """
        for fit, batch, reply in zip(self.fits, self._batches, replies, strict=True):
            fit.train_batch(k, batch, reply)

    def close(self) -> list[FitResult]:
        """Close the fits and return their results, in the order of the requests."""
        return [fit.close() for fit in self.fits]


class Sequential:
    """Runs fits and client-side functions one by one.

    It is the base of all executors, which override what they run on `count` clients at once. Their results come in the
    order of the requests, too, whatever finished first.
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
            (the answer, the client as it is afterwards).
        """
        for client, broadcast in zip(clients, broadcasts, strict=True):
            yield call_on(client, fn, load_mapping(broadcast)), client

    def together(self, requests: Sequence[FitRequest]) -> Together:
        """Open these fits at once, for `Federation.fit_lockstep`.

        They run in this process on every executor, since the server answers before each step.
        """
        return Together(self.world, requests)

    def close(self) -> None:
        """Free what the executor holds. This one holds nothing."""
