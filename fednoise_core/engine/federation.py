"""Federation: the world as a method's server side sees it, and what the server can do in it.

Data stay with the clients.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.engine.client_store import MappingSource, WireError, load_mapping
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.fit import FitRequest, FitResult, Rate
from fednoise_core.engine.local import Local
from fednoise_core.engine.relay import Relayed
from fednoise_core.engine.state import State
from fednoise_core.engine.world import SERVER, World
from fednoise_core.io import SpecError
from fednoise_core.nets.net import Net
from fednoise_core.ops.label_dp import Release, randomise_labels
from fednoise_core.ops.weights import Weights, all_finite, count_bytes
from fednoise_core.rng import stream

# the clients' messages before a step -> what each of them finds in `broadcast` in that step
Combine = Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any]]]


class Fitted(NamedTuple):
    """The clients whose answers arrived, and the answers, in one order."""

    participants: list[int]
    updates: list[dict[str, Any]]


class Federation:
    """The server's side of a run.

    Traffic is counted here: broadcasts, and updates without their entry "client_state", which stays on the client. So
    is work, in passes: samples times forward-backward passes on clients, on whichever pool.

    Attributes:
        n: Number of clients.
        classes: K, the number of classes.
        sizes: Training samples per client, which are public, as in FedAvg.
        all: Clients with samples.
        cohort: Clients of a round.
        train: The training settings.
    """

    def __init__(self, world: World, executor: Sequential):
        self.world, self.executor = world, executor
        self.n, self.classes, self.train = world.n, world.classes, world.train
        self.sizes = list(world.sizes)
        self.all = [c for c in range(self.n) if self.sizes[c]]  # clients without samples are never drawn
        self._held = frozenset(self.all)
        self.cohort = world.cohort  # m
        self.passes_a_round = max(1.0, self.train.epochs * world.samples_a_round)  # of FedAvg on average clients
        self._prescribed = world.cohorts(self.n, self.cohort) if world.cohorts else None
        self._drawn: list[list[int]] = []  # of these cohorts, those so far: one a round, whatever the method does
        # of a round, or of what happens on the way into a phase after it: (tag of a fit, client)
        self._tags: tuple[tuple[int, str], set[tuple[str, int]]] = ((-1, ""), set())
        self.phase_being_entered = ""  # the phase that is being entered; the loop sets it
        self.bytes_down, self.bytes_up = 0, world.pooling_bytes
        self.passes = 0
        # clients of the fits since the last round, and those whose update was not finite; the loop empties both lists
        self.participants: list[int] = []
        self.dropped: list[int] = []

    @property
    def public(self) -> int:
        """Number of images in the public pool, 0 without one."""
        return self.world.pools["public"].n if "public" in self.world.pools else 0

    def net(self, client: int = SERVER) -> Net:
        """Look up the architecture that a client (by default the server) runs.

        Client c runs net number c mod (number of nets), the server the first one.
        All clients run the same one unless `train.net` is a list.
        """
        return self.world.net(client)

    def init_weights(self, *key: str | int, client: int = SERVER) -> Weights:
        """Draw new weights for the architecture of `client` from the stream of these words.

        The default is the model that all clients share.

        Raises:
            SpecError: The shared model is asked for, but clients run several architectures.
        """
        if client == SERVER and len({self.net(c).layout for c in range(self.n)}) > 1:
            raise SpecError("train.net: this method averages one model over all clients, so they need one architecture")
        return self.net(client).fresh(self.world.random_stream("init", *key), self.world.device)

    def random_stream(self, *key: str | int) -> torch.Generator:
        """Make the run's random stream of these words, a torch CPU generator.

        Name the round in the words, since the same words give the same numbers again:
        `fed.random_stream("mix", state.round)`.
        """
        return self.world.random_stream("method", *key)

    def derive_seed(self, *key: str | int) -> int:
        """Draw a number below 2^31 from the run's stream of these words.

        It is meant for libraries that want a seed.
        Name the round in the words, since the same words give the same number again.
        """
        return int(stream(self.world.seed, "method", *key).integers(2**31))

    def sample_cohort(self, round: int, size: int | None = None, candidates: Iterable[int] | None = None) -> list[int]:
        """Draw the round's cohort, uniformly without replacement.

        It is the same for every method of one seed.

        Args:
            round: From 1.
            size: Clients to draw. Default: floor(fraction * n).
            candidates: Draw from these only. A client without samples is left out.

        Raises:
            ValueError: Nobody is left to draw from.
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
            round: Names the random stream, together with `word`.
            word: Two draws of one round need two words.
            k: 0, or at least the pool's size: all positions, in order.

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
        """Stand in for what `client` handed on under `name` in its latest message.

        A message to other clients is an entry "relay" of what `make_update`, `after_fit` or a function of
        `run_on_clients` returns. The stand-in, as a value of `broadcast` or `per_client`, reaches another client, who
        finds the thing itself.

        Returns:
            The stand-in, or None if the client has not handed on anything under this name yet.
        """
        return Relayed(client, name) if state.relay.has_message(client, name) else None

    def fit(
        self,
        local: Local,
        state: State,
        clients: Sequence[int],
        broadcast: Mapping[str, Any],
        *,
        per_client: Sequence[Mapping[str, Any]] | None = None,
        epochs: int | Sequence[int] | None = None,
        batch: int | None = None,
        lr: Rate | None = None,
        on: str = "train",
        ids: Tensor | None = None,
        targets: Tensor | Sequence[Tensor] | None = None,
        nets: Sequence[int] | None = None,
        tag: str = "fit",
    ) -> Fitted:
        """Train `local` on these clients.

        Args:
            local: What each client does; the method itself, or another Local.
            clients: Client numbers. With on="public" they may be [SERVER] * k.
            broadcast: What all of them are sent.
            per_client: More entries of `broadcast`, one mapping per client.
            epochs: One number, or one per client. Default: that of `train`.
            batch: Samples of a step. Default: that of `train`.
            lr: A rate, or a function (step, steps) -> rate with steps counted from 0. Default: that of `train`.
            on: "train", or "public": on the public images `ids` with `targets`.
            ids: Positions in the public pool.
            targets: One tensor [len(ids), …] for all, or one per client.
            nets: For server models, the client whose architecture the j-th one has.
            tag: Names the random streams. Two fits of a client in one round need two tags.

        Returns:
            The clients whose update is finite, and their updates. An update with a NaN or an infinity is dropped, with
            what the client would have kept of it. What `make_update` puts under "client_state", and relabelling, is
            kept with the client.

        Raises:
            WireError: `ids` or `targets` for on="train", whose samples are the clients' own.
            ValueError: Arguments that do not fit together.
        """
        common = FitRequest(
            local, SERVER, state.round, 0, broadcast, on=on, ids=ids, tag=tag, batch=batch or 0, rate=lr
        )
        requests, sent = self._make_requests(state, common, clients, per_client, epochs, targets, nets)
        return self._collect_results(state, requests, sent, self.executor.run(requests))

    def fit_lockstep(
        self,
        local: Local,
        state: State,
        clients: Sequence[int],
        broadcast: Mapping[str, Any],
        combine: Combine,
        *,
        ids: Tensor,
        per_client: Sequence[Mapping[str, Any]] | None = None,
        epochs: int = 1,
        batch: int | None = None,
        lr: Rate | None = None,
        targets: Tensor | Sequence[Tensor] | None = None,
        tag: str = "lockstep",
    ) -> Fitted:
        """Train on public images, with an exchange between clients and server before every step.

        Each client sends a message about its next batch (`Local.make_message`), `combine(messages)` answers with one
        mapping per client, and `train_step` finds it in `broadcast`. All clients see the same public images in the same
        order. Their models stay loaded over the whole fit, so an exchange costs its forward passes and its bytes, which
        are counted as traffic, and not a start of every fit. Other arguments and the result are those of
        `fit(on="public")`.

        Raises:
            ValueError: `combine` does not answer every client, or clients would not take the same steps.
            TypeError: `local` has code between epochs.
        """
        if type(local).between_epochs is not Local.between_epochs:
            raise TypeError(f"{type(local).__name__}: `between_epochs` is for fit; fit_lockstep has no such pause")
        common = FitRequest(
            local=local,
            client=SERVER,
            round=state.round,
            epochs=0,
            broadcast=broadcast,
            on="public",
            ids=ids,
            tag=tag,
            batch=batch or 0,
            rate=lr,
            together=True,
            single_ok=all(self.net(c).single_ok for c in clients),  # else some would skip a batch that others take
        )
        requests, sent = self._make_requests(state, common, clients, per_client, epochs, targets, None)
        together = self.executor.together(requests)
        if len(set(together.steps)) > 1:
            raise ValueError(
                f"fit_lockstep: clients would take {sorted(set(together.steps))} steps; all must take as many"
            )
        for k in range(max(together.steps, default=0)):
            messages = together.collect_messages(k)
            replies = list(combine(messages))
            if len(replies) != len(requests):
                raise ValueError(f"combine answered {len(replies)} of {len(requests)} clients")
            self.bytes_up += sum(map(count_bytes, messages))
            self.bytes_down += sum(map(count_bytes, replies))
            together.take_step(k, replies)
        return self._collect_results(state, requests, sent, together.close())

    def _make_requests(
        self,
        state: State,
        common: FitRequest,
        clients: Sequence[int],
        per_client: Sequence[Mapping[str, Any]] | None,
        epochs: int | Sequence[int] | None,
        targets: Tensor | Sequence[Tensor] | None,
        nets: Sequence[int] | None,
    ) -> tuple[list[FitRequest], list[int]]:
        """One request per client, and the bytes that each is sent.

        common: what all requests share. Client and epochs are filled in here.
        """
        if common.on == "train" and not (targets is None and common.ids is None):
            raise WireError("samples and targets of training are the clients' own: return them from `prepare_fit`")
        broadcast, k = load_mapping(common.broadcast), len(clients)
        lr = self.train.lr if common.rate is None else common.rate
        epochs = self.train.epochs if epochs is None else epochs
        extras = _require_one_each("per_client", [{}] * k if per_client is None else per_client, k)
        epoch_counts = _require_one_each("epochs", [epochs] * k if isinstance(epochs, int) else epochs, k)
        pool_targets = _require_one_each("targets", targets if isinstance(targets, Sequence) else [targets] * k, k)
        archs = _require_one_each("nets", clients if nets is None else nets, k)
        if any("lr" in entries for entries in (broadcast, *extras)):
            raise ValueError("give `fit` a rate of its own as lr=")
        rate = {} if callable(lr) else {"lr": lr}  # a schedule's is worked out with the number of steps
        tag = f"{self.phase_being_entered} {common.tag}" if self.phase_being_entered else common.tag
        base, requests, sent = self._count_bytes(state, broadcast), [], []
        for c, extra, turns, target, arch in zip(clients, extras, epoch_counts, pool_targets, archs, strict=True):
            requests.append(
                replace(
                    common,
                    client=c,
                    epochs=turns,
                    broadcast=self._resolve_relayed(state, {**broadcast, **extra, **rate}),
                    client_state=partial(state.store.copy_for, c),
                    targets=state.relabelled.get(c),
                    pool_targets=target,
                    tag=tag,
                    net_of=arch,
                    rate=lr if callable(lr) else None,
                )
            )
            sent.append(base + self._count_bytes(state, extra) if c != SERVER else 0)
        self._use_tag(clients, tag, state.round)  # last: a call refused for another reason has not used up its tag
        return requests, sent

    def _use_tag(self, clients: Sequence[int], tag: str, round: int) -> None:
        asked_once = _require_distinct(c for c in clients if c != SERVER)
        if self._tags[0] != (round, self.phase_being_entered):
            self._tags = (round, self.phase_being_entered), set()
        for c in asked_once:
            if (tag, c) in self._tags[1]:
                raise ValueError(
                    f"round {round}: a second fit of client {c} with tag {tag!r} would see the same batches again: "
                    f"give each of a round's fits a tag of its own, fit(…, tag=…)"
                )
        self._tags[1].update((tag, c) for c in asked_once)

    def _count_bytes(self, state: State, broadcast: Mapping[str, Any]) -> int:
        """Bytes of a broadcast."""
        return sum(state.relay.size(v) if isinstance(v, Relayed) else count_bytes(v) for v in broadcast.values())

    def _collect_results(
        self, state: State, requests: Sequence[FitRequest], sent: Sequence[int], results: Iterable[FitResult]
    ) -> Fitted:
        """Count, keep with each client what stays there, and drop what is not finite."""
        clients, updates = [], []
        for request, broadcast, result in zip(requests, sent, results, strict=True):
            c = request.client
            # other numbers that a client keeps may be infinite for good reasons
            models = [value for value in (result.client_state or {}).values() if isinstance(value, Weights)]
            good = result.finite and all_finite([result.update, result.relay, models])
            if c == SERVER and not good:
                raise SpecError(
                    f"round {state.round}: the server's own training ({type(request.local).__name__}) diverges: give "
                    "its fit a lower rate, or limit gradients by train.clip"
                )
            if c != SERVER:
                self.bytes_down += broadcast
                self.bytes_up += count_bytes(result.update) + count_bytes(result.relay) - result.twice
                self.passes += result.passes
                self.participants.append(c)
                if not good:
                    self.dropped.append(c)
                    continue
                if result.relay:
                    state.relay.stage(c, result.relay)
            self._keep_state(state, c, result.client_state, result.targets)
            clients.append(c)
            updates.append(result.update)
        state.relay.deliver()
        return Fitted(clients, updates)

    def run_on_clients(
        self,
        state: State,
        clients: Sequence[int],
        fn: Callable[[Client, Any], Any],
        broadcast: Mapping[str, Any] | None = None,
        *,
        per_client: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Any]:
        """Run fn(client, broadcast) where each client's data are.

        Only what it returns crosses to the server. It may write `client.state` and `client.targets`. An entry "relay"
        of a dict that it returns is for other clients (`relayed_message`).

        Args:
            state: The run's state, in which client states are stored.
            clients: Client numbers, each once.
            fn: A function at the top level of a module, since executors may send it to another process.
            broadcast: What all of them are sent.
            per_client: More entries of `broadcast`, one mapping per client.

        Returns:
            The answers, in the order of `clients`.

        Raises:
            ValueError: A client stands twice in `clients`.
            WireError: `fn` changes a tensor of the client state or the broadcast in place.
        """
        broadcast = broadcast or {}
        _require_distinct(clients)
        extras = _require_one_each(
            "per_client", [{}] * len(clients) if per_client is None else per_client, len(clients)
        )
        sides = [
            Client(self.world, c, partial(state.store.copy_for, c), state.relabelled.get(c), state.round)
            for c in clients
        ]
        broadcasts = [self._resolve_relayed(state, {**broadcast, **extra}) for extra in extras]
        base, out = self._count_bytes(state, broadcast), []
        for (answer, client), extra in zip(self.executor.call(fn, sides, broadcasts), extras, strict=True):
            client_state = client.release_state(getattr(fn, "__qualname__", "client-side code"))
            self._keep_state(state, client.id, client_state, client.targets if client.changed else None)
            self.bytes_down += base + self._count_bytes(state, extra)
            if isinstance(answer, dict) and "relay" in answer:
                self.bytes_up += state.relay.stage(client.id, answer.pop("relay"))
            self.bytes_up += count_bytes(answer)
            out.append(answer)
        state.relay.deliver()
        return out

    def _resolve_relayed(self, state: State, broadcast: Mapping[str, Any]) -> MappingSource:
        """The broadcast; what is in other clients' messages is fetched when the client's turn comes."""
        relayed = {name: value for name, value in broadcast.items() if isinstance(value, Relayed)}
        return (lambda: {**broadcast, **state.relay.fetch_messages(relayed)}) if relayed else broadcast

    def release_labels(self, state: State, epsilon: float, times: int = 1) -> Release:
        """Release label histograms under epsilon-label-DP.

        Every client's labels pass randomised response and are sent as a histogram [K], which reveals no more than the
        labels in random order. r releases cost a label r * epsilon, and one that m clients hold m times as much, which
        the summary reports. The result is stored in state.notes["release"], so a resume does not draw again.

        Args:
            state: The run's state.
            epsilon: Privacy of one release.
            times: How many releases the run may make, at most one a round, each with noise of its own.

        Raises:
            RuntimeError: A release too many, or a second one in a round.
            ValueError: epsilon or times are not those of the first release.
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

    def _keep_state(
        self, state: State, client: int, client_state: dict[str, Any] | None, targets: Tensor | None
    ) -> None:
        if client_state or (client_state is not None and client in state.clients):
            state.clients[client] = client_state
        if targets is not None:  # per client, not per sample: where clients overlap, each relabels its own copy
            state.relabelled[client] = targets


def _randomise_labels(client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
    """Client-side: the histogram of its randomised labels.

    The stream holds epsilon. Else two runs with one seed and two budgets would draw the same lies, and a label that
    differs between them would be the true one in the run with the larger budget.
    """
    epsilon = broadcast["epsilon"]
    rng = client.numpy_rng("label release", repr(epsilon))
    randomised = randomise_labels(client.labels.cpu().numpy(), client.classes, epsilon, rng)
    return {"counts": torch.from_numpy(np.bincount(randomised, minlength=client.classes))}


def _require_distinct(clients: Iterable[int]) -> list[int]:
    """These clients. Raises ValueError if one stands twice among them."""
    numbers = list(clients)
    for c, times in Counter(numbers).items():
        if times > 1:
            raise ValueError(f"client {c} is listed twice in one call")
    return numbers


def _require_one_each(title: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """The values, if there is one per client."""
    if len(values) != count:
        raise ValueError(f"{title}: {len(values)} for {count} clients")
    return values
