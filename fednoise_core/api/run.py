"""fn.run and fn.load: the Python interface's side of a run. What decides numbers is in `simulate`.

Here stands what a person at a prompt needs beside: plain arrays as labels, methods and nets of one's own, a progress
bar, a callback, and finished runs that predict, and are saved and loaded.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fednoise_core.api import predict, simulate
from fednoise_core.api.simulate import accuracy_words
from fednoise_core.data.arrays import Arrays
from fednoise_core.engine import models
from fednoise_core.index import find_run, is_index
from fednoise_core.io import ArtifactError, SpecError, atomic, write_json
from fednoise_core.methods.own import own_method
from fednoise_core.nets.module import with_named_nets
from fednoise_core.noise.labels import Labels
from fednoise_core.ops.label_errors import WRONG
from fednoise_core.partition.artifact import Partition
from fednoise_core.settings.functions import expect
from fednoise_core.settings.train import Train

__all__ = ["LoadedRun", "Run", "load", "run"]


class _Uses:
    """What finished runs offer, in memory or loaded."""

    summary: dict[str, Any]

    def _models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        raise NotImplementedError

    def module(self, client: int | None = None) -> nn.Module:
        """The trained model as a torch module in evaluation mode: images [B, C, H, W], uint8 or floats in 0..1, to
        logits [B, K]. It normalises them itself and has `class_names`.

        client: whose, where every client has a model of its own. Raises SpecError if there is no such model.
        """
        return predict.module_of(*self._models(), client)

    def predict(self, images: Any, client: int | None = None) -> predict.Predictions:
        """Classes and probabilities of images, integers 0..255, [n, H, W] or [n, H, W, C]. client: as in `module`."""
        return predict.predict(self.module(client), images)


class Run(_Uses, simulate.FinishedRun):
    """A finished run: `summary`, `cost`, `curve`, `suspects`; `corrected()`, `predict(images)`, `module()`,
    `save(folder)`.
    """

    def _models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return models.collected(self.outcome, models.looks(self.arrays))

    def corrected(self, above: float = WRONG) -> np.ndarray:
        """The labels that the run was given, int64 [n], with the proposed one wherever P(given label is wrong) is above
        `above`; the default takes every verdict `wrong`, unseen. `fn.run(data, run.corrected(), …)` trains on them.

        Of a sample that several sites hold, the greatest P(wrong) counts. A sample that was not judged keeps its label.
        Raises SpecError unless `above` is in 0..1.
        """
        share = isinstance(above, int | float | np.number) and not isinstance(above, bool) and 0 <= above <= 1
        if not share:
            raise SpecError(f"above: got {above!r}; a probability in 0..1 is needed")
        labels = self.labels.noisy.copy()
        for sample, _, p_wrong, proposed in sorted(self.suspects, key=lambda row: row[2]):
            if p_wrong > above:
                labels[sample] = proposed
        return labels


class LoadedRun(_Uses):
    """A run's folder: `summary`, `cost`, `curve`; `predict(images)`, `module()`, `save(folder)`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = _json(folder / "summary.json")
        self.spec = _json(folder / "spec.json")
        self.cost = _json(folder / "cost.json") if (folder / "cost.json").exists() else {}

    def _models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return predict.read_models(self.folder / "model.safetensors")

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(round, accuracy) of the headline view; round 0 is before training."""
        import pyarrow.parquet as pq

        path, view = self.folder / "metrics.parquet", self.summary["headline_view"]
        if not path.is_file():
            raise ArtifactError(f"{path}: no such file")
        rows = pq.read_table(path, columns=["round", "view", "client", "metric", "value"]).to_pylist()
        wanted = {"view": view, "client": -1, "metric": "accuracy"}
        return [(row["round"], row["value"]) for row in rows if wanted.items() <= row.items()]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the model with summary and settings into `folder`: all that `fn.load` and `predict` need."""
        source = self.folder / "model.safetensors"
        if not source.is_file():
            raise ArtifactError(f"{source}: no such file")
        with atomic(Path(folder, source.name), "wb") as file:
            file.write(source.read_bytes())
        write_json(Path(folder, "spec.json"), self.spec)
        write_json(Path(folder, "summary.json"), self.summary)

    def __repr__(self) -> str:
        found = self.summary["accuracy"]["last"]
        accuracy = "diverged" if found is None else f"{accuracy_words(self.summary)} {found:.4f}"
        return f"<{self.summary['run']['method']} of {self.folder}: {accuracy}>"


