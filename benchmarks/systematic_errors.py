"""Systematic errors: the number of planted kinds that fn.find_label_errors names at the right site, and false findings.

A federation has three to five sites of different sizes and class mixes, with Fashion-MNIST or MNIST. Each site has its
own share of random wrong labels. In some federations one kind of KINDS is planted at one site. The others have only
random noise, and half of these list their samples by given label. A kind counts as named if a finding at its site has
the kind, and its class or most of its planted rows. The input of models is a feature vector of every second pixel, or
with `--images` the images.
Run: python -m benchmarks.systematic_errors --data DIR
"""

import argparse
import csv
import itertools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fednoise_core as fn
from benchmarks.label_errors import flatten_images

KINDS = (
    *("exchanged classes", "permuted classes", "labelled as another class", "missing class", "random class"),
    *("shifted rows", "wrong rows", "constant rows", "annotator", "copies"),
)
RANDOM = "random noise only"
DATASETS = ("fashion_mnist", "mnist")
SIZES = (1800, 1300, 1000, 700, 500)
LOW, HIGH = (0.02, 0.15), (0.0, 0.4)  # shares of random wrong labels with a planted kind, and without one
COLUMNS = ("dataset", "kind", "seed", "samples", "sites", "planted_at", "site_named", "named", "false", "texts")


def make_federation(name: str, folder: str, kind: str, seed: int) -> tuple[Any, ...]:
    """Draw images, labels, sites and annotators [n], and where a kind is planted: site, samples [n], classes."""
    arrays = fn.dataset(name, [folder])
    draw = np.random.default_rng([seed, DATASETS.index(name), (*KINDS, RANDOM).index(kind)])
    site = np.repeat(np.arange(count := int(draw.integers(3, 6))), draw.permutation(SIZES)[:count])
    x, labels, free = np.zeros((len(site), 28, 28), np.uint8), np.zeros(len(site), int), draw.permutation(arrays.n)
    annotator, planted_site = draw.integers(0, 8, len(site)), int(draw.integers(count))
    planted, classes = np.zeros(len(site), bool), [0, 0]
    for number in range(count):
        of_site = np.flatnonzero(site == number)
        weights = draw.dirichlet(np.full(10, 4.0))[arrays.y_train[free]]
        taken = draw.choice(len(free), len(of_site), replace=False, p=weights / weights.sum())
        rows, free = free[taken], np.delete(free, taken)
        images, y = np.asarray(arrays.x_train[rows]), arrays.y_train[rows].astype(int)
        clean = y.copy()
        wrong = draw.random(len(y)) < draw.uniform(*(HIGH if kind == RANDOM else LOW))
        y[wrong] = (y[wrong] + draw.integers(1, 10, wrong.sum())) % 10
        if number == planted_site and kind != RANDOM:
            images, y, planted[of_site], classes = plant_error(kind, images, clean, y, annotator[of_site], draw)
        elif draw.random() < 0.5:
            order = np.argsort(y, kind="stable")
            images, y = images[order], y[order]
        x[of_site], labels[of_site] = images, y
    return x, labels, site, annotator, planted_site, planted, classes


def plant_error(
    kind: str, x: np.ndarray, clean: np.ndarray, y: np.ndarray, annotator: np.ndarray, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """Plant a kind at a site. Returns images, labels, the affected samples, bool [n], and its two classes."""
    n, y, x = len(y), y.copy(), x.copy()
    common = np.argsort(-np.bincount(clean, minlength=10))
    first, second = draw.permutation(common[:5])[:2]
    length = int(draw.uniform(0.12, 0.3) * n)
    start = int(draw.integers(1, n - length))
    block = (np.arange(n) >= start) & (np.arange(n) < start + length)
    chosen = clean == first
    if kind == "exchanged classes":
        y = np.select([y == first, y == second], [second, first], y)
        chosen = chosen | (clean == second)
    elif kind == "permuted classes":
        y, chosen = (y + 1) % 10, np.ones(n, bool)
    elif kind == "labelled as another class":
        y[chosen & (draw.random(n) < 0.5)] = second
    elif kind == "missing class":
        y[y == first] = second
    elif kind == "random class":
        y[chosen] = draw.integers(0, 10, chosen.sum())
    elif kind == "shifted rows":
        chosen = block
        y[block] = y[np.flatnonzero(block) - 1]
    elif kind == "wrong rows":
        chosen = block
        y[block] = draw.integers(0, 10, length)
    elif kind == "constant rows":
        chosen, y[block] = block, first
    elif kind == "annotator":
        chosen = annotator == 7
        wrong = chosen & (draw.random(n) < 0.5)
        y[wrong] = (clean[wrong] + draw.integers(1, 10, wrong.sum())) % 10
    else:  # copies
        chosen, originals = block, draw.choice(np.flatnonzero(~block), length, replace=False)
        x[block], y[block] = x[originals], (y[originals] + draw.integers(1, 10, length)) % 10
    return x, y, chosen, [int(first), int(second)]


def is_named(finding: dict[str, Any], kind: str, planted: np.ndarray, classes: list[int]) -> bool:
    """Return True if a finding has the planted kind, and its classes or most of its rows."""
    first, second = map(str, classes)
    if finding["first"]:
        rows = np.arange(int(finding["first"]), int(finding["last"]) + 1)
        return finding["kind"] == kind and planted[rows].sum() > 0.5 * max(len(rows), planted.sum())
    pairs = {"random class": [first, first]} | dict.fromkeys(("annotator", "permuted classes"))
    pair = pairs.get(kind, [first, second])
    return finding["kind"] == kind and (pair is None or pair in finding["classes"])


def main(argv: list[str] | None = None) -> int:
    """Check every federation, write a row for each, and print how many kinds were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101], help="of federations with a planted kind")
    parser.add_argument("--random-seeds", type=int, nargs="*", default=list(range(100, 110)), help="of those without")
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/systematic_errors.csv"))
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with args.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for name, kind in itertools.product(DATASETS, (*KINDS, RANDOM)):
            for seed in args.random_seeds if kind == RANDOM else args.seeds:
                x, y, site, annotator, planted_site, planted, classes = make_federation(name, args.data, kind, seed)
                x = x if args.images else flatten_images(x)
                frame = fn.find_label_errors(x, y, site, annotator=annotator, seed=seed, progress=False)
                findings = frame.attrs["findings"]
                at_site = [finding for finding in findings if finding["site"] == str(planted_site) and kind != RANDOM]
                named = any(is_named(finding, kind, planted, classes) for finding in at_site)
                facts = [name, kind, seed, len(y), site.max() + 1, "" if kind == RANDOM else planted_site]
                texts = " | ".join(finding["text"] for finding in findings)
                counts = [int(bool(at_site)), int(named), len(findings) - len(at_site)]
                rows.append(dict(zip(COLUMNS, [*facts, *counts, texts], strict=True)))
                table.writerow(rows[-1])
                file.flush()
    for kind in (*KINDS, RANDOM):
        of_kind = [row for row in rows if row["kind"] == kind]
        site_named, named, false = (sum(row[column] for row in of_kind) for column in ("site_named", "named", "false"))
        print(f"{kind}: n = {len(of_kind)}, site named {site_named}, kind named {named}, false findings {false}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
