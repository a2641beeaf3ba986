"""Contract of every method, on the small world. docs/method_reference.md explains how to run it on your own class.

subject: the method under test. whole: its usual run. Both come from fednoise_core.testing.plugin.
"""

import copy
import csv
import dataclasses
import inspect
import json
import math
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fednoise_core.api import simulate
from fednoise_core.api.checks import check_data
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.loop import Diverged, Saving
from fednoise_core.engine.truth import Truth
from fednoise_core.testing import world
from fednoise_core.testing.compare import same_state
from fednoise_core.testing.crossing import compare_wire
from fednoise_core.testing.subject import Played, Subject, poison_updates
from fednoise_core.testing.wire import Trap, allow_clean, find_reaches, reachable_ids

FILES = [
    *("metrics.parquet", "diagnostics.parquet", "suspects.csv", "sites.csv", "confusion.csv"),
    *("model.safetensors", "spec.json", "summary.json"),
]


# a run


def test_it_runs_to_its_end_and_its_models_predict(subject: Subject, whole: Played) -> None:
    outcome = whole.run.outcome
    rounds = outcome.state.round
    assert rounds >= 1
    assert [r for r, _ in whole.run.curve] == list(range(rounds + 1)), "every round is evaluated"
    assert sorted(whole.checkpoints) == list(range(1, rounds))
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for view in outcome.views:
        members = list(outcome.models(view))
        assert members, f"the view {view!r} has no models"
        for client, several in members:
            for w in several:
                logits = outcome.fed.net(client).predict(w, x)
                assert logits.shape == (4, world.CLASSES)
                assert torch.isfinite(logits).all(), f"view {view!r}, client {client}: its logits are not finite"
                assert not logits.requires_grad


def test_its_confusion_matrix_counts_the_test_set_and_agrees_with_its_accuracy(whole: Played) -> None:
    with open(whole.out / "confusion.csv", encoding="utf-8", newline="") as file:
        counts = np.array([row[2:] for row in list(csv.reader(file))[1:]], np.int64)
    models = len(list(whole.run.outcome.models()))
    class_sizes = np.bincount(whole.run.arrays.y_test, minlength=world.CLASSES)
    assert (counts.sum(1) == models * class_sizes).all(), "its rows are not the test images of each class"
    assert np.trace(counts) / counts.sum() == pytest.approx(whole.run.summary["accuracy"]["last"], abs=1e-12)


def test_it_resumes_bit_exactly_after_every_round(subject: Subject, whole: Played, tmp_path: Path) -> None:
    for after, checkpoint in whole.checkpoints.items():
        folder = tmp_path / str(after)
        folder.mkdir()
        shutil.copy(checkpoint, folder / "checkpoint.pt")
        resumed = subject.play(out=folder / "out", saving=Saving(folder / "checkpoint.pt", "key"))
        assert resumed.outcome.resumed == after
        where = f"resumed after round {after}"
        assert same_state(resumed.outcome.state, whole.run.outcome.state), f"{where}, it ends in another state"
        assert resumed.outcome.record.metrics == whole.run.outcome.record.metrics, f"{where}, other metrics"
        assert same_state(resumed.outcome.record, whole.run.outcome.record), where
        for file in FILES:
            assert (folder / "out" / file).read_bytes() == (whole.out / file).read_bytes(), f"{where}: {file} differs"


def test_worker_processes_agree_bit_for_bit(subject: Subject, whole: Played, tmp_path: Path) -> None:
    run = subject.play(out=tmp_path, executor="workers:2", saving=Saving(tmp_path / "checkpoint.pt", "key", rounds=2))
    assert run.cost["executor"] == "workers"
    assert same_state(run.outcome.state, whole.run.outcome.state), "workers and sequential end in other states"
    for file in FILES:
        assert (tmp_path / file).read_bytes() == (whole.out / file).read_bytes(), f"{file} differs"