def load(folder: str | os.PathLike[str], **run: object) -> LoadedRun:
    """The run whose files lie in `folder`: one that `save` wrote, or the workflow.

    Of a study's folder (or its index.csv) the run with these ids: `fn.load("results/quick", method="fedavg", seed=0)`.

    Raises ArtifactError, naming the file, if one is missing or damaged, SpecError if the ids name no run or several.
    """
    if run or is_index(folder):
        folder = find_run(folder, run)
    return LoadedRun(Path(folder))


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: no such file; name the folder of a finished run") from error
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(found, dict):
        raise ArtifactError(f"{path}: not a mapping")
    return found


def run(
    arrays: Arrays,
    labels: Labels | np.ndarray,
    partition: Partition,
    method: Any,
    train: Mapping[str, Any] | Train | None = None,
    seed: int = 0,
    *,
    donor: Arrays | None = None,
    progress: bool | str | os.PathLike[str] | None = None,
    on_round: Callable[[dict[str, Any]], object] | None = None,
    **options: Any,
) -> Run:
    """Train one federation and evaluate it.

    arrays, labels, partition: of one data set; labels may also be integers 0..K-1 [n]. method: a name,
    `{"name": …, fields…}`, a class of your own (also in place of the name), or a method made of one. train: a
    spec.Train or its fields, of which `net` may also be a function `make(shape, classes)` that returns a
    torch.nn.Module (docs/nets.md). seed: a whole number from 0. donor: the data set whose images replace some, for
    labels with open-set noise.

    progress: True shows a bar, False nothing; by default there is one in a terminal or a notebook, unless `console` is
    given. A path: a file for JSON lines. on_round: a function that gets each round's metrics as a dict: `round`, `of`,
    `phase`, `work`, `bytes_up`, `bytes_down`, what the method reports, and where the round was evaluated, `accuracy`,
    `loss` and `accuracy_class_<k>` of the headline view, and `views` with those of all.

    options (simulate.Options), of which only device and threads may change the last bits of a result:
    device: "cpu", "cuda" or "cuda:N". executor: see `executor_for`. pool: lanes shared with other runs. threads: of
    torch, during this run; more than one is far slower where cores are shared. saving: a loop.Saving, where and how
    often to checkpoint. room: bytes of what clients keep that may stay in memory; the rest goes to a file. out: folder
    for the result files. spec: what spec.json records instead of the settings. label: what the run is called in
    messages. console: a stream for one line per round.

    Raises SpecError for wrong settings and for data that do not belong together, TypeError for arguments of another
    type, both before any training; loop.Stopped if `saving` asked to stop.
    """
    if isinstance(labels, np.ndarray) and isinstance(arrays, Arrays):
        labels = Labels.of(labels, arrays.y_train, arrays.classes, arrays.clean_known)
    expect(progress, (bool, *simulate.PATH), "progress", "pass True, False, a path for JSON lines, or None")
    kind, cure = simulate.OPTIONS["on_round"]
    expect(on_round, kind, "on_round", cure)
    method, train, made = own_method(method, with_named_nets(train))
    if isinstance(progress, str | os.PathLike):
        options["progress"] = progress
    shown = progress if isinstance(progress, bool) else progress is None and _watched(options)
    with _bar(options.get("label"), shown) as bar:

        def tell(row: dict[str, Any]) -> None:
            bar.total, bar.initial = row["of"], row["done_before"]
            if "accuracy" in row:
                words = accuracy_words({"test_known": arrays.test_known})
                bar.set_postfix_str(f"{words} {100 * row['accuracy']:.2f} %", refresh=False)
            bar.update(row["round"] - bar.n)
            if on_round is not None:
                on_round(row)

        done = simulate.run(
            arrays, labels, partition, method, train, seed,
            donor=donor, on_round=tell if shown else on_round, made=made, **options,
        )  # fmt: skip
    return Run(**vars(done))


def _watched(options: Mapping[str, Any]) -> bool:
    """Whether somebody is there to see a bar: in a terminal or a notebook, and no lines were asked for."""
    return options.get("console") is None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _bar(label: Any, shown: bool) -> Any:
    """The progress bar of a notebook, or of a terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a notebook has no widgets: it gets the bar of a terminal
        from tqdm.auto import tqdm
    return tqdm(desc=label, unit="round", file=sys.stderr, disable=not shown)
