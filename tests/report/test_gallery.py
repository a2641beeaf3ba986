"""The study `gallery`: all its pictures of noises and partitions are readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from layout_check import problems

from fednoise_core.data import sources
from fednoise_core.data.partition import Partition
from fednoise_core.io import SpecError
from fednoise_core.noise import registry as noise
from fednoise_core.noise.labels import Labels
from fednoise_core.partition import registry as partition
from fednoise_core.report.figures import draw, style
from fednoise_core.report.runs.settings import SettingArtifacts
from workflow_scripts.config.project import Project
from workflow_scripts.config.yaml_file import read_yaml
from workflow_scripts.study.study import Study

ROOT = Path(__file__).parents[2]
PAGE = 9.5  # inches: the height of a page's text


@pytest.fixture(scope="module")
def study() -> Study:
    config = read_yaml(ROOT / "config/config.yaml")
    return Study(Project({**config, "scale": "paper", "overlay": {}, "studies": ["gallery"]}, ROOT), "gallery")


@pytest.fixture(scope="module")
def shown(study: Study, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], SettingArtifacts]:
    """(noise, partition) → the setting with its artifacts, for the whole grid."""
    folder = tmp_path_factory.mktemp("gallery")
    arrays = folder / "digits.npz"
    data = sources.read(study.project.datasets["digits"])
    data.save(arrays)
    found: dict[tuple[str, str], SettingArtifacts] = {}
    for run in study.runs:
        noise_spec, partition_spec = study.normalize_noise(run.noise), study.normalize_partition(run.partition)
        labels_file, partition_file = folder / run.row["labels"], folder / run.row["partition_file"]
        split: Partition | None = None
        if noise.needs_partition(noise_spec):
            split = partition.make(data, partition_spec, run.seed)
        labels: Labels = noise.inject(data, noise_spec, run.seed, split)
        labels.save(labels_file)
        (split or partition.make(data, partition_spec, run.seed, labels)).save(partition_file)
        ids = ("digits", run.noise, run.partition, run.seed)
        found[run.noise, run.partition] = SettingArtifacts(*ids, labels_file, partition_file, arrays)
    return found


def test_every_kind_of_figure_is_shown(study: Study) -> None:
    drawn = {spec["kind"] for spec in study.figures.values()}
    assert drawn == {"histogram", "transition", "clients", "samples"}


def test_no_text_of_its_figures_overlaps_and_each_fits_a_page(
    study: Study, shown: dict[tuple[str, str], SettingArtifacts]
) -> None:
    for name, spec in study.figures.items():
        chosen = dict.fromkeys((run.noise, run.partition) for run in study.select_runs(spec))
        with style.use_house_style():
            drawn = draw.draw_setting_figure([shown[one] for one in chosen], spec)
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


def test_images_of_another_data_set_are_told_to_the_page() -> None:
    noise_spec = {"kind": "openset_images", "rate": 0.2, "donor": "mnist"}
    block = {"datasets": ["digits"], "noises": ["clean", "foreign"], "partitions": ["iid"], "methods": ["fedavg"]}
    overlay = {"noises": {"foreign": noise_spec}, "grid": [block], "tables": {}, "figures": {}}
    config = {**read_yaml(ROOT / "config/config.yaml"), "scale": "smoke", "overlay": overlay, "studies": ["gallery"]}
    clean, foreign = Study(Project(config, ROOT), "gallery").runs
    assert foreign.store is not None
    assert foreign.row["donor"].startswith("data/arrays/mnist/")
    assert foreign.row["donor"] == f"{foreign.store.plan_arrays('mnist').folder}/arrays.npz"
    assert "donor" not in clean.row
