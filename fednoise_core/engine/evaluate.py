"""Evaluate all views of a method on the test set."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fednoise_core.engine.client_store import ClientStore
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.world import SERVER
from fednoise_core.ops.weights import Weights


@dataclass(frozen=True)
class ClientEntry:
    """Weights in a client state, referred to by name. Views contain such references, which the evaluation resolves."""

    name: str


@dataclass(frozen=True)
class FromClientState:
    """Model that the evaluation computes from all client states. The result is neither sent nor stored."""

    make: Callable[[Mapping[int, Mapping[str, Any]]], Any]


# (client or SERVER, models): one model, or several whose logits are summed, or a reference to client states
Member = tuple[int, Weights | Sequence[Weights] | ClientEntry | FromClientState]
EvaluatedModels = dict[str, list[Member]]
Row = tuple[str, int, str, float]  # view, client, metric, value


def _score_logits(logits: Tensor, y: Tensor, classes: int) -> Tensor:
    """Compute accuracy, mean cross entropy, and hits and samples of each class.

    Args:
        logits: [n, K].
        y: Labels [n].
        classes: K.

    Returns:
        One tensor [2 + 2K]. The first 2 + K numbers are NaN if a logit is not finite, because the argmax of such logits
        is not a prediction.
    """
    right = (logits.argmax(1) == y).to(torch.float64)
    loss = torch.nn.functional.cross_entropy(logits.double(), y)
    none = torch.zeros(classes, dtype=torch.float64, device=y.device)
    count = none.scatter_add(0, y, torch.ones_like(right))  # bincount has no fixed order on a GPU
    hit = none.scatter_add(0, y, right)
    scores = torch.cat([torch.stack([right.mean(), loss]), hit])
    return torch.cat([torch.where(torch.isfinite(logits).all(), scores, torch.nan), count])


def _name_scores(numbers: list[float], classes: int) -> dict[str, float]:
    """Name the numbers of `_score_logits`. Classes without test samples are left out."""
    hits, counts = numbers[2 : 2 + classes], numbers[2 + classes :]
    shares = {f"accuracy_class_{k}": h / n for k, (h, n) in enumerate(zip(hits, counts, strict=True)) if n}
    return {"accuracy": numbers[0], "loss": numbers[1], **shares}


def iterate_models(
    members: Sequence[Member], clients: Mapping[int, Mapping[str, Any]]
) -> Iterator[tuple[int, list[Weights]]]:
    """Look up the models of a view, one member after the other.

    All client states together may not fit into memory, so each one is read only when it is needed.

    Yields:
        (client or SERVER, the member's models). The logits of several models are summed.
    """
    for client, named in members:
        yield client, [_load_model(client, model, clients) for model in list_named(named)]


def valid_accuracy(
    fed: Federation, members: Sequence[Member], clients: Mapping[int, Mapping[str, Any]]
) -> float | None:
    """Measure the accuracy of a view on the clients' validation splits, with the given, noisy labels.

    A client's own model is evaluated on the client's split. A model of the server is evaluated on the splits of all
    clients. All samples have the same weight.

    Returns:
        A share in 0..1. None if no client has a split. NaN if a logit is not finite.
    """
    world, right, total = fed.world, 0.0, 0
    if not any(map(len, world.valid)):
        return None
    for member, models in iterate_models(members, clients):
        for client in range(fed.n) if member == SERVER else [member]:
            rows = world.rows(client, "valid")
            if not len(rows):
                continue
            parts = [world.evaluate(fed.net(member), w, world.pool("valid"), rows) for w in models]
            logits = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
            hits = (logits.argmax(1) == world.labels[rows]).sum()
            right += float(hits) if bool(torch.isfinite(logits).all()) else math.nan
            total += len(rows)
    return right / total if total else None


def count_confusion(
    fed: Federation, members: Sequence[Member], clients: Mapping[int, Mapping[str, Any]], pool: Pool, y: Tensor
) -> Tensor | None:
    """Count how often a view predicts class j for an image of class i, summed over its members.

    Args:
        fed: The federation, for nets and classes.
        members: Members of the view. Each member predicts all images of `pool`.
        clients: Client states, for members that refer to their entries.
        pool: Test images.
        y: Their labels [n].

    Returns:
        int64 [K, K] with the true class in rows, or None if a logit is not finite.
    """
    k, rows = fed.classes, torch.arange(pool.n, device=y.device)
    count = torch.zeros(k * k, dtype=torch.int64, device=y.device)
    for member, models in iterate_models(members, clients):
        logits = torch.stack([fed.world.evaluate(fed.net(member), w, pool, rows) for w in models]).sum(0)
        if not bool(torch.isfinite(logits).all()):
            return None
        count.scatter_add_(0, k * y + logits.argmax(1), torch.ones_like(y))  # bincount has no fixed order on a GPU
    return count.reshape(k, k)


def list_named(named: Any) -> Sequence[Any]:
    """Return the models of a member as a sequence."""
    return [named] if isinstance(named, Weights | ClientEntry | FromClientState) else named


def _load_model(
    client: int, named: Weights | ClientEntry | FromClientState, clients: Mapping[int, Mapping[str, Any]]
) -> Weights:
    if isinstance(named, ClientEntry):
        return clients[client][named.name]
    return named.make(clients) if isinstance(named, FromClientState) else named


def resolve_entries(estimates: Mapping[str, Any], clients: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Resolve the estimates that refer to client states.

    Args:
        estimates: Values by name. `ClientEntry` becomes {client: its entry}, for clients that have it.
            `FromClientState` is computed.
        clients: Client states.

    Returns:
        The estimates, with all other values unchanged.
    """

    def value(named: Any) -> Any:
        if isinstance(named, FromClientState):
            return named.make(clients)
        if isinstance(named, ClientEntry):
            states = ((c, clients[c]) for c in sorted(clients))
            return {c: client_state[named.name] for c, client_state in states if named.name in client_state}
        return named

    return {key: value(named) for key, named in estimates.items()}


class Evaluator:
    """Evaluates views on the test pool.

    Scores of a client's model are cached until the client state changes.
    """

    def __init__(self, fed: Federation, pool: Pool, y: Tensor):
        self.fed, self.pool, self.y = fed, pool, y
        self.rows = torch.arange(pool.n, device=y.device)
        self._known: dict[tuple[int, str], tuple[int, list[float]]] = {}  # (client, name) -> version, scores

    def evaluate_views(self, views: EvaluatedModels, clients: ClientStore) -> Iterator[Row]:
        """Evaluate these views.

        Yields:
            (view, client, metric, value). For each view these are the means over its members (client -1), and each
            client's own accuracy if the view is personal.
        """
        done: dict[int, Tensor] = {}  # by identity: views may share models
        for view, members in views.items():
            scored = [
                (client, _name_scores(self._score_member(client, models, clients, done), self.fed.classes))
                for client, models in members
            ]
            for client, scores in scored:
                if client >= 0:
                    yield view, client, "accuracy", scores["accuracy"]
            for metric in scored[0][1]:
                yield view, -1, metric, sum(scores[metric] for _, scores in scored) / len(scored)

    def _score_member(self, client: int, models: Any, clients: ClientStore, done: dict[int, Tensor]) -> list[float]:
        """Compute the scores of one member of a view, or take them from the cache."""
        key = (client, models.name) if isinstance(models, ClientEntry) else None
        version, cached = self._known.get(key, (0, None)) if key else (0, None)
        if cached is not None and version == clients.version(client):
            return cached
        parts = [self._compute_logits(client, model, clients, done) for model in list_named(models)]
        logits = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
        scores: list[float] = _score_logits(logits, self.y, self.fed.classes).tolist()
        if key:
            self._known[key] = clients.version(client), scores
        return scores

    def _compute_logits(
        self,
        client: int,
        model: Weights | ClientEntry | FromClientState,
        clients: ClientStore,
        done: dict[int, Tensor],
    ) -> Tensor:
        if id(model) in done:
            return done[id(model)]
        w = _load_model(client, model, clients)
        logits = self.fed.world.evaluate(self.fed.net(client), w, self.pool, self.rows)
        if not isinstance(model, ClientEntry):  # the logits of all clients at once would need much memory
            done[id(model)] = logits
        return logits
