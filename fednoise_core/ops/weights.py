"""Trees, which are nested dicts of tensors, and Weights, whose tensors are views of one flat buffer.

Arithmetic on Weights is one vector operation for any net. A broadcast copies one buffer. A client's state is one row.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

KINDS = ("weight", "norm", "stat")  # the order in the buffer: trained ones first, so `trained` is one slice


@dataclass(frozen=True)
class Entry:
    """One named tensor of a net.

    Attributes:
        name: Name in the layout.
        shape: Shape of the tensor.
        kind: "weight", "norm" (affine of a normalisation layer) or "stat" (running statistic).
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "weight"

    @property
    def size(self) -> int:
        """Count of its numbers."""
        return math.prod(self.shape)


class Layout:
    """Positions of the named tensors in the flat buffer.

    Entries are sorted by kind and otherwise keep their order.

    Args:
        entries: Tensors of the net, with distinct names.

    Attributes:
        entries: Sorted entries.
        offsets: First position of each name.
        size: Numbers in the buffer.
        trained: Numbers that a gradient moves. They come first.

    Raises:
        ValueError: Two entries have one name, or a kind is unknown.
    """

    def __init__(self, entries: Iterable[Entry]):
        declared = list(entries)
        if len({e.name for e in declared}) != len(declared):
            raise ValueError("a layout needs distinct names")
        self.entries = tuple(e for kind in KINDS for e in declared if e.kind == kind)
        if len(self.entries) != len(declared):
            raise ValueError(f"entry kinds must be among {KINDS}")
        ends = list(itertools.accumulate(e.size for e in self.entries))
        self.offsets = dict(zip((e.name for e in self.entries), [0, *ends], strict=False))
        self.size = sum(e.size for e in self.entries)  # floats in all
        self.trained = sum(e.size for e in self.entries if e.kind != "stat")  # floats that a gradient moves

    def view(self, flat: Tensor, entry: Entry) -> Tensor:
        """View of one entry. Convolution kernels lie in channels_last order.

        Args:
            flat: Buffer [size].
            entry: Entry of this layout.

        Returns:
            The part of `flat` in the shape of the entry.
        """
        start = self.offsets[entry.name]
        piece = flat[start : start + entry.size]
        if len(entry.shape) == 4:
            out, into, high, wide = entry.shape
            return piece.view(out, high, wide, into).permute(0, 3, 1, 2)
        return piece.view(entry.shape)

    def zeros(self, device: torch.device | str = "cpu") -> Weights:
        """Weights of this layout with all numbers 0.

        Args:
            device: Device of the buffer.

        Returns:
            Weights, float32.
        """
        return Weights(self, torch.zeros(self.size, device=device))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self.entries == other.entries)

    def __hash__(self) -> int:
        return hash(self.entries)


class Weights:
    """Parameters and statistics of a net, or anything of that layout, as one flat float tensor with named views.

    Args:
        layout: Names and places.
        flat: Buffer [layout.size]. It is not copied.
    """

    __slots__ = ("__dict__", "flat", "layout")

    def __init__(self, layout: Layout, flat: Tensor):
        self.layout, self.flat = layout, flat

    @cached_property
    def views(self) -> dict[str, Tensor]:
        """Each named tensor as a view of the buffer."""
        return {e.name: self.layout.view(self.flat, e) for e in self.layout.entries}

    def __getitem__(self, name: str) -> Tensor:
        return self.views[name]

    @property
    def trained(self) -> Tensor:
        """View [layout.trained] of what a gradient moves, without running statistics."""
        return self.flat[: self.layout.trained]

    def like(self, flat: Tensor) -> Weights:
        """Weights of the same layout over another buffer.

        Args:
            flat: Buffer [layout.size].

        Returns:
            Weights that share `flat`.
        """
        return Weights(self.layout, flat)

    def clone(self) -> Weights:
        """Independent copy without gradient.

        Returns:
            Weights with a buffer of their own.
        """
        return self.like(self.flat.detach().clone())

    def to(self, device: torch.device | str) -> Weights:
        """Move to a device.

        Args:
            device: Where the buffer should be.

        Returns:
            Weights there. They share the buffer if it is there already.
        """
        return self.like(self.flat.to(device))

    def _flat_operand(self, other: Weights | Tensor | float) -> Tensor | float:
        if isinstance(other, Weights):
            if other.layout != self.layout:
                raise ValueError("arithmetic between weights of different nets")
            return other.flat
        return other

    def __add__(self, other: Weights | Tensor | float) -> Weights:
        return self.like(self.flat + self._flat_operand(other))

    def __sub__(self, other: Weights | Tensor | float) -> Weights:
        return self.like(self.flat - self._flat_operand(other))

    def __mul__(self, other: Tensor | float) -> Weights:
        return self.like(self.flat * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Tensor | float) -> Weights:
        return self.like(self.flat / other)

    def named(self) -> dict[str, Tensor]:
        """Tensors by name, for export.

        Returns:
            Contiguous copies.
        """
        return {name: view.detach().contiguous().clone() for name, view in self.views.items()}

    def __repr__(self) -> str:
        return f"Weights({self.layout.size} floats, {len(self.layout.entries)} tensors)"


