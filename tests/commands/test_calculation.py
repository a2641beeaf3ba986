"""The calculated cost of a planned run, against sums worked out by hand."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import toy

from fednoise_core.engine.api import Federation, Phase
from fednoise_core.methods.fedavg import FedAvg
from workflow_scripts.commands import calculation
from workflow_scripts.study.plan import Plan

CLIENTS, HELD, IMAGES, ROUNDS, EPOCHS, BATCH = 4, 12, 40, 3, 2, 5
FORWARD = 2 * (64 * 6 + 6 * 5)  # of an image of 8x8 in a perceptron with six hidden units and five classes
STEP = 2 * FORWARD + 2 * 6 * 5  # and the gradients of the weights and of the hidden units


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """The toy's images, with four clients of twelve."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calculation, "SECONDS", 0)
    artifacts = {
        "arrays": toy.arrays(),
        "labels": toy.toy_labels(),
        "partitions": toy.toy_partition((HELD,) * CLIENTS),
    }
    plans = [Plan(f"store/{kind}/x", "") for kind in artifacts]
    for plan, artifact in zip(plans, artifacts.values(), strict=True):
        Path(plan.folder).mkdir(parents=True)
        artifact.save(plan.main_file)
    return Plan("store/runs/x", "", tuple(plans))


def calculate(files: Plan, method: dict[str, Any], **train: Any) -> tuple[float, float, float]:
    spec = {"method": method, "train": {**toy.TRAIN, "rounds": ROUNDS, "epochs": EPOCHS, "batch": BATCH, **train}}
    return calculation.calculate_cost({**spec, "seed": 0}, files, "cpu")


def test_operations_are_those_of_training_and_of_the_evaluations(files: Plan) -> None:
    """Two of four clients train in a round. Images are evaluated before the first round and after each."""
    trained, evaluated = ROUNDS * 2 * EPOCHS * HELD, (1 + ROUNDS) * IMAGES
    steps, flop, seconds = calculate(files, {"name": "fedavg"})
    assert (steps, flop) == (trained / BATCH, trained * STEP + evaluated * FORWARD)
    assert seconds > 0
    steps, flop, _ = calculate(files, {"name": "fedavg"}, eval_every=2)
    assert flop == trained * STEP + (evaluated - IMAGES) * FORWARD
    steps, flop, _ = calculate(files, {"name": "fedlsr"})
    assert (steps, flop) == (trained / BATCH, 2 * trained * STEP + evaluated * FORWARD)  # two views


def test_every_phase_counts_with_its_rounds(files: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(FedAvg):
        def list_phases(self, fed: Federation) -> list[Phase]:
            longer = partial(self.run_round, epochs=5 * EPOCHS)
            return [Phase("first", self.run_round, 1), Phase("second", longer, ROUNDS)]

    monkeypatch.setattr(calculation, "make_method", lambda _, train: Longer(train=train))
    _, flop, _ = calculate(files, {})
    trained = (1 + (ROUNDS - 1) * 5) * 2 * EPOCHS * HELD
    assert flop == trained * STEP + (1 + ROUNDS) * IMAGES * FORWARD


@pytest.mark.parametrize("groups", [1, 4])
def test_the_gradient_of_a_grouped_convolution_counts_twice_the_forward_pass(groups: int) -> None:
    x, w = torch.ones(2, 8, 6, 6, requires_grad=True), torch.ones(8, 8 // groups, 3, 3, requires_grad=True)
    with calculation.make_counter() as counter:
        out = F.conv2d(x, w, groups=groups)
        forward = counter.get_total_flops()
        out.sum().backward()
    assert forward == 2 * out.numel() * w[0].numel()
    assert counter.get_total_flops() == 3 * forward
