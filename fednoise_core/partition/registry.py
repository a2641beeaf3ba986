"""Partitions, which assign training samples to clients. `make` makes the artifact from a data set and a spec.

A spec is `{"kind": …, "clients": C, settings…}`. The kinds and their settings are listed in
config/schema/partition.yaml. Every kind has the setting `validation`, the share of each client's samples for its
validation split.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.data.labelled import LabelledData, labels_digest, plain_labels, read_only
from fednoise_core.data.partition import Partition
from fednoise_core.io import SpecError
from fednoise_core.noise.labels import Labels
from fednoise_core.rng import refuse_global_draws, stream
from fednoise_core.settings.declare import Shown
from fednoise_core.settings.functions import expect_type, parse_spec, resolve_kind, seed_of, spec_of

# kind → where its function is, as a string: see fednoise_core.noise.registry
PARTITIONS: dict[str, str | Callable[..., list[np.ndarray]]] = {
    "iid": "fednoise_core.partition.schemes:iid",
    "openset": "fednoise_core.partition.schemes:openset",
    "bernoulli_dirichlet": "fednoise_core.partition.schemes:bernoulli_dirichlet",
    "classes_per_client": "fednoise_core.partition.skew:classes_per_client",
    "random_draws": "fednoise_core.partition.schemes:random_draws",
    "dirichlet": "fednoise_core.partition.skew:dirichlet",
    "quantity": "fednoise_core.partition.skew:quantity",
    "natural": "fednoise_core.partition.schemes:natural",
}


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Settings of every kind."""

    validation: Annotated[
        float,
        Shown(in_headings=False),
        Field(ge=0, lt=1, description="Share of each client's samples for its validation split."),
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class OverClients(Shared):
    """Settings of every kind but natural."""

    clients: Annotated[
        int,
        Shown(display_name="{} clients", in_headings=False),
        Field(ge=1, description="Number of clients; not more than samples."),
    ]


Whose = Annotated[
    Literal["clean", "noisy"],
    Shown(in_headings=False),
    Field(description="Labels that define the classes."),
]


@dataclass(frozen=True, kw_only=True)
class OverClean(OverClients):
    """Settings of kinds that look at labels, by default the clean ones."""

    labels: Whose = "clean"


@dataclass(frozen=True, kw_only=True)
class OverNoisy(OverClients):
    """Settings of kinds that look at labels, by default the noisy ones."""

    labels: Whose = "noisy"


def load_scheme(spec: Mapping[str, Any]) -> Any:
    """Find the function of a partition. Pass no spec from a file of results: "module:name" is imported.

    Raises:
        SpecError: There is none.
    """
    return resolve_kind(spec, PARTITIONS, "partition", decorator="partition_scheme")


def _scheme_inputs(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return inspect.signature(load_scheme(spec)).parameters


def shared_settings(kind: str) -> type:
    """Find the dataclass of the settings that a kind has in addition to those of its function."""
    spec = {"kind": kind}
    if "client_ids" in _scheme_inputs(spec):  # the data set says how many clients there are
        return Shared
    return {None: OverClients, "clean": OverClean, "noisy": OverNoisy}[load_scheme(spec).labels]


def needs_labels(spec: Mapping[str, Any]) -> bool:
    """Return True if a partition is drawn over the noisy labels. The workflow then makes the noise first.

    Args:
        spec: The partition.
    """
    default = load_scheme(spec).labels
    return default is not None and spec.get("labels", default) == "noisy"


def make(
    data: Any, spec: Mapping[str, Any] | str, seed: int = 0, labels: Labels | np.ndarray | None = None
) -> Partition:
    """Divide the n training samples of a data set among clients.

    Args:
        data: An `Arrays`, a `LabelledData`, or the path of an artifact.
        spec: `{"kind": …, "clients": C, settings…}` as in docs/reference.md, or only the kind's name ("natural").
        seed: A whole number from 0. Draws come from stream(seed, "partition").
        labels: The result of `inject`, or integers 0..K-1 [n]. Partitions over the noisy labels (`needs_labels`)
            require them. Other partitions ignore them.

    Raises:
        SpecError: The spec is wrong or does not fit the data, or the labels were made for other data.
        TypeError: An argument has another type.
        ArtifactError: A file is damaged.
    """
    source = LabelledData.of(data)
    spec, seed = spec_of(spec, "kind", "partition"), seed_of(seed)
    expect_type(labels, (Labels, np.ndarray, type(None)), "labels", "pass what fn.inject(…) gives, or an array int [n]")
    kind = str(spec.get("kind"))
    function, settings = parse_spec(spec, PARTITIONS, "partition", shared_settings(kind), decorator="partition_scheme")
    share, clients = settings.pop("validation"), settings.pop("clients", 0)
    settings.pop("labels", None)
    parameters = _scheme_inputs(spec)
    n = len(source.y)

    used, label_kind = source.y, "no"
    if load_scheme(spec).labels is not None:
        label_kind = "clean" if source.clean_known else "given"
        if needs_labels(spec):
            if labels is None:
                raise SpecError(f"partition {kind}: needs the noisy labels")
            used, label_kind = _noisy_labels(labels, source), "noisy"

    notes: dict[str, Any] = {}
    if clients > n:
        raise SpecError(f"partition.clients: {clients} clients for {n} samples")
    inputs = {"classes": source.classes, "notes": notes, "client_ids": source.client}
    rng = stream(seed, "partition")
    with refuse_global_draws(f"partition {kind}"):
        parts = function(
            read_only(used), clients, rng, **{k: v for k, v in inputs.items() if k in parameters}, **settings
        )
    parts = _check_parts(parts, f"partition {kind}", n, clients)

    if "client_ids" in parameters and source.client is not None:  # the owners, in order of their ids, with their names
        notes["sites"] = [source.sites[i] if source.sites else str(i) for i in np.unique(source.client).tolist()]
    notes |= {
        "samples": n,
        "unused": n - len(np.unique(np.concatenate(parts))),
        "empty_clients": sum(not len(part) for part in parts),
    }
    partition = Partition.from_parts(
        parts,
        {
            "artifact": "partition",
            "partition": dict(spec),
            "seed": int(seed),
            "data": labels_digest(source.y, source.classes),
            "labels": label_kind,
            "notes": notes,
        },
        _draw_validation(parts, share, rng),
    )
    partition.check()
    return partition


def _check_parts(parts: Any, place: str, n: int, clients: int) -> list[np.ndarray]:
    """Check what the function of a partition returned.

    Returns:
        The samples of each client.

    Raises:
        SpecError: It is something else.
    """
    arrays = [np.asarray(part) for part in parts] if isinstance(parts, Iterable) else []
    if not arrays or any(array.ndim != 1 for array in arrays):
        raise SpecError(f"{place}: its function returned {type(parts).__name__}; return a list of one array a client")
    if clients and len(arrays) != clients:
        raise SpecError(f"{place}: its function returned {len(arrays)} arrays for {clients} clients")
    for client, array in enumerate(arrays):
        if len(array) and array.dtype.kind not in "iu":
            raise SpecError(f"{place}: client {client}: its samples are {array.dtype}; sample numbers are needed")
        if len(array) and (array.min() < 0 or array.max() >= n):
            raise SpecError(f"{place}: client {client}: its samples are {array.min()}..{array.max()} of 0..{n - 1}")
    return arrays


def _noisy_labels(labels: Labels | np.ndarray, source: LabelledData) -> np.ndarray:
    """Noisy labels int64 [n] of the data, from a labels artifact or a plain array."""
    if isinstance(labels, np.ndarray):
        return plain_labels(labels, len(source.y), source.classes)
    labels.check_made_for(source.y, source.classes, source.clean_known)
    return labels.noisy


def _draw_validation(parts: list[np.ndarray], share: float, rng: np.random.Generator) -> np.ndarray:
    """Mask bool [m]: ⌊share·N_c⌋ random samples of each client."""
    mask = [np.zeros(len(part), bool) for part in parts]
    if share > 0:
        for chosen in mask:
            chosen[rng.permutation(len(chosen))[: int(share * len(chosen) + 1e-9)]] = True
    return np.concatenate(mask)
