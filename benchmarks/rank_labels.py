"""Which score ranks wrong labels best, and which interval holds their number (docs/wrong_labels.md).

python -m benchmarks.rank_labels train --data DIR --seeds 0 --plain    12 federations, 14 min on one core
python -m benchmarks.rank_labels train --data DIR --seeds 12 13 14     36 federations, 25 min
python -m benchmarks.rank_labels score --seeds 12 13 14                tables, a picture, two CSV files, 1 min

DIR holds Fashion-MNIST and MNIST as docs/data.md says. `train` records the predictions of every round, and leaves out
the federations whose record exists. `score` computes all scores from the records. Their constants were chosen on the
seeds 0, 10 and 11.
"""

import argparse
import csv
import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fednoise_core as fn
from benchmarks.corruptions import Spoilt
from benchmarks.label_scores import CHOSEN, CLEANLAB, OWN, ROUNDS, TODAY, score_labels
from benchmarks.unlike_sites import KINDS, SIZES, load_images, make_federation
from benchmarks.wrong_labels import average_precision, near
from fednoise_core import Partition
from fednoise_core.api.run import Run
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.state import State
from fednoise_core.engine.truth import auroc
from fednoise_core.io import open_atomic
from fednoise_core.label_errors.estimate import Count
from fednoise_core.methods import METHODS
from fednoise_core.methods.fedavg import FedAvg
from workflow_scripts.report.figures.style import DPI, make_canvas, use_house_style

FOLDER = Path("benchmarks/results/rank_labels")
DATA = ("fashion_mnist", "mnist")
FOLDS = 5
NEAR = 0.02  # a site's score is below the better of the others if by more than this
BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.01)  # of P(wrong)
WORDS = {  # of KINDS and of all, in the picture
    "uniform": "any other class",
    "alike": "look-alike class",
    "mirrored": "class order reversed",
    "blurred": "blurred image",
    "duplicates": "copies that disagree",
    "annotator": "weak annotator",
    "all": "all",
}
TRAIN: dict[str, Any] = {
    "fraction": 1.0,
    "epochs": 2,
    "batch": 32,
    "lr": 0.05,
    "eval_every": 1000,
    "net": {"name": "small_cnn", "width": 8},
}
DEFAULT = {**TRAIN, "rounds": 30}  # as label_review writes it, with a smaller net
QUICK = {**TRAIN, "rounds": ROUNDS, "momentum": 0.9}
POOLED = {**TRAIN, "rounds": 12, "epochs": 1}


@dataclass(frozen=True, kw_only=True)
class Watched(FedAvg):
    """FedAvg that keeps the log-probabilities [n, K] of all samples after every round."""

    def run_round(self, fed: Federation, state: State, candidates: Any = None, **options: Any) -> Any:
        report = super().run_round(fed, state, candidates, **options)
        pool = fed.world.pool("train")
        logits = fed.world.evaluate(fed.net(0), state.server["model"], pool, torch.arange(pool.n))
        state.server.setdefault("seen", []).append(torch.log_softmax(logits.double(), -1).half())
        return report


def observe(case: Spoilt, owner: np.ndarray, train: Mapping[str, Any], seed: int) -> tuple[np.ndarray, Run, float]:
    """Train on the samples that have an owner.

    Args:
        case: The federation.
        owner: Client of each sample, int [n]. -1: no client trains on it.
        train: Training settings.
        seed: Of the training.

    Returns:
        Log-probabilities of all samples after every round, float16 [rounds, n, K]. The run. CPU seconds.
    """
    METHODS.setdefault("watched", f"{__name__}:Watched")
    labels = fn.inject(case.data, {"kind": "given"}, seed=0)
    parts = [np.flatnonzero(owner == number) for number in range(owner.max() + 1)]
    begin = time.process_time()
    run = fn.run(case.data, labels, Partition.from_parts(parts, {"artifact": "partition"}), "watched", train, seed=seed)
    return torch.stack(run.outcome.state.server["seen"]).numpy(), run, time.process_time() - begin


