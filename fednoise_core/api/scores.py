"""Further scores of a finished run on the test set: by class and by client."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from fednoise_core.api.predict import predict_images
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.partition import Partition
from fednoise_core.noise.labels import Labels


@dataclass(frozen=True)
class Scores:
    """Scores on the test set after the last round, shares in 0..1.

    If every client has its own model, `by_class` and `macro_f1` count the predictions of all clients' models.

    Attributes:
        by_class: Accuracy of each class, float64 [K]. NaN without test images.
        macro_f1: Mean of the F1 scores of the classes.
        by_client: Personalised accuracy of each client, float64 [C]. It is the accuracy of the client's own model, or
            else of the global model. Test images are weighted such that class frequencies match the client's samples.
            NaN for a client without samples, or without a saved model.
    """

    by_class: np.ndarray
    macro_f1: float
    by_client: np.ndarray

    @property
    def personalised(self) -> float:
        """Mean of `by_client`."""
        return float(np.nanmean(self.by_client))

    @property
    def worst_client(self) -> float:
        """Least of `by_client`."""
        return float(np.nanmin(self.by_client))


def score_models(
    modules: Mapping[int | None, nn.Module], arrays: Arrays, labels: Labels, partition: Partition
) -> Scores:
    """Score trained models.

    Args:
        modules: Models by client. The key None is the global model.
        arrays: The data set of the run.
        labels: Labels of the run. Clean labels, if known, give the class frequencies of a client.
        partition: Partition of the run.

    Returns:
        The scores.
    """
    counts = {client: count_confusion(module, arrays) for client, module in modules.items()}
    held, by_client = labels.noisy if labels.clean is None else labels.clean, np.full(partition.clients, np.nan)
    present = np.bincount(arrays.y_test, minlength=arrays.classes) > 0
    for client, (start, end) in enumerate(zip(partition.offsets, partition.offsets[1:], strict=False)):
        count = counts.get(client, counts.get(None))
        weights = present * np.bincount(held[partition.index[start:end]], minlength=arrays.classes)
        if count is not None and weights.any():
            by_client[client] = np.average(class_accuracy(count)[present], weights=weights[present])
    total = sum(counts.values(), np.zeros((arrays.classes, arrays.classes)))
    f1 = 2 * np.diag(total)[present] / (total.sum(0) + total.sum(1))[present]
    return Scores(class_accuracy(total), float(f1.mean()), by_client)


def count_confusion(module: nn.Module, arrays: Arrays) -> np.ndarray:
    """Count test images by true and predicted class, int64 [K, K]."""
    count = np.zeros((arrays.classes, arrays.classes), np.int64)
    np.add.at(count, (arrays.y_test, predict_images(module, arrays.x_test).labels), 1)
    return count


def class_accuracy(count: np.ndarray) -> np.ndarray:
    """Accuracy of each class from the counts, float64 [K]; NaN without test images."""
    total = count.sum(1)
    return np.divide(np.diag(count), total, out=np.full(len(count), np.nan), where=total > 0)
