"""The partition artifact: the training samples of each client, as one index array with offsets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fednoise_core.io import ArtifactError, SpecError, load_npz, save_npz


@dataclass(frozen=True, repr=False)
class Partition:
    """Assignment of samples to clients.

    index: sample numbers int64 [m], client after client, sorted within a client. offsets: start of each client in
    `index`, int64 [C + 1]. valid: True for samples of the client's validation split, bool [m]. Clients may be empty.
    With `overlap` in the spec's notes, a sample may belong to several clients.
    """

    index: np.ndarray
    offsets: np.ndarray
    valid: np.ndarray
    spec: Mapping[str, Any]

    @classmethod
    def from_parts(
        cls, parts: Sequence[np.ndarray], spec: Mapping[str, Any], valid: np.ndarray | None = None
    ) -> Partition:
        """Make a partition from one sorted index array int64 [N_c] per client.

        spec: content of the artifact's spec: settings, seed, `clients`, and `notes`. The notes have the number of
        `samples` of the data set, and whether clients `overlap`. `clients` and `overlap` are added if they are missing.
        valid: samples of the validation splits, bool [sum of N_c]. Default: none.
        """
        index = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        notes = {"overlap": len(np.unique(index)) < len(index), **spec.get("notes", {})}
        spec = {"clients": len(parts), **spec, "notes": notes}
        return cls(index, offsets, np.zeros(len(index), bool) if valid is None else valid, spec)

    def __repr__(self) -> str:
        kind = self.spec.get("partition", {}).get("kind", "own")
        low, high = (int(end(self.sizes)) for end in (np.min, np.max))
        validation = f", {int(self.valid.sum())} for validation" if self.valid.any() else ""
        return (
            f"<Partition {kind}: {self.clients} clients with {low} to {high} of {len(self.index)} samples{validation}>"
        )

    @property
    def clients(self) -> int:
        """Number of clients C, empty ones included."""
        return len(self.offsets) - 1

    @property
    def sites(self) -> tuple[str, ...]:
        """Name of each client: the user's own id if the data set has one, else its number."""
        named = self.spec.get("notes", {}).get("sites")
        return tuple(named) if named else tuple(map(str, range(self.clients)))

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, int64 [C], validation split included."""
        return np.diff(self.offsets)

    @property
    def overlap(self) -> bool:
        """True if some sample belongs to more than one client."""
        return len(np.unique(self.index)) < len(self.index)

    def of(self, c: int) -> np.ndarray:
        """All samples of client `c`, sorted int64."""
        return self.index[self.offsets[c] : self.offsets[c + 1]]

    def histogram(self, labels: np.ndarray, K: int) -> np.ndarray:
        """Samples per client and class.

        Args:
            labels: labels of all samples, int64 [n].
            K: number of classes.

        Returns:
            int64 [C, K].
        """
        owner = np.repeat(np.arange(self.clients), self.sizes)
        return np.bincount(owner * K + labels[self.index], minlength=self.clients * K).reshape(self.clients, K)

    def check_made_for(self, samples: int, data: str = "") -> None:
        """Check that this is a sound partition of a data set.

        Args:
            samples: its number of training samples.
            data: the digest of its training labels (`labels_digest`), which is compared with the digest in the spec.

        Raises:
            SpecError: The partition was made for another data set, or is not valid.
        """
        recorded = self.spec.get("notes", {}).get("samples", samples)
        cure = "make it from the arrays that the run gets"
        if recorded != samples:
            raise SpecError(f"partition: made for {recorded} training samples, the data set has {samples}; {cure}")
        if data and self.spec.get("data", data) != data:
            raise SpecError(f"partition: made for other arrays, whose training labels differ; {cure}")
        self.check(samples)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, whole or not at all; equal partitions give equal bytes."""
        save_npz(path, {"index": self.index, "offsets": self.offsets, "valid": self.valid}, self.spec)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Partition:
        """Read and check an artifact.

        Raises:
            ArtifactError: it is damaged or contradicts itself. The message names the file.
        """
        arrays, spec = load_npz(path, "partition")
        try:
            partition = cls(arrays["index"], arrays["offsets"], arrays["valid"], spec)
            partition.check()
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise ArtifactError(f"{path}: damaged partition artifact ({type(error).__name__}: {error})") from error
        return partition

    def check(self, samples: int | None = None) -> None:
        """Check that types, offsets, order and counts fit together.

        Args:
            samples: number of training samples, which every index is below. None: as the spec says.

        Raises:
            SpecError: They do not fit together.
        """
        index, offsets, valid = self.index, self.offsets, self.valid
        if index.dtype != np.int64 or offsets.dtype != np.int64 or valid.dtype != bool:
            raise SpecError(
                f"partition: types are {index.dtype}, {offsets.dtype}, {valid.dtype} instead of int64, int64, bool"
            )
        if index.ndim != 1 or offsets.ndim != 1 or valid.shape != index.shape:
            raise SpecError("partition: index and valid must be vectors of one length")
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(index) or (np.diff(offsets) < 0).any():
            raise SpecError("partition: offsets must rise from 0 to the length of index")
        if self.clients != self.spec["clients"]:
            raise SpecError(f"partition: {self.clients} clients, the spec says {self.spec['clients']}")
        self._check_order(self.spec["notes"]["samples"] if samples is None else samples)
        named = self.spec["notes"].get("sites", ["text"] * self.clients)
        if len(named) != self.clients or not all(isinstance(name, str) for name in named):
            raise SpecError(f"partition: sites must be {self.clients} texts")
        if not self.spec["notes"]["overlap"] and self.overlap:
            raise SpecError("partition: a sample belongs to two clients")

    def _check_order(self, top: int) -> None:
        index = self.index
        if len(index) and (index.min() < 0 or index.max() >= top):
            raise SpecError(f"partition: index must lie in 0..{top - 1}")
        starts = np.zeros(len(index) + 1, bool)
        starts[self.offsets] = True  # the order may restart at the start of a client
        if (np.diff(index) <= 0)[~starts[1:-1]].any():
            raise SpecError("partition: the samples of a client must be sorted, without duplicates")
