"""Noise that was observed rather than drawn from a matrix: labels people gave, and images of foreign classes."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fednoise_core.data.labelled import plain_labels
from fednoise_core.io import SpecError
from fednoise_core.noise.sampling import NoiseResult, noise_model
from fednoise_core.settings.declare import Share, Shown

# The name the papers use → key in the authors' file (the authors spell it `worse`), share of wrong labels in it
HUMAN = {
    "aggregate": ("aggre_label", 0.0901),
    "random1": ("random_label1", 0.1723),
    "random2": ("random_label2", 0.1812),
    "random3": ("random_label3", 0.1764),
    "worst": ("worse_label", 0.4021),
    "fine": ("noisy_label", 0.4020),
    "coarse": ("noisy_coarse_label", 0.2640),
}


@noise_model(
    example={"labels": "worst"},
    display_name="people’s labels ({labels})",
    published_rate=lambda spec: HUMAN[spec["labels"]][1],
)
def human(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    given: Mapping[str, np.ndarray],
    labels: Annotated[
        Literal["aggregate", "random1", "random2", "random3", "worst", "fine", "coarse"],
        Field(description="Set of labels: CIFAR-10N has the first five, CIFAR-100N has fine and coarse."),
    ],
) -> NoiseResult:
    """Human labels of CIFAR-10N and CIFAR-100N (Wei et al. 2022); the data set needs the setting `human: true`.

    T_nominal is unknown. FedDPCont does not say which of the three random sets it used. It is usually taken as the
    first.
    """
    key = next((key for key in (labels, HUMAN[labels][0]) if key in given), None)
    if key is None:
        have = ", ".join(given) or "none; CIFAR-N needs `human: true` in the data set's settings"
        raise SpecError(f"human: labels: this data set has no {labels!r} labels (it has: {have})")
    return NoiseResult(plain_labels(given[key], len(y), K), None)


@noise_model(example={}, display_name="labels as given")
def given(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    given: Mapping[str, np.ndarray],
    clean_known: bool,
    key: Annotated[
        str | None,
        Field(
            description="Set of given labels of the data set; not needed if it has only one set, or to use the "
            "training labels themselves."
        ),
    ] = None,
) -> NoiseResult:
    """Labels as they came with the data.

    It is the only kind for data sets whose clean labels are unknown (Clothing1M, your own).

    Without a key, it uses the only set of given labels. If the clean labels are unknown, it uses the data set's labels
    themselves. Rates and T_realised are then unknown, too (NaN, None).
    """
    if key is None and not clean_known:
        return NoiseResult(y, None)
    if key is None and len(given) == 1:
        (key,) = given
    if key is None or key not in given:
        wrong = "required" if key is None else f"{key!r} is unknown"
        raise SpecError(f"given: key: {wrong} (known: {', '.join(given) or 'none'})")
    return NoiseResult(plain_labels(given[key], len(y), K), None)


@noise_model(example={"rate": 0.2}, display_name="{rate} of images replaced")
def openset_images(
    y: np.ndarray,
    K: int,
    rng: np.random.Generator,
    *,
    donor_count: int,
    rate: Annotated[Share, Field(description="Share of the samples.")],
    donor: Annotated[
        str,
        Shown(display_name="from {}"),
        Field(
            description="Id of the data set that the images come from, or public: this data set's own public images."
        ),
    ] = "public",
) -> NoiseResult:
    """Open-set noise: a share of the images is replaced by images of another data set, the labels stay.

    ⌊n·rate⌋ random samples get another image. Donor images are drawn without replacement if there are enough. The
    arrays `replaced` and `donor` of the result list the samples and their donor images, and `Labels.replace_images`
    applies them. Replaced samples count as wrong in the rate, and T is the identity.
    """
    count = int(rate * len(y) + 1e-9)
    if count and donor_count < 1:
        raise SpecError("openset_images: donor: there are no donor images")
    replaced = np.sort(rng.choice(len(y), count, replace=False)).astype(np.int64)
    images = rng.choice(max(donor_count, 1), count, replace=donor_count < count).astype(np.int64)
    notes = {"donor": donor, "donor_count": int(donor_count)}
    return NoiseResult(y, np.eye(K), arrays={"replaced": replaced, "donor": images}, notes=notes)