def deal_folds(case: Spoilt, seed: int, grouped: bool) -> np.ndarray:
    """Fold int [n] of every sample. grouped: equal images of a site share one."""
    draw = np.random.default_rng(seed)
    n = case.data.n
    if not grouped:
        return draw.permutation(np.arange(n) % FOLDS)
    fold = np.zeros(n, int)
    for site in np.unique(case.site):
        rows = np.flatnonzero(case.site == site)
        _, group = np.unique(case.data.x_train[rows].reshape(len(rows), -1), axis=0, return_inverse=True)
        groups = int(group.max()) + 1
        fold[rows] = draw.permutation(np.arange(groups) % FOLDS)[group]
    return fold


def record(case: Spoilt, seed: int, plain: bool) -> dict[str, np.ndarray]:
    """All trainings of one federation. plain: also those on all samples."""
    site, one = case.site, np.zeros(case.data.n, int)
    kept: dict[str, np.ndarray] = {"given": case.data.y_train, "clean": case.clean, "site": site}
    seconds: list[float] = []
    if plain:
        found, seconds = record_plain(case, seed)
        kept |= found
    kept["fold"], kept["pooled_fold"] = deal_folds(case, seed, True), deal_folds(case, seed, False)
    for name, fold, owner, train in (
        ("folds", kept["fold"], site, QUICK),
        ("pooled", kept["pooled_fold"], one, POOLED),
    ):
        made = [observe(case, np.where(fold == k, -1, owner), train, seed * FOLDS + k) for k in range(FOLDS)]
        kept[name] = np.stack([seen for seen, _, _ in made])
        seconds.append(sum(spent for _, _, spent in made))
    return {**kept, "seconds": np.array(seconds)}


def record_plain(case: Spoilt, seed: int) -> tuple[dict[str, np.ndarray], list[float]]:
    """Trainings on all samples: that of today's default with its own suspects, and a short one."""
    site = case.site
    kept: dict[str, np.ndarray] = {}
    kept["default"], run, spent = observe(case, site, DEFAULT, seed)
    judged = run.outcome.suspects
    kept["default_p"] = np.zeros(case.data.n)
    for found in judged:
        kept["default_p"][found.samples] = found.p_wrong
    kept["default_counts"] = np.array([[found.wrong, found.low, found.high] for found in judged])
    kept["quick"], _, more = observe(case, site, QUICK, seed)
    return kept, [spent, more]