def tree_map(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to every tensor and Weights of a tree.

    Args:
        fn: Function of one tensor or Weights.
        tree: Nested dicts, lists and tuples. Other leaves stay as they are.

    Returns:
        A tree of the same shape. Tuples become lists.
    """
    if isinstance(tree, Mapping):
        return {k: tree_map(fn, v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [tree_map(fn, v) for v in tree]
    return fn(tree) if isinstance(tree, Tensor | Weights) else tree


def clone_tree(tree: Any) -> Any:
    """Copy all tensors of a tree.

    Args:
        tree: Nested dicts, lists and tuples.

    Returns:
        A tree whose tensors are independent and have no gradient.
    """
    return tree_map(lambda t: t.clone() if isinstance(t, Weights) else t.detach().clone(), tree)


def iterate_leaves(tree: Any) -> Iterator[Any]:
    """Go through the leaves of a tree, in order. Weights are their one flat tensor.

    Args:
        tree: Nested dicts, lists and tuples. A leaf is anything else.
    """
    if isinstance(tree, Mapping | list | tuple):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from iterate_leaves(part)
    else:
        yield tree.flat if isinstance(tree, Weights) else tree


def count_bytes(tree: Any) -> int:
    """Bytes that sending a tree costs.

    Tensors count at their own width, numbers as 8 bytes and text as UTF-8.

    Args:
        tree: Tensors, Weights, numbers, texts, None, and lists and dicts of these.

    Returns:
        Number of bytes.

    Raises:
        TypeError: The tree holds anything else, such as a numpy array.
    """
    return sum(map(_count_leaf, iterate_leaves(tree)))


def _count_leaf(leaf: Any) -> int:
    if isinstance(leaf, Tensor):
        return leaf.nbytes
    if leaf is None:
        return 0
    if not isinstance(leaf, str | int | float):
        raise TypeError(
            f"{type(leaf).__name__}: what is sent or kept is made of tensors, weights, numbers, texts, lists and dicts "
            f"(an array: torch.from_numpy)"
        )
    return len(leaf.encode()) if isinstance(leaf, str) else 8


def all_finite(tree: Any) -> bool:
    """Check that no number of a tree is NaN or infinite.

    Args:
        tree: Nested dicts, lists and tuples.

    Returns:
        Whether all numbers are finite.
    """
    return all(map(_is_finite, iterate_leaves(tree)))


def _is_finite(leaf: Any) -> bool:
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        flat = leaf.detach().reshape(-1)
        # The square is one fast pass, and finite for all but broken models; only else is every number looked at.
        return math.isfinite(float(torch.dot(flat, flat))) or bool(torch.isfinite(flat).all())
    return math.isfinite(leaf) if isinstance(leaf, float) else True


def weighted_mean(trees: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
    """Weighted mean of trees of one shape, summed in the given order in at least float32.

    Integer tensors are counters, which a division would truncate. For them the largest value counts.

    Args:
        trees: Trees of one shape, at least one.
        weights: Weight of each tree, by default equal. They are normalised.

    Returns:
        A tree of the same shape and dtypes.

    Raises:
        ValueError: There are no trees, or not as many weights, or their sum is not positive.
        FloatingPointError: A weight is not finite. The engine takes it for a training that diverges.
    """
    if not trees:
        raise ValueError("mean of no trees")
    shares = [1.0] * len(trees) if weights is None else [float(w) for w in weights]
    total = sum(shares)
    if not math.isfinite(total):
        raise FloatingPointError(f"the weights of a mean are not finite: {shares}")
    if len(shares) != len(trees) or not total > 0:
        raise ValueError(f"{len(trees)} trees need as many weights with a positive sum, got {shares}")
    return _weighted_mean(list(trees), [s / total for s in shares])


def _weighted_mean(trees: list[Any], shares: list[float]) -> Any:
    first = trees[0]
    if isinstance(first, Mapping):
        return {k: _weighted_mean([t[k] for t in trees], shares) for k in first}
    if isinstance(first, list | tuple):
        return [_weighted_mean([t[k] for t in trees], shares) for k in range(len(first))]
    if isinstance(first, Weights):
        return first.like(_weighted_mean([t.flat for t in trees], shares))
    if not isinstance(first, Tensor):
        return sum(t * s for t, s in zip(trees, shares, strict=True))
    if not first.is_floating_point():
        return torch.stack(trees).amax(0)
    total = trees[0].to(torch.promote_types(first.dtype, torch.float32)) * shares[0]
    for tensor, share in zip(trees[1:], shares[1:], strict=True):
        total.add_(tensor, alpha=share)
    return total.to(first.dtype)


def to_plain(tree: Any) -> Any:
    """Convert a tree to dicts, lists, tensors and plain values, so that `weights_only=True` loads it.

    Args:
        tree: Tensors, Weights, numbers, texts, None, and lists and dicts of these.

    Returns:
        The plain tree. Its tensors are on the CPU.

    Raises:
        TypeError: The tree holds anything else.
    """
    if isinstance(tree, Weights):
        entries = [[e.name, list(e.shape), e.kind] for e in tree.layout.entries]
        return {"__layout__": json.dumps(entries), "flat": _detach_storage(tree.flat)}
    if isinstance(tree, Mapping):
        return {k: to_plain(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [to_plain(v) for v in tree]
    if isinstance(tree, Tensor):
        return _detach_storage(tree)
    if isinstance(tree, float):
        return float(tree)  # numpy's float64 is one, too, but is not read back
    if tree is not None and not isinstance(tree, bool | int | str):
        raise TypeError(f"{type(tree).__name__}: a checkpoint holds tensors, weights, numbers, texts, lists and dicts")
    return tree


def _detach_storage(tensor: Tensor) -> Tensor:
    """Copy to the CPU, and out of a larger buffer, because torch.save would write all of it."""
    tensor = tensor.detach().cpu()
    return tensor.clone() if tensor.untyped_storage().nbytes() > count_bytes(tensor) else tensor


def from_plain(tree: Any, device: torch.device | str = "cpu", layouts: dict[str, Layout] | None = None) -> Any:
    """Undo `to_plain`.

    Args:
        tree: Result of `to_plain`.
        device: Device of the tensors.
        layouts: Known layouts by their description. It grows by those that are new.

    Returns:
        The tree. Equal layouts are one object.
    """
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
