"""Finding wrong labels: scores compared, and suspects.csv beside cleanlab on the pooled data (docs/wrong_labels.md).

python -m benchmarks.wrong_labels [--data DIR] [--part scores|pooled]; 15 min on one core. DIR holds
Fashion-MNIST as docs/data.md says.
"""

import argparse
import itertools
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fednoise_core as fn
from benchmarks.corruptions import SCENARIOS, Spoilt, source, spoilt
from fednoise_core.api.run import Run
from fednoise_core.data.arrays import Arrays
from fednoise_core.engine.client import Client
from fednoise_core.engine.truth import auroc
from fednoise_core.methods import METHODS
from fednoise_core.methods.fedavg import FedAvg
from fednoise_core.ops import losses

OUT = Path("benchmarks/results/wrong_labels.json")
TRAIN: dict[str, Any] = {"fraction": 1.0, "epochs": 2, "batch": 32, "lr": 0.05, "eval_every": 1000}
NOISES = (("uniform", 0.2), ("alike", 0.2), ("pair", 0.2), ("dark", 0.2))
QUALITY = ("self_confidence", "normalized_margin")  # cleanlab's scores of a label; the first is its default
FACTOR, POINTS = 1.5, 0.02  # a number near the truth: within this factor, or this share of the site


@dataclass(frozen=True, kw_only=True)
class Remembers(FedAvg):
    """FedAvg whose clients keep the sum over rounds of their samples' losses."""

    def after_fit(self, client: Client, update: dict[str, Any], broadcast: Mapping[str, Any]) -> dict[str, Any]:
        loss = losses.ce(client.predict(broadcast["model"]), client.labels)
        client.state["loss"] = client.state["loss"] + loss if "loss" in client.state else loss
        return update


