"""The runs of a study, written short enough for a command line: how a table's command says which to show.

A list of 6,000 runs takes megabytes, and a command may take 128 KiB. But a study is written as a few blocks (data sets,
noises, partitions, methods, seeds, each with each), and every path follows from the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Protocol

__all__ = ["packed", "rows"]

INNERMOST = 4  # of the axes: data set, noise, partition, method, seed


class Shown(Protocol):
    """What is asked of a run: its ids, where its files are, and how it is shown."""

    @property
    def dataset(self) -> str: ...
    @property
    def noise(self) -> str: ...
    @property
    def partition(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def arrays(self) -> str: ...
    @property
    def labels(self) -> str: ...
    @property
    def partition_file(self) -> str: ...
    @property
    def donor(self) -> str | None: ...
    @property
    def label(self) -> str: ...
    @property
    def oracle_rate(self) -> bool: ...
    @property
    def pooled(self) -> bool: ...


def packed(runs: Iterable[Shown]) -> dict[str, Any]:
    """The runs as blocks, in their order: {"blocks": [[data sets, noises, partitions, methods, seeds], …], …}.

    The other keys say how methods are shown and where files are: each method's label and whether it was told the
    noise's rate or trained in one place, arrays by data set, donors by noise, and the id (None: the run's own) that
    stands for the partition in the path of labels, and for the noise in that of partitions.
    """
    found = list(runs)
    ids = [(run.dataset, run.noise, run.partition, run.method, run.seed) for run in found]
    blocks: list[list[list[Any]]] = [[[part] for part in one] for one in ids]
    for axis in range(INNERMOST, -1, -1):  # seeds first, so that the order of the runs stays
        blocks = _merged(blocks, axis)
    labels = {run.noise: (run.labels.split("/")[-2], run.partition) for run in found}
    partitions = {run.partition: (run.partition_file.split("/")[-3], run.noise) for run in found}
    return {
        "blocks": blocks,
        "labels": {run.method: run.label for run in found},
        "oracles": sorted({run.method for run in found if run.oracle_rate}),
        "pooled": sorted({run.method for run in found if run.pooled}),
        "arrays": {run.dataset: run.arrays for run in found},
        "donors": {run.noise: run.donor for run in found if run.donor},
        "holder": {noise: None if part == own else part for noise, (part, own) in labels.items()},
        "given": {partition: None if part == own else part for partition, (part, own) in partitions.items()},
    }


def rows(runs: Mapping[str, Any], root: str | Path) -> list[dict[str, Any]]:
    """One mapping per run, with its ids and paths, for the results folder `root` (its last two parts: results/<study>).

    Data sets lie beside results/, also where a scheduler keeps both in another place.
    """
    base = Path(root).parents[1] if len(Path(root).parts) > 1 else Path()
    found = []
    for block in runs["blocks"]:
        for dataset, noise, partition, method, seed in product(*block):
            holder, given = runs["holder"][noise] or partition, runs["given"][partition] or noise
            donor = runs["donors"].get(noise)
            row = {
                "dataset": dataset,
                "noise": noise,
                "partition": partition,
                "method": method,
                "seed": seed,
                "label": runs["labels"][method],
                "oracle_rate": method in runs["oracles"],
                "pooled": method in runs["pooled"],
                "dir": f"{root}/runs/{dataset}/{noise}/{partition}/{method}/seed{seed}",
                "labels": f"{root}/labels/{dataset}/{noise}/{holder}/seed{seed}.npz",
                "partition_file": f"{root}/partitions/{dataset}/{given}/{partition}/seed{seed}.npz",
                "arrays": (base / runs["arrays"][dataset]).as_posix(),
            }
            found.append(row | ({"donor": (base / donor).as_posix()} if donor else {}))
    return found


def _merged(blocks: list[list[list[Any]]], axis: int) -> list[list[list[Any]]]:
    """Neighbours that differ along one axis only as one block."""
    done: list[list[list[Any]]] = []
    for block in blocks:
        if done and all(done[-1][k] == block[k] for k in range(len(block)) if k != axis):
            done[-1][axis] = [*done[-1][axis], *block[axis]]
        else:
            done.append([list(part) for part in block])
    return done