def train(folder: Path, data: str, seeds: list[int], sets: list[str], kinds: list[str], plain: bool) -> None:
    """Write the records that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name, kind in itertools.product(seeds, sets, kinds):
        path = folder / f"{name}-{kind}-{seed}.npz"
        if path.exists():
            continue
        kept = record(make_federation(load_images(name, data), kind, seed), seed, plain)
        np.savez(path, allow_pickle=False, **kept)
        print(path, np.round(kept["seconds"], 1), flush=True)


def measure(folder: Path, seeds: Sequence[int]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], np.ndarray]:
    """What the records show of these seeds.

    Returns:
        A row a federation, score and site ("all": all sites). A row a federation, site and estimate of its number of
        wrong labels. P(wrong) as chosen, whether the label is wrong, and number of the kind, float [n, 3].
    """
    ranked, counted, chosen = [], [], []
    for path in sorted(folder.glob("*.npz")):
        name, kind, seed = path.stem.split("-")
        if int(seed) not in seeds:
            continue
        with np.load(path, allow_pickle=False) as file:
            kept = dict(file)
        wrong, site = kept["given"] != kept["clean"], kept["site"]
        about = {"data": name, "kind": kind, "seed": seed}
        parts = {"all": np.ones(len(site), bool)} | {str(number): site == number for number in range(site.max() + 1)}
        scores, counts = score_labels(kept)
        for (score, values), (part, mine) in itertools.product(scores.items(), parts.items()):
            row = {**about, "site": part, "samples": int(mine.sum()), "wrong": int(wrong[mine].sum()), "score": score}
            row["auroc"] = round(auroc(values[mine], wrong[mine]), 4)
            row["ap"] = round(average_precision(values[mine], wrong[mine]), 4)
            ranked.append(row)
        today = [Count(number, low, high, True) for number, low, high in kept.get("default_counts", ())]
        for by, found in ((CHOSEN, counts), (TODAY, today)):
            for number, one in enumerate(found):
                mine = parts[str(number)]
                row = {**about, "site": number, "samples": int(mine.sum()), "wrong": int(wrong[mine].sum()), "by": by}
                row |= {"estimate": round(one.wrong, 1), "low": round(one.low, 1), "high": round(one.high, 1)}
                counted.append({**row, "told": int(one.told)})
        chosen.append(np.stack([scores[CHOSEN], wrong, np.full(len(site), KINDS.index(kind))], 1))
    return ranked, counted, np.concatenate(chosen)


def make_tables(ranked: Sequence[Mapping[str, Any]], counted: Sequence[Mapping[str, Any]], chosen: np.ndarray) -> str:
    """Markdown of what `measure` returns: scores, kinds, numbers of wrong labels, calibration."""
    parts = (tabulate_scores(ranked), tabulate_kinds(ranked), tabulate_numbers(counted), tabulate_calibration(chosen))
    return "\n\n".join("\n".join(lines) for lines in parts)


def tabulate_scores(ranked: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a score, means over federations and over their sites."""
    lines = ["| score | federations | AUROC | AP | AUROC of a site | AP of a site |", "|---|" + "--:|" * 5]
    for name in dict.fromkeys(row["score"] for row in ranked):
        mine = [row for row in ranked if row["score"] == name]
        whole, single = [row for row in mine if row["site"] == "all"], [row for row in mine if row["site"] != "all"]
        means = [f"{mean_of(part, key):.3f}" for part in (whole, single) for key in ("auroc", "ap")]
        lines.append(f"| {name} | {len(whole)} | " + " | ".join(means) + " |")
    return lines


