"""Exchange: training and function calls on clients, and the count of traffic and work."""

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

# function from the clients' messages before a step to the further entries of each client's `broadcast` in that step
Combine = Callable[[list[dict[str, Any]]], Sequence[Mapping[str, Any]]]


class Fitted(NamedTuple):
    """The clients whose update is finite, and their updates, in the same order."""

    participants: list[int]
    updates: list[dict[str, Any]]


class Exchange:
    """Fits and calls on clients.

    Traffic and work are counted here. Traffic is the bytes of broadcasts and of updates without their entry
    "client_state", which stays on the client. Work is samples times forward-backward passes on clients, on any pool.

    Attributes:
        participants: Clients of the fits since the last round. The loop empties the list.
        dropped: Participants whose update was not finite. The loop empties the list.
        infinite: Names of the entries that were not finite in the last dropped update. [] if a model was not finite.
        phase_being_entered: Name of the phase that is being entered, "" in a round. The loop sets it.
    """

    def __init__(self, world: World, executor: Sequential):
        self.world, self.executor, self.train = world, executor, world.train
        # used pairs (tag of a fit, client) of the current round, or of the phase that is being entered
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
        """Train on these clients.

        Args:
            local: Local training of each client: the method itself, or another Local.
            clients: Client numbers. With on="public" they may be [SERVER] * k, to train k models on the server.
            broadcast: Values that are sent to all clients.
            per_client: Further entries of `broadcast`, one mapping per client.
            epochs: Number of epochs, or one number per client. Default: `train.epochs`.
            batch: Samples per step. Default: `train.batch`.
            lr: Learning rate, or a function (step, steps) -> rate with steps counted from 0. Default: `train.lr`.
            on: "train" for the client's samples, or "public" for the public images `ids` with `targets`.
            ids: Positions in the public pool.
            targets: One tensor [len(ids), …] for all clients, or one per client.
            nets: For each model on the server, the client whose architecture it has.
            tag: Part of the keys of the random streams. Two fits of a client in one round need different tags.

        Returns:
            The clients whose update is finite, and their updates. An update with NaN or infinite values is dropped,
            together with its client state. The entry "client_state" of `make_update` and relabelled targets are stored
            for the client.

        Raises:
            WireError: `ids` or `targets` is given with on="train", where samples belong to the clients.
            ValueError: Arguments do not fit together.
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

        Each client sends a message about its next batch (`Local.make_message`). `combine(messages)` returns one mapping
        per client, and `train_step` finds its entries in `broadcast`. All clients see the same public images in the
        same order. Their models stay loaded during the whole fit, so an exchange costs only its forward passes and its
        bytes, which count as traffic. Other arguments and the result are those of `fit(on="public")`.

        Raises:
            ValueError: `combine` does not return one mapping per client, or clients would take different numbers of
                steps.
            TypeError: `local` overrides `between_epochs`.
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
            # otherwise some clients would skip a batch that others take
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
        """Run fn(client, broadcast) on each client.

        Only the result is sent to the server. `fn` may assign `client.state` and `client.targets`. If the result is a
        dict, its entry "relay" is a message to other clients (`relayed_message`).

        Args:
            state: The run's state, in which client states are stored.
            clients: Client numbers, each once.
            fn: A function at the top level of a module, since executors may send it to another process.
            broadcast: Values that are sent to all clients.
            per_client: Further entries of `broadcast`, one mapping per client.

        Returns:
            The results, in the order of `clients`.

        Raises:
            ValueError: A client occurs twice in `clients`.
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
        """Make one request per client, and count the bytes that are sent to each client.

        `common` has the fields that all requests share. Fields that differ between clients are filled in here.
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
        rate = {} if callable(lr) else {"lr": lr}  # a schedule needs the number of steps, so the fit evaluates it
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
        self._use_tag(clients, tag, state.round)  # last, so that a call that fails for another reason uses no tag
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
        """Count the bytes of a broadcast, including messages from other clients."""
        return sum(state.relay.size(v) if isinstance(v, Relayed) else count_bytes(v) for v in broadcast.values())

    def _resolve_relayed(self, state: State, broadcast: Mapping[str, Any]) -> MappingSource:
        """Return the broadcast, or a function that loads messages of other clients into it when the client runs."""
        relayed = {name: value for name, value in broadcast.items() if isinstance(value, Relayed)}
        return (lambda: {**broadcast, **state.relay.fetch_messages(relayed)}) if relayed else broadcast

    def _collect_results(
        self, state: State, requests: Sequence[FitRequest], sent: Sequence[int], results: Iterable[FitResult]
    ) -> Fitted:
        """Count traffic and work, store client states and targets, and drop updates that are not finite."""
        clients, updates = [], []
        for request, broadcast, result in zip(requests, sent, results, strict=True):
            c = request.client
            # other numbers in a client state may be infinite for good reasons
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
    """Return the clients as a list. Raise ValueError if one occurs twice."""
    numbers = list(clients)
    for c, times in Counter(numbers).items():
        if times > 1:
            raise ValueError(f"client {c} is listed twice in one call")
    return numbers


def _require_one_each(title: str, values: Sequence[Any], count: int) -> Sequence[Any]:
    """Return the values. Raise ValueError unless there is one per client."""
    if len(values) != count:
        raise ValueError(f"{title}: {len(values)} for {count} clients")
    return values
