"""The labels artifact: the clean labels of the data set, the noisy labels of the clients, and measures of the noise."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fednoise_core.data.labelled import labels_digest, plain_labels
from fednoise_core.io import ArtifactError, SpecError, load_npz, save_npz
from fednoise_core.noise.sampling import realised_matrix, wrong_share

LARGEST = 1 << 23  # largest total size of the matrices per client, in numbers (64 MB)


@dataclass(frozen=True, repr=False)
class Labels:
    """Noisy labels of the n training samples.

    noisy: int64 [n]. clean: int64 [n], or None if unknown, in which case T_realised is None and rate is NaN. T_nominal:
    float64 [K, K], [C, K, K] for client-level noise, or None (human and given labels). T_realised: float64 [K, K].
    T_client: realised matrix of each client, float64 [C, K, K] or None (without a partition, or above 64 MB). Rows of
    absent classes are NaN. rate: share of samples whose label does not fit the image. client_rate: this share per
    client, float64 [C] (NaN without samples) or None. client_level: noise level of each client, float64 [C] or None.
    replaced, donor: open-set noise, int64 [r] or None, see `replace_images`. generator: state of numpy's legacy
    generator after the draw of the labels, uint32 [625] (624 keys, position) or None. Cohorts may be drawn from it.
    """

    noisy: np.ndarray
    rate: float
    spec: Mapping[str, Any]
    clean: np.ndarray | None = None
    T_nominal: np.ndarray | None = None
    T_realised: np.ndarray | None = None
    client_rate: np.ndarray | None = None
    client_level: np.ndarray | None = None
    T_client: np.ndarray | None = None
    replaced: np.ndarray | None = None
    donor: np.ndarray | None = None
    generator: np.ndarray | None = None

    @classmethod
    def of(cls, y: np.ndarray, y_train: np.ndarray, classes: int, clean_known: bool) -> Labels:
        """Labels that are given as a plain array.

        Args:
            y: int [n].
            y_train: the data set's labels, int64 [n].

        Raises:
            SpecError: they are not n integers of 0..classes-1.
        """
        noisy = plain_labels(y, len(y_train), classes)
        spec = {"noise": {"kind": "given"}, "seed": 0, "nominal_rate": None, "notes": {}}
        return cls.measured(noisy, y_train, classes, clean_known, spec)

    @classmethod
    def measured(
        cls,
        noisy: np.ndarray,
        y_train: np.ndarray,
        classes: int,
        clean_known: bool,
        spec: Mapping[str, Any],
        clients: Sequence[np.ndarray] | None = None,
        **arrays: np.ndarray | None,
    ) -> Labels:
        """Noisy labels int64 [n] of a data set, with what can be measured: the rate, T_realised, and both per client.

        spec: what the artifact records of the noise. clients: the samples of each. arrays: the other fields.
        """
        spec = {"artifact": "labels", "classes": classes, "data": labels_digest(y_train, classes), **spec}
        if not clean_known:
            return cls(noisy, float("nan"), spec, **arrays)
        clean = y_train.astype(np.int64)
        labels = cls(noisy, 0.0, spec, clean=clean, T_realised=realised_matrix(clean, noisy, classes), **arrays)
        assert labels.wrong is not None
        measures: dict[str, Any] = {"rate": float(labels.wrong.mean())}
        if clients is not None:
            measures["client_rate"] = wrong_share(labels.wrong, clients)
            if len(clients) * classes**2 <= LARGEST:
                measures["T_client"] = np.stack(
                    [realised_matrix(clean[part], noisy[part], classes) for part in clients]
                )
        return dataclasses.replace(labels, **measures)

    def __repr__(self) -> str:
        kind = self.spec.get("noise", {}).get("kind", "own")
        wrong = "clean labels unknown" if self.clean is None else f"{100 * self.rate:.1f} % wrong"
        return f"<Labels {kind}: {len(self.noisy)} of {self.classes} classes, {wrong}>"

    @property
    def classes(self) -> int:
        """Number of classes K."""
        return int(self.spec["classes"])

    @property
    def nominal_rate(self) -> float | None:
        """Requested noise rate, or None if there is none (human and given labels)."""
        return self.spec.get("nominal_rate")

    @property
    def wrong(self) -> np.ndarray | None:
        """Mask of wrong labels, bool [n], or None if unknown. For diagnostics only.

        A label is wrong if it was flipped, or if its image was replaced.
        """
        if self.clean is None:
            return None
        wrong = self.noisy != self.clean
        if self.replaced is not None:
            wrong[self.replaced] = True
        return wrong

    def replace_images(self, images: np.ndarray, donor_images: np.ndarray) -> np.ndarray:
        """Apply open-set noise to `images` [n, H, W(, C)]: sample `replaced[i]` gets donor image `donor[i]`.

        It is called once before training. The labels do not change. Without open-set noise, `images` itself is
        returned. Raises SpecError for donor images of another size.
        """
        if self.replaced is None or self.donor is None or not len(self.replaced):
            return images
        if int(self.donor.max()) >= len(donor_images):
            raise ArtifactError(
                f"open-set noise needs donor image {int(self.donor.max())}, there are {len(donor_images)}"
            )
        if donor_images.shape[1:] != images.shape[1:]:
            sizes = f"{list(donor_images.shape[1:])}, those of this data set {list(images.shape[1:])}"
            raise SpecError(f"noise openset_images: donor: its images are {sizes}; name a donor of the same size")
        result = images.copy()
        result[self.replaced] = donor_images[self.donor]
        return result

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, whole or not at all; equal labels give equal bytes."""
        arrays = {name: np.asarray(value) for name, value in vars(self).items() if name != "spec" and value is not None}
        save_npz(path, arrays, self.spec)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Labels:
        """Read and check an artifact.

        Raises:
            ArtifactError: it is damaged or contradicts itself. The message names the file.
        """
        arrays, spec = load_npz(path, "labels")
        try:
            rate = float(arrays.pop("rate"))
            labels = cls(rate=rate, spec=spec, **arrays)
            labels.check()
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise ArtifactError(f"{path}: damaged labels artifact ({type(error).__name__}: {error})") from error
        return labels

    def check(self) -> None:
        """Raise SpecError if shapes, types, ranges or the stated rate do not fit together."""
        K, n = self.classes, len(self.noisy)
        for name in ("noisy", "clean"):
            value = getattr(self, name)
            if value is None:
                continue
            if value.dtype != np.int64 or value.shape != (n,):
                raise SpecError(f"labels: {name} must be int64 [{n}], found {value.dtype} {list(value.shape)}")
            if n and (value.min() < 0 or value.max() >= K):
                raise SpecError(f"labels: {name} must lie in 0..{K - 1}")
        for name in ("T_nominal", "T_realised", "T_client"):
            T = getattr(self, name)
            if T is not None and (
                T.shape[-2:] != (K, K) or np.abs(np.nansum(T, -1)[~np.isnan(T).any(-1)] - 1).max(initial=0) > 1e-6
            ):
                raise SpecError(f"labels: {name} must be [..., {K}, {K}] with rows that sum to 1")
        if self.replaced is not None and (self.donor is None or self.replaced.shape != self.donor.shape):
            raise SpecError("labels: replaced and donor must have the same length")
        if self.generator is not None and (self.generator.dtype != np.uint32 or self.generator.shape != (625,)):
            raise SpecError("labels: generator must be uint32 [625]")
        self._check_rate(n)

    def _check_rate(self, n: int) -> None:
        wrong = self.wrong
        if wrong is None:
            if not np.isnan(self.rate):
                raise SpecError("labels: rate is stated although the clean labels are unknown")
        elif n and abs(wrong.mean() - self.rate) > 1e-12:
            raise SpecError(f"labels: rate says {self.rate}, the labels say {wrong.mean()}")

    def check_made_for(self, y_train: np.ndarray, classes: int, clean_known: bool) -> None:
        """Check that these labels were made for a data set.

        If both sides have clean labels, these are compared. Otherwise the digest that `inject` wrote to the spec is
        compared.

        Args:
            y_train: the data set's labels, int64 [n].
            classes: its number of classes.
            clean_known: whether its labels are known to be right.

        Raises:
            SpecError: They were made for another data set.
        """
        cure = "make labels and partition from the arrays that the run gets"
        n, count = len(y_train), len(self.noisy)
        if count != n or self.classes != classes:
            mismatch = f"{count} labels of {self.classes} classes for {n} training images of {classes}"
            raise SpecError(f"labels: {mismatch} do not belong together; {cure}")
        if self.clean is not None and clean_known:
            differing = int(np.not_equal(self.clean, y_train).sum())
            if differing:
                raise SpecError(f"labels: made for other arrays: {differing} of {n} clean labels differ; {cure}")
        elif self.spec.get("data", digest := labels_digest(y_train, classes)) != digest:
            raise SpecError(f"labels: made for other arrays, whose training labels differ; {cure}")
