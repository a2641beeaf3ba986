"""Labels drawn from the user's own probabilities, such as soft labels of a model or of people."""

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fednoise_core.io import ArtifactError, SpecError, read_npz
from fednoise_core.noise.sampling import NoiseResult, noise_model
from fednoise_core.settings.declare import Shown

SLACK = 1e-3  # by which the sum of a row may differ from 1, as sums of rounded numbers do


@noise_model(
    example={"file": "soft.csv"},
    display_name="labels drawn from given probabilities",
    nominal_rate=lambda spec, K: None,
)
def soft_labels(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    file: Annotated[
        str,
        Shown(in_headings=False),
        Field(
            description="P(label) of each training sample: a CSV of n lines with K numbers, or an npz with one such "
            "array. Each line sums to 1."
        ),
    ],
) -> NoiseResult:
    """Each label is drawn from your own probabilities of its sample, such as a model's outputs or people's votes.

    T_nominal is the mean over the samples of a class. The nominal rate is unknown.
    """
    P = _read_probabilities(Path(file), len(y), K)
    noisy = (rng.random(len(y))[:, None] >= np.cumsum(P, 1)[:, :-1]).sum(1)
    T = np.eye(K)
    for k in np.unique(y):
        T[k] = P[y == k].mean(0)
    return NoiseResult(noisy, T / T.sum(1, keepdims=True))


def _read_probabilities(file: Path, n: int, K: int) -> np.ndarray:
    place = f"soft_labels: file: {file}"
    if not file.is_file():
        raise SpecError(f"{place}: no such file")
    try:
        if file.suffix == ".npz":
            arrays = read_npz(file, lambda name: True)
            if len(arrays) != 1:
                raise SpecError(f"{place}: expected one array, got {', '.join(arrays) or 'none'}")
            P = np.asarray(next(iter(arrays.values())), dtype=np.float64)
        else:
            P = np.loadtxt(file, np.float64, delimiter=",", ndmin=2)
    except (ValueError, ArtifactError) as error:
        raise SpecError(f"{place}: {error}") from error
    if P.shape != (n, K):
        raise SpecError(f"{place}: expected {n} training samples × {K} classes, got {' × '.join(map(str, P.shape))}")
    wrong = ~(np.isfinite(P) & (P >= 0)).all(1) | (np.abs(P.sum(1) - 1) > SLACK)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise SpecError(f"{place}: {wrong.sum()} rows are no probabilities that sum to 1, the first is row {row + 1}")
    return P / P.sum(1, keepdims=True)
