"""The pictures of every kind of noise and partition, and of the study `gallery`, are readable."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layout_check import problems

from fednoise_core.data import sources
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.io import SpecError
from fednoise_core.noise import registry as noise
from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partition
from fednoise_core.settings.functions import resolve_kind
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.report.figures import draw, style
from workflow_scripts.report.figures.settings import SETTING_FIGURES
from workflow_scripts.report.runs.run import Setting
from workflow_scripts.report.runs.settings import SettingArtifacts
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
PAGE = 9.5  # inches: the height of a page's text
DATA_INPUTS = {"given", "client_ids"}  # inputs that come with a data set


@pytest.fixture(scope="module")
def study() -> Study:
    config = read_yaml(ROOT / "config/config.yaml")
    return Study(Project({**config, "scale": "paper", "overlay": {}, "studies": ["gallery"]}, ROOT), "gallery")


@pytest.fixture(scope="module")
def gallery(study: Study, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], SettingArtifacts]:
    """(noise, partition) → the setting with its artifacts, for the whole grid."""
    folder = tmp_path_factory.mktemp("gallery")
    arrays = folder / "digits.npz"
    data = sources.read(study.project.datasets["digits"])
    data.save(arrays)
    artifacts: dict[tuple[str, str], SettingArtifacts] = {}
    for run in study.runs:
        noise_spec = study.normalize_definition("noises", run.noise)
        partition_spec = study.normalize_definition("partitions", run.partition)
        labels_file, partition_file = folder / run.row["labels"], folder / run.row["partition_file"]
        split: Partition | None = None
        if noise.needs_partition(noise_spec):
            split = partition.make(data, partition_spec, run.seed)
        labels: Labels = noise.inject(data, noise_spec, run.seed, split)
        labels.save(labels_file)
        (split or partition.make(data, partition_spec, run.seed, labels)).save(partition_file)
        files = {"arrays": arrays, "labels": labels_file, "partition": partition_file}
        setting = Setting("digits", run.noise, run.partition)
        artifacts[run.noise, run.partition] = SettingArtifacts(setting, run.seed, files)
    return artifacts


def examples(registry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The example of each kind, except kinds whose labels or owners come with the data."""
    kinds = {kind: resolve_kind({"kind": kind}, registry, "") for kind in registry}
    standalone = [kind for kind, make in kinds.items() if not DATA_INPUTS & set(inspect.signature(make).parameters)]
    return [{"kind": kind, **kinds[kind].example} for kind in standalone]


@pytest.fixture(scope="module")
def example_artifacts(tmp_path_factory: pytest.TempPathFactory) -> list[SettingArtifacts]:
    """A setting for the example of every kind: the noises with equal clients, the partitions with symmetric noise."""
    equal, usual = {"kind": "iid", "clients": 20}, {"kind": "symmetric", "rate": 0.4}
    pairs = [(spec, equal) for spec in examples(noise.NOISES)]
    pairs += [(usual, spec) for spec in examples(partition.PARTITIONS)]
    artifacts: list[SettingArtifacts] = []
    for noise_spec, partition_spec in pairs:
        folder = tmp_path_factory.mktemp("example")
        classes = len(noise_spec.get("rows", range(10)))  # a matrix has one row per class
        images = np.random.default_rng(0).integers(0, 256, (20_000, 4, 4), np.uint8)
        y = np.arange(len(images)) % classes
        arrays = Arrays(images, y, images[:9], y[:9], classes, (0.5,), (0.25,), x_public=images[:50])
        if "file" in noise_spec:  # a file of probabilities
            soft = np.full((len(images), classes), 0.04) + 0.6 * np.eye(classes)[y]
            np.savetxt(folder / "soft.csv", soft, delimiter=",", fmt="%.2f")
            noise_spec = {**noise_spec, "file": str(folder / "soft.csv")}
        labels = noise.inject(arrays, noise_spec, 0, partition.make(arrays, equal, 0))
        split = partition.make(arrays, partition_spec, 0, labels)
        for name, artifact in (("labels", labels), ("partition", split), ("arrays", arrays)):
            artifact.save(folder / f"{name}.npz")
        files = {name: folder / f"{name}.npz" for name in ("arrays", "labels", "partition")}
        setting = Setting("data", noise_spec["kind"], partition_spec["kind"])
        artifacts.append(SettingArtifacts(setting, 0, files, among=artifacts))
    return artifacts


@pytest.mark.parametrize("kind", SETTING_FIGURES)
def test_the_example_of_every_kind_has_readable_pictures(example_artifacts: list[SettingArtifacts], kind: str) -> None:
    for artifacts in example_artifacts:
        with style.use_house_style():
            assert problems(draw.draw_setting_figure([artifacts], {"kind": kind}).figure) == [], artifacts.words


def test_no_text_of_its_figures_overlaps_and_each_fits_a_page(
    study: Study, gallery: dict[tuple[str, str], SettingArtifacts]
) -> None:
    for name, spec in study.figures.items():
        chosen = dict.fromkeys((run.noise, run.partition) for run in study.select_runs(spec))
        with style.use_house_style():
            drawn = draw.draw_setting_figure([gallery[cell] for cell in chosen], spec)
            assert problems(drawn.figure) == [], name
        assert drawn.figure.get_size_inches()[1] <= PAGE, name


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (("digit", "pair", "iid", 0), r"gallery\.yaml: unknown data set 'digit'; did you mean 'digits'\?"),
        (("digits", "pear", "iid", 0), r"gallery\.yaml: noises: unknown noise 'pear'; did you mean 'pair'\?"),
        (("digits", "fedcorr", "openset-uniform", 0), "one must come first"),
    ],
)
def test_a_setting_that_cannot_be_is_named(study: Study, ids: tuple[str, str, str, int], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        study.plan_setting(*ids)
    _, labels, split = study.plan_setting("digits", "pair", "quantity", 7)
    assert labels.folder.startswith("store/labels/digits/pair-")
    assert split.folder.startswith("store/partitions/digits/quantity-")


def test_a_run_names_the_images_of_another_data_set() -> None:
    noise_spec = {"kind": "openset_images", "rate": 0.2, "donor": "mnist"}
    block = {"datasets": ["digits"], "noises": ["clean", "foreign"], "partitions": ["iid"], "methods": ["fedavg"]}
    overlay = {"noises": {"foreign": noise_spec}, "grid": [block], "tables": {}, "figures": {}}
    config = {**read_yaml(ROOT / "config/config.yaml"), "scale": "smoke", "overlay": overlay, "studies": ["gallery"]}
    clean, foreign = Study(Project(config, ROOT), "gallery").runs
    assert foreign.store is not None
    assert foreign.row["donor"].startswith("data/arrays/mnist/")
    assert foreign.row["donor"] == f"{foreign.store.plan_arrays('mnist').folder}/arrays.npz"
    assert "donor" not in clean.row
