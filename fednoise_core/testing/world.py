"""A small world for tests of engine and methods.

It has 8 clients of unequal size, 5 classes, 8x8 images and a public pool. Client 1 holds one sample, client 2 none,
client 4 one class only. Half of the labels of clients 3, 5 and 6 are wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine.executors.choose import executor_for
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.loop import Outcome, run_loop
from fednoise_core.engine.pool import Pool
from fednoise_core.engine.state import State
from fednoise_core.engine.truth import Truth
from fednoise_core.engine.world import World
from fednoise_core.nets.net import Body, Net, Ops
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.sampling import realised_matrix
from fednoise_core.rng import stream
from fednoise_core.settings.train import Train

SIZES = (17, 1, 0, 12, 9, 14, 11, 8)  # client 1: a single sample; 2: empty; 4: one class only
CLASSES = 5
NOISY = (3, 5, 6)
FREE = 4  # samples that no client holds
N = sum(SIZES) + FREE
PUBLIC = 10

TRAIN: dict[str, Any] = {
    "net": {"name": "mlp", "hidden": 6},
    "rounds": 3,
    "fraction": 0.5,
    "epochs": 2,
    "batch": 5,
    "lr": 0.2,
}
TWO_NETS = [{"name": "mlp", "hidden": 6}, {"name": "mlp", "hidden": 4}]
PAIR = [{"name": "mlp", "hidden": 6}, {"name": "small_cnn", "width": 2, "hidden": 6}]


@functools.cache
def arrays() -> Arrays:
    """Make images that show their class as a bright stripe under noise.

    The training samples stand in the order of the clients that hold them.
    Test labels are spread evenly over the classes.
    """
    draw = stream(0, "toy images")

    def images(labels: np.ndarray) -> np.ndarray:
        x = draw.integers(0, 120, (len(labels), 8, 8))
        x[np.arange(len(labels)), labels + 1] += 120
        return x.astype(np.uint8)

    y = draw.permutation(np.arange(N) % CLASSES).astype(np.int64)
    y[slice(*client_bounds(4))] = 2
    y_test = (np.arange(40) % CLASSES).astype(np.int64)
    return Arrays(
        x_train=images(y),
        y_train=y,
        x_test=images(y_test),
        y_test=y_test,
        classes=CLASSES,
        mean=(0.25,),
        std=(0.2,),
        x_public=images((np.arange(PUBLIC) % CLASSES).astype(np.int64)),
        spec={"source": "toy"},
    )


def client_bounds(client: int) -> tuple[int, int]:
    """Look up where a client's samples begin and end.

    Returns:
        (from, to) among the training samples.
    """
    ends = np.cumsum((0, *SIZES))
    return int(ends[client]), int(ends[client + 1])


@functools.cache
def toy_labels() -> Labels:
    """Make the given labels.

    Half of each noisy client's labels are moved to the next class.
    All others are right.
    """
    clean, noisy = arrays().y_train, arrays().y_train.copy()
    for client in NOISY:
        a, b = client_bounds(client)
        noisy[a:b:2] = (noisy[a:b:2] + 1) % CLASSES
    return Labels(
        noisy=noisy,
        clean=clean,
        rate=float((noisy != clean).mean()),
        T_realised=realised_matrix(clean, noisy, CLASSES),
        spec={"artifact": "labels", "noise": {"kind": "toy"}, "seed": 0, "nominal_rate": None, "classes": CLASSES},
    )


@functools.cache
def two_classes() -> tuple[Arrays, Labels]:
    """Make data of two classes only, with the same images and a third of the labels wrong.

    Some methods treat two classes as a special case.
    The clean label is the old one modulo 2.
    """
    clean = arrays().y_train % 2
    data = dataclasses.replace(arrays(), y_train=clean, y_test=arrays().y_test % 2, classes=2)
    noisy = np.where(np.arange(len(clean)) % 3 == 0, 1 - clean, clean)
    spec = {**toy_labels().spec, "classes": 2}
    rate, realised = float((noisy != clean).mean()), realised_matrix(clean, noisy, 2)
    return data, Labels(noisy=noisy, clean=clean, rate=rate, T_realised=realised, spec=spec)


@functools.cache
def toy_partition(sizes: tuple[int, ...] = SIZES) -> Partition:
    """Make a partition in which clients hold stretches of the samples, in order.

    Args:
        sizes: Samples per client. Default: those of the small world.
    """
    ends = np.cumsum((0, *sizes))
    spec = {
        "artifact": "partition",
        "partition": {"kind": "toy"},
        "clients": len(sizes),
        "notes": {"samples": N, "overlap": False},
    }
    return Partition.from_parts([np.arange(a, b) for a, b in pairwise(ends)], spec)


def toy_world(
    train: dict[str, Any] | None = None, seed: int = 0, net: Net | None = None, split: Partition | None = None
) -> World:
    """Make the engine's World of the small world.

    Args:
        train: Training settings that differ from `TRAIN`.
        seed: The run's seed.
        net: An architecture of the test's own for all clients.
        split: Another partition.
    """
    made = World(arrays(), toy_labels().noisy, split or toy_partition(), Train(**{**TRAIN, **(train or {})}), seed)
    if net is not None:
        made.nets = [net]
    return made


def toy_federation(**options: Any) -> Federation:
    """Make a federation of the small world on the executor `sequential`.

    Args:
        **options: Those of `toy_world`.
    """
    made = toy_world(**options)
    return Federation(made, Sequential(made))


@contextlib.contextmanager
def federation_on(executor: str, **options: Any) -> Iterator[Federation]:
    """Make a federation of the small world on a named executor, which is ended afterwards.

    Args:
        executor: "sequential", "workers:2", "lanes:2" …
        **options: Those of `toy_world`.
    """
    made = toy_world(**options)
    runner = executor_for(made, executor)
    try:
        yield Federation(made, runner)
    finally:
        runner.close()


def run_method(method: Any, executor: str = "sequential", split: Partition | None = None, **options: Any) -> Outcome:
    """Run a method object, which need not have a name, to its end.

    Args:
        method: The method.
        executor: Name of the executor.
        split: Another partition.
        **options: Those of `run_loop`.
    """
    made = toy_world(dataclasses.asdict(method.train), split=split)
    runner = executor_for(made, executor)
    truth = Truth(
        toy_labels().clean, toy_labels().noisy, [(split or toy_partition()).train(c) for c in range(made.n)], CLASSES
    )
    test = Pool(arrays().x_test, arrays().mean, arrays().std)
    try:
        return run_loop(made, runner, method, truth, test, torch.from_numpy(arrays().y_test), **options)
    finally:
        runner.close()


def count_passes(rounds: Iterable[int], per_sample: int = 2, fed: Federation | None = None) -> int:
    """Count what these rounds add to `fed.passes`, by hand.

    Args:
        rounds: Round numbers, from 1.
        per_sample: Passes over each sample of the cohort.
        fed: The federation that samples the cohorts.
    """
    fed = fed or toy_federation()
    return sum(per_sample * SIZES[c] for r in rounds for c in fed.sample_cohort(r))


A_ROUND = 4 * 2 * 72 / 7  # passes of a round of FedAvg: 4 clients, 2 epochs, 72 samples among 7 clients


def round_of(method: Any, fed: Federation, state: State, clients: list[int] | None = None) -> list[dict[str, Any]]:
    """Play one round with a given cohort.

    Args:
        method: The method.
        fed: The federation.
        state: Its state, which is changed in place.
        clients: The cohort. Default: all clients with samples.

    Returns:
        The updates.
    """
    state.round += 1
    clients = fed.all if clients is None else clients
    clients, updates = fed.fit(method, state, clients, method.make_broadcast(fed, state))
    method.merge_updates(fed, state, clients, [dict(update) for update in updates])
    return updates


def images_of(world: World, client: int) -> tuple[Tensor, Tensor]:
    """Look up a client's images and given labels, straight from the arrays.

    Returns:
        Normalised float32 [n, 1, 8, 8], and int64 [n].
    """
    rows = world.index[client]
    x = (torch.from_numpy(arrays().x_train)[rows].float() / 255 - 0.25) / 0.2
    return x[:, None], torch.from_numpy(toy_labels().noisy)[rows]


# nets of the tests' own


def linear_body(ops: Ops, x: Tensor) -> Tensor:
    """Flatten the images, which makes the net a softmax regression."""
    return x.flatten(1)


def normed_body(ops: Ops, x: Tensor) -> Tensor:
    """Apply a convolution with batch normalisation."""
    return torch.relu(ops.norm("norm", ops.conv("conv", x, 3, 3, stride=2))).flatten(1)


def normed_point(ops: Ops, x: Tensor) -> Tensor:
    """Apply batch normalisation on a 1x1 map, which cannot be trained on one sample."""
    return torch.relu(ops.norm("norm", ops.conv("conv", x, 4, 8))).flatten(1)


def dropping_body(ops: Ops, x: Tensor) -> Tensor:
    """Apply a convolution with dropout of channels."""
    return ops.dropout2d(F.relu(ops.conv("conv", x, 6, 4, stride=2)), 0.5).flatten(1)


def toy_net(body: Body, **options: Any) -> Net:
    """Make a net of a test's own body for the small world's images.

    Args:
        body: Computes features from images.
        **options: Those of `Net`.
    """
    return Net(body.__name__, body, (1, 8, 8), CLASSES, **options)


def make_normed() -> Body:
    """Make the body of the net "toy_norm", for the registry of nets."""
    return normed_body


def make_normed_point() -> Body:
    """Make the body of the net "toy_norm_point", for the registry of nets."""
    return normed_point


def make_dropping() -> Body:
    """Make the body of the net "toy_drop", for the registry of nets."""
    return dropping_body


NETS = {
    "toy_norm": "fednoise_core.testing.world:make_normed",
    "toy_norm_point": "fednoise_core.testing.world:make_normed_point",
    "toy_drop": "fednoise_core.testing.world:make_dropping",
}
