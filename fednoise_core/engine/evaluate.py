"""Accuracy and friends of every view that a method offers, on the clean test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fednoise_core.engine.graphs import Graphs, graphs_for
from fednoise_core.tree import Weights

if TYPE_CHECKING:
    from fednoise_core.engine.federation import Federation
    from fednoise_core.engine.pool import Pool

__all__ = ["Evaluator", "Kept", "Row", "Views", "resolved", "scores"]


@dataclass(frozen=True)
class Kept:
    """Weights that a client keeps under a name. A view names them; only the evaluation looks them up."""

    name: str


# (client or SERVER, a model, or several whose logits are summed, or what the client keeps)
Member = tuple[int, Weights | Sequence[Weights] | Kept]
Views = dict[str, list[Member]]
Row = tuple[str, int, str, float]  # view, client, metric, value


def scores(logits: Tensor, y: Tensor, classes: int) -> dict[str, float]:
    """accuracy, loss (mean cross entropy) and accuracy_class_k (classes without test samples are left out)."""
    return _named(_scores(logits, y, classes).tolist(), classes)


def _scores(logits: Tensor, y: Tensor, classes: int) -> Tensor:
    """The same as one tensor [2 + 2K], which nobody has waited for yet."""
    right = (logits.argmax(1) == y).to(torch.float64)
    loss = torch.nn.functional.cross_entropy(logits.double(), y)
    count = torch.bincount(y, minlength=classes)
    hit = torch.zeros(classes, dtype=torch.float64, device=y.device).scatter_add_(0, y, right)
    return torch.cat([torch.stack([right.mean(), loss]), hit, count.double()])


def _named(numbers: list[float], classes: int) -> dict[str, float]:
    hits, counts = numbers[2 : 2 + classes], numbers[2 + classes :]
    shares = {f"accuracy_class_{k}": h / n for k, (h, n) in enumerate(zip(hits, counts, strict=True)) if n}
    return {"accuracy": numbers[0], "loss": numbers[1], **shares}


def resolved(views: Views, clients: Mapping[int, Mapping[str, Any]]) -> Views:
    """The same views with what clients keep looked up."""
    return {
        view: [(c, clients[c][models.name] if isinstance(models, Kept) else models) for c, models in members]
        for view, members in views.items()
    }


class Evaluator:
    """Evaluates views on the test pool. On a GPU on a stream of its own and on copies, while the next round goes on
    (`deferred`): whoever asks for the rows waits for them.
    """

    def __init__(self, fed: Federation, pool: Pool, y: Tensor, graphs: Graphs | None = None):
        self.fed, self.pool, self.y = fed, pool, y
        self.rows = torch.arange(pool.n, device=y.device)
        self.graphs = graphs or graphs_for(y.device)
        self.deferred = self.graphs.beside
        self.stream = self.graphs.aside()

    def launch(self, views: Views, clients: Mapping[int, Mapping[str, Any]]) -> Callable[[], Iterator[Row]]:
        """Start evaluating; calling the result waits and gives the rows: for each view the mean over its members
        (client -1), and each client's own accuracy where a view is personal.
        """
        graphs, stream = self.graphs, self.stream
        found: dict[str, list[tuple[int, Tensor]]] = {}
        graphs.follow(stream)
        with graphs.on(stream):
            copies = self._copies(views)
        graphs.lead(stream)  # from here on the caller may change its models
        with graphs.on(stream):
            done: dict[Any, Tensor] = {}  # views may share models
            for view, members in views.items():
                for client, models in members:
                    several = [models] if isinstance(models, Weights | Kept) else models
                    parts = [self._logits(client, w, clients, copies, done) for w in several]
                    logits = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
                    found.setdefault(view, []).append((client, _scores(logits, self.y, self.fed.classes)))
        return lambda: self._rows(found)

    def _copies(self, views: Views) -> dict[int, Weights]:
        """By identity: the models that the server holds, where it will go on before they are evaluated."""
        held = [
            w
            for members in views.values()
            for _, models in members
            if not isinstance(models, Kept)
            for w in ([models] if isinstance(models, Weights) else models)
        ]
        return {id(w): w.clone() if self.deferred else w for w in held}

    def _logits(
        self,
        client: int,
        model: Weights | Kept,
        clients: Mapping[int, Mapping[str, Any]],
        copies: Mapping[int, Weights],
        done: dict[Any, Tensor],
    ) -> Tensor:
        key = (client, model.name) if isinstance(model, Kept) else id(model)
        if key not in done:
            w = clients[client][model.name] if isinstance(model, Kept) else copies[id(model)]
            self.graphs.uses(self.stream, w.flat)  # replaced by what the client keeps next, perhaps before this has run
            done[key] = self.fed._world.evaluate(self.fed.net(client), w, self.pool, self.rows)
        return done[key]

    def _rows(self, found: Mapping[str, list[tuple[int, Tensor]]]) -> Iterator[Row]:
        self.graphs.join(self.stream)
        for view, members in found.items():
            scored = [(client, _named(numbers.tolist(), self.fed.classes)) for client, numbers in members]
            for client, one in scored:
                if client >= 0:
                    yield view, client, "accuracy", one["accuracy"]
            for metric in scored[0][1]:
                yield view, -1, metric, sum(one[metric] for _, one in scored) / len(scored)
