"""Trees: nested dicts of tensors, and Weights, where all tensors of one net are views of a single flat buffer.

Arithmetic on Weights is one vector operation whatever the net; a broadcast is a copy of one buffer; a client's state is
one row.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "KINDS",
    "Entry",
    "Layout",
    "Weights",
    "clone",
    "finite",
    "from_plain",
    "mean",
    "nbytes",
    "to_plain",
    "tree_map",
]

KINDS = ("weight", "norm", "stat")  # the order in the buffer: trained ones first, so `trained` is one slice


@dataclass(frozen=True)
class Entry:
    """One named tensor of a net. kind: "weight", "norm" (affine of a normalisation layer) or "stat" (running
    statistic).
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "weight"

    @property
    def size(self) -> int:
        """Its numbers."""
        return math.prod(self.shape)


class Layout:
    """Where each named tensor lies in the flat buffer. Entries are sorted by kind and otherwise keep their order."""

    def __init__(self, entries: Iterable[Entry]):
        given = list(entries)
        if len({e.name for e in given}) != len(given):
            raise ValueError("a layout needs distinct names")
        self.entries = tuple(e for kind in KINDS for e in given if e.kind == kind)
        if len(self.entries) != len(given):
            raise ValueError(f"entry kinds must be among {KINDS}")
        ends = list(itertools.accumulate(e.size for e in self.entries))
        self.offsets = dict(zip((e.name for e in self.entries), [0, *ends], strict=False))
        self.size = sum(e.size for e in self.entries)  # floats in all
        self.trained = sum(e.size for e in self.entries if e.kind != "stat")  # floats that a gradient moves

    def view(self, flat: Tensor, entry: Entry) -> Tensor:
        """The entry's view of `flat` [size]. Convolution kernels lie in channels_last order."""
        at = self.offsets[entry.name]
        piece = flat[at : at + entry.size]
        if len(entry.shape) == 4:
            out, into, high, wide = entry.shape
            return piece.view(out, high, wide, into).permute(0, 3, 1, 2)
        return piece.view(entry.shape)

    def zeros(self, device: torch.device | str = "cpu") -> Weights:
        """Weights of this layout, all 0, float32."""
        return Weights(self, torch.zeros(self.size, device=device))

    def describe(self) -> list[list[Any]]:
        """[name, shape, kind] of each entry, for JSON."""
        return [[e.name, list(e.shape), e.kind] for e in self.entries]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self.entries == other.entries)

    def __hash__(self) -> int:
        return hash(self.entries)


class Weights:
    """A net's parameters and statistics (or anything of that layout) as one flat float tensor [layout.size] with named
    views.
    """

    __slots__ = ("__dict__", "flat", "layout")

    def __init__(self, layout: Layout, flat: Tensor):
        self.layout, self.flat = layout, flat

    @cached_property
    def views(self) -> dict[str, Tensor]:
        """Each named tensor, a view of the buffer."""
        return {e.name: self.layout.view(self.flat, e) for e in self.layout.entries}

    def __getitem__(self, name: str) -> Tensor:
        return self.views[name]

    @property
    def trained(self) -> Tensor:
        """The trained stretch, a view [layout.trained]: weights and norm affines, without running statistics."""
        return self.flat[: self.layout.trained]

    def like(self, flat: Tensor) -> Weights:
        """Weights of the same layout over another buffer [layout.size]."""
        return Weights(self.layout, flat)

    def clone(self) -> Weights:
        """An independent copy, without gradient."""
        return self.like(self.flat.detach().clone())

    def to(self, device: torch.device | str) -> Weights:
        """The same on another device (itself if it is there)."""
        return self.like(self.flat.to(device))

    def _other(self, other: Weights | Tensor | float) -> Tensor | float:
        if isinstance(other, Weights):
            if other.layout != self.layout:
                raise ValueError("arithmetic between weights of different nets")
            return other.flat
        return other

    def __add__(self, other: Weights | Tensor | float) -> Weights:
        return self.like(self.flat + self._other(other))

    def __sub__(self, other: Weights | Tensor | float) -> Weights:
        return self.like(self.flat - self._other(other))

    def __mul__(self, other: Tensor | float) -> Weights:
        return self.like(self.flat * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Tensor | float) -> Weights:
        return self.like(self.flat / other)

    def named(self) -> dict[str, Tensor]:
        """Contiguous copies by name, for export."""
        return {name: view.detach().contiguous().clone() for name, view in self.views.items()}

    def __repr__(self) -> str:
        return f"Weights({self.layout.size} floats, {len(self.layout.entries)} tensors)"


