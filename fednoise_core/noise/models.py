"""Class-dependent noise: noisy labels are drawn from a transition matrix.

Every model is a function `model(y, K, rng, *, settings…) -> NoiseResult` without global state. Labels are 0..K-1. `y`
int64 [n] is not changed. A wrong setting raises SpecError.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fednoise_core.io import SpecError
from fednoise_core.noise.sampling import (
    NoiseResult,
    Rounding,
    Sampling,
    Superclass,
    check_matrix,
    noise_model,
    sample,
)
from fednoise_core.settings.declare import NoBool, Share, Shown
from fednoise_core.settings.functions import check_int

CIFAR10_MAP = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}  # truck → automobile, bird → airplane, deer → horse, cat ↔ dog (DivideMix)


@noise_model(example={}, display_name="no noise", nominal_rate=lambda spec, K: 0.0)
def none(y: np.ndarray, K: int, rng: np.random.Generator) -> NoiseResult:
    """No noise, the labels as the data set gives them."""
    return NoiseResult(y.copy(), np.eye(K))


def symmetric_matrix(K: int, rate: float, *, inclusive: bool = False) -> np.ndarray:
    """T [K, K] of symmetric noise.

    Args:
        K: number of classes.
        rate: probability that a label is drawn anew.
        inclusive: the new label is drawn from all K classes, the true one too.
    """
    share = rate / (K if inclusive else K - 1)
    T = np.full((K, K), share)
    np.fill_diagonal(T, 1 - rate + share if inclusive else 1 - rate)
    return T


@noise_model(
    example={"rate": 0.4},
    display_name="{rate} of labels {inclusive}",
    nominal_rate=lambda spec, K: spec["rate"] * ((K - 1) / K if spec.get("inclusive") else 1),
)
def symmetric(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    rate: Annotated[Share, Field(description="Probability that a label is drawn anew.")],
    inclusive: Annotated[
        bool,
        Shown(display_name={False: "wrong", True: "drawn anew"}),
        Field(description="Draw new labels from all K classes, also the true class. The real rate is rate·(K-1)/K."),
    ] = False,
    sampling: Sampling = "iid",
    rounding: Rounding = "largest_remainder",
) -> NoiseResult:
    """A label becomes each of the other classes with the same probability (FedDPCont section 5.2; FedLSR; DivideMix).

    T[i, i] = 1 - rate. The other K - 1 entries of a row are equal. With `inclusive` the new label is drawn from all K
    classes, so only rate·(K-1)/K of the labels change (DivideMix). FedLSR and FedMixCon use `sampling="exact_rate",
    rounding="floor"`.
    """
    T = symmetric_matrix(K, rate, inclusive=inclusive)
    return NoiseResult(sample(y, T, rng, sampling, rounding), T)


@noise_model(
    example={"rate": 0.4},
    display_name="{rate} of labels {diag}, mix-ups vary by class",
    nominal_rate=lambda spec, K: 1 - spec["rate"] if spec.get("diag") == "printed" else spec["rate"],
)
def random(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    rate: Annotated[Share, Field(description="Mean noise rate.")],
    spread: Annotated[Share, Field(description="Largest deviation of a class's rate from the mean.")] = 0.05,
    diag: Annotated[
        Literal["corrected", "printed"],
        Shown(display_name={"corrected": "wrong", "printed": "kept"}),
        Field(description="printed: the paper's formula as printed, whose diagonal is rate + U(…)."),
    ] = "corrected",
    sampling: Sampling = "iid",
    rounding: Rounding = "largest_remainder",
) -> NoiseResult:
    """Class-dependent: class i keeps its label with 1 - rate + U(-spread, spread), the rest follows Dir(1).

    The source is FedDPCont, section 5.2. T[i, i] is clipped to [0, 1]. The rest of row i is (1 - T[i, i])·Dir(1). The
    paper prints the diagonal as rate + U(…), which contradicts its text. `diag="printed"` uses the printed formula. T
    is drawn from `rng`, so it depends on the noise seed. With few classes and a rate above about .6, the most frequent
    label of a class may be wrong.
    """
    if rate == 0 and diag == "corrected":
        return none(y, K, rng)  # η = 0 is no noise, also where U(…) would have added some
    u = rng.uniform(-spread, spread, K)
    diagonal = np.clip((1 - rate if diag == "corrected" else rate) + u, 0, 1)
    T = np.diag(diagonal)
    for i in range(K):
        T[i, np.arange(K) != i] = (1 - diagonal[i]) * rng.dirichlet(np.ones(K - 1))
    return NoiseResult(sample(y, T, rng, sampling, rounding), T)


def superclass_of(K: int, within_superclass: str | None, coarse: np.ndarray | None) -> np.ndarray:
    """Superclass of each class, the same for all unless labels stay inside one.

    Args:
        K: number of classes.
        within_superclass: "consecutive5", blocks of five class numbers (FedNoisy; not CIFAR-100's superclasses), or
            "coarse", the true map.
        coarse: the true map, int64 [K].

    Returns:
        int64 [K].

    Raises:
        SpecError: there are no such superclasses.
    """
    if within_superclass is None:
        return np.zeros(K, np.int64)
    if within_superclass == "consecutive5":
        if K % 5:
            raise SpecError(f"within_superclass: {K} classes are no blocks of five")
        return np.arange(K) // 5
    if coarse is None:
        raise SpecError("within_superclass: this data set has no superclasses")
    return coarse


def next_classes(classes: np.ndarray, blocks: np.ndarray, offset: int = 1) -> np.ndarray:
    """The next class in the same block, cyclically.

    Args:
        classes: sorted classes, int64 [k].
        blocks: block of each of the K classes, int64 [K].
        offset: 1 for the next one, -1 for the one before.

    Returns:
        int64 [k].
    """
    result = classes.copy()
    for block in np.unique(blocks[classes]):
        inside = blocks[classes] == block
        result[inside] = np.roll(classes[inside], -offset)
    return result


def pair_matrix(targets: np.ndarray, rate: float) -> np.ndarray:
    """T [K, K] that sends class i to targets[i] with probability `rate`."""
    T = (1 - rate) * np.eye(len(targets))
    T[np.arange(len(targets)), targets] += rate
    return T


@noise_model(example={"rate": 0.2}, display_name="{rate} of labels wrong, in pairs")
def pair(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    coarse: np.ndarray | None = None,
    rate: Annotated[Share, Field(description="Probability of the flip; below .5 to be identifiable.")],
    offset: Annotated[
        Literal[1, -1],
        NoBool,
        Shown(display_name={1: "to the class after", -1: "to the class before"}),
        Field(description="-1: the class before, as in FedRN, FedLSR and FNBench."),
    ] = 1,
    within_superclass: Superclass = None,
    sampling: Sampling = "iid",
    rounding: Rounding = "largest_remainder",
) -> NoiseResult:
    """A label becomes the next class, cyclically (Co-teaching; RHFL and FedHNL).

    T[i, i] = 1 - rate, T[i, i + offset] = rate. FedRN, FedLSR and FNBench flip to the previous class: `offset=-1`. With
    a rate of .5 or more, clean and noisy labels cannot be distinguished.
    """
    blocks = superclass_of(K, within_superclass, coarse)
    T = pair_matrix(next_classes(np.arange(K), blocks, offset), rate)
    return NoiseResult(sample(y, T, rng, sampling, rounding), T)


def _semantic_rate(spec: Mapping[str, Any], K: int) -> float:
    flips = spec.get("map") or CIFAR10_MAP
    return float(spec["rate"] * sum(int(source) != target for source, target in flips.items()) / K)


@noise_model(
    example={"rate": 0.4}, display_name="{rate} of labels wrong in look-alike classes", nominal_rate=_semantic_rate
)
def semantic(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    rate: Annotated[Share, Field(description="Probability that a label of a mapped class flips.")],
    map: Annotated[
        dict[str, Annotated[int, Field(ge=0)]] | None, Field(description="Class → class it becomes, e.g. {'9': 1}.")
    ] = None,
    sampling: Sampling = "iid",
    rounding: Rounding = "largest_remainder",
) -> NoiseResult:
    """Flips between look-alike classes, by default those of CIFAR-10 (DivideMix).

    These are truck → automobile, bird → airplane, deer → horse, cat ↔ dog. Class i becomes `map[i]` with probability
    `rate`; classes not in the map stay clean. The keys of a map may be written as strings, as JSON does.
    """
    if map is None and K != 10:
        raise SpecError(f"semantic: map: required unless the classes are CIFAR-10's, there are {K}")
    targets = np.arange(K)
    for source, target in (CIFAR10_MAP if map is None else map).items():
        if not str(source).isdecimal():
            raise SpecError(f"semantic: map: {source!r} is no class number")
        targets[check_int(int(source), "semantic: map", 0, K - 1)] = check_int(target, "semantic: map", 0, K - 1)
    T = pair_matrix(targets, rate)
    return NoiseResult(sample(y, T, rng, sampling, rounding), T)


def _matrix_rate(spec: Mapping[str, Any], K: int) -> float:
    return float(1 - np.diagonal(read_matrix(spec.get("file"), spec.get("rows"))).mean())


@noise_model(
    example={"rows": [[0.9, 0.1], [0.2, 0.8]]}, display_name="labels wrong by a given matrix", nominal_rate=_matrix_rate
)
def matrix(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    file: Annotated[
        str | None,
        Shown(in_headings=False),
        Field(description="CSV file with K lines of K numbers, lines summing to 1."),
    ] = None,
    rows: Annotated[list[list[Share]] | None, Field(description="The matrix itself.")] = None,
    sampling: Sampling = "iid",
    rounding: Rounding = "largest_remainder",
) -> NoiseResult:
    """Your own transition matrix T, line = true class, column = observed class; give a file or rows."""
    T = read_matrix(file, rows)
    if T.shape != (K, K):
        raise SpecError(f"matrix: T is {list(T.shape)}, the data set has {K} classes")
    return NoiseResult(sample(y, T, rng, sampling, rounding), T)


def read_matrix(file: str | None, rows: Sequence[Sequence[float]] | None) -> np.ndarray:
    """Read T [K, K] of kind `matrix`.

    Args:
        file: a CSV, or None.
        rows: the matrix itself, or None.

    Raises:
        SpecError: it cannot be read, or is not a transition matrix. The message names the file.
    """
    if (file is None) == (rows is None):
        raise SpecError("matrix: give either file or rows")
    place = "matrix: rows" if file is None else f"matrix: file: {file}"
    if file is not None and not Path(file).is_file():
        raise SpecError(f"{place}: no such file")
    try:
        T = np.array(rows, np.float64) if file is None else np.loadtxt(file, np.float64, delimiter=",", ndmin=2)
    except ValueError as error:
        raise SpecError(f"{place}: {error}") from error
    return check_matrix(T, place)
