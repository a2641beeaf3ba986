"""How good the lists of `cross_fitted` are, a second turn, and whether correcting pays (docs/wrong_labels.md).

python -m benchmarks.found_labels --data DIR     36 federations, 45 min on one core

The federations are those of `rank_labels`, of seeds that no constant was chosen on. DIR holds both data sets as
docs/data.md says. In the second turn every verdict "wrong" was accepted unseen. Models are trained again on the given
labels, with 60 decisions by hand, with these and all other verdicts accepted, and on clean labels.
"""

import argparse
import dataclasses
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fednoise_core as fn
from benchmarks.corruptions import Spoilt
from benchmarks.rank_labels import DATA, FOLDS, POOLED, QUICK, deal_folds, describe_counts, observe, write_rows
from benchmarks.unlike_sites import FEW, KINDS, SIZES, Images, load_images, make_federation
from benchmarks.wrong_labels import average_precision
from fednoise_core import Arrays, Partition
from fednoise_core.api.run import Run
from fednoise_core.engine.truth import auroc

BY_HAND = 60  # decisions: the most suspect labels, put right
TEST = 10_000  # clean images


def train_on(data: Arrays, site: np.ndarray, method: str, seed: int) -> Run:
    """Train on the labels of `data`."""
    parts = [np.flatnonzero(site == number) for number in range(site.max() + 1)]
    split = Partition.from_parts(parts, {"artifact": "partition"})
    return fn.run(data, data.y_train, split, method, QUICK, seed=seed, progress=False)


def rank_pooled(case: Spoilt, seed: int) -> np.ndarray:
    """1 - p(given) [n] of cleanlab's self_confidence: pooled data, 5 folds."""
    fold, one = deal_folds(case, seed, False), np.zeros(case.data.n, int)
    made = [observe(case, np.where(fold == k, -1, one), POOLED, seed * FOLDS + k)[0][-1] for k in range(FOLDS)]
    rows = np.arange(case.data.n)
    return 1 - np.exp(np.stack(made)[fold, rows, case.data.y_train].astype(float))


def judge_run(run: Run, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P(wrong) [n], proposed labels [n], and the models' own 1 - p(given) [n]."""
    p_wrong, proposed, own = np.zeros(n), np.zeros(n, np.int64), np.zeros(n)
    world = run.outcome.fed.world
    for one in run.outcome.suspects:
        p_wrong[one.samples], proposed[one.samples] = one.p_wrong, one.proposed
        state = run.outcome.state.clients[one.site]
        held, seen = (state[name] / state[name].sum(1, keepdim=True) for name in ("held", "seen"))
        given = world.labels[world.index[one.site]]
        own[world.index[one.site].numpy()] = 1 - ((held + seen) / 2)[torch.arange(len(given)), given].numpy()
    return p_wrong, proposed, own


def list_counts(run: Run, wrong: np.ndarray) -> list[dict[str, Any]]:
    """A row a site: the number of wrong labels, its estimate and interval."""
    rows = []
    for one in run.outcome.suspects:
        row = {"site": one.site, "samples": len(one.samples), "wrong": int(wrong[one.samples].sum())}
        row |= {"estimate": round(one.wrong, 1), "low": round(one.low, 1), "high": round(one.high, 1)}
        rows.append({**row, "told": int(one.told)})
    return rows


def measure(images: Images, kind: str, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """(rows of ranks, of numbers of wrong labels, and of accuracy) of one federation."""
    about = {"data": images.name, "kind": kind, "seed": seed}
    case = make_federation(images, kind, seed)
    given, site, n = case.data.y_train, case.site, case.data.n
    run = train_on(case.data, site, "cross_fitted", seed)
    p_wrong, proposed, own = judge_run(run, n)
    scores = {"cross_fitted": p_wrong, "its own 1 - p(given)": own, "cleanlab, pooled": rank_pooled(case, seed)}
    parts = {"all": np.ones(n, bool)} | {str(number): site == number for number in range(site.max() + 1)}
    ranked = []
    for (score, values), (part, mine) in itertools.product(scores.items(), parts.items()):
        numbers = [auroc(values[mine], case.wrong[mine]), average_precision(values[mine], case.wrong[mine])]
        ranked.append({**about, "site": part, "score": score, "auroc": numbers[0], "ap": numbers[1]})
    bulk, hand = np.where(p_wrong > 0.5, proposed, given), given.copy()
    first = np.argsort(-p_wrong, kind="stable")[:BY_HAND]
    hand[first] = case.clean[first]
    both = np.where(np.isin(np.arange(n), first), hand, bulk)
    second = train_on(dataclasses.replace(case.data, y_train=bulk, first=given), site, "cross_fitted", seed + 1)
    turns = (("first", run, case.wrong), ("second", second, bulk != case.clean))
    counted = [{**about, "turn": turn, **row} for turn, made, wrong in turns for row in list_counts(made, wrong)]
    rest = np.random.default_rng([seed, KINDS.index(kind)]).permutation(len(images.y))[sum(SIZES) + FEW + 500 :][:TEST]
    tested = dataclasses.replace(case.data, x_test=images.x[rest], y_test=images.y[rest])
    accuracy = {**about, "wrong": float(case.wrong.mean()), "left": float((both != case.clean).mean())}
    for name, labels in (("given", given), ("hand", hand), ("both", both), ("clean", case.clean)):
        done = train_on(dataclasses.replace(tested, y_train=labels), site, "fedavg", seed)
        accuracy[name] = round(100 * (done.summary["accuracy"]["last"] or 0), 2)
    return ranked, counted, accuracy


def make_tables(ranked: Sequence[Mapping[str, Any]], counted: Sequence[Mapping[str, Any]]) -> list[str]:
    """Markdown of ranks and of numbers of wrong labels."""
    lines = ["| score | AUROC | AP | sites below by .02: AUROC | AP |", "|---|" + "--:|" * 4]
    at = {(row["data"], row["kind"], row["seed"], row["site"], row["score"]): row for row in ranked}
    names, sites = list(dict.fromkeys(row["score"] for row in ranked)), [key[:4] for key in at if key[3] != "all"]
    for name in names:
        whole = [row for row in ranked if row["score"] == name and row["site"] == "all"]
        cells = [f"{np.mean([row[key] for row in whole]):.3f}" for key in ("auroc", "ap")]
        for key in ("auroc", "ap"):
            best = {site: max(at[(*site, other)][key] for other in names) for site in sites}
            below = sum(best[site] - at[(*site, name)][key] > 0.02 for site in best)
            cells.append(f"{below} of {len(best)}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| turn | sites | told | interval holds | if told | near, if told | width, median |",
        "|---|" + "--:|" * 6,
    ]
    for turn in ("first", "second"):
        lines.append(f"| {turn} | " + " | ".join(describe_counts([r for r in counted if r["turn"] == turn])) + " |")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with both data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[20, 21, 22], help="of images, noise and training")
    parser.add_argument("--sets", nargs="+", default=list(DATA), choices=DATA, help="data sets to train on")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="corruptions to train on")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/found"), help="folder of the CSV files")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    ranked, counted, accuracies = [], [], []
    for seed, kind, name in itertools.product(args.seeds, args.kinds, args.sets):
        more = measure(load_images(name, args.data), kind, seed)
        ranked += more[0]
        counted += more[1]
        accuracies.append(more[2])
        for file, rows in (("found_labels", ranked), ("found_counts", counted), ("found_accuracy", accuracies)):
            write_rows(args.out / f"{file}.csv", rows)
        print(more[2], flush=True)
    print("\n".join(make_tables(ranked, counted)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
