"""Addresses of arrays, labels, partitions and runs: a result's address is its plan.

A step writes to `store/<kind>/<words>/<digest>/`. The digest is a hash of its settings, its code, the versions of torch
and numpy, and the digests of its inputs, all known while planning. The words describe the settings for people. A
finished folder is therefore valid as long as it exists. Ids, labels and names of studies are no part of an address, so
studies share runs. Nothing in the store is ever overwritten.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fednoise_core.data.settings import load_source
from fednoise_core.io import SpecError, canonical_json, json_digest
from fednoise_core.nets.weights import PUBLISHED, PUBLISHED_FILE, weight_files
from fednoise_core.noise import registry as noises
from fednoise_core.partition import registry as partitions
from workflow_scripts.config.file_contents import hash_contents
from workflow_scripts.config.nets import net_code
from workflow_scripts.config.project import Project
from workflow_scripts.machine.versions import Versions, installed_versions, versions_text
from workflow_scripts.provenance.step_code import ROOT, StepCode, list_sources
from workflow_scripts.study.plan import Plan

Settings = Mapping[str, Any]
OUTSIDE_OF_WORDS = re.compile(r"[^\w.+-]+")


@functools.cache
def store_of(project: Project) -> Store:
    """Return the store of a project, which caches its plans."""
    return Store(project)


STEPS = StepCode(ROOT)  # shared by all scales of a process, so that the code is read only once


@functools.cache
def hash_step(step: str, **names: tuple[str, ...]) -> str:
    """Hash the code of a step, see `StepCode.step_entries`."""
    return STEPS.hash_entries(STEPS.step_entries(step, **names))


class Store:
    """Plans of a project's steps."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.versions: list[Versions] = [
            installed_versions(),
            *(tuple(sorted(accepted.items())) for accepted in project.accepted),
        ]

    @functools.cache  # noqa: B019 - a store lives as long as the process
    def plan_arrays(self, dataset: str, versions: Versions | None = None) -> Plan:
        """Plan the arrays of a data set. Data that may not be redistributed are in data/, which DVC never pushes.

        Args:
            dataset: The id of the data set.
            versions: Versions of torch and numpy; the installed ones if left out.
        """
        spec = self.project.normalize_dataset(dataset)
        code = hash_step("download", dataset=tuple(list_sources(spec)))
        base = "store" if load_source(self.project.datasets[dataset]["source"]).redistributable else "data"
        fingerprint = self.project.dataset_fingerprint(dataset)
        where = f"{base}/arrays/{path_word(spec['source'])}"
        arguments = (
            ("--contents", self.project.contents_folder(dataset), "--fingerprint", fingerprint) if fingerprint else ()
        )
        settings = [spec, code, self._numpy_version(versions), fingerprint]
        return Plan(_make_address(where, *settings), code, arguments=("--spec", canonical_json(spec), *arguments))

    def plan_setting(
        self, dataset: str, noise: Settings, partition: Settings, seed: int, versions: Versions | None = None
    ) -> tuple[Plan, Plan, Plan]:
        """Plan the artifacts of a setting.

        Args:
            dataset: The id of the data set.
            noise: The noise in normal form.
            partition: The partition in normal form.
            seed: The seed of both.
            versions: Versions of torch and numpy; the installed ones if left out.

        Returns:
            The plans of its arrays, labels and partition.
        """
        if noises.needs_partition(noise):
            split = self._plan_partition(dataset, partition, seed, None, versions)
            return self.plan_arrays(dataset, versions), self._plan_labels(dataset, noise, seed, split, versions), split
        labels = self._plan_labels(dataset, noise, seed, None, versions)
        noisy = labels if partitions.needs_labels(partition) else None
        return (
            self.plan_arrays(dataset, versions),
            labels,
            self._plan_partition(dataset, partition, seed, noisy, versions),
        )

    def plan_donor(self, noise: Settings, versions: Versions | None = None) -> Plan | None:
        """Plan the arrays that open-set noise takes images from, if the noise names another data set."""
        name = noises.needs_donor(noise)
        return None if name is None else self.plan_arrays(name, versions)

    def _plan_labels(
        self, dataset: str, noise: Settings, seed: int, split: Plan | None, versions: Versions | None
    ) -> Plan:
        """Plan noisy labels. `split` is the partition, for noise that depends on the client."""
        arrays, donor, file = (
            self.plan_arrays(dataset, versions),
            self.plan_donor(noise, versions),
            noises.needs_file(noise),
        )
        code, inputs = hash_step("noise", noise=(noise["kind"],)), drop_none(arrays, split, donor)
        where = f"store/labels/{self._source_word(dataset)}/{_kind_words(noise, 'rate')}/seed{seed}"
        contents = hash_contents(_check_file(file)) if file else ""
        folder = _make_address(
            where, _without_donor(noise), seed, code, self._numpy_version(versions), _input_digests(inputs), contents
        )
        return Plan(folder, code, inputs, ("--spec", canonical_json(noise), "--seed", str(seed)))

    def _plan_partition(
        self, dataset: str, partition: Settings, seed: int, labels: Plan | None, versions: Versions | None
    ) -> Plan:
        """Plan a partition. `labels` are the noisy labels, for partitions that are drawn over them."""
        arrays, code = (
            self.plan_arrays(dataset, versions),
            hash_step("partition", partition=(partition["kind"],)),
        )
        where = f"store/partitions/{self._source_word(dataset)}/{_kind_words(partition, 'clients')}/seed{seed}"
        inputs = drop_none(arrays, labels)
        folder = _make_address(where, partition, seed, code, self._numpy_version(versions), _input_digests(inputs))
        return Plan(folder, code, inputs, ("--spec", canonical_json(partition), "--seed", str(seed)))

    def plan_run(self, dataset: str, spec: Settings, seed: int) -> Plan:
        """Plan a run.

        Args:
            dataset: The id of its data set.
            spec: Its settings.
            seed: Its seed.

        Returns:
            The plan of a finished run of any accepted versions, else the plan of the run to be made. Its inputs are
            arrays, labels, partition and, for open-set noise, the arrays that replace images.
        """
        plans = [self._plan_run_for(dataset, spec, seed, versions) for versions in self.versions]
        return next((plan for plan in plans if plan.is_finished), plans[0])

    def _plan_run_for(self, dataset: str, spec: Settings, seed: int, versions: Versions) -> Plan:
        setting = self.plan_setting(dataset, spec["noise"], spec["partition"], seed, versions)
        donor, weights = self.plan_donor(spec["noise"], versions), weight_files(spec["train"].get("net"))
        code = hash_step("training_run", method=(spec["method"]["name"],), net=tuple(net_code(spec["train"])))
        inputs = drop_none(*setting, donor)
        where = "/".join(
            [
                f"store/runs/{self._source_word(dataset)}",
                _kind_words(spec["noise"], "rate"),
                _kind_words(spec["partition"], "clients"),
                path_word(spec["method"]["name"]),
                f"seed{seed}",
            ]
        )
        settings = {**spec, "noise": _without_donor(spec["noise"])}
        weight_ids = {path: self._weights_identity(path) for path in weights}
        folder = _make_address(where, settings, code, versions, _input_digests(inputs), weight_ids)
        arguments = ("--spec", canonical_json(spec), "--versions", versions_text(versions))
        return Plan(folder, code, inputs, arguments, tuple(weights))

    @functools.cache  # noqa: B019
    def _weights_identity(self, path: str) -> str | list[str]:
        """Identify a file of weights.

        Published weights, which a rule makes, are identified by source and code. Other files are hashed.
        """
        net = Path(path).stem
        if path != PUBLISHED_FILE.format(net=net) or net not in PUBLISHED:
            return hash_contents(_check_file(path))
        _check_published(path, net)
        return [PUBLISHED[net][1], hash_step("pretrained", net=(net,))]

    @functools.cache  # noqa: B019
    def _source_word(self, dataset: str) -> str:
        return path_word(self.project.datasets[dataset]["source"])

    def _numpy_version(self, versions: Versions | None) -> str:
        return dict(versions or self.versions[0])["numpy"]


