"""Functions for `on_round` that send the metrics of each round to TensorBoard, Weights & Biases or MLflow.

Each needs the package of its service. A finished run is sent by calling the function with each of `run.rounds`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from fednoise_core.io import SpecError

OnRound = Callable[[Mapping[str, Any]], None]


def list_scalars(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """List the metrics of a round.

    Args:
        row: What `on_round` gets.

    Yields:
        (name, value): what the method reports, and `view/metric` of each view.
    """
    headline: Mapping[str, float] = next(iter(row["views"].values()), {})  # its metrics are also in the row itself
    yield from ((name, value) for name, value in row.items() if isinstance(value, float) and name not in headline)
    for view, metrics in row["views"].items():
        yield from ((f"{view}/{name}", value) for name, value in metrics.items())


def log_to_tensorboard(folder: str | os.PathLike[str]) -> OnRound:
    """Make a function that writes event files of TensorBoard.

    Args:
        folder: Folder of the run. `tensorboard --logdir` names it or one above it.
    """
    writer = _import_package("torch.utils.tensorboard").SummaryWriter(os.fspath(folder))

    def log_round(row: Mapping[str, Any]) -> None:
        for name, value in list_scalars(row):
            writer.add_scalar(name, value, row["round"])
        writer.flush()

    return log_round


def log_to_wandb(**init: Any) -> OnRound:
    """Make a function that logs to a new run of Weights & Biases, which ends with the last round.

    Args:
        **init: Arguments of `wandb.init`, such as project="noise", config={"method": "sce"}.
    """
    run = _import_package("wandb").init(reinit="create_new", **init)

    def log_round(row: Mapping[str, Any]) -> None:
        run.log(dict(list_scalars(row)), step=row["round"])
        if row["round"] == row["of"]:
            run.finish()

    return log_round


def log_to_mlflow(**start: Any) -> OnRound:
    """Make a function that logs to a new run of MLflow, which ends with the last round.

    Args:
        **start: Arguments of `mlflow.start_run`, such as run_name="sce".
    """
    mlflow = _import_package("mlflow")
    mlflow.start_run(**start)

    def log_round(row: Mapping[str, Any]) -> None:
        mlflow.log_metrics(dict(list_scalars(row)), step=row["round"])
        if row["round"] == row["of"]:
            mlflow.end_run()

    return log_round


def _import_package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.rpartition(".")[2]
        raise SpecError(f"{package} is not installed; `pip install {package}`") from error
