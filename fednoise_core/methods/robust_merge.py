"""FedAvg with robust aggregation: median, trimmed mean, Krum, geometric median."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fednoise_core.engine.api import Federation, State, Weights
from fednoise_core.methods.fedavg import FedAvg

CHUNK = 1 << 20  # coordinates at a time, because a second copy of all models of a cohort may not fit into memory


def _multiply_displacements(models: Sequence[Weights], start: Weights) -> Tensor:
    """Compute scalar products [n, n] of the displacements from `start`, over the trained numbers, in float64."""
    total = torch.zeros(len(models), len(models), dtype=torch.float64, device=start.flat.device)
    for origin, *several in _iterate_chunks([w.trained for w in (start, *models)]):
        moved = (torch.stack(several) - origin).double()
        total += moved @ moved.T
    return total


def _iterate_chunks(vectors: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(vector.split(CHUNK) for vector in vectors), strict=True)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(FedAvg):
    """Trimmed mean (Yin et al., ICML 2018): each coordinate's mean without its extreme values.

    Of the n models that arrived, the floor(trim·n) largest and as many smallest values are left out.
    """

    example: ClassVar = {"trim": 0.2}
    excluded_settings = ("weighting",)  # values that are cut have no weight

    trim: Annotated[float, Field(ge=0, lt=0.5, description="Share of values left out at either end.")] = 0.2

    def cut(self, n: int) -> int:
        """Count how many of n values are left out at either end.

        A small number compensates for rounding, so that 0.29 of 100 values is 29.
        """
        return int(self.trim * n + 1e-9)

    def merge_updates(self, fed: Federation, state: State, clients: list[int], updates: list[dict[str, Any]]) -> None:
        """Take the mean of each coordinate without its largest and smallest values.

        Statistics are merged in the same way.
        The server's step size acts on the result as in FedAvg.
        """
        models, cut = [update["model"] for update in updates], self.cut(len(updates))
        parts = [torch.stack(several).sort(0).values for several in _iterate_chunks([w.flat for w in models])]
        trimmed = models[0].like(torch.cat([part[cut : len(models) - cut].mean(0) for part in parts]))
        super().merge_updates(
            fed, state, clients[:1], [{"model": trimmed}]
        )  # the "mean" of one model, and the server's step


@dataclass(frozen=True, kw_only=True)
class Median(TrimmedMean):
    """Coordinate-wise median (Yin et al., ICML 2018). For an even number, the mean of the middle two values."""

    excluded_settings = ("trim",)
    example: ClassVar = {}

    def cut(self, n: int) -> int:
        return (n - 1) // 2


@dataclass(frozen=True, kw_only=True)
class Krum(FedAvg):
    """Krum and multi-Krum (Blanchard et al., NeurIPS 2017): the models that are nearest to their neighbours.

    A model's score is the sum of squared distances to its n - f - 2 nearest others, with f = floor(faulty·n) of the n
    models that arrived. The smallest scores win.
    """

    example: ClassVar = {"average": 1}

    weighting: Annotated[
        Literal["samples", "uniform"], Field(description="Weights of the selected models; equal in the paper.")
    ] = "uniform"
    faulty: Annotated[float, Field(ge=0, lt=0.5, description="Share of clients assumed to be faulty.")] = 0.2
    average: Annotated[
        int, Field(ge=0, description="Number of averaged models: 1 is Krum, more is multi-Krum; 0 = all but f.")
    ] = 1

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        shares, n = super().weigh_updates(fed, state, clients, updates), len(updates)
        f = int(self.faulty * n + 1e-9)
        product = _multiply_displacements([update["model"] for update in updates], state.server["model"])
        squares = product.diagonal()
        apart = squares[:, None] + squares[None, :] - 2 * product
        apart = apart.fill_diagonal_(torch.inf).sort(1).values
        neighbours = min(max(n - f - 2, 1), max(n - 1, 1))  # at least one neighbour counts, however few there are
        taken = apart[:, :neighbours].sum(1).argsort(stable=True)
        best = set(taken[: self.average or n - f].tolist())
        return [share if k in best else 0.0 for k, share in enumerate(shares)]


@dataclass(frozen=True, kw_only=True)
class RFA(FedAvg):
    """RFA (Pillutla et al., IEEE TSP 2022): the geometric median of the models, by smoothed Weiszfeld steps.

    z is the mean of the models by weights b, which start as FedAvg's p. A step sets b_k = p_k / max(nu, ||z -
    theta_k||), over the trained numbers. Statistics are averaged by the last b.
    """

    example: ClassVar = {"iterations": 3}

    iterations: Annotated[int, Field(ge=0, description="Weiszfeld steps; 0 is FedAvg.")] = 3
    nu: Annotated[float, Field(gt=0, description="Smallest distance by which a weight is divided.")] = 1e-6

    def weigh_updates(
        self, fed: Federation, state: State, clients: list[int], updates: Sequence[Mapping[str, Any]] = ()
    ) -> list[float]:
        shares = super().weigh_updates(fed, state, clients, updates)
        product = _multiply_displacements([update["model"] for update in updates], state.server["model"])
        p = torch.tensor(shares, dtype=torch.float64, device=product.device)
        b = p / p.sum()
        for _ in range(self.iterations):
            apart = product.diagonal() - 2 * (product @ b) + b @ product @ b  # ||z - theta_k||^2
            b = p / apart.clamp_min(0.0).sqrt().clamp_min(self.nu)
            b = b / b.sum()
        return b.tolist() if self.iterations else shares
