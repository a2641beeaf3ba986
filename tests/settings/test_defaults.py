"""A setting at its default is the same, left out or written out. The identity of a run leaves it out.

The schemas of methods, nets, noises, partitions and training settings are made from the code's own defaults; an
augmentation may be a chain, in which a setting goes to several parts.
"""

from pathlib import Path
from typing import Any

import pytest

from fednoise_core.data import augment
from workflow_scripts.config.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]


def written_out(family: str) -> list[tuple[str, dict[str, Any]]]:
    """Every kind with each of its defaults alone."""
    kinds = read_yaml(ROOT / f"config/schema/{family}.yaml")
    return [
        (kind, {key: schema["default"]})
        for kind, entry in kinds.items()
        for key, schema in entry["properties"].items()
        if "default" in schema
    ]


@pytest.mark.parametrize(("name", "default"), written_out("augment"), ids=str)
def test_defaults_of_augmentations(name: str, default: dict[str, Any]) -> None:
    assert augment.make_augmentation({"name": name, **default}) == augment.make_augmentation(name)