def tree_map(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `fn` to every tensor and Weights; other leaves pass through."""
    if isinstance(tree, Mapping):
        return {k: tree_map(fn, v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [tree_map(fn, v) for v in tree]
    return fn(tree) if isinstance(tree, Tensor | Weights) else tree


def clone(tree: Any) -> Any:
    """Independent copies of all tensors."""
    return tree_map(lambda t: t.clone() if isinstance(t, Weights) else t.detach().clone(), tree)


def nbytes(tree: Any) -> int:
    """Bytes that sending `tree` costs: tensors at their own width, numbers at 8, text as UTF-8. Raises TypeError for
    anything else, such as numpy arrays.
    """
    if isinstance(tree, Weights):
        return tree.flat.numel() * tree.flat.element_size()
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, Mapping):
        return sum(nbytes(v) for v in tree.values())
    if isinstance(tree, list | tuple):
        return sum(nbytes(v) for v in tree)
    if tree is None:
        return 0
    if not isinstance(tree, str | int | float):
        raise TypeError(
            f"{type(tree).__name__}: what is sent or kept is made of tensors, weights, numbers, texts, lists and dicts "
            f"(an array: torch.from_numpy)"
        )
    return len(tree.encode()) if isinstance(tree, str) else 8


def finite(tree: Any) -> bool:
    """Whether every number of `tree` is finite: no NaN, no infinity."""
    if isinstance(tree, Weights):
        tree = tree.flat
    if isinstance(tree, Tensor):
        if not tree.is_floating_point():
            return True
        flat = tree.detach().reshape(-1)
        # The square is one fast pass, and finite for all but broken models; only else is every number looked at.
        return math.isfinite(float(torch.dot(flat, flat))) or bool(torch.isfinite(flat).all())
    if isinstance(tree, Mapping):
        return all(map(finite, tree.values()))
    if isinstance(tree, list | tuple):
        return all(map(finite, tree))
    return math.isfinite(tree) if isinstance(tree, float) else True


def mean(trees: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    """Weighted mean of trees of one shape, summed in the given order in at least float32 (weights default to equal, and
    are normalised).

    Integer tensors (counters) take the largest instead: dividing them would truncate. Raises ValueError without trees,
    or if the weights do not have a positive sum.
    """
    if not trees:
        raise ValueError("mean of no trees")
    shares = [1.0] * len(trees) if weights is None else [float(w) for w in weights]
    total = sum(shares)
    if len(shares) != len(trees) or not total > 0:
        raise ValueError(f"{len(trees)} trees need as many weights with a positive sum, got {shares}")
    return _mean(list(trees), [s / total for s in shares])


def _mean(trees: list[Any], shares: list[float]) -> Any:
    first = trees[0]
    if isinstance(first, Mapping):
        return {k: _mean([t[k] for t in trees], shares) for k in first}
    if isinstance(first, list | tuple):
        return [_mean([t[k] for t in trees], shares) for k in range(len(first))]
    if isinstance(first, Weights):
        return first.like(_mean([t.flat for t in trees], shares))
    if not isinstance(first, Tensor):
        return sum(t * s for t, s in zip(trees, shares, strict=True))
    if not first.is_floating_point():
        return torch.stack(trees).amax(0)
    total = trees[0].to(torch.promote_types(first.dtype, torch.float32)) * shares[0]
    for tensor, share in zip(trees[1:], shares[1:], strict=True):
        total.add_(tensor, alpha=share)
    return total.to(first.dtype)


def to_plain(tree: Any) -> Any:
    """The same tree in dicts, lists, tensors and plain values only, so that `weights_only=True` loads it."""
    if isinstance(tree, Weights):
        return {"__layout__": json.dumps(tree.layout.describe()), "flat": _alone(tree.flat)}
    if isinstance(tree, Mapping):
        return {k: to_plain(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [to_plain(v) for v in tree]
    if isinstance(tree, Tensor):
        return _alone(tree)
    if isinstance(tree, float):
        return float(tree)  # numpy's float64 is one, too, but is not read back
    if tree is not None and not isinstance(tree, bool | int | str):
        raise TypeError(f"{type(tree).__name__}: a checkpoint holds tensors, weights, numbers, texts, lists and dicts")
    return tree


def _alone(tensor: Tensor) -> Tensor:
    """On the CPU, and not part of a larger buffer, all of which torch.save would write."""
    tensor = tensor.detach().cpu()
    return tensor.clone() if tensor.untyped_storage().nbytes() > nbytes(tensor) else tensor


def from_plain(tree: Any, device: torch.device | str = "cpu", layouts: dict[str, Layout] | None = None) -> Any:
    """Undo `to_plain`. Equal layouts come back as one object."""
    layouts = {} if layouts is None else layouts
    if isinstance(tree, dict):
        if "__layout__" in tree:
            text = tree["__layout__"]
            if text not in layouts:
                layouts[text] = Layout(Entry(n, tuple(s), k) for n, s, k in json.loads(text))
            return Weights(layouts[text], tree["flat"].to(device))
        return {k: from_plain(v, device, layouts) for k, v in tree.items()}
    if isinstance(tree, list):
        return [from_plain(v, device, layouts) for v in tree]
    return tree.to(device) if isinstance(tree, Tensor) else tree
