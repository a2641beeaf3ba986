"""Scores by class and client, against scikit-learn and by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from sklearn.metrics import f1_score, recall_score

import fednoise_core as fn

DATA = toy.arrays(), toy.toy_labels(), toy.toy_partition()
TRAIN: dict[str, Any] = {"net": "mlp", "rounds": 3, "lr": 0.1, "fraction": 1.0}


def test_scores_of_a_common_model(tmp_path: Path) -> None:
    arrays, labels, partition = DATA
    run = fn.run(*DATA, "fedavg", TRAIN, out=tmp_path)
    scores, predicted = run.scores(*DATA), run.predict(arrays.x_test).labels
    assert scores.macro_f1 == pytest.approx(f1_score(arrays.y_test, predicted, average="macro"))
    recall = recall_score(arrays.y_test, predicted, average=None)
    np.testing.assert_allclose(scores.by_class, recall)
    evaluated = run.rounds[-1]
    np.testing.assert_allclose(scores.by_class, [evaluated[f"accuracy_class_{k}"] for k in range(arrays.classes)])
    classes = labels.clean[partition.index[: partition.offsets[1]]]
    assert scores.by_client[0] == pytest.approx(recall[classes].mean())  # a test image of each sample's class
    client_scores = scores.by_client[partition.sizes > 0]
    assert np.isnan(scores.by_client[partition.sizes == 0]).all()
    assert scores.worst_client == client_scores.min() < scores.personalised == client_scores.mean()
    np.testing.assert_array_equal(fn.load(tmp_path).scores(*DATA).by_client, scores.by_client)


def test_scores_of_a_model_for_each_client() -> None:
    arrays, labels, partition = DATA
    run = fn.run(*DATA, "local", TRAIN)
    scores, clients = run.scores(*DATA), np.flatnonzero(partition.sizes)
    predicted = [run.predict(arrays.x_test, client).labels for client in clients]
    truth = np.tile(arrays.y_test, len(clients))
    assert scores.macro_f1 == pytest.approx(f1_score(truth, np.concatenate(predicted), average="macro"))
    recalls = [recall_score(arrays.y_test, prediction, average=None) for prediction in predicted]
    classes = [labels.clean[part] for part in np.split(partition.index, partition.offsets[1:-1])]
    expected = [recall[classes[c]].mean() for c, recall in zip(clients, recalls, strict=True)]
    np.testing.assert_allclose(scores.by_client[clients], expected)
