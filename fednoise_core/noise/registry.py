"""Label noise as functions over arrays: `inject` takes a data set and a noise spec and gives the labels artifact.

A spec is `{"kind": …, settings…}`; the kinds and their settings stand in config/schema/noise.yaml. Every kind takes
`noise_seed`: if given, it replaces the run's seed, so that all runs share the noise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fednoise_core.data.labelled import LabelledData, plain_labels
from fednoise_core.io import SpecError
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.models import CIFAR10_MAP, read_matrix
from fednoise_core.noise.sampling import NoiseResult
from fednoise_core.partition.artifact import Partition
from fednoise_core.rng import stream
from fednoise_core.settings.functions import bind, expect, integer, resolve, seed_of, spec_of

__all__ = [
    "NOISES",
    "LabelledData",
    "Labels",
    "NoiseResult",
    "inject",
    "keeps_generator",
    "needs_donor",
    "needs_file",
    "needs_partition",
    "nominal_rate",
]

# kind → where its function is. Strings, so that the code hash of one kind's labels does not hold the others.
NOISES: dict[str, str | Callable[..., NoiseResult]] = {
    "none": "fednoise_core.noise.models:none",
    "symmetric": "fednoise_core.noise.models:symmetric",
    "random": "fednoise_core.noise.models:random",
    "asymmetric": "fednoise_core.noise.asymmetric:asymmetric",
    "pair": "fednoise_core.noise.models:pair",
    "semantic": "fednoise_core.noise.models:semantic",
    "matrix": "fednoise_core.noise.models:matrix",
    "human": "fednoise_core.noise.observed:human",
    "given": "fednoise_core.noise.observed:given",
    "instance": "fednoise_core.noise.instance:instance",
    "openset_images": "fednoise_core.noise.observed:openset_images",
    "fedcorr": "fednoise_core.noise.levels:fedcorr",
    "fednoro": "fednoise_core.noise.levels:fednoro",
    "client_groups": "fednoise_core.noise.levels:client_groups",
    "globalized": "fednoise_core.noise.levels:globalized",
    "localized": "fednoise_core.noise.levels:localized",
}
# with a noise_seed these draw as the authors' code did (np.random.RandomState)
LEGACY = frozenset({"asymmetric", "instance"})
LEGACY_SEEDS = 1 << 32  # that generator takes


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Settings of every kind."""

    noise_seed: Annotated[
        int | None, Field(ge=0, description="Replaces the run's seed, so that all runs share the noise.")
    ] = None


def _wants(spec: Mapping[str, Any], name: str) -> bool:
    return name in inspect.signature(resolve(spec, NOISES, "noise")).parameters


def needs_partition(spec: Mapping[str, Any]) -> bool:
    """Whether this noise depends on which client holds a sample."""
    return _wants(spec, "clients")


def needs_donor(spec: Mapping[str, Any]) -> str | None:
    """The data set id whose images open-set noise takes; None if no other data set is needed."""
    donor = spec.get("donor", "public") if _wants(spec, "donor_count") else "public"
    return None if donor == "public" else str(donor)


def needs_file(spec: Mapping[str, Any]) -> str | None:
    """The user's file that this noise reads (a matrix as CSV), or None."""
    return str(spec["file"]) if spec.get("kind") == "matrix" and spec.get("file") is not None else None


def keeps_generator(spec: Mapping[str, Any]) -> bool:
    """Whether the labels artifact keeps the generator as drawing the labels left it (`Labels.generator`)."""
    return spec.get("noise_seed") is not None and spec.get("kind") in LEGACY


