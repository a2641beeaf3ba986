"""Sizes of jobs: as large as the net and the data ask for, told otherwise by the config, doubled at a second try."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from fednoise_core.nets import NETS, build
from workflow_scripts import sizes
from workflow_scripts.config_file import Place
from workflow_scripts.schemas import Schemas

ROOT = Path(__file__).parents[1]
DESCRIBED = yaml.safe_load((ROOT / "config/schema/net.yaml").read_text(encoding="utf-8"))
CIFAR, DIGITS = (50_000, 10, 32), (1187, 10, 8)


@pytest.mark.parametrize("name", sorted(NETS.keys() - {"module"}))
def test_operations_and_weights_are_the_nets(name: str) -> None:
    """A new net needs its line; without it, its runs would be taken for the largest."""
    mflop, _, side, millions = sizes.NETS[name]
    shape, classes = DESCRIBED[name]["input"], DESCRIBED[name]["classes"]
    assert shape[1] == side
    net = build(name, tuple(shape), classes)
    weights = net.fresh(torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counted:
        net.predict(weights, torch.zeros(1, *shape))
    assert counted.get_total_flops() / 1e6 == pytest.approx(mflop, rel=0.1)
    assert weights.flat.numel() / 1e6 == pytest.approx(millions, rel=0.1, abs=0.01)


def test_a_run_is_as_large_as_its_net_data_and_rounds() -> None:
    small = sizes.trained({"net": "mlp", "rounds": 2}, DIGITS)
    assert small["runtime"] <= 20
    assert 1500 <= small["mem_mb"] <= 3500
    large = {"net": "resnet18", "rounds": 300, "fraction": 0.1, "epochs": 5, "batch": 32}
    on_gpu, on_cpu = sizes.trained(large, CIFAR, "cuda"), sizes.trained(large, CIFAR)
    assert 60 < on_gpu["runtime"] < 24 * 60
    assert on_cpu["runtime"] > 50 * on_gpu["runtime"]
    assert sizes.trained({**large, "rounds": 30}, CIFAR, "cuda")["runtime"] < on_gpu["runtime"] / 4
    assert sizes.trained({**large, "net": ["mlp", {"name": "resnet18"}]}, CIFAR, "cuda")["runtime"] == on_gpu["runtime"]
    assert sizes.trained(large, (1_000_000, 14, 224))["mem_mb"] > 100_000  # the images alone
    assert sizes.trained({"net": "new"}, (None, None, None)) == sizes.trained({"net": "resnet50"}, (60_000, 10, 32))


def test_the_config_has_the_last_word() -> None:
    found = {"mem_mb": 2000, "runtime": 20}
    assert sizes.sized("train", found, None, 1) == found
    assert sizes.sized("train", found, {"noise": {"mem_mb": 1}}, 2) == {"mem_mb": 4000, "runtime": 40}
    assert sizes.sized("train", found, {"train": {"mem_mb": 3000}}, 1) == {"mem_mb": 3000, "runtime": 20}


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ({"trian": {}}, "config.yaml: jobs.trian: unknown key; did you mean 'train'?"),
        ({"train": {"memory": 1}}, "config.yaml: jobs.train.memory: unknown key"),
        ({"train": {"runtime": 0}}, "config.yaml: jobs.train.runtime: "),
    ],
)
def test_a_mistake_in_it_is_named(jobs: object, message: str) -> None:
    with pytest.raises(ValueError, match="jobs") as error:
        Schemas(ROOT / "config/schema").check("config", {"jobs": jobs}, Place("config.yaml"), partial=True)
    assert message in str(error.value)