def test_global_random_generators_are_neither_used_nor_changed(subject: Subject, whole: Played) -> None:
    expected = whole.run.outcome.state  # first: importing scikit-learn draws from Python's generator
    saved = _global_states()
    random.seed(5)
    np.random.seed(6)
    torch.manual_seed(7)
    before = _global_states()
    run = subject.play()
    after = _global_states()
    changed = [name for name in before if not _same_state(before[name], after[name])]
    random.setstate(saved["Python's"])
    np.random.set_state(saved["numpy's"])
    torch.set_rng_state(saved["torch's"])
    advice = "draw from client.random_stream(words), client.numpy_rng(words), fed.random_stream(words), or from batch.u"
    assert not changed, f"{subject.name} uses {' and '.join(changed)} global random generator: {advice}"
    assert same_state(run.outcome.state, expected), f"its result depends on a global random generator: {advice}"


def _global_states() -> dict[str, Any]:
    return {
        "Python's": random.getstate(),
        "numpy's": copy.deepcopy(np.random.get_state()),
        "torch's": torch.get_rng_state(),
    }


def _same_state(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# what it may see and leave behind


def test_clean_labels_are_never_read_and_out_of_reach(
    subject: Subject, whole: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = Trap(np.asarray(world.toy_labels().clean))
    y_train = Trap(world.arrays().y_train)
    for diagnostic in ("_noise_rate", "suspects", "estimates"):  # where the engine may look
        monkeypatch.setattr(Truth, diagnostic, allow_clean(getattr(Truth, diagnostic)))
    reached = []
    work, call = Sequential.run, Sequential.call

    def watched_run(self: Sequential, jobs: Any) -> Any:
        reached.append(reachable_ids([self, list(jobs)]))
        return work(self, jobs)

    def watched_call(self: Sequential, fn: Any, clients: Any, broadcasts: Any) -> Any:
        reached.append(reachable_ids([self, fn, clients, broadcasts]))
        return call(self, fn, clients, broadcasts)

    monkeypatch.setattr(Sequential, "run", watched_run)
    monkeypatch.setattr(Sequential, "call", watched_call)
    labels = dataclasses.replace(world.toy_labels(), clean=clean, T_realised=None)  # type: ignore[arg-type]
    data = dataclasses.replace(world.arrays())
    object.__setattr__(data, "y_train", y_train)  # past the check of its type
    # before anything is made of them, labels and arrays are compared
    monkeypatch.setattr(simulate, "check_data", allow_clean(check_data))
    run = subject.play(labels=labels, data=data)
    assert same_state(run.outcome.state, whole.run.outcome.state)
    assert run.summary["diagnostics"] == whole.run.summary["diagnostics"]
    reached.append(reachable_ids([run.outcome.fed, run.outcome.state, run.outcome.views]))
    trapped = {id(clean), id(y_train), id(clean.__dict__["values"]), id(y_train.__dict__["values"])}
    assert all(not (ids & trapped) for ids in reached), "the clean labels are within its reach"
    assert max(len(ids) for ids in reached) > 100


def test_what_crosses_is_what_it_declares(subject: Subject, whole: Played) -> None:
    """The form of a declaration stands in docs/method_reference.md."""
    crossed, summary = whole.crossed, whole.run.summary
    differ = compare_wire(subject.cls.wire, crossed)
    if differ:
        declared = f"declared, perhaps by a base: {dict(subject.cls.wire)}"
        lines = [*differ, declared, f"this run: {crossed.format_wire()}"]
        pytest.fail(f"{subject.name}: what crosses is not what it declares\n" + "\n".join(lines), pytrace=False)
    assert (crossed.bytes_down, crossed.bytes_up) == (summary["bytes_down"], summary["bytes_up"])


def test_no_client_tells_its_labels(subject: Subject, whole: Played) -> None:
    """Not by content; what `fed.release_labels` sends are other labels, which fednoise_core/ops/label_dp.py drew."""
    leaks = "\n".join(whole.crossed.labels)
    assert not leaks, f"raw labels were sent, instead of through fed.release_labels:\n{leaks}"


def test_its_source_keeps_out_of_private_parts(subject: Subject) -> None:
    """The modules of the class and of its bases; those of fednoise_core have tests of their own."""
    own_modules = [sys.modules[cls.__module__] for cls in subject.cls.__mro__ if cls is not object]
    modules = {module.__name__: module for module in own_modules if not module.__name__.startswith("fednoise_core.")}
    problems = [f"{name}, {where}" for name, one in modules.items() for where in find_reaches(inspect.getsource(one))]
    assert not problems, "reaches into private parts, to labels or to global state:\n" + "\n".join(problems)


def _list_strange(value: Any, where: str = "") -> list[str]:
    if isinstance(value, dict):
        return [
            s
            for k, v in value.items()
            for s in ([] if type(k) in (str, int) else [f"{where}: key {k!r}"]) + _list_strange(v, f"{where}/{k}")
        ]
    if isinstance(value, list):
        return [s for k, v in enumerate(value) for s in _list_strange(v, f"{where}/{k}")]
    if isinstance(value, torch.Tensor):
        return [f"{where}: requires grad"] if value.requires_grad else []
    return [] if type(value) in (str, int, float, bool, type(None)) else [f"{where}: {type(value)}"]


def test_checkpoints_hold_tensors_and_json_only(subject: Subject, whole: Played) -> None:
    for checkpoint in whole.checkpoints.values():
        loaded = torch.load(checkpoint, weights_only=True)
        assert _list_strange(loaded) == []
        assert loaded["key"] == "key"
        json.dumps({k: v for k, v in loaded["state"].items() if k in ("notes", "round", "phase", "since", "entered")})


def test_clients_without_samples_hold_nothing(subject: Subject, whole: Played) -> None:
    state = whole.run.outcome.state
    assert 2 not in state.clients
    assert 2 not in state.relabelled
    assert set(state.clients) <= set(whole.run.outcome.fed.all)


# edges


ALONE = 19  # a seed with which a cohort of one is the client of one sample in two of three rounds
EDGES: dict[str, dict[str, Any]] = {
    "every client: of one sample, of one class, of none": {"fraction": 1.0},
    "cohort of one": {"fraction": 0.01, "seed": ALONE},
    "batch larger than any client": {"batch": 1000, "fraction": 1.0},
}


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
def test_edges(subject: Subject, edge: dict[str, Any]) -> None:
    run = subject.play(**edge)
    assert _models_are_finite(run)
    assert "dropped_updates" not in run.summary, "an update was not finite"


def test_two_classes(subject: Subject) -> None:
    data, labels = world.two_classes()
    run = subject.play(data=data, labels=labels)
    assert _models_are_finite(run)
    assert "dropped_updates" not in run.summary, "an update was not finite"


def _models_are_finite(run: simulate.FinishedRun) -> bool:
    models = [w for view in run.outcome.views for _, several in run.outcome.models(view) for w in several]
    return bool(models) and all(bool(torch.isfinite(w.flat).all()) for w in models)


# updates that are not finite


def test_an_update_with_nan_is_dropped_and_reported_and_the_run_goes_on(subject: Subject, whole: Played) -> None:
    if subject.cls.pooled:
        pytest.skip("its only client is all clients")
    with poison_updates({3}) as hit:
        run = subject.play(fraction=1.0)
    if not hit:
        pytest.skip("no fit of client 3 sends or keeps a number that could be NaN")
    assert run.summary["dropped_updates"] == len(hit)
    assert run.outcome.state.round == whole.run.outcome.state.round
    assert _models_are_finite(run), "the NaN of one client reached a model"
    assert all(math.isfinite(accuracy) for _, accuracy in run.curve)


def test_if_all_updates_are_nan_the_run_ends_with_a_clear_error(subject: Subject) -> None:
    message = None
    with poison_updates(range(len(world.SIZES))) as hit:
        try:
            subject.play()
        except Diverged as error:
            message = str(error)
    if not hit:
        pytest.skip("no fit sends or keeps a number that could be NaN")
    assert message is not None, "no update was finite, and the run did not say so"
    assert "no update is finite" in message
    assert "Lower train.lr" in message


@pytest.mark.parametrize("lr", [30.0, 1e30])
def test_a_learning_rate_that_is_far_too_large_is_never_silent(subject: Subject, lr: float) -> None:
    """Either the numbers stay finite, or the run ends with the clear error, or its summary says that it diverged."""
    try:
        run = subject.play(lr=lr)
    except Diverged:
        return
    finite = all(math.isfinite(accuracy) for _, accuracy in run.curve)
    assert finite or run.summary["diverged"], repr(run)
