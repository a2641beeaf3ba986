"""fn.run and fn.load, the Python interface to a run. All code that determines the numbers is in `simulate`.

This module adds features for interactive use: plain arrays as labels, the user's own methods and nets, a progress bar,
and a callback. Finished runs can predict, and can be saved and loaded.
"""

import functools
import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import nn

from fednoise_core.api import predict, simulate
from fednoise_core.api.checks import check_data, resolve_settings
from fednoise_core.api.simulate import accuracy_words
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.engine import models
from fednoise_core.engine.loop import Saving
from fednoise_core.engine.record import Record
from fednoise_core.index import find_run, is_index, read_json
from fednoise_core.io import ArtifactError, SpecError, check_address, json_digest
from fednoise_core.label_errors.estimate import WRONG
from fednoise_core.methods.own import own_method
from fednoise_core.nets.module import Factory, with_named_nets
from fednoise_core.noise.labels import Labels
from fednoise_core.noise.registry import NOISES, oracle_rate
from fednoise_core.settings.declare import check_keys, did_you_mean
from fednoise_core.settings.functions import check_float, expect_type
from fednoise_core.settings.train import Train

if TYPE_CHECKING:
    from fednoise_core.api.scores import Scores

SUMMARY = {"run": dict[str, Any], "accuracy": dict[str, float | None], "headline_view": str}  # required key → its type


