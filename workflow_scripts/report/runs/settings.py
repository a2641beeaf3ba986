"""The artifacts of a setting (data set, noise, partition, seed), read for pictures and facts without any run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.io import ArtifactError, read_npz
from fednoise_core.noise.labels import Labels
from workflow_scripts.report.runs.names import Names
from workflow_scripts.report.runs.run import ListedRun, Setting
from workflow_scripts.report.text.escape import one_line


@dataclass(frozen=True)
class SettingArtifacts:
    """One seed of a setting. Each artifact is read when first needed.

    Reading raises ArtifactError if an artifact is missing, damaged or belongs to other data.

    Attributes:
        files: Its artifacts: "arrays", "labels", "partition", and "donor", the images of open-set noise.
        among: The settings that are shown together. The words of each one distinguish it from the others.
    """

    setting: Setting
    seed: int
    files: Mapping[str, Path]
    among: list[SettingArtifacts] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def labels(self) -> Labels:
        """The labels artifact; ArtifactError if there is none."""
        return Labels.load(self._file("labels"))

    @cached_property
    def split(self) -> Partition:
        """The partition artifact, checked against the number of labels."""
        split = Partition.load(self._file("partition"))
        if len(split.index) and int(split.index.max()) >= len(self.labels.noisy):
            raise ArtifactError(
                f"{self.files['partition']}: names sample {int(split.index.max())}, but {self.files['labels']} has "
                f"{len(self.labels.noisy)}"
            )
        return split

    @cached_property
    def arrays(self) -> Arrays:
        """The arrays artifact, checked against the number of labels."""
        arrays = Arrays.load(self._file("arrays"))
        if arrays.n != len(self.labels.noisy):
            count, files = len(self.labels.noisy), self.files
            raise ArtifactError(f"{files['labels']}: {count} labels for {arrays.n} samples of {files['arrays']}")
        return arrays

    @property
    def classes(self) -> int:
        """Number of classes K."""
        return self.labels.classes

    @cached_property
    def names(self) -> list[str]:
        """Class names. Class numbers if the data set has no names, or the list of runs names no arrays."""
        named = list(self.arrays.names) if "arrays" in self.files else []
        return [one_line(name.replace("_", " ")) for name in named] or [str(k) for k in range(self.classes)]

    def image(self, i: int) -> np.ndarray:
        """Image of training sample `i`, uint8 [H, W] or [H, W, 3].

        A foreign image that is not available is shown in grey.
        """
        picture = np.asarray(self.arrays.x_train[i : i + 1])
        labels = self.labels
        positions = np.flatnonzero(labels.replaced == i) if labels.replaced is not None else ()
        if len(positions) and labels.donor is not None:
            public = self.labels.spec.get("noise", {}).get("donor", "public") == "public"
            donor = self.files.get("donor")
            donors = self.arrays.x_public if public else Arrays.load(donor).x_train if donor else None
            if donors is None:
                picture = np.full_like(picture, 128)
            else:
                alone = dataclasses.replace(labels, replaced=np.zeros(1, np.int64), donor=labels.donor[positions[:1]])
                picture = alone.replace_images(picture, np.asarray(donors))
        return picture[0, ..., 0] if picture.shape[1:][-1] == 1 else picture[0]

    @cached_property
    def words(self) -> tuple[str, str, str]:
        """(data set, noise, partition) in words."""
        return Names((setting.setting, setting._specs()) for setting in self.among or [self]).of(self.setting)

    @cached_property
    def client_rate(self) -> np.ndarray | None:
        """Share of wrong labels per client, float64 [C]. NaN for empty clients, None if clean labels are unknown."""
        wrong = self.labels.wrong
        if wrong is None:
            return None
        owner = np.repeat(np.arange(self.split.clients), self.split.sizes)
        bad = np.bincount(owner, weights=wrong[self.split.index], minlength=self.split.clients)
        return np.divide(bad, self.split.sizes, out=np.full(self.split.clients, np.nan), where=self.split.sizes > 0)

    def facts(self) -> list[tuple[str, str]]:
        """List the facts that a reader needs before the pictures: (name, value in words)."""
        labels, split = self.labels, self.split
        sizes, class_counts = split.sizes, (split.histogram(labels.noisy, self.classes) > 0).sum(1)
        nominal, rate = labels.nominal_rate, self.client_rate
        shared = " (some are shared)" if split.overlap else ""
        realised = "unknown: nobody knows the clean labels of this data"
        if rate is not None:
            realised = f"{labels.rate:.3f}; per client {np.nanmin(rate):.3f} to {np.nanmax(rate):.3f}"
        return [
            ("samples", f"{len(labels.noisy):,} with labels, {len(np.unique(split.index)):,} held by clients{shared}"),
            ("classes", str(self.classes)),
            (
                "clients",
                f"{split.clients}, of which {int((sizes == 0).sum())} hold nothing"
                if (sizes == 0).any()
                else str(split.clients),
            ),
            ("samples per client", f"{sizes.min():,} to {sizes.max():,}, median {np.median(sizes):,.0f}"),
            (
                "classes per client",
                f"{class_counts.min()} to {class_counts.max()}, mean {class_counts.mean():.1f} (by given labels)",
            ),
            ("partition drawn over", f"{split.spec.get('labels', 'unknown')} labels"),
            ("noise rate, nominal", "none stated" if nominal is None else f"{nominal:.3f}"),
            ("noise rate, realised", realised),
            ("seed", str(self.seed)),
        ]

    def _specs(self) -> dict[str, Any]:
        specs = {"noise": self.labels.spec.get("noise"), "partition": self.split.spec.get("partition")}
        return specs | ({"dataset": _dataset_of(self.files["arrays"])} if "arrays" in self.files else {})

    def _file(self, kind: str) -> Path:
        if kind not in self.files:
            raise ArtifactError(f"{'/'.join(self.setting)}: the runs list names no {kind} file")
        return self.files[kind]


def _dataset_of(path: Path) -> Any:
    """The settings of the data set in an arrays artifact, without reading its images.

    None if they cannot be read. The code that reads the images then reports the error.
    """
    try:
        return json.loads(str(read_npz(path, lambda name: name == "spec")["spec"])).get("dataset")
    except (ArtifactError, ValueError, KeyError):
        return None


def artifacts_of(runs: Sequence[ListedRun]) -> list[SettingArtifacts]:
    """The settings of runs, each once.

    Args:
        runs: Rows of a list of runs. The first seed of each setting is used.
    """
    by_setting: dict[Setting, SettingArtifacts] = {}
    for listed in runs:
        if listed.setting not in by_setting:
            named = {"arrays": listed.arrays, "labels": listed.labels, "partition": listed.partition_file}
            files = {name: path for name, path in (named | {"donor": listed.donor}).items() if path}
            by_setting[listed.setting] = SettingArtifacts(listed.setting, listed.seed, files)
    for artifacts in by_setting.values():
        artifacts.among.extend(by_setting.values())
    return list(by_setting.values())
