"""Addresses of arrays, labels, partitions and runs: a result's address is its plan.

A step writes to `store/<kind>/<words>/<digest>/`. The digest is of its settings, its code, the versions of torch and
numpy, and the digests of what it reads, all known while planning; the words are taken from the settings, for people. So
a finished folder is valid by existing: ids, labels and names of studies are no part of an address, studies share runs,
and nothing is ever written over.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fednoise_core.io import SpecError, canonical, digest
from fednoise_core.noise import registry as noises
from fednoise_core.partition import registry as partitions
from workflow_scripts import paths
from workflow_scripts.config.file_contents import content
from workflow_scripts.config.nets import net_code, weights_of
from workflow_scripts.config.project import Project
from workflow_scripts.config.published_weights import PUBLISHED, check_published
from workflow_scripts.machine.versions import Versions, installed, versions_text
from workflow_scripts.provenance.step_code import ROOT, StepCode
from workflow_scripts.study.plan import Plan, RunFiles

Settings = Mapping[str, Any]
OUTSIDE_OF_WORDS = re.compile(r"[^\w.+-]+")


@functools.cache
def store_of(project: Project) -> Store:
    """The store of a project; it remembers the plans that it has made."""
    return Store(project)


class Store:
    """Plans of a project's steps."""

    def __init__(self, project: Project) -> None:
        self.project, self.steps = project, StepCode(ROOT)
        self.versions: list[Versions] = [installed(), *(tuple(sorted(one.items())) for one in project.accepted)]

    @functools.cache  # noqa: B019 - a store lives as long as the process
    def arrays(self, dataset: str, versions: Versions | None = None) -> Plan:
        """The arrays of a data set. What may not be passed on lies in data/, which DVC never pushes."""
        spec, code = self.project.normal_dataset(dataset), self._code(self.steps.download, dataset)
        base = "store" if self.project.may_be_shared(dataset) else "data"
        held = self.project.fingerprint(dataset)
        where = f"{base}/arrays/{_word(spec['source'])}"
        own = ("--contents", self.project.contents_folder(dataset), "--fingerprint", held) if held else ()
        settings = [spec, code, self._numpy(versions), held]
        return Plan(_folder(where, *settings), code, arguments=("--spec", canonical(spec), *own))

    def setting(
        self, dataset: str, noise: Settings, partition: Settings, seed: int, versions: Versions | None = None
    ) -> tuple[Plan, Plan, Plan]:
        """Arrays, labels and partition of a setting."""
        if noises.needs_partition(noise):
            split = self.partition(dataset, partition, seed, None, versions)
            return self.arrays(dataset, versions), self.labels(dataset, noise, seed, split, versions), split
        labels = self.labels(dataset, noise, seed, None, versions)
        given = labels if partitions.needs_labels(partition) else None
        return self.arrays(dataset, versions), labels, self.partition(dataset, partition, seed, given, versions)

    def first_setting(self, dataset: str, noise: Settings, partition: Settings, seed: int) -> tuple[Plan, Plan, Plan]:
        """The same for the first versions, of those that are accepted, for which it is finished."""
        found = [self.setting(dataset, noise, partition, seed, one) for one in self.versions]
        return next((one for one in found if all(plan.finished for plan in one)), found[0])

    def donor(self, noise: Settings, versions: Versions | None = None) -> Plan | None:
        """The arrays that open-set noise takes images from, if the noise names another data set."""
        name = noises.needs_donor(noise)
        return None if name is None else self.arrays(name, versions)

    def labels(
        self, dataset: str, noise: Settings, seed: int, split: Plan | None, versions: Versions | None = None
    ) -> Plan:
        """Noisy labels; `split` is the partition of noise that depends on the client."""
        arrays, donor, file = self.arrays(dataset, versions), self.donor(noise, versions), noises.needs_file(noise)
        code, inputs = self._code(self.steps.noise, noise["kind"]), drop_none(arrays, split, donor)
        where = f"store/labels/{self._source(dataset)}/{_words(noise, 'rate')}/seed{seed}"
        held = content(_present(file)) if file else ""
        folder = _folder(where, _without_donor(noise), seed, code, self._numpy(versions), _digests(inputs), held)
        arguments = ["--spec", canonical(noise), "--seed", str(seed), "--arrays", f"{arrays.folder}/{paths.ARRAYS}"]
        arguments += ["--partition", f"{split.folder}/{paths.PARTITION}"] if split else []
        arguments += ["--donor", f"{donor.folder}/{paths.ARRAYS}"] if donor else []
        return Plan(folder, code, inputs, tuple(arguments))

    def partition(
        self, dataset: str, partition: Settings, seed: int, labels: Plan | None, versions: Versions | None = None
    ) -> Plan:
        """Who holds which sample; `labels` are the noisy labels of partitions drawn over them."""
        arrays, code = self.arrays(dataset, versions), self._code(self.steps.partition, partition["kind"])
        where = f"store/partitions/{self._source(dataset)}/{_words(partition, 'clients')}/seed{seed}"
        inputs = drop_none(arrays, labels)
        folder = _folder(where, partition, seed, code, self._numpy(versions), _digests(inputs))
        arguments = ["--spec", canonical(partition), "--seed", str(seed)]
        arguments += ["--arrays", f"{arrays.folder}/{paths.ARRAYS}"]
        arguments += ["--labels", f"{labels.folder}/{paths.LABELS}"] if labels else []
        return Plan(folder, code, inputs, tuple(arguments))

    def run(self, dataset: str, spec: Settings, seed: int) -> RunFiles:
        """The files of a run: finished ones of any accepted versions and of either device, else those to be made."""
        found: list[RunFiles] = []
        for versions in self.versions:
            for on_gpu in (self.project.on_gpu, not self.project.on_gpu):
                found.append(self._run(dataset, spec, seed, versions, on_gpu))
                if found[-1].run.finished:
                    return found[-1]
        return found[0]

    def _run(self, dataset: str, spec: Settings, seed: int, versions: Versions, on_gpu: bool) -> RunFiles:
        arrays, labels, split = self.setting(dataset, spec["noise"], spec["partition"], seed, versions)
        donor, weights = self.donor(spec["noise"], versions), weights_of(spec["train"])
        code = self._train_code(spec["method"]["name"], tuple(net_code(spec["train"])), on_gpu)
        inputs = drop_none(arrays, labels, split, donor)
        where = "/".join(
            [
                f"store/runs/{self._source(dataset)}",
                _words(spec["noise"], "rate"),
                _words(spec["partition"], "clients"),
                _word(spec["method"]["name"]),
                f"seed{seed}",
            ]
        )
        settings = {**spec, "noise": _without_donor(spec["noise"])}
        held = {path: self._weights(path) for path in weights}
        folder = _folder(where, settings, code, versions, _digests(inputs), held)
        arguments = ["--spec", canonical(spec), "--versions", versions_text(versions)]
        for name, plan, file in (
            ("arrays", arrays, paths.ARRAYS),
            ("labels", labels, paths.LABELS),
            ("partition", split, paths.PARTITION),
            ("donor", donor, paths.ARRAYS),
        ):
            arguments += [f"--{name}", f"{plan.folder}/{file}"] if plan else []
        arguments += ["--work", paths.WORK.format(run=folder)]
        return RunFiles(Plan(folder, code, inputs, tuple(arguments), tuple(weights)), arrays, labels, split, donor)

    @functools.cache  # noqa: B019
    def _train_code(self, method: str, nets: tuple[str, ...], on_gpu: bool) -> str:
        return self.steps.code(self.steps.train(method, nets, gpu=on_gpu))

    @functools.cache  # noqa: B019
    def _weights(self, path: str) -> str | list[str]:
        """What decides a file of weights: source and code of published ones, which a rule makes, else its contents."""
        net = Path(path).stem
        if path != paths.WEIGHTS.format(net=net) or net not in PUBLISHED:
            return content(_present(path))
        check_published(path, net)
        return [PUBLISHED[net][1], self.steps.code(self.steps.pretrained(net))]

    @functools.cache  # noqa: B019
    def _code(self, step: Any, name: str) -> str:
        return self.steps.code(step(self.project.normal_dataset(name) if step == self.steps.download else name))

    @functools.cache  # noqa: B019
    def _source(self, dataset: str) -> str:
        return _word(self.project.datasets[dataset]["source"])

    def _numpy(self, versions: Versions | None) -> str:
        return dict(versions or self.versions[0])["numpy"]


