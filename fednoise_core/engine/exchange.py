"""Exchange: what the server sends to clients, what they answer, and what is counted of it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

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
from fednoise_core.ops.weights import Weights, all_finite, count_bytes

# the clients' messages before a step -> what each of them finds in `broadcast` in that step
Combine = Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any]]]


class Fitted(NamedTuple):
    """The clients whose answers arrived, and the answers, in one order."""

    participants: list[int]
    updates: list[dict[str, Any]]


class Exchange:
    """Fits and calls on clients.

    Traffic is counted here: broadcasts, and updates without their entry "client_state", which stays on the client. So
    is work, in passes: samples times forward-backward passes on clients, on whichever pool.

    Attributes:
        participants: Clients of the fits since the last round. The loop empties the list.
        dropped: Those of them whose update was not finite. The loop empties the list.
        infinite: Names of the entries that were not finite in the update that was dropped last, if its models were.
        phase_being_entered: Name of the phase that is being entered, "" in a round. The loop sets it.
    """

    def __init__(self, world: World, executor: Sequential):
        self.world, self.executor, self.train = world, executor, world.train
        # of a round, or of what happens on the way into a phase after it: (tag of a fit, client)
        self._tags: tuple[tuple[int, str], set[tuple[str, int]]] = ((-1, ""), set())
        self.phase_being_entered = ""
        self.bytes_down, self.bytes_up = 0, world.pooling_bytes
        self.passes = 0
        self.participants: list[int] = []
        self.dropped: list[int] = []
        self.infinite: list[str] = []

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
            # else some would skip a batch that others take
            single_ok=all(self.world.net(c).single_ok for c in clients),
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

    def _resolve_relayed(self, state: State, broadcast: Mapping[str, Any]) -> MappingSource:
        """The broadcast; what is in other clients' messages is fetched when the client's turn comes."""
        relayed = {name: value for name, value in broadcast.items() if isinstance(value, Relayed)}
        return (lambda: {**broadcast, **state.relay.fetch_messages(relayed)}) if relayed else broadcast

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
                    wrong = {name: value for name, value in result.update.items() if not all_finite([value])}
                    self.infinite = list(wrong) if all(isinstance(value, Tensor) for value in wrong.values()) else []
                    continue
                if result.relay:
                    state.relay.stage(c, result.relay)
            self._keep_state(state, c, result.client_state, result.targets)
            clients.append(c)
            updates.append(result.update)
        state.relay.deliver()
        return Fitted(clients, updates)

    def _keep_state(
        self, state: State, client: int, client_state: dict[str, Any] | None, targets: Tensor | None
    ) -> None:
        if client_state or (client_state is not None and client in state.clients):
            state.clients[client] = client_state
        if targets is not None:  # per client, not per sample: where clients overlap, each relabels its own copy
            state.relabelled[client] = targets


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
