"""A small world for tests of engine and methods.

It has 8 clients of unequal size, 5 classes, 8x8 images and a public pool. Client 1 holds one sample, client 2 none,
client 4 one class only. Half of the labels of clients 3, 5 and 6 are wrong.
"""

import dataclasses
import functools
from itertools import pairwise
from typing import Any

import numpy as np

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.sampling import realised_matrix
from fednoise_core.rng import stream

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
PAIR = [{"name": "mlp", "hidden": 6}, {"name": "small_cnn", "width": 2, "hidden": 6}]


@functools.cache
def arrays() -> Arrays:
    """Make images that show their class as a bright stripe with noise.

    The training samples are in the order of the clients that hold them.
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
    """Make a partition in which each client holds consecutive samples, in order.

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
