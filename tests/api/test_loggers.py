"""The metrics sent to TensorBoard, Weights & Biases and MLflow. Stand-ins with the same calls record them."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import toy

import fednoise_core as fn
from fednoise_core import loggers
from fednoise_core.io import SpecError


class Service:
    """Stands in for the three packages and records their calls in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        board = types.ModuleType("torch.utils.tensorboard")
        board.SummaryWriter = lambda folder: types.SimpleNamespace(  # type: ignore[attr-defined]
            add_scalar=lambda name, value, step: self.calls.append((step, {name: value})), flush=lambda: None
        )
        run = types.SimpleNamespace(log=lambda values, step: self.calls.append((step, values)), finish=self.end)
        wandb = types.ModuleType("wandb")
        wandb.init = lambda reinit, project: run  # type: ignore[attr-defined]
        mlflow = types.ModuleType("mlflow")
        mlflow.start_run, mlflow.end_run = lambda run_name: None, self.end  # type: ignore[attr-defined]
        mlflow.log_metrics = lambda values, step: self.calls.append((step, values))  # type: ignore[attr-defined]
        for module in (board, wandb, mlflow):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def end(self) -> None:
        self.calls.append(("end",))


MAKERS = {
    "tensorboard": lambda: loggers.log_to_tensorboard("logs"),
    "wandb": lambda: loggers.log_to_wandb(project="noise"),
    "mlflow": lambda: loggers.log_to_mlflow(run_name="one"),
}


@pytest.mark.parametrize("service", MAKERS)
def test_every_rounds_metrics_are_sent_live_and_from_files(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log, recorded, train = MAKERS[service], Service(monkeypatch), {"net": "mlp", "rounds": 3, "eval_every": 2}
    run = fn.run(toy.arrays(), toy.toy_labels(), toy.toy_partition(), "fedavg", train, on_round=log(), out=tmp_path)
    live = recorded.calls.copy()
    ends = [call for call in live if call == ("end",)]
    assert ends == ([] if service == "tensorboard" else live[-1:])
    sent = {(step, name): value for step, values in live[: len(live) - len(ends)] for name, value in values.items()}
    assert [(step, value) for (step, name), value in sent.items() if name == "global/accuracy"] == run.curve[1:]
    assert sum(value for (_, name), value in sent.items() if name == "bytes_up") == run.summary["bytes_up"]
    assert not any(name in ("accuracy", "round", "of", "phase") for _, name in sent)
    for source in (run, fn.load(tmp_path)):
        recorded.calls.clear()
        again = log()
        for row in source.rounds:
            again(row)
        assert recorded.calls == live


@pytest.mark.parametrize("service", MAKERS)
def test_a_missing_package_is_named(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SpecError, match=f"{service} is not installed; `pip install {service}`"):
        MAKERS[service]()