def inject(
    data: Any,
    spec: Mapping[str, Any] | str,
    seed: int = 0,
    partition: Partition | None = None,
    donor: Any = None,
) -> Labels:
    """Noisy labels for the n training samples of `data`: an `Arrays`, a `LabelledData`, or the path of an artifact.

    spec: `{"kind": …, settings…}` as in docs/reference.md, or the kind's name alone where it needs no settings.
    seed: a whole number from 0; draws come from stream(noise_seed or seed, "noise"). partition: required by noise that
    differs between clients (`needs_partition`); for other noise it only adds the rates per client. donor: the arrays
    (or their path) of the data set that `needs_donor` names.

    Raises SpecError for a spec that is wrong or does not fit the data, and for a partition of other data; TypeError
    for arguments of another type; ArtifactError for a damaged file.
    """
    source = LabelledData.of(data)
    spec, seed = spec_of(spec, "kind", "noise"), seed_of(seed)
    function, settings = bind(spec, NOISES, "noise", Shared)
    K, kind = source.classes, str(spec["kind"])
    noise_seed = settings.pop("noise_seed")
    if noise_seed is not None:
        integer(noise_seed, "noise.noise_seed", 0, LEGACY_SEEDS - 1 if kind in LEGACY else None)
    rng: Any = stream(seed if noise_seed is None else noise_seed, "noise")
    if keeps_generator(spec):
        rng = np.random.RandomState(noise_seed)
    clients = None
    if partition is not None:
        expect(partition, Partition, "partition", "pass what fn.partition_of(…) gives")
        partition.belongs(len(source.y), source.digest)
        clients = [partition.of(c) for c in range(partition.clients)]

    wanted = inspect.signature(function).parameters
    if not source.clean_known and "given" not in wanted:
        cure = "use kind: given (or say clean_known: true if they are right)"
        raise SpecError(f"noise {kind}: the clean labels of this data set are unknown; {cure}")
    if "clients" in wanted and partition is None:
        raise SpecError(f"noise {kind}: needs a partition")
    if "clients" in wanted and partition is not None and partition.overlap:
        raise SpecError(f"noise {kind}: the partition overlaps, a sample would have two labels")
    makers: dict[str, Callable[[], Any]] = {
        "clients": lambda: clients,
        "images": source.images,
        "given": lambda: source.given,
        "clean_known": lambda: source.clean_known,
        "coarse": lambda: source.coarse,
        "donor_count": lambda: len(source.public_images() if needs_donor(spec) is None else _donor_images(donor, spec)),
    }
    inputs = {name: make() for name, make in makers.items() if name in wanted}
    y = plain_labels(source.y, len(source.y), K)
    result = function(y, K, rng, **inputs, **settings)
    arrays = {"T_nominal": result.T_nominal, "client_level": result.level, **result.arrays}
    if isinstance(rng, np.random.RandomState):  # the authors' code goes on drawing from it
        _, keys, position, *_ = rng.get_state()
        arrays["generator"] = np.append(np.asarray(keys), position).astype(np.uint32)
    record = {"noise": spec, "seed": seed, "nominal_rate": nominal_rate(spec, K), "notes": dict(result.notes)}
    labels = Labels.measured(result.y_noisy, y, K, source.clean_known, record, clients, **arrays)
    labels.check()
    return labels


def _donor_images(donor: Any, spec: Mapping[str, Any]) -> np.ndarray:
    if donor is None:
        raise SpecError(f"noise {spec['kind']}: needs the arrays of data set {spec['donor']!r}")
    return LabelledData.of(donor, "donor").images()


def nominal_rate(spec: Mapping[str, Any], K: int) -> float | None:
    """Expected share of wrong labels under balanced classes and clients; None where nobody states one (human, given).

    This is the number that methods with an oracle rate are given.
    """
    rule = _RULES.get(str(spec["kind"]))
    rate = spec.get("rate") if rule is None else rule(spec, K)
    return None if rate is None else round(float(rate), 12)


def _symmetric(spec: Mapping[str, Any], K: int) -> float:
    return spec["rate"] * ((K - 1) / K if spec.get("inclusive", False) else 1)


def _random(spec: Mapping[str, Any], K: int) -> float:
    return 1 - spec["rate"] if spec.get("diag") == "printed" else spec["rate"]


def _semantic(spec: Mapping[str, Any], K: int) -> float:
    flips = spec.get("map") or CIFAR10_MAP
    return spec["rate"] * sum(int(source) != target for source, target in flips.items()) / K


def _matrix(spec: Mapping[str, Any], K: int) -> float:
    return 1 - np.diagonal(read_matrix(spec.get("file"), spec.get("rows"))).mean()


def _fedcorr(spec: Mapping[str, Any], K: int) -> float:
    return spec["rho"] * (1 + spec["tau"]) / 2 * (K - 1) / K


def _fednoro(spec: Mapping[str, Any], K: int) -> float:
    level = (spec["lower"] + spec["upper"]) / 2
    return spec["rho"] * level * ((K - 1) / K if spec.get("inclusive", True) else 1)


def _groups(spec: Mapping[str, Any], K: int) -> float:
    return sum(group["share"] * (group["low"] + group["high"]) / 2 for group in spec["groups"])


def _localized(spec: Mapping[str, Any], K: int) -> float:
    return (spec["low"] + spec["high"]) / 2


_RULES: dict[str, Callable[[Mapping[str, Any], int], float]] = {
    "none": lambda spec, K: 0.0,
    "symmetric": _symmetric,
    "random": _random,
    "semantic": _semantic,
    "matrix": _matrix,
    "fedcorr": _fedcorr,
    "fednoro": _fednoro,
    "client_groups": _groups,
    "localized": _localized,
}