def as_whole_numbers(value: Any) -> Any:
    """Settings in which whole numbers are written as such: 5.0 decides what 5 decides."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: as_whole_numbers(one) for key, one in value.items()}
    return [as_whole_numbers(one) for one in value] if isinstance(value, list | tuple) else value


def _folder(where: str, *plan: Any) -> str:
    return f"{where}/{digest(*map(as_whole_numbers, plan))}"


def _digests(inputs: Iterable[Plan]) -> list[str]:
    return [plan.digest for plan in inputs]


def drop_none(*plans: Plan | None) -> tuple[Plan, ...]:
    """Those of the plans that are given."""
    return tuple(plan for plan in plans if plan is not None)


def _without_donor(noise: Settings) -> dict[str, Any]:
    """Settings of noise without the id of another data set; the digest of its arrays counts instead."""
    return {key: value for key, value in noise.items() if key != "donor" or noises.needs_donor(noise) is None}


def _present(path: str) -> str:
    if not Path(path).is_file():
        raise SpecError(f"{path}: no such file; the settings name it")
    return path


def _word(text: Any) -> str:
    return OUTSIDE_OF_WORDS.sub("-", str(text)) or "-"


def _words(spec: Settings, key: str) -> str:
    """A kind with its most telling number: "symmetric-0.4", "iid-10"."""

    def parts() -> Iterator[str]:
        yield str(spec["kind"])
        if isinstance(number := spec.get(key), int | float) and not isinstance(number, bool):
            yield f"{number:g}"

    return _word("-".join(parts()))
