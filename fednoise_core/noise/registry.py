"""Label noise as functions over arrays. `inject` makes the labels artifact from a data set and a noise spec.

A spec is `{"kind": …, settings…}`. The kinds and their settings are listed in config/schema/noise.yaml. Every kind has
the setting `noise_seed`. If it is given, it replaces the run's seed, so that all runs share the noise.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fednoise_core.data.labelled import LabelledData, labels_digest, plain_labels, read_only
from fednoise_core.data.partition import Partition
from fednoise_core.io import SpecError
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.sampling import NoiseResult, check_matrix, pack_generator
from fednoise_core.rng import refuse_global_draws, stream
from fednoise_core.settings.declare import Shown, with_defaults
from fednoise_core.settings.functions import check_int, expect_type, parse_spec, resolve_kind, seed_of, spec_of

# kind → import path of its function. They are strings, so that the code hash of labels covers only their own kind.
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
    "soft_labels": "fednoise_core.noise.soft_labels:soft_labels",
    "openset_images": "fednoise_core.noise.observed:openset_images",
    "fedcorr": "fednoise_core.noise.levels:fedcorr",
    "fednoro": "fednoise_core.noise.levels:fednoro",
    "client_groups": "fednoise_core.noise.levels:client_groups",
    "globalized": "fednoise_core.noise.levels:globalized",
    "localized": "fednoise_core.noise.levels:localized",
}
RANDOM_STATE_SEEDS = 1 << 32  # number of seeds that np.random.RandomState accepts


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Settings of every kind."""

    noise_seed: Annotated[
        int | None,
        Shown(in_headings=False),
        Field(ge=0, description="Replaces the run's seed, so that all runs share the noise."),
    ] = None


def load_model(spec: Mapping[str, Any]) -> Any:
    """Find the function of a noise. Pass no spec from a file of results: "module:name" is imported.

    Raises:
        SpecError: There is none.
    """
    return resolve_kind(spec, NOISES, "noise", decorator="noise_model")


def _takes_input(spec: Mapping[str, Any], name: str) -> bool:
    return name in inspect.signature(load_model(spec)).parameters


def needs_partition(spec: Mapping[str, Any]) -> bool:
    """Return True if this noise depends on which client holds a sample."""
    return _takes_input(spec, "clients")


def needs_donor(spec: Mapping[str, Any]) -> str | None:
    """Find the data set that provides the foreign images of open-set noise.

    Returns:
        Its id, or None if no other data set is needed.
    """
    donor = spec.get("donor", "public") if _takes_input(spec, "donor_count") else "public"
    return None if donor == "public" else str(donor)


def needs_file(spec: Mapping[str, Any]) -> str | None:
    """The user's file that the setting `file` of this noise names, or None."""
    return str(spec["file"]) if spec.get("file") is not None else None


def keeps_generator(spec: Mapping[str, Any]) -> bool:
    """Return True if the labels artifact keeps the generator after the labels were drawn (`Labels.generator`)."""
    return spec.get("noise_seed") is not None and load_model(spec).random_state


