"""Federation: the world as a method's server side sees it, and its verbs. Data stay with the clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.client import Client
from fednoise_core.engine.client_store import MappingSource
from fednoise_core.engine.fit import FitRequest, FitResult, Rate
from fednoise_core.engine.local import Local
from fednoise_core.engine.relay import Relayed
from fednoise_core.engine.state import State, WireError
from fednoise_core.engine.world import SERVER, World
from fednoise_core.io import SpecError
from fednoise_core.nets.net import Net
from fednoise_core.ops.label_dp import Release, randomise
from fednoise_core.ops.weights import Weights, finite, nbytes
from fednoise_core.rng import stream

if TYPE_CHECKING:
    from fednoise_core.engine.executors.sequential import Sequential

__all__ = ["SERVER", "Combine", "Federation", "Fitted"]

# the clients' messages before a step -> what each of them finds in `broadcast` in that step
Combine = Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any]]]


class Fitted(NamedTuple):
    """The clients whose answers arrived, and the answers, in one order."""

    clients: list[int]
    updates: list[dict[str, Any]]


class Federation:
    """n: clients. classes: K. sizes: training samples per client (public, as FedAvg's weights are). all: clients with
    samples. train: the training settings.

    Traffic is counted here: what is sent down, and uploads, without the entry "client_state", which stays on the
    client. So is work, in passes: samples times forward-backward passes on clients, on whichever pool.
    """

    def __init__(self, world: World, executor: Sequential):
        self._world, self._executor = world, executor
        self.n, self.classes, self.train = world.n, world.classes, world.train
        self.sizes = list(world.sizes)
        self.all = [c for c in range(self.n) if self.sizes[c]]  # clients without samples are never drawn
        self._held = frozenset(self.all)
        self.cohort = world.cohort  # m
        self.passes_a_round = max(1.0, self.train.epochs * world.samples_a_round)  # of FedAvg on average clients
        self._drawn: list[list[int]] = []  # cohorts of sampling "continued"
        # of a round, or of what happens on the way into a phase after it: (tag of a fit, client)
        self._tags: tuple[tuple[int, str], set[tuple[str, int]]] = ((-1, ""), set())
        self.phase_being_entered = ""  # the phase that is being entered, said by the loop
        self.bytes_down, self.bytes_up = 0, world.pooling_bytes
        self.passes = 0
        self.participants: list[
            int
        ] = []  # clients of the fits since the last round, for the loop, which empties both lists
        self.dropped: list[int] = []  # those whose update was not finite

    @property
    def public(self) -> int:
        """Images in the public pool (0: none)."""
        return self._world.pools["public"].n if "public" in self._world.pools else 0

    def net(self, client: int = SERVER) -> Net:
        """The architecture that a client (or the server) runs."""
        return self._world.net(client)

    def init_weights(self, *words: str | int, client: int = SERVER) -> Weights:
        """New weights for the architecture of `client`, drawn from the stream of these words.

        The default is the model that all clients share: SpecError if they run several architectures.
        """
        if client == SERVER and len({self.net(c).layout for c in range(self.n)}) > 1:
            raise SpecError("train.net: this method averages one model over all clients, so they need one architecture")
        return self.net(client).fresh(self._world.random_stream("init", *words), self._world.device)

    def random_stream(self, *words: str | int) -> torch.Generator:
        """The run's random stream of these words. Name the round in it: `fed.random_stream("mix", state.round)`."""
        return self._world.random_stream("method", *words)

    def derive_seed(self, *words: str | int) -> int:
        """A number below 2^31 from the run's stream of these words, for libraries that want a seed. Name the round."""
        return int(stream(self._world.seed, "method", *words).integers(2**31))

    def sample_cohort(self, round: int, size: int | None = None, candidates: Iterable[int] | None = None) -> list[int]:
        """The round's cohort, drawn uniformly without replacement; the same for every method of one seed. size defaults
        to floor(fraction*n).

        candidates: draw from these only (a client without samples is left out). Raises ValueError if nobody is left.
        """
        allowed = self._held if candidates is None else self._held.intersection(candidates)
        if not allowed:
            raise ValueError("there is no client with samples to draw from")
        if self._world.generator is not None and size is None and candidates is None:
            clients = [c for c in self._continued(round) if c in allowed]
            if not clients:
                raise ValueError(f"round {round}: the clients that the labels' generator drew hold no samples")
            return clients
        order = torch.randperm(self.n, generator=self._world.random_stream("sample", round)).tolist()
        return list(islice((c for c in order if c in allowed), self.cohort if size is None else size))

    def _continued(self, round: int) -> list[int]:
        """Cohort of a round (from 1) as the labels' generator goes on: one draw a round, whatever the method does."""
        while len(self._drawn) < round:
            p = np.full(self.n, 1 / self.n)
            self._drawn.append(self._legacy.choice(self.n, self.cohort, replace=False, p=p).tolist())
        return self._drawn[round - 1]

    @cached_property
    def _legacy(self) -> np.random.RandomState:
        keys = self._world.generator
        assert keys is not None  # asked by `sample_cohort`
        generator = np.random.RandomState()
        generator.set_state(("MT19937", keys[:624], int(keys[624]), 0, 0.0))
        return generator

    def iterate_cohorts(self, round: int, size: int) -> Iterator[list[int]]:
        """Every client once, in random groups of `size`."""
        order = [
            c
            for c in torch.randperm(self.n, generator=self._world.random_stream("sweep", round)).tolist()
            if self.sizes[c]
        ]
        for a in range(0, len(order), size):
            yield order[a : a + size]

    def draw_public_ids(self, round: int, word: str, k: int) -> Tensor:
        """k distinct positions of the public pool (all of them, in order, if k is 0 or at least their number)."""
        n = self.public
        if not n:
            raise SpecError("this method needs public images: give the data set a `public` part")
        if k <= 0 or k >= n:
            return torch.arange(n, device=self._world.device)
        return torch.randperm(n, generator=self._world.random_stream("public", word, round))[:k].to(self._world.device)

    def relayed_message(self, state: State, client: int, name: str) -> Relayed | None:
        """Stands for what `client` handed on under `name` in its latest message (an entry "relay" of what
        `make_update`, `after_fit` or a function of `run_on_clients` returns); None if there is none yet. As a value of
        `broadcast` or `per_client` it reaches another client, who finds the thing itself.
        """
        return Relayed(client, name) if state._relay.has(client, name) else None

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
        """Train `local` on these clients. Returns (who, ups): the clients whose update is finite, and what each sends
        up. An update with a NaN or an infinity is dropped, with what the client would have kept of it.

        broadcast: sent to all; per_client: more, one per client. epochs (one for all, or one per client), batch:
        default those of `train`. lr: a rate, or a function (step, steps) -> rate with steps counted from 0; default
        that of `train`. on="public": on public images `ids` with `targets` (one tensor [len(ids), …], or one per
        client); then who may be [SERVER] * k, and nets[j] is the client whose architecture the j-th server model has.
        What `make_update` puts under "client_state", and relabelling, is kept with the client. tag: names the random
        streams; two fits of a client in one round need two tags. Raises WireError for samples or targets of training,
        ValueError for arguments that do not fit together.
        """
        requests, sent = self._requests(
            local, state, clients, broadcast, per_client, epochs, batch, lr, on, ids, targets, nets, tag
        )
        return self._collect(state, requests, sent, self._executor.run(requests))

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
        """As `fit(on="public")`, with an exchange before every step: each client says something about its next batch
        (`Local.make_message`), `combine(messages)` answers with one mapping per client, and `train_step` finds it in
        `broadcast`.

        All clients see the same public images in the same order, and their models stay loaded over the whole fit, so an
        exchange costs its forward passes and its bytes (these are counted as traffic), not a start of every fit. Raises
        ValueError if `combine` does not answer every client, or if clients would not take the same steps.
        """
        if type(local).between_epochs is not Local.between_epochs:
            raise TypeError(f"{type(local).__name__}: `between_epochs` is for fit; lockstep has no such pause")
        requests, sent = self._requests(
            local, state, clients, broadcast, per_client, epochs, batch, lr, "public", ids, targets, None, tag
        )
        single_ok = all(self.net(c).single_ok for c in clients)  # else some would skip a batch that others take
        requests = [replace(request, together=True, single_ok=single_ok) for request in requests]
        together = self._executor.together(requests)
        if len(set(together.steps)) > 1:
            raise ValueError(f"lockstep: clients would take {sorted(set(together.steps))} steps; all must take as many")
        for k in range(max(together.steps, default=0)):
            said = together.say(k)
            heard = list(combine(said))
            if len(heard) != len(requests):
                raise ValueError(f"combine answered {len(heard)} of {len(requests)} clients")
            self.bytes_up += sum(map(nbytes, said))
            self.bytes_down += sum(map(nbytes, heard))
            together.step(k, heard)
        return self._collect(state, requests, sent, together.close())

    def _requests(
        self,
        local: Local,
        state: State,
        clients: Sequence[int],
        broadcast: Mapping[str, Any],
        per_client: Sequence[Mapping[str, Any]] | None,
        epochs: int | Sequence[int] | None,
        batch: int | None,
        lr: Rate | None,
        on: str,
        ids: Tensor | None,
        targets: Tensor | Sequence[Tensor] | None,
        nets: Sequence[int] | None,
        tag: str,
    ) -> tuple[list[FitRequest], list[int]]:
        """One request per client, and the bytes that each is sent."""
        if on == "train" and not (targets is None and ids is None):
            raise WireError("samples and targets of training are the clients' own: return them from `prepare_fit`")
        lr = self.train.lr if lr is None else lr
        k = len(clients)
        epochs = self.train.epochs if epochs is None else epochs
        extras = _one_each("per_client", [{}] * k if per_client is None else per_client, k)
        many = _one_each("epochs", [epochs] * k if isinstance(epochs, int) else epochs, k)
        given = _one_each("targets", targets if isinstance(targets, Sequence) else [targets] * k, k)
        archs = _one_each("nets", clients if nets is None else nets, k)
        if any("lr" in more for more in (broadcast, *extras)):
            raise ValueError("a rate of its own is said to `fit` as lr=")
        rate = {} if callable(lr) else {"lr": lr}  # a schedule's is worked out with the number of steps
        tag = f"{self.phase_being_entered} {tag}" if self.phase_being_entered else tag
        base, requests, sent = self._sent(state, broadcast), [], []
        for c, extra, turns, target, arch in zip(clients, extras, many, given, archs, strict=True):
            requests.append(
                FitRequest(
                    local=local,
                    client=c,
                    round=state.round,
                    epochs=turns,
                    broadcast=self._with_relayed(state, {**broadcast, **extra, **rate}),
                    client_state=partial(state._kept.copy_for, c),
                    targets=state.relabelled.get(c),
                    on=on,
                    ids=ids,
                    pool_targets=target,
                    tag=tag,
                    batch=batch or 0,
                    net_of=arch,
                    rate=lr if callable(lr) else None,
                )
            )
            sent.append(base + self._sent(state, extra) if c != SERVER else 0)
        self._use_tag(clients, tag, state.round)  # last: a call refused for another reason has not used up its tag
        return requests, sent

    def _use_tag(self, clients: Sequence[int], tag: str, round: int) -> None:
        asked_once = _each_once(c for c in clients if c != SERVER)
        if self._tags[0] != (round, self.phase_being_entered):
            self._tags = (round, self.phase_being_entered), set()
        for c in asked_once:
            if (tag, c) in self._tags[1]:
                raise ValueError(
                    f"round {round}: a second fit of client {c} with tag {tag!r} would see the same batches again: "
                    f"give each of a round's fits a tag of its own, fit(…, tag=…)"
                )
        self._tags[1].update((tag, c) for c in asked_once)

    def _sent(self, state: State, broadcast: Mapping[str, Any]) -> int:
        """Bytes of what comes down."""
        return sum(state._relay.size(v) if isinstance(v, Relayed) else nbytes(v) for v in broadcast.values())

    def _collect(
        self, state: State, requests: Sequence[FitRequest], sent: Sequence[int], results: Iterable[FitResult]
    ) -> Fitted:
        """Count, keep with each client what stays there, and drop what is not finite."""
        clients, updates = [], []
        for request, broadcast, result in zip(requests, sent, results, strict=True):
            c = request.client
            # other numbers that a client keeps may be infinite for good reasons
            models = [value for value in (result.client_state or {}).values() if isinstance(value, Weights)]
            good = result.finite and finite([result.update, result.relay, models])
            if c == SERVER and not good:
                raise SpecError(
                    f"round {state.round}: the server's own training ({type(request.local).__name__}) diverges: give "
                    "its fit a lower rate, or limit gradients by train.clip"
                )
            if c != SERVER:
                self.bytes_down += broadcast
                self.bytes_up += nbytes(result.update) + nbytes(result.relay) - result.twice
                self.passes += result.passes
                self.participants.append(c)
                if not good:
                    self.dropped.append(c)
                    continue
                if result.relay:
                    state._relay.stage(c, result.relay)
            self._keep(state, c, result.client_state, result.targets)
            clients.append(c)
            updates.append(result.update)
        state._relay.deliver()
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
        """Run fn(client, broadcast) where each client's data are. Only what it returns crosses; `client.state` and
        `client.targets` may be written. An entry "relay" of a dict that it returns goes up for other clients
        (`relayed_message`).

        Raises ValueError if a client stands twice in `clients`, WireError if `fn` changes something kept in place.
        """
        broadcast = broadcast or {}
        _each_once(clients)
        extras = _one_each("per_client", [{}] * len(clients) if per_client is None else per_client, len(clients))
        sides = [
            Client(self._world, c, partial(state._kept.copy_for, c), state.relabelled.get(c), state.round)
            for c in clients
        ]
        downs = [self._with_relayed(state, {**broadcast, **extra}) for extra in extras]
        base, out = self._sent(state, broadcast), []
        for (said, client), extra in zip(self._executor.call(fn, sides, downs), extras, strict=True):
            kept = client.release_state(getattr(fn, "__qualname__", "client-side code"))
            self._keep(state, client.id, kept, client.targets if client.changed else None)
            self.bytes_down += base + self._sent(state, extra)
            if isinstance(said, dict) and "relay" in said:
                self.bytes_up += state._relay.stage(client.id, said.pop("relay"))
            self.bytes_up += nbytes(said)
            out.append(said)
        state._relay.deliver()
        return out

    def _with_relayed(self, state: State, broadcast: Mapping[str, Any]) -> MappingSource:
        """What comes down; what is in other clients' messages is fetched when the client's turn comes."""
        wanted = {name: value for name, value in broadcast.items() if isinstance(value, Relayed)}
        return (lambda: {**broadcast, **state._relay.fetch(wanted)}) if wanted else broadcast

    def release_labels(self, state: State, epsilon: float, times: int = 1) -> Release:
        """A label release under epsilon-label-DP: every client's labels pass randomised response and go
        up as a histogram [K], which tells no more than the labels in random order.

        times: how many releases the run may make, at most one a round, each with noise of its own. r releases cost a
        label r*epsilon, and one that m clients hold m times as much, which the summary reports. The result stands in
        state.notes["release"], so a resume does not draw again. Raises RuntimeError on a release too many or a second
        one in a round, ValueError if epsilon or times are not those of the first.
        """
        kept = state.notes.get("release")
        release = Release.restore(kept) if kept else Release(epsilon, self.classes, times)
        release.refuse_more()
        if kept and kept["round"] == state.round:
            raise RuntimeError(f"round {state.round}: the labels were released already: its noise would be the same")
        if (release.epsilon, release.times) != (epsilon, times):
            raise ValueError(f"all releases of a run share epsilon and times: {release.epsilon} and {release.times}")
        said = self.run_on_clients(state, self.all, _randomised, {"epsilon": float(epsilon)})
        release.record([s["counts"].numpy() for s in said])
        state.notes["release"] = {**release.state(), "copies": self._world.max_label_copies, "round": state.round}
        return release

    def predict(self, w: Weights, *, on: str = "public", ids: Tensor | None = None, net: Net | None = None) -> Tensor:
        """Logits [n, K] of a server-side model on the public pool, evaluation mode."""
        if on in ("train", "valid"):
            raise WireError("predictions on clients' samples are the clients' own: use `client.predict`")
        rows = self._world.rows(SERVER, on)
        return self._world.evaluate(
            net or self.net(), w, self._world.pool(on), rows if ids is None else rows[ids]
        ).clone()

    def _keep(self, state: State, client: int, client_state: dict[str, Any] | None, targets: Tensor | None) -> None:
        if client_state or (client_state is not None and client in state.clients):
            state.clients[client] = client_state
        if targets is not None:  # per client, not per sample: where clients overlap, each relabels its own copy
            state.relabelled[client] = targets


def _randomised(client: Client, broadcast: Mapping[str, Any]) -> dict[str, Tensor]:
    """Client-side: the histogram of its randomised labels."""
    said = randomise(
        client.labels.cpu().numpy(), client.classes, broadcast["epsilon"], client.numpy_rng("label release")
    )
    return {"counts": torch.from_numpy(np.bincount(said, minlength=client.classes))}


def _each_once(clients: Iterable[int]) -> list[int]:
    """These clients. Raises ValueError if one stands twice among them."""
    found = list(clients)
    for c, times in Counter(found).items():
        if times > 1:
            raise ValueError(f"client {c} stands twice among those of one call: each may do it once")
    return found


def _one_each(what: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """The values, if there is one per client."""
    if len(values) != count:
        raise ValueError(f"{what}: {len(values)} for {count} clients")
    return values
