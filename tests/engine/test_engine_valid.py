"""`valid_accuracy`: the headline view on the clients' own noisy validation labels, measured where they are."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy

from fednoise_core.data.partition import Partition
from fednoise_core.engine.evaluate import valid_accuracy


def split_off(interval: int = 3) -> Partition:
    """The toy partition; each client keeps every third sample for validation, client 1 its only one."""
    split = toy.toy_partition()
    index = np.asarray(split.index)
    return Partition(index, split.offsets, np.arange(len(index)) % interval == 2, split.spec)


def by_hand(run, split: Partition, personal: bool, labels: np.ndarray) -> float:
    """Share of the validation labels that the models hit, sample by sample, from the outcome's own models."""
    images = toy.arrays().x_train
    hits = []
    for client, (w,) in run.outcome.models():
        for holder in [client] if personal else range(8):
            for sample in split.of(holder)[split.valid[split.offsets[holder] : split.offsets[holder + 1]]]:
                x = torch.from_numpy(images[sample : sample + 1]).float().div(255).sub(0.25).div(0.2)
                logits = run.outcome.fed.net(client).predict(w, x.reshape(1, 1, 8, 8))
                hits.append(int(logits.argmax(1)) == labels[sample])
    return float(np.mean(hits))


@pytest.mark.parametrize(("name", "personal"), [("fedavg", False), ("local", True), ("ditto", True)])
def test_it_is_the_share_of_noisy_labels_that_the_models_hit(name: str, personal: bool, tmp_path: Path) -> None:
    split = split_off()
    run = toy.play(name, split=split, out=tmp_path)
    assert run.summary["valid_accuracy"] == pytest.approx(
        by_hand(run, split, personal, toy.toy_labels().noisy), abs=1e-12
    )
    if personal:  # the one model of FedAvg hits as many clean labels, by chance
        assert run.summary["valid_accuracy"] != by_hand(run, split, personal, toy.toy_labels().clean)
    assert 0 < run.summary["valid_accuracy"] < 1
    frame = pd.read_parquet(tmp_path / "metrics.parquet")
    rows = frame[frame["metric"] == "valid_accuracy"]
    ends = [run.summary["rounds"], run.summary["headline_view"], -1]
    assert rows[["round", "view", "client"]].values.tolist() == [ends]
    assert rows["value"].iloc[0] == run.summary["valid_accuracy"]
    assert set(rows["phase"]) <= set(frame["phase"])


def test_without_a_split_nothing_is_said(tmp_path: Path) -> None:
    run = toy.play("fedavg", out=tmp_path)
    assert "valid_accuracy" not in run.summary
    assert "valid_accuracy" not in set(pd.read_parquet(tmp_path / "metrics.parquet")["metric"])


def test_it_sends_nothing_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = toy.play("fedavg", split=split_off())
    monkeypatch.setattr("fednoise_core.engine.loop.valid_accuracy", lambda *_: None)
    without = toy.play("fedavg", split=split_off())
    assert {k: v for k, v in with_it.summary.items() if k != "valid_accuracy"} == without.summary
    assert with_it.outcome.record.metrics[:-1] == without.outcome.record.metrics


def test_models_that_are_not_finite_have_none() -> None:
    run = toy.play("fedavg", split=split_off())
    members = [(client, [w.clone()]) for client, (w,) in run.outcome.models()]
    members[0][1][0].flat.fill_(torch.nan)
    assert np.isnan(valid_accuracy(run.outcome.fed, members, run.outcome.state.clients))