def tabulate_kinds(ranked: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a data set and kind: the chosen score beside the two that it must not be worse than."""
    at = {(*(row[key] for key in ("data", "kind", "seed", "site")), row["score"]): row for row in ranked}
    cases = list(dict.fromkeys(key[:3] for key in at))
    lines = [f"| data | kind | {CHOSEN} | {OWN} | {CLEANLAB} | sites below by .02: AUROC | AP | largest |"]
    lines.append("|---|---|" + "--:|" * 6)
    for name, kind in [*itertools.product(DATA, KINDS), ("all", "all")]:
        those = [case for case in cases if (name, kind) in (case[:2], ("all", "all"))]
        if not those:
            continue
        cells = []
        for score in (CHOSEN, OWN, CLEANLAB):
            part = [at[(*case, "all", score)] for case in those]
            cells.append(f"{mean_of(part, 'auroc'):.3f} / {mean_of(part, 'ap'):.3f}")
        sites = [(*case, str(number)) for case in those for number in range(len(SIZES))]
        gaps = {key: np.array([find_gap(at, site, key) for site in sites]) for key in ("auroc", "ap")}
        below = [f"{int((gap > NEAR).sum())} of {len(sites)}" for gap in gaps.values()]
        lines.append(f"| {name} | {kind} | " + " | ".join([*cells, *below, f"{gaps['ap'].max():.3f}"]) + " |")
    return lines


def tabulate_numbers(counted: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line a kind, of all sites."""
    lines = ["| by | kind | sites | told | interval holds | if told | near, if told | width, median |"]
    lines.append("|---|---|" + "--:|" * 6)
    for by, kind in itertools.product((CHOSEN, TODAY), (*KINDS, "all")):
        mine = [row for row in counted if row["by"] == by and kind in (row["kind"], "all")]
        if mine:
            lines.append(f"| {by} | {kind} | " + " | ".join(describe_counts(mine)) + " |")
    return lines


def tabulate_calibration(chosen: np.ndarray) -> list[str]:
    """A line a range of P(wrong). chosen: as `measure` returns it."""
    lines = ["| P(wrong) | labels | mean | wrong |", "|---|--:|--:|--:|"]
    for low, high in itertools.pairwise(BINS):
        inside = chosen[(chosen[:, 0] >= low) & (chosen[:, 0] < high)]
        if len(inside):
            p_wrong, wrong, _ = inside.mean(0)
            lines.append(f"| {low} to {min(high, 1)} | {len(inside)} | {p_wrong:.3f} | {wrong:.3f} |")
    return lines


def draw_calibration(chosen: np.ndarray, path: Path) -> None:
    """Draw the share of wrong labels over P(wrong), in tenths of P(wrong): of each kind, and of all."""
    with use_house_style():
        figure = make_canvas(4.6, 3.6)
        axis = figure.subplots()
        axis.plot([0, 100], [0, 100], color="0.6", linestyle=":", label="as estimated")
        for kind in (*KINDS, "all"):
            mine = chosen if kind == "all" else chosen[chosen[:, 2] == KINDS.index(kind)]
            tenths = [mine[(mine[:, 0] * 10).astype(int).clip(0, 9) == number] for number in range(10)]
            points = 100 * np.array([part.mean(0) for part in tenths if len(part)])
            style = {"color": "black", "linewidth": 2} if kind == "all" else {"linewidth": 1}
            axis.plot(points[:, 0], points[:, 1], marker="o", markersize=3, label=WORDS[kind], **style)
        axis.text(42, 95, "▲ estimate too low")
        axis.text(62, 10, "▼ estimate too high")
        axis.set(xlabel="mean P(wrong), %", ylabel="labels that are wrong, %", xlim=(0, 100), ylim=(0, 100))
        axis.legend()
        figure.savefig(path, dpi=DPI)


def mean_of(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Mean of an entry."""
    return float(np.mean([row[key] for row in rows]))


def find_gap(at: Mapping[Any, Mapping[str, Any]], site: tuple[Any, ...], key: str) -> float:
    """By how much the chosen score is below the better of cleanlab and its own model's 1 - p(given)."""
    return max(at[(*site, name)][key] for name in (CLEANLAB, OWN)) - at[(*site, CHOSEN)][key]


def describe_counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cells of the table of numbers: sites, those told, how many intervals hold, how many estimates are near."""
    estimate, low, high, wrong, n, told = (
        np.array([row[key] for row in rows], float) for key in ("estimate", "low", "high", "wrong", "samples", "told")
    )
    known, holds = told > 0, (low <= wrong) & (wrong <= high)
    close, width = near(estimate, wrong, n), (high - low) / n
    shares = [f"{100 * part.mean():.0f} %" if len(part) else "–" for part in (holds, holds[known], close[known])]
    return [str(len(rows)), str(int(known.sum())), *shares, f"{100 * np.median(width[known]):.0f} %"]


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV."""
    with open_atomic(path) as out:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["train", "score"])
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with both data sets")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the records")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of images, noise and training")
    parser.add_argument("--sets", nargs="+", default=list(DATA), choices=DATA, help="data sets to train on")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="corruptions to train on")
    parser.add_argument("--plain", action="store_true", help="also train on all samples, as today's default does")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of the CSV files")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    if args.part == "train":
        train(args.folder, args.data, args.seeds, args.sets, args.kinds, args.plain)
        return 0
    ranked, counted, chosen = measure(args.folder, args.seeds)
    args.out.mkdir(parents=True, exist_ok=True)
    write_rows(args.out / "rank_labels.csv", ranked)
    write_rows(args.out / "count_labels.csv", counted)
    draw_calibration(chosen, args.out / "calibration.png")
    print(make_tables(ranked, counted, chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