def as_whole_numbers(value: Any) -> Any:
    """Write whole numbers in settings as integers, since 5.0 and 5 give the same numbers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: as_whole_numbers(item) for key, item in value.items()}
    return [as_whole_numbers(item) for item in value] if isinstance(value, list | tuple) else value


def _make_address(where: str, *plan: Any) -> str:
    return f"{where}/{json_digest(*map(as_whole_numbers, plan))}"


def _input_digests(inputs: Iterable[Plan]) -> list[str]:
    return [plan.digest for plan in inputs]


def drop_none(*plans: Plan | None) -> tuple[Plan, ...]:
    """Leave out plans that are None."""
    return tuple(plan for plan in plans if plan is not None)


def _without_donor(noise: Settings) -> dict[str, Any]:
    """Remove the id of a donor data set from settings of noise. The digest of its arrays replaces the id."""
    return {key: value for key, value in noise.items() if key != "donor" or noises.needs_donor(noise) is None}


def _check_file(path: str) -> str:
    if not Path(path).is_file():
        raise SpecError(f"{path}: no such file; the settings name it")
    return path


def _check_published(path: str, net: str) -> None:
    """Check that a file of weights, if it exists, was made from the published weights of a net."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).exists():
        return
    try:
        with safe_open(path, framework="numpy") as file:
            digest = (file.metadata() or {}).get("source_sha256", "no source_sha256 in its metadata")
    except (SafetensorError, OSError) as error:
        raise SpecError(f"{path}: damaged weights file ({error}). Remove it; the workflow makes it again") from error
    if digest != PUBLISHED[net][1]:
        raise SpecError(
            f"{path}: source_sha256: expected the published {PUBLISHED[net][1]}, got {digest}. "
            "Give weights of your own another file name, and name that in the study"
        )


def path_word(text: Any) -> str:
    """Convert a text to a part of an address."""
    return OUTSIDE_OF_WORDS.sub("-", str(text)) or "-"


def _kind_words(spec: Settings, key: str) -> str:
    """Write a kind with its most important number: "symmetric-0.4", "iid-10"."""
    number = spec.get(key)
    has_number = isinstance(number, int | float) and not isinstance(number, bool)
    return path_word(f"{spec['kind']}-{number:g}" if has_number else spec["kind"])
