"""Federation: the interface of a method's server code to the run. It gives no access to the clients' data."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.engine.client_store import WireError
from fednoise_core.engine.exchange import Exchange
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.relay import Relayed
from fednoise_core.engine.state import State
from fednoise_core.engine.world import SERVER, World
from fednoise_core.io import SpecError
from fednoise_core.nets.net import Net
from fednoise_core.ops.label_dp import Release, randomise_labels
from fednoise_core.ops.weights import Weights
from fednoise_core.rng import stream


class Federation(Exchange):
    """The server's side of a run: clients, cohorts, nets, random streams and public images. `Exchange` trains clients.

    Attributes:
        n: Number of clients.
        classes: K, the number of classes.
        sizes: Training samples per client, which are public, as in FedAvg.
        all: Clients with samples.
        cohort: Clients of a round.
        train: The training settings.
    """

    def __init__(self, world: World, executor: Sequential):
        super().__init__(world, executor)
        self.n, self.classes = world.n, world.classes
        self.sizes = list(world.sizes)
        self.all = [c for c in range(self.n) if self.sizes[c]]  # clients without samples are never drawn
        self._held = frozenset(self.all)
        self.cohort = world.cohort  # m
        self.passes_a_round = max(1.0, self.train.epochs * world.samples_a_round)  # passes of FedAvg on average clients
        self._prescribed = world.cohorts(self.n, self.cohort) if world.cohorts else None
        self._drawn: list[list[int]] = []  # prescribed cohorts so far, one per round, whatever the method does

    @property
    def public(self) -> int:
        """Number of images in the public pool, 0 without one."""
        return self.world.pools["public"].n if "public" in self.world.pools else 0

    def net(self, client: int = SERVER) -> Net:
        """Look up the architecture that a client (by default the server) runs.

        Client c runs net number c mod (number of nets), and the server runs the first net.
        All clients run the same net unless `train.net` is a list.
        """
        return self.world.net(client)

    def init_weights(self, *key: str | int, client: int = SERVER) -> Weights:
        """Draw initial weights for the architecture of `client` from the stream of these words.

        The default is the shared model of all clients.

        Raises:
            SpecError: Initial weights of a shared model are requested, but clients run several architectures.
        """
        if client == SERVER and len({self.net(c).layout for c in range(self.n)}) > 1:
            raise SpecError("train.net: this method averages one model over all clients, so they need one architecture")
        return self.net(client).fresh(self.world.random_stream("init", *key), self.world.device)

    def random_stream(self, *key: str | int) -> torch.Generator:
        """Make the run's random stream of these words, a torch CPU generator.

        Include the round in the words, since the same words give the same numbers again:
        `fed.random_stream("mix", state.round)`.
        """
        return self.world.random_stream("method", *key)

    def derive_seed(self, *key: str | int) -> int:
        """Draw a number below 2^31 from the run's stream of these words, as a seed for other libraries.

        Include the round in the words, since the same words give the same number again.
        """
        return int(stream(self.world.seed, "method", *key).integers(2**31))

    def sample_cohort(self, round: int, size: int | None = None, candidates: Iterable[int] | None = None) -> list[int]:
        """Draw the round's cohort, uniformly without replacement.

        All methods get the same cohorts if they have the same seed.

        Args:
            round: Round number, from 1.
            size: Number of clients to draw. Default: floor(fraction * n), at least 1.
            candidates: Clients to draw from. Default: all. Clients without samples are never drawn.

        Raises:
            ValueError: No client with samples is left to draw from.
        """
        allowed = self._held if candidates is None else self._held.intersection(candidates)
        if not allowed:
            raise ValueError("there is no client with samples to draw from")
        if self._prescribed is not None and size is None and candidates is None:
            self._drawn += islice(self._prescribed, max(round - len(self._drawn), 0))
            clients = [c for c in self._drawn[round - 1] if c in allowed]
            if not clients:
                raise ValueError(f"round {round}: the clients of the prescribed cohort hold no samples")
            return clients
        order = torch.randperm(self.n, generator=self.world.random_stream("sample", round)).tolist()
        return list(islice((c for c in order if c in allowed), self.cohort if size is None else size))

    def iterate_cohorts(self, round: int, size: int) -> Iterator[list[int]]:
        """Go through all clients with samples once, in random groups of `size`.

        The last group may be smaller.
        The order depends on seed and round only.
        """
        order = [
            c
            for c in torch.randperm(self.n, generator=self.world.random_stream("sweep", round)).tolist()
            if self.sizes[c]
        ]
        for a in range(0, len(order), size):
            yield order[a : a + size]

    def draw_public_ids(self, round: int, word: str, k: int) -> Tensor:
        """Draw k distinct positions of the public pool.

        Args:
            round: Round number, part of the key of the random stream.
            word: Further part of the key. Two draws in one round need different words.
            k: Number of positions. With 0, or the pool's size or more, all positions are returned in order.

        Returns:
            int64 [k] on the run's device.

        Raises:
            SpecError: The data set has no public images.
        """
        n = self.public
        if not n:
            raise SpecError("this method needs public images: give the data set a `public` part")
        if k <= 0 or k >= n:
            return torch.arange(n, device=self.world.device)
        return torch.randperm(n, generator=self.world.random_stream("public", word, round))[:k].to(self.world.device)

    def relayed_message(self, state: State, client: int, name: str) -> Relayed | None:
        """Make a placeholder for the value `name` in the latest message of `client` to other clients.

        A message to other clients is the entry "relay" in the result of `make_update`, `after_fit` or a function of
        `run_on_clients`. Use the placeholder as a value of `broadcast` or `per_client`. The receiving client finds the
        value itself in its broadcast.

        Returns:
            The placeholder, or None if the client has not sent a value under this name yet.
        """
        return Relayed(client, name) if state.relay.has_message(client, name) else None

    def release_labels(self, state: State, epsilon: float, times: int = 1) -> Release:
        """Release label histograms under epsilon-label-DP.

        Every client randomises its labels by randomised response and sends their histogram [K], which reveals no more
        than the labels in random order. r releases have the privacy cost r * epsilon for a label. If m clients hold the
        sample, the cost is m times as large. The summary reports the cost. The result is stored in
        state.notes["release"], so a resumed run does not draw again.

        Args:
            state: The run's state.
            epsilon: Privacy cost of one release.
            times: Maximal number of releases in the run, at most one per round. Each draws new noise.

        Raises:
            RuntimeError: All releases were made already, or there was one in this round.
            ValueError: `epsilon` or `times` differs from the first release.
        """
        recorded = state.notes.get("release")
        release = Release.restore(recorded) if recorded else Release(epsilon, self.classes, times)
        release.refuse_more()
        if recorded and recorded["round"] == state.round:
            raise RuntimeError(f"round {state.round}: the labels were released already: its noise would be the same")
        if (release.epsilon, release.times) != (epsilon, times):
            raise ValueError(f"all releases of a run share epsilon and times: {release.epsilon} and {release.times}")
        answers = self.run_on_clients(state, self.all, _randomise_labels, {"epsilon": float(epsilon)})
        release.record([answer["counts"].numpy() for answer in answers])
        state.notes["release"] = {**release.state(), "copies": self.world.max_label_copies, "round": state.round}
        return release

    def predict(self, w: Weights, *, on: str = "public", ids: Tensor | None = None, net: Net | None = None) -> Tensor:
        """Compute logits of a server-side model on the public pool, in evaluation mode.

        Args:
            w: The model's weights.
            on: "public".
            ids: Positions in the pool. Default: all.
            net: The architecture of `w`. Default: the server's.

        Returns:
            float32 [n, K].

        Raises:
            WireError: `on` names samples of clients.
        """
        if on in ("train", "valid"):
            raise WireError("predictions on clients' samples are the clients' own: use `client.predict`")
        rows = self.world.rows(SERVER, on)
        return self.world.evaluate(
            net or self.net(), w, self.world.pool(on), rows if ids is None else rows[ids]
        ).clone()


def _randomise_labels(client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
    """Client-side code: compute the histogram of the client's randomised labels.

    The key of the random stream includes epsilon. Otherwise two runs with the same seed and different budgets would
    draw the same noise. A label that differs between them would then be the true label in the run with the larger
    budget.
    """
    epsilon = broadcast["epsilon"]
    rng = client.numpy_rng("label release", repr(epsilon))
    randomised = randomise_labels(client.labels.cpu().numpy(), client.classes, epsilon, rng)
    return {"counts": torch.from_numpy(np.bincount(randomised, minlength=client.classes))}