class _Uses:
    """Methods that finished runs in memory and loaded runs have in common."""

    summary: dict[str, Any]

    def _models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        raise NotImplementedError

    def _metrics(self) -> Iterable[tuple[Any, ...]]:
        raise NotImplementedError

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Metrics of each round, as passed to `on_round`. The last round may also have `valid_accuracy`."""
        groups = groupby(self._metrics(), key=lambda row: row[0])
        rows = [Record(list(metrics)).of_round(number) for number, metrics in groups if number > 0]
        return [{**row, "of": rows[-1]["round"], "done_before": 0} for row in rows]

    def module(self, client: int | None = None) -> nn.Module:
        """Trained model as a torch module in evaluation mode.

        It turns images [B, C, H, W], uint8 or floats in 0..1, into logits [B, K]. It normalises the images itself and
        has `class_names`.

        Args:
            client: Client whose model to return, if every client has its own model.

        Returns:
            The module.

        Raises:
            SpecError: There is no such model.
        """
        return predict.module_of(*self._models(), client)

    def predict(self, images: Any, client: int | None = None) -> predict.Predictions:
        """Classify images.

        Args:
            images: Integers 0..255, [n, H, W] or [n, H, W, C].
            client: Client whose model to use, if every client has its own model.

        Returns:
            Probabilities and labels.

        Raises:
            SpecError: There is no such model, or the images have another type or shape.
        """
        return predict.predict_images(self.module(client), images)

    def scores(self, arrays: Arrays, labels: Labels, partition: Partition) -> "Scores":
        """Score the trained models by class and by client.

        Args:
            arrays: Data set of the run.
            labels: Labels of the run.
            partition: Partition of the run.

        Returns:
            Accuracy by class, macro F1, and the personalised accuracy of each client.
        """
        from fednoise_core.api.scores import score_models

        tensors, facts = self._models()
        owners = {predict.owner_of_prefix(prefix) for prefix in facts["nets"]}
        modules = {owner: predict.module_of(tensors, facts, owner) for owner in owners}
        return score_models(modules, arrays, labels, partition)

    def save_torch(self, path: str | os.PathLike[str], client: int | None = None) -> None:
        """Write a model that torch runs without fednoise.

        `torch.export.load(path).module()` turns images [B, C, H, W], floats in 0..1, into logits [B, K]. It normalises
        them itself. `class_names.json` in the file is a list of the class names (`extra_files` of `torch.export.load`).

        Args:
            path: File to write. torch uses the file extension .pt2.
            client: Client whose model to write, if every client has its own model.

        Raises:
            SpecError: There is no such model.
        """
        from fednoise_core.api.export import export_module

        export_module(self.module(client), path)


class Run(_Uses, simulate.FinishedRun):
    """Finished run.

    It has `summary`, `cost`, `curve`, `rounds` and `suspects`, and `corrected()`, `predict(images)`, `module()`,
    `scores(data, labels, clients)`, `save(folder)` and `save_torch(path)`.
    """

    def _models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return models.collect_models(self.outcome, models.describe_data(self.arrays))

    def _metrics(self) -> Iterable[tuple[Any, ...]]:
        return self.outcome.record.metrics

    def corrected(self, above: float = WRONG) -> np.ndarray:
        """Labels of the run with the likely errors replaced by the proposed labels.

        `fn.run(data, run.corrected(), …)` trains on them. If several sites have a sample, the one with the greatest
        P(wrong) decides. A sample without an estimate keeps its label.

        Args:
            above: P(given label is wrong) above which a label is replaced. The default replaces every label with the
                verdict `wrong`, without review by a person.

        Returns:
            Labels int64 [n].

        Raises:
            SpecError: `above` is not in 0..1.
        """
        above = check_float(above, "above", 0, 1)
        labels = self.labels.noisy.copy()
        for sample, _, p_wrong, proposed in sorted(self.suspects, key=lambda row: row[2]):
            if p_wrong > above:
                labels[sample] = proposed
        return labels


class LoadedRun(_Uses):
    """Run whose files lie in a folder.

    It has `summary`, `cost`, `curve` and `rounds`, and `predict(images)`, `module()`,
    `scores(data, labels, clients)` and `save_torch(path)`.

    Args:
        folder: Folder of the run.
        factory: As for `fn.load`.

    Raises:
        ArtifactError: A file is missing or damaged.
        SpecError: A key of the summary is missing or wrong.
    """

    def __init__(self, folder: Path, factory: Factory | str | None = None) -> None:
        self.folder, self.factory = folder, factory
        check_address(folder)
        self.summary = read_json(folder / "summary.json")
        check_keys(SUMMARY, self.summary, f"{folder / 'summary.json'}: summary")
        self.spec = read_json(folder / "spec.json")
        self.cost = read_json(folder / "cost.json") if (folder / "cost.json").exists() else {}

    def _models(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return predict.read_models(self.folder / "model.safetensors", self.factory)

    def _metrics(self) -> Iterable[tuple[Any, ...]]:
        import pyarrow.parquet as pq

        path = self.folder / "metrics.parquet"
        if not path.is_file():
            raise ArtifactError(f"{path}: no such file")
        try:
            table = pq.read_table(path, columns=["round", "work", "phase", "view", "client", "metric", "value"])
            if (str(table["round"].type), str(table["value"].type)) != ("int32", "double"):
                raise ValueError("expected round as int32 and value as double")
        except (OSError, ValueError) as error:
            problem = str(error).partition("\n")[0]
            raise ArtifactError(f"{path}: damaged ({problem})") from error
        return [tuple(row.values()) for row in table.to_pylist()]

    @property
    def curve(self) -> list[tuple[int, float]]:
        """Accuracy of the headline view after each evaluation, as (round, accuracy). Round 0 is before training."""
        return Record(list(self._metrics())).curve(self.summary["headline_view"])

    def __repr__(self) -> str:
        return f"<{self.summary['run'].get('method')} of {self.folder}: {simulate.describe_end(self.summary)}>"


def load(folder: str | os.PathLike[str], *, factory: Factory | str | None = None, **run: object) -> LoadedRun:
    """Load a finished run from its files.

    Args:
        folder: Folder that `save` or the workflow wrote, or a study's folder (or its index.csv).
        factory: Function that makes the net, or its name "module:function", if the net is your own torch module. The
            model file also names a function, but the library never calls a function only because a file names it.
        **run: Ids that choose the run of a study, as in `fn.load("results/quick", method="fedavg", seed=0)`.

    Returns:
        The run.

    Raises:
        ArtifactError: A file is missing or damaged.
        SpecError: No run or more than one run has these ids, or a key of a file is wrong.
        TypeError: An argument has another type.
    """
    expect_type(folder, (str, os.PathLike), "folder", "pass the path of a finished run")
    expect_type(factory, cast("Any", (str, Callable, type(None))), "factory", "pass a function, or 'module:function'")
    if run or is_index(folder):
        folder = find_run(folder, run)
    return LoadedRun(Path(folder), factory)


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

    Args:
        arrays: The data set.
        labels: Labels of this data set, or whole numbers 0..K-1 [n].
        partition: Partition of this data set.
        method: A name, `{"name": …, fields…}`, your own class (also in place of the name), or an instance of your own
            class.
        train: A Train or its fields. `net` may also be a function `make(shape, classes)` that returns a torch.nn.Module
            (docs/nets.md).
        seed: Whole number from 0.
        donor: Data set whose images replace some training images, for labels with open-set noise.
        progress: True shows a bar, False shows nothing, a path is a file for JSON lines. By default there is a bar in a
            terminal or a notebook, unless `console` is given.
        on_round: Function that is called with the metrics of each round, see `Options`. `fednoise_core.loggers` has
            such functions for TensorBoard, Weights & Biases and MLflow.
        **options: Other fields of `Options`, such as device="cuda", executor, threads, saving and out. Only device and
            threads may change the last bits of a result.

    Returns:
        The finished run. If its files cannot be written to `out`, a warning is issued.

    Raises:
        SpecError: A setting is wrong, or the data do not belong together. Training has not begun.
        TypeError: An argument has another type. Training has not begun.
        Stopped: `saving` asked to stop.
        Diverged: No update of a round is finite (`fednoise_core.engine.loop.Diverged`, a SpecError).
    """
    if isinstance(labels, np.ndarray) and isinstance(arrays, Arrays):
        labels = Labels.of(labels, arrays.y_train, arrays.classes, arrays.clean_known)
    expect_type(progress, (bool, *simulate.PATH), "progress", "pass True, False, a path for JSON lines, or None")
    kind, cure = simulate.OPTIONS["on_round"]
    expect_type(on_round, kind, "on_round", cure)
    method, train, made = own_method(_tell_rate(method, labels), with_named_nets(train))
    if isinstance(progress, str | os.PathLike):
        options["progress"] = progress
    if isinstance(options.get("saving"), Saving):
        options["saving"] = _complete_key(options["saving"], arrays, labels, partition, method, train, seed)
    visible = progress if isinstance(progress, bool) else progress is None and _is_watched(options)
    _check_options(options)
    with _progress_bar(options.get("label"), visible) as bar:
        update = functools.partial(_update_bar, bar, arrays, on_round) if visible else on_round
        try:
            done = simulate.run_federation(
                arrays, labels, partition, method, train, seed, donor=donor, on_round=update, made=made, **options
            )
        except simulate.NotSaved as error:
            warnings.warn(f"{error}; the run is not lost: save it elsewhere by run.save(folder)", stacklevel=2)
            done = error.run
    return Run(**vars(done))