def inject(
    data: Any,
    spec: Mapping[str, Any] | str,
    seed: int = 0,
    partition: Partition | None = None,
    donor: Any = None,
) -> Labels:
    """Make noisy labels for the n training samples of a data set.

    Args:
        data: The data set: an `Arrays`, a `LabelledData`, or the path of an artifact.
        spec: `{"kind": …, settings…}` as in docs/reference.md, or only the kind's name if it needs no settings.
        seed: A whole number from 0. Draws come from stream(noise_seed or seed, "noise").
        partition: Required for noise that differs between clients (`needs_partition`). For other noise it only adds the
            rates per client.
        donor: The arrays (or their path) of the data set that `needs_donor` returns.

    Returns:
        The labels.

    Raises:
        SpecError: The spec is wrong or does not fit the data, or the partition was made for other data.
        TypeError: An argument is of another type.
        ArtifactError: A file is damaged.
    """
    source, donor = LabelledData.of(data), None if donor is None else LabelledData.of(donor, "donor")
    spec, seed = spec_of(spec, "kind", "noise"), seed_of(seed)
    function, settings = parse_spec(spec, NOISES, "noise", Shared, decorator="noise_model")
    K, kind = source.classes, str(spec["kind"])
    noise_seed = settings.pop("noise_seed")
    if noise_seed is not None:
        check_int(noise_seed, "noise.noise_seed", 0, RANDOM_STATE_SEEDS - 1 if load_model(spec).random_state else None)
    rng: Any = stream(seed if noise_seed is None else noise_seed, "noise")
    if keeps_generator(spec):
        rng = np.random.RandomState(noise_seed)
    clients = None
    if partition is not None:
        expect_type(partition, Partition, "partition", "pass what fn.partition_of(…) gives")
        partition.check_made_for(len(source.y), labels_digest(source.y, K))
        clients = [read_only(partition.of(c)) for c in range(partition.clients)]

    parameters = inspect.signature(function).parameters
    if not source.clean_known and "given" not in parameters:
        cure = "use kind: given (or say clean_known: true if they are right)"
        raise SpecError(f"noise {kind}: the clean labels of this data set are unknown; {cure}")
    if "clients" in parameters and partition is None:
        raise SpecError(f"noise {kind}: needs a partition")
    if "clients" in parameters and partition is not None and partition.overlap:
        raise SpecError(f"noise {kind}: the partition overlaps, a sample would have two labels")
    makers: dict[str, Callable[[], Any]] = {
        "clients": lambda: clients,
        "images": lambda: read_only(source.read_images()),
        "given": lambda: source.given,
        "clean_known": lambda: source.clean_known,
        "coarse": lambda: source.coarse,
        "donor_count": lambda: len(_donor_images(donor, spec) if needs_donor(spec) else source.read_images("x_public")),
    }
    inputs = {name: make() for name, make in makers.items() if name in parameters}
    y = read_only(plain_labels(source.y, len(source.y), K))
    with refuse_global_draws(f"noise {kind}"):
        result = function(y, K, rng, **inputs, **settings)
    _check_result(result, f"noise {kind}", len(y), K, clients)
    arrays = {"T_nominal": result.T_nominal, "client_level": result.level, **result.arrays}
    if isinstance(rng, np.random.RandomState):  # the authors' code continues to draw from it
        arrays["generator"] = pack_generator(rng)
    record = {"noise": spec, "seed": seed, "nominal_rate": _rate_of(spec, K), "notes": dict(result.notes)}
    if needs_donor(spec):
        record["donor"] = labels_digest(donor.y, donor.classes)
    labels = Labels.measured(result.y_noisy.copy(), y, K, source.clean_known, record, clients, **arrays)
    labels.check()
    return labels


def _check_result(result: Any, place: str, n: int, K: int, clients: Sequence[np.ndarray] | None) -> None:
    """Check what the function of a noise model returned.

    Raises:
        SpecError: It is no NoiseResult, or labels, matrix or levels do not fit the data.
    """
    if not isinstance(result, NoiseResult):
        raise SpecError(f"{place}: its function returned {type(result).__name__}; return NoiseResult(noisy, T)")
    noisy = result.y_noisy
    if not isinstance(noisy, np.ndarray) or noisy.dtype != np.int64 or noisy.shape != (n,):
        actual = f"{noisy.dtype} {list(noisy.shape)}" if isinstance(noisy, np.ndarray) else type(noisy).__name__
        raise SpecError(f"{place}: its labels are {actual}; int64 [{n}] is needed")
    if n and (noisy.min() < 0 or noisy.max() >= K):
        raise SpecError(f"{place}: its labels are {noisy.min()}..{noisy.max()}; the classes are 0..{K - 1}")
    C = 0 if clients is None else len(clients)
    if result.T_nominal is not None:
        shape = check_matrix(result.T_nominal, f"{place}: T_nominal", 1e-6).shape
        if shape not in ((K, K), (C, K, K)):
            raise SpecError(f"{place}: T_nominal is {list(shape)}; [{K}, {K}] or one such matrix a client is needed")
    if result.level is not None and C and np.shape(result.level) != (C,):
        raise SpecError(f"{place}: level is {list(np.shape(result.level))}; one number per client is needed")


def _donor_images(donor: Any, spec: Mapping[str, Any]) -> np.ndarray:
    if donor is None:
        raise SpecError(f"noise {spec['kind']}: needs the arrays of data set {spec['donor']!r}")
    return donor.read_images()


def nominal_rate(spec: Mapping[str, Any], K: int) -> float | None:
    """Expected share of wrong labels under balanced classes and clients.

    Args:
        spec: the noise.
        K: number of classes.

    Returns:
        The rate, or None if it is unknown (human, given, a kind of the user's own, which is not imported).
    """
    if spec["kind"] in NOISES:
        return _rate_of(spec, K)
    rate = None if ":" in spec["kind"] else spec.get("rate")
    return None if rate is None else round(float(rate), 12)


def _rate_of(spec: Mapping[str, Any], K: int) -> float | None:
    model = load_model(spec)
    rate = model.nominal_rate(with_defaults(model, spec), K)
    return None if rate is None else round(float(rate), 12)


def oracle_rate(spec: Mapping[str, Any], K: int | None) -> float | None:
    """Return the noise rate for methods with an oracle rate: the published rate, else the nominal rate.

    Args:
        spec: The noise, not from a file of results (`load_model`).
        K: Number of classes, or None if it is not known.

    Returns:
        The rate, or None if it is unknown.
    """
    published: float | None = load_model(spec).published_rate(spec)
    return _rate_of(spec, K) if published is None and K is not None else published
