"""A stand-in for CUDA graphs that needs no GPU.

A step is recorded as a list of tensor operations, which are run again without the Python that made them. `Graphs` calls
the Python again. So a step that depends on something which captured steps are not told apart by (a global, an attribute
of the class, a tensor that is replaced) trains rightly there, and wrongly on a GPU. Here it trains wrongly, too: every
number of the host and every tensor stays what it was in the recording.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fednoise_core.engine.executors.gpu.eager_graphs import Graphs

MESSAGE = "operation not permitted when stream is capturing"
# numbers read by the host, shapes that depend on numbers, tensors made from the host's numbers
REFUSED = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "unique", "lift_fresh", "equal.")
# the same by ways that need no tensor operation
READING = (Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__)
# whose lines are not the method's
OTHERS = (Path(torch.__file__).parent, Path(__file__), Path(__file__).parents[1] / "engine")


class TapeGraphs(Graphs):
    """Records and replays as CUDA graphs do, slowly.

    Give it to a Replay, or put it in the place of `fednoise_core.engine.executors.gpu.replay.graphs_for`. It does not
    show that captures of one run share memory on a GPU, so that a step that leaves something behind there for the next
    one finds it overwritten.
    """

    def capture(
        self, body: Callable[[], None], rewind: Callable[[], None], stream: Any, memory: Any
    ) -> Callable[[], None]:
        """Warm up and record `body`.

        Arguments and result are those of `Graphs.capture`.

        Raises:
            RuntimeError: A CUDA graph could not record it.
        """
        super().capture(body, rewind, stream, memory)
        tape = _Tape()
        try:
            with _NothingIsRead(), tape:
                body()  # runs, unlike under a CUDA graph
        finally:
            rewind()
        return tape.replay


@dataclass(frozen=True)
class _Call:
    """One recorded operation, what it was called with, and the tensors that it gave."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    given: list[Tensor]

    def run_again(self) -> None:
        """Run it on the same tensors; what it gives goes to the same places."""
        results = _list_tensors(self.function(*self.args, **self.kwargs))
        for place, new in zip(self.given, results, strict=True):
            if place.data_ptr() != new.data_ptr():  # else it was changed in place
                place.copy_(new)


class _Tape(TorchDispatchMode):
    """Writes down the operations, and refuses those that a CUDA graph cannot record.

    It also sees what C++ does by itself: the backward pass, and the number read when a tensor without dimensions is an
    index. Random numbers are refused, too: a method's come from `batch.u`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_refused(function, args):
            raise RuntimeError(f"{MESSAGE}: {str(function).removeprefix('aten.')}{_locate_call()}")
        # tensors of the tape's own over the same memory: squeeze_ and the like would change the shape of the method's
        own_args, own_kwargs = tree_map_only(Tensor, Tensor.detach, (tuple(args), kwargs))
        result = function(*args, **kwargs)
        outputs = [tensor.detach() for tensor in _list_tensors(result)]
        view = (function.is_view and _shares_memory(outputs, args)) or torch.Tag.inplace_view in function.tags
        # A view shows recorded memory, as it did. What lies in new memory before anything is written there is nobody's.
        if not view and "empty" not in str(function):
            self.calls.append(_Call(function, own_args, own_kwargs, outputs))
        return result

    def replay(self) -> None:
        """Run what was recorded."""
        # what autocast did stands on the tape already
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            for call in self.calls:
                call.run_again()


class _NothingIsRead(TorchFunctionMode):
    """Refuses calls that hand a tensor's numbers to the host."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in READING:
            raise RuntimeError(f"{MESSAGE}: {function.__name__}{_locate_call()}")
        return function(*args, **(kwargs or {}))


def _is_refused(function: Any, args: Any) -> bool:
    name = str(function).removeprefix("aten.")
    if name.startswith(("index.Tensor", "index_put", "_index_put")):
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return name.startswith(REFUSED) or torch.Tag.nondeterministic_seeded in function.tags


def _locate_call() -> str:
    """Text such as ", file.py, line 7": the innermost line that is neither torch's nor the engine's; else ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if not any(file.is_relative_to(folder) for folder in OTHERS):
            return f", {file.name}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def _list_tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _shares_memory(tensors: list[Tensor], args: Any) -> bool:
    """Return True if these tensors lie in the memory of an operation's arguments."""
    memory = {tensor.untyped_storage().data_ptr() for tensor in _list_tensors(args)}
    return all(tensor.untyped_storage().data_ptr() in memory for tensor in tensors)
