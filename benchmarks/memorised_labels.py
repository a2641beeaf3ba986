"""What a run's last model learned of the wrong labels, and which classes it recognises (docs/results/feddpcont-cpu).

python -m benchmarks.memorised_labels store/runs/…/81bd9e77ee606896 …: two tables as Markdown, 6 s for each run.

The second table is of the tests after the first third of the rounds. The runs are of the workflow, with one model for
all clients. Their data sets must be at hand (docs/data.md). Labels and partitions are made again from the settings of
the runs, and are not compared with the files that the runs read.
"""

import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import fednoise_core as fn
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import World
from fednoise_core.io import ArtifactError, SpecError

SHARES = (0.0, 0.03, 0.06, 0.1, 1.01)  # of a class among the labels of a round's clients


@dataclass(frozen=True)
class Finding:
    """What a model predicts for images with wrong labels.

    Attributes:
        images: How many there are.
        given: Share of them for which it predicts the label that was given.
        chance: The same, expected if the given labels are shuffled among the images of the same true class.
        true: Share of them for which it predicts the true label.
    """

    images: int
    given: float
    chance: float
    true: float


def compare(predicted: np.ndarray, given: np.ndarray, true: np.ndarray) -> Finding:
    """Count how often predictions are the wrong label that was given.

    Args:
        predicted: Predicted classes [n], n > 0.
        given: Given labels [n], all wrong.
        true: True labels [n].
    """
    hits, classes = 0.0, int(max(predicted.max(), given.max())) + 1
    for label in np.unique(true):  # the expectation over all orders of the labels
        guessed, told = (np.bincount(labels[true == label], minlength=classes) for labels in (predicted, given))
        hits += guessed @ told / told.sum()
    shares = np.mean(predicted == given), hits / len(true), np.mean(predicted == true)
    return Finding(len(true), *map(float, shares))


def correlate(shares: np.ndarray, accuracies: np.ndarray) -> tuple[float, list[float]]:
    """How a class's accuracy follows its share of the labels of the round's clients.

    Args:
        shares: [rounds, classes].
        accuracies: [rounds, classes].

    Returns:
        Correlation over rounds, averaged over the classes whose share and accuracy vary, and the mean accuracy in each
        range of `SHARES`.
    """
    spread = (shares.std(0) > 0) & (accuracies.std(0) > 0)
    both = zip(shares.T[spread], accuracies.T[spread], strict=True)
    means = [accuracies[(shares >= low) & (shares < high)] for low, high in itertools.pairwise(SHARES)]
    return (
        float(np.mean([np.corrcoef(*one)[0, 1] for one in both])) if spread.any() else np.nan,
        [float(one.mean()) if one.size else np.nan for one in means],
    )


class ExaminedRun:
    """A run with the labels that its clients had, made again from its settings.

    Args:
        folder: The run's folder in the store.

    Raises:
        SpecError: It is no run of the workflow.
    """

    def __init__(self, folder: Path) -> None:
        self.run = fn.load(folder)
        spec: Mapping[str, Any] = self.run.spec.get("spec", {})
        if "partition" not in spec:
            raise SpecError(f"{folder / 'spec.json'}: expected a run of the workflow, with its partition")
        self.metrics = pd.read_parquet(folder / "metrics.parquet")
        seed = spec["seed"]
        self.arrays = fn.dataset(spec["dataset"])
        labels = fn.inject(self.arrays, spec["noise"], seed)
        partition = fn.partition_of(self.arrays, spec["partition"], seed, labels)
        self.given, self.true = labels.noisy, self.arrays.y_train
        self.world = World(self.arrays, self.given, partition, fn.Train(**spec["train"]), seed)
        self.federation = Federation(self.world, Sequential(self.world))

    def find_rows(self, round: int) -> np.ndarray:
        """Rows of the samples of the clients that trained in a round that was tested.

        Raises:
            SpecError: Another number of clients trained, so these were not drawn as usual.
        """
        cohort = self.federation.sample_cohort(round)
        rows = self.metrics[(self.metrics["metric"] == "clients") & (self.metrics["round"] == round)]
        trained = rows["value"].tolist()
        if trained != [len(cohort)]:
            raise SpecError(f"round {round}: expected {len(cohort)} clients, got {trained}: not drawn as usual")
        return torch.cat([self.world.index[client] for client in cohort]).numpy()

    def compare_labels(self) -> dict[str, Finding]:
        """What the last model says of the images with wrong labels: of all, and of those that trained last."""
        predicted, wrong = self.run.predict(self.arrays.x_train).labels, self.given != self.true
        last = np.isin(np.arange(len(wrong)), self.find_rows(self.world.train.rounds))
        return {
            where: compare(predicted[rows], self.given[rows], self.true[rows])
            for where, rows in (("all clients", wrong), ("clients of the last round", wrong & last))
            if rows.any()
        }

    def compare_shares(self) -> tuple[float, list[float]]:
        """`correlate`, over the tests after the first third of the rounds."""
        is_mean = (self.metrics["view"] == self.run.summary["headline_view"]) & (self.metrics["client"] == -1)
        tests = self.metrics[is_mean & (self.metrics["round"] > self.world.train.rounds // 3)]
        found = tests.pivot(index="round", columns="metric", values="value")
        names = [f"accuracy_class_{label}" for label in range(self.world.classes)]
        held = [self.given[self.find_rows(round)] for round in found.index]
        shares = [np.bincount(labels, minlength=len(names)) / len(labels) for labels in held]
        return correlate(np.array(shares), found.reindex(columns=names).to_numpy())


def main(folders: list[str]) -> int:
    """Exit status 0: printed; 2: a run or its data set is missing, damaged or of another kind."""
    if not folders:
        print("usage: python -m benchmarks.memorised_labels RUN …", file=sys.stderr)
        return 2
    labels = ["| run | images with a wrong label | of | predicted as labelled | if shuffled | predicted as true |"]
    shares = ["| run | correlation | " + " | ".join(f"share from {100 * low:.0f} %" for low in SHARES[:-1]) + " |"]
    labels += ["|---|--:|---|--:|--:|--:|"]
    shares += ["|---|" + "--:|" * len(SHARES)]
    try:
        for folder in map(Path, folders):
            run, name = ExaminedRun(folder), "/".join(folder.parts[-5:])
            labels += [
                f"| {name} | {one.images} | {where} | {one.given:.1%} | {one.chance:.1%} | {one.true:.1%} |"
                for where, one in run.compare_labels().items()
            ]
            correlation, means = run.compare_shares()
            shares += [f"| {name} | {correlation:.2f} | " + " | ".join(f"{mean:.1%}" for mean in means) + " |"]
    except (ArtifactError, SpecError, OSError, ValueError) as error:
        print(f"memorised_labels: {error}", file=sys.stderr)
        return 2
    print("\n".join([*labels, "", *shares]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
