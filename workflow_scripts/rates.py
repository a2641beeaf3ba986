"""How fast this machine trains a net: seconds per image, measured for a moment and kept in work/rates.json.

The plan needs them before anything is trained. A rate belongs to processor, torch, net, image size and batch, and is
measured again if one of these is another.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fednoise_core.io import canonical, write_json

__all__ = ["Rate", "Rates", "processor"]

MOMENT = 0.2  # seconds of measuring, after a first call to warm up
TESTED = 200  # images of a forward pass
FEW = 4  # images that tell whether so many, or a whole batch, would take longer than the moment


@dataclass(frozen=True)
class Rate:
    """trained, tested: CPU seconds per image of a step and of a forward pass; parameters of the net."""

    trained: float
    tested: float
    parameters: int


class Rates:
    """Rates of one machine, read from `file` and written there when a new one was measured."""

    def __init__(self, file: Path = Path("work/rates.json")) -> None:
        self.file = file
        self.known: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError, ValueError):  # none yet, or damaged: measured again
            self.known = json.loads(file.read_text(encoding="utf-8"))

    def of(self, net: str | Mapping[str, Any], shape: tuple[int, int, int], classes: int, batch: int) -> Rate:
        """The rate of a net on images of `shape` (C, H, W) at this batch size."""
        import torch

        key = canonical([processor(), torch.__version__, net, shape, classes, batch])
        if key not in self.known:
            self.known[key] = asdict(_measured(net, shape, classes, batch))
            write_json(self.file, self.known)
        return Rate(**self.known[key])


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _measured(net: str | Mapping[str, Any], shape: tuple[int, int, int], classes: int, batch: int) -> Rate:
    import torch
    import torch.nn.functional as F

    from fednoise_core import optim
    from fednoise_core.nets import build
    from fednoise_core.optim import Trained

    torch.set_num_threads(1)
    made = build(net if isinstance(net, str) else dict(net), shape, classes)
    generator = torch.Generator().manual_seed(0)
    trained = Trained(made.layout, optim.make("sgd"))
    trained.load(made.fresh(generator))
    channels, height, width = shape
    x = torch.randn(max(batch, TESTED), height, width, channels, generator=generator).permute(0, 3, 1, 2)
    y = torch.randint(classes, (batch,), generator=generator)
    u = torch.rand(len(x), made.draws, generator=generator) if made.draws else None

    def step(count: int) -> None:
        seen = None if u is None else u[:count]
        trained.backward(F.cross_entropy(made.train(trained.w, x[:count], seen), y[:count]))

    def test(count: int) -> None:
        masks = u[:count] if u is not None and made.dropout_at_eval else None
        with torch.no_grad():
            made.predict(trained.w, x[:count], masks)

    update = _seconds(lambda: trained.update(0.01)) / batch
    return Rate(_per_image(step, batch) + update, _per_image(test, TESTED), made.parameters)


def _per_image(work: Callable[[int], None], count: int) -> float:
    """CPU seconds of an image among `count`. Where these would take longer than the moment, a few tell it: a plan of
    nets that need seconds for a batch is to be made before anything starts, not after minutes.
    """
    few = min(FEW, count)
    work(few)
    at = time.process_time()
    work(few)
    spent = time.process_time() - at
    return spent / few if spent * count / few > MOMENT else _seconds(lambda: work(count)) / count


def _seconds(work: Callable[[], None]) -> float:
    """CPU seconds of one call: the median of as many as fit the moment, since other work may share the machine."""
    work()
    found: list[float] = []
    began = time.perf_counter()
    while not found or time.perf_counter() - began < MOMENT:
        at = time.process_time()
        work()
        found.append(time.process_time() - at)
    return sorted(found)[len(found) // 2]