def _complete_key(
    saving: Saving, arrays: Any, labels: Any, partition: Any, method: Any, train: Any, seed: Any
) -> Saving:
    """Add settings and data to the key of a checkpoint, so that a different run does not resume from it."""
    if saving.path.is_dir() or not saving.path.parent.is_dir():
        raise SpecError(f"saving: expected the path of a file in an existing folder, got {str(saving.path)!r}")
    check_data(arrays, labels, partition, None)
    method, settings, seed = resolve_settings(method, train, seed)
    digest = hashlib.sha256()
    for name, value in [item for data in (arrays, labels, partition) for item in vars(data).items()]:
        if isinstance(value, np.ndarray):
            digest.update(name.encode() + np.ascontiguousarray(value).data)
    return replace(saving, key=json_digest(saving.key, method, vars(settings), seed, digest.hexdigest()))


ORACLE = "oracle_nominal"  # this value of a method's field is replaced by the nominal noise rate, as in a study


def _tell_rate(method: Any, labels: Any) -> Any:
    """Replace `ORACLE` in a method's settings by the nominal noise rate. Raises SpecError if the rate is unknown."""
    if not (isinstance(method, Mapping) and isinstance(labels, Labels)):
        return method
    told = [key for key, value in method.items() if isinstance(value, str) and value == ORACLE]
    if not told:
        return method
    noise = labels.spec["noise"]  # from a file, perhaps; so a function of the user's own is not imported
    rate = oracle_rate(noise, labels.classes) if noise["kind"] in NOISES else labels.nominal_rate
    if rate is None:
        raise SpecError(
            f"method.{told[0]}: no nominal rate of these labels is known. Give a number instead of {ORACLE}"
        )
    return {**method, **dict.fromkeys(told, rate)}


INTERNAL = {"made", "room", "spec"}  # options that the workflow and tests use


def _check_options(options: Mapping[str, Any]) -> None:
    names = {field.name for field in fields(simulate.Options)}
    if unknown := sorted(options.keys() - names):
        guess = did_you_mean(unknown[0], names - INTERNAL)
        raise TypeError(f"run() got an unexpected keyword argument {unknown[0]!r}{guess}")
    if "label" in options:  # before the bar shows it
        expect_type(options["label"], simulate.OPTIONS["label"][0], "label", simulate.OPTIONS["label"][1])


def _update_bar(
    bar: Any, arrays: Arrays, on_round: Callable[[dict[str, Any]], object] | None, row: dict[str, Any]
) -> None:
    bar.total, bar.initial = row["of"], row["done_before"]
    if "accuracy" in row:
        title = accuracy_words({"test_known": arrays.test_known})
        bar.set_postfix_str(f"{title} {100 * row['accuracy']:.2f} %", refresh=False)
    bar.update(row["round"] - bar.n)
    if on_round is not None:
        on_round(row)


def _is_watched(options: Mapping[str, Any]) -> bool:
    """Return True in a terminal or a notebook, unless lines are printed to `console`."""
    return options.get("console") is None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def _progress_bar(label: Any, visible: bool) -> Any:
    """Make the progress bar of a notebook or a terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns if a notebook has no widgets, and then shows a text bar
        from tqdm.auto import tqdm
    return tqdm(desc=label, unit="round", file=sys.stderr, disable=not visible)