def average_precision(score: np.ndarray, positive: np.ndarray) -> float:
    """Mean precision at each positive, from the highest score down; ties in order of position."""
    hits = positive[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def near(named: np.ndarray, wrong: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """bool [sites]: the number named is within a factor of 1.5 of the number wrong, or within 2 % of the samples."""
    close = np.abs(named - wrong) <= POINTS * samples
    return close | ((named <= FACTOR * wrong) & (wrong <= FACTOR * named))


def _trained(case: Spoilt, method: str, rounds: int, width: int, seed: int) -> Run:
    labels = fn.inject(case.data, {"kind": "given"}, seed=0)
    owners = fn.partition_of(case.data, {"kind": "natural"}, seed=0)
    METHODS.setdefault("remembers", f"{__name__}:Remembers")
    train = {**TRAIN, "rounds": rounds, "net": {"name": "small_cnn", "width": width}}
    return fn.run(case.data, labels, owners, method, train, seed=seed)


def _predicted(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities [n, K] of the last model, loss [n] summed over rounds) of the training samples."""
    world, n = run.world, sum(run.world.sizes)
    p, loss = np.zeros((n, world.classes)), np.zeros(n)
    model: Any = run.outcome.state.server["model"]
    for client, rows in enumerate(world.index):
        logits: Tensor = world.evaluate(world.net(client), model, world.pool("train"), rows)
        p[rows.numpy()] = torch.softmax(logits.double(), -1).numpy()
        loss[rows.numpy()] = run.outcome.state.clients[client]["loss"].numpy()
    return p, loss


def _by_site(values: np.ndarray, site: np.ndarray) -> np.ndarray:
    return np.bincount(site, values.astype(float), minlength=int(site.max()) + 1)


def scores(x: np.ndarray, y: np.ndarray, n: int, sites: int, rounds: int, seeds: int) -> Iterator[dict[str, Any]]:
    """One row a run and score: kinds of noise × partitions × seeds. Every second site has 2 % wrong labels only."""
    for seed, (kind, share), split in itertools.product(range(seeds), NOISES, ("iid", "skewed")):
        case = spoilt(x, y, n, sites, split, [("uniform", 0.02), (kind, share)] * (sites // 2), seed)
        run = _trained(case, "remembers", rounds, 8, seed)
        for name, (score, named) in _scored(case, run).items():
            yield {"noise": kind, "split": split, "seed": seed, "score": name, **_measured(score, named, case)}


def _scored(case: Spoilt, run: Run) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Score -> (float [n], high is suspect; bool [n], whom it names)."""
    p, loss = _predicted(run)
    given, n = case.data.y_train, case.data.n
    own, other = p[np.arange(n), given], p.copy()
    other[np.arange(n), given] = -1
    quality, issues = np.zeros(n), np.zeros(n, bool)
    for site in range(int(case.site.max()) + 1):
        rows = np.flatnonzero(case.site == site)
        found, issues[rows] = _cleanlab(given[rows], p[rows])
        quality[rows] = found["normalized_margin"]  # self_confidence is p(given), save where a site lacks classes
    ours = _suspects(run, n)
    return {
        "1 - p(given)": (1 - own, own < 0.5),
        "margin": (other.max(1) - own, other.max(1) > own),
        "loss, mean over rounds": (loss, np.zeros(n, bool)),  # no threshold of its own
        "cleanlab at each client": (1 - quality, issues),
        "suspects.csv": (ours, ours > 0.5),
    }


def _suspects(run: Run, n: int) -> np.ndarray:
    judged = np.zeros(n)
    for one in run.outcome.suspects:
        judged[one.samples] = one.p_wrong
    return judged


def _cleanlab(given: np.ndarray, p: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(score of QUALITY -> quality float [n], low is suspect; mask of the issues), also where classes are missing."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    present, codes = np.unique(given, return_inverse=True)  # it wants every class among the labels
    if len(present) < 2:
        return {name: np.ones(len(given)) for name in QUALITY}, np.zeros(len(given), bool)
    q = p[:, present] + 1e-9
    q /= q.sum(1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quality = {name: get_label_quality_scores(codes, q, method=name) for name in QUALITY}
        return quality, find_label_issues(codes, q, n_jobs=1)


def _measured(score: np.ndarray, named: np.ndarray, case: Spoilt) -> dict[str, Any]:
    wrong, site = case.wrong, case.site
    hits = float((named & wrong).sum())
    sizes = _by_site(np.ones(len(site)), site)
    fits = near(_by_site(named, site), _by_site(wrong, site), sizes)
    return {
        "auroc": auroc(score, wrong),
        "ap": average_precision(score, wrong),
        "precision": hits / max(named.sum(), 1),
        "recall": hits / wrong.sum(),
        "sites_near": float(fits.mean()),
        "named_over_wrong": float(named.sum() / wrong.sum()),
    }


def pooled(
    x: np.ndarray, y: np.ndarray, per_site: int, rounds: int, epochs: Sequence[int], seeds: int
) -> Iterator[dict[str, Any]]:
    """The default list of plain FedAvg beside cleanlab on the pooled data with 5-fold predictions of the same net."""
    for name, kinds in SCENARIOS.items():
        for seed in range(seeds):
            case = spoilt(x, y, per_site * len(kinds), len(kinds), "iid", kinds, seed)
            run, site = _trained(case, "fedavg", rounds, 16, seed), case.site
            ours = _suspects(run, case.data.n)
            wrong = _by_site(case.wrong, site)
            counts = {
                "wrong": wrong.tolist(),
                "named": _by_site(ours > 0.5, site).tolist(),
                "estimate": [one.wrong for one in run.outcome.suspects],
                "low": [one.low for one in run.outcome.suspects],
                "high": [one.high for one in run.outcome.suspects],
            }
            base = {"scenario": name, "seed": seed}
            yield {**base, "by": "suspects.csv", **_measured(ours, ours > 0.5, case), **counts}
            for count in epochs:
                for quality, measured in _cross_validated(case, count, seed).items():
                    yield {**base, "by": f"cleanlab, pooled, {count} epochs", "quality": quality, **measured}


def _cross_validated(case: Spoilt, epochs: int, seed: int, folds: int = 5) -> dict[str, dict[str, Any]]:
    """Score of QUALITY -> what it measures. The issues named, and so all but the order, are the same for each."""
    data, n = case.data, case.data.n
    fold = np.random.default_rng(seed).permutation(np.arange(n) % folds)
    p = np.zeros((n, data.classes))
    for number in range(folds):
        p[fold == number] = _held_out(data, fold == number, epochs, seed)
    found, named = _cleanlab(data.y_train, p)
    return {name: _measured(1 - quality, named, case) for name, quality in found.items()}


def _held_out(data: Arrays, held: np.ndarray, epochs: int, seed: int) -> np.ndarray:
    """Probabilities of the held samples by a net that was trained on the others in one place."""
    part = data.take(np.flatnonzero(~held))
    labels, owner = fn.inject(part, {"kind": "given"}, seed=0), fn.partition_of(part, {"kind": "iid", "clients": 1}, 0)
    net = {"name": "small_cnn", "width": 16}
    train = {**TRAIN, "rounds": 1, "epochs": 1, "net": net}
    run = fn.run(part, labels, owner, {"name": "centralised", "epochs": epochs}, train, seed=seed)
    model = next(run.outcome.models())[1][0]
    images = torch.from_numpy(data.x_train[held]).float()[:, None] / 255
    x = (images - data.mean[0]) / data.std[0]
    with torch.no_grad():
        logits = torch.cat([run.outcome.fed.net().predict(model, part) for part in x.split(500)])
    return torch.softmax(logits.double(), -1).numpy()


def main(argv: list[str] | None = None) -> int:
    """Run both parts, or one; rows go to benchmarks/results/ as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with Fashion-MNIST")
    parser.add_argument("--part", choices=["scores", "pooled"], help="only this part")
    parser.add_argument("--seeds", type=int, default=3, help="of the scores; scenarios take one")
    parser.add_argument("--out", type=Path, default=OUT, help="JSON file to write")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    x, y = source([args.data])
    found: dict[str, list[dict[str, Any]]] = {}
    if args.out.exists():
        found = json.loads(args.out.read_text(encoding="utf-8"))
    parts = {
        "pooled": lambda: pooled(x, y, 500, 30, (12,), 1),
        "scores": lambda: scores(x, y, 2000, 10, 30, args.seeds),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for part, rows in parts.items():
        if args.part in (None, part):
            found[part] = []
            for row in rows():
                found[part].append(row)
                print(json.dumps(row), flush=True)
                args.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
