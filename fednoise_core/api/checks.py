"""Checks of a run's arguments, before any work. A wrong argument raises one error, which names it and the remedy."""

import dataclasses
import errno
import os
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.labelled import labels_digest
from fednoise_core.data.partition import Partition
from fednoise_core.engine.pool import build_augmentation
from fednoise_core.engine.world import World
from fednoise_core.io import SpecError
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.sampling import wrong_share
from fednoise_core.settings.declare import build_settings
from fednoise_core.settings.functions import expect_type, seed_of, spec_of
from fednoise_core.settings.train import Train

NO_FOLDER = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.ENOENT, errno.EROFS}  # the path is wrong


def check_writable(folder: str | os.PathLike[str] | None) -> None:
    """Make the folder, if one is given. Raise SpecError if it is not writable. Errors of a full disk are not caught."""
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        raise SpecError(f"out: expected a folder that can be written to, got {error}") from error


def check_device(device: Any) -> None:
    """Check that torch can compute on a device.

    Args:
        device: "cpu", "cuda" or "cuda:N".

    Raises:
        SpecError: torch does not have this device.
        TypeError: `device` is neither a string nor a torch.device.
    """
    expect_type(device, (str, torch.device), "device", 'pass "cpu", "cuda" or "cuda:N"')
    try:
        parsed = torch.device(device)
    except RuntimeError:
        parsed = None
    if parsed is None or parsed.type not in ("cpu", "cuda"):
        raise SpecError(f"device: expected cpu, cuda or cuda:N, got {str(device)!r}")
    if parsed.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (parsed.index or 0) >= count:
            raise SpecError(f"device: {str(device)!r}, but torch finds {count} GPUs; use device='cpu'")


def warn_of_slow_bf16(train: Train, device: Any) -> None:
    """Warn if training or evaluation is set to bf16 on a processor without bf16 instructions.

    torch then computes in fp32 and rounds. This took 2.4 times as long as fp32 (cnn9 of width 32, AVX-512 without
    bf16).
    """
    asked = "bf16" in (train.precision, train.eval_precision) and torch.device(device).type == "cpu"
    if asked and not any(has for name, has in torch.cpu.get_capabilities().items() if "bf16" in name):
        warnings.warn("train.precision: this processor has no instructions for bf16: fp32 is faster", stacklevel=2)


def check_data(arrays: Any, labels: Any, partition: Any, donor: Any) -> None:
    """Check that the labels and the partition were made for the data set.

    Args:
        arrays: The data set.
        labels: Its labels.
        partition: Its partition.
        donor: Another data set, or None.

    Raises:
        SpecError: The arguments do not belong together.
        TypeError: An argument has another type.
    """
    expect_type(arrays, Arrays, "arrays", "pass what fn.dataset(…) gives, or fn.Arrays(…)")
    expect_type(labels, Labels, "labels", "pass what fn.inject(…) gives, or an array int [n] of your own labels")
    expect_type(partition, Partition, "partition", "pass what fn.partition_of(…) gives")
    expect_type(donor, (Arrays, type(None)), "donor", "pass the Arrays of another data set, or None")
    labels.check_made_for(arrays.y_train, arrays.classes, arrays.clean_known)
    labels.check()
    partition.check_made_for(arrays.n, labels_digest(arrays.y_train, arrays.classes))
    if labels.client_level is not None and labels.client_rate is not None and labels.wrong is not None:
        rates = wrong_share(labels.wrong, [partition.of(client) for client in range(partition.clients)])
        if not np.array_equal(rates, labels.client_rate, equal_nan=True):
            raise SpecError("labels: their noise was drawn for other clients; pass this partition to fn.inject as well")


def resolve_settings(method: Any, train: Any, seed: Any) -> tuple[dict[str, Any], Train, int]:
    """Check the settings of a run.

    Args:
        method: A name, or `{"name": …, fields…}`.
        train: A Train or its fields.
        seed: Whole number from 0.

    Returns:
        Name and fields of the method, training settings, and seed.

    Raises:
        SpecError: A value is wrong. The message names its key.
        TypeError: An argument has another type.
    """
    expect_type(train, (Mapping, Train, type(None)), "train", "pass a mapping like {'rounds': 10}, or a Train")
    fields, seed = spec_of(method, "name", "method"), seed_of(seed)
    settings = train if isinstance(train, Train) else build_settings(Train, train or {}, "train")
    return fields, settings, seed


def check_pools(name: str, method: FedAvg, settings: Train, world: World) -> None:
    """Check that augmentations fit the images, the batch size fits the nets, and required public images exist.

    Args:
        name: The method's name.
        method: The method.
        settings: Training settings with the augmentation.
        world: Pools of images.

    Raises:
        SpecError: An augmentation or `batch` does not fit, or public images are missing.
    """
    views = [(view, "method: a view of its own") for view in method.get_augmentations()]
    for spec, place in ((settings.augment, "train.augment"), *views):
        augmentation = build_augmentation(spec)
        try:
            if augmentation is not None:
                augmentation.check_shape(world.pools["train"].shape)
        except SpecError as error:
            raise SpecError(f"{place}: {error}") from error
    if settings.batch == 1 and not all(net.single_ok for net in world.nets):
        raise SpecError("train.batch: batch norm cannot take single images. Take 2 or more, or a net without it")
    if method.needs_public and "public" not in world.pools:
        raise SpecError(f"method: {name} needs public images: give the data set a `public` part")


def apply_openset_images(arrays: Arrays, labels: Labels, donor: Arrays | None) -> Arrays:
    """Apply open-set noise: replace some training images by foreign images and keep their labels.

    Args:
        arrays: The data set.
        labels: Its labels, which say which images are replaced.
        donor: Data set of the foreign images, if they do not come from the public images.

    Returns:
        The data set with the foreign images, or `arrays` itself if no image is replaced.

    Raises:
        SpecError: The foreign images are missing, or they are those of another donor than the labels were made with.
    """
    if labels.replaced is None:
        return arrays
    from_public = labels.spec["noise"].get("donor", "public") == "public"
    images = arrays.x_public if from_public else None if donor is None else donor.x_train
    if images is None:
        missing = "public images" if from_public else "the donor data set's arrays"
        raise SpecError(f"labels: their open-set noise needs {missing}")
    if donor is not None and labels.spec.get("donor") not in (None, labels_digest(donor.y_train, donor.classes)):
        raise SpecError("labels: made with another donor; pass the data set that fn.inject got")
    return dataclasses.replace(arrays, x_train=labels.replace_images(arrays.x_train, images))
