"""Order of wrong labels: fn.find_label_errors at five unlike sites, beside cleanlab on the pooled data.

Fashion-MNIST or MNIST is corrupted in six ways (KINDS). A federation has five sites of different sizes. Three have 30,
18 and 8 % wrong labels of its kind, one has 20 % of the next kind, and one has 2 %. cleanlab gets predictions of the
same net by cross-validation on all data in one place. Run: python -m benchmarks.label_errors --data DIR
"""

import argparse
import csv
import os
import sys
from pathlib import Path

import numpy as np
from cleanlab.rank import get_label_quality_scores
from scipy.ndimage import uniform_filter
from sklearn.linear_model import Ridge
from sklearn.metrics import average_precision_score, roc_auc_score

import fednoise_core as fn

KINDS = ("uniform", "alike", "mirrored", "blurred", "duplicates", "annotator")
SIZES = (900, 650, 500, 350, 250)  # images of a site
RATES = ((0, 0.30), (0, 0.18), (0, 0.08), (1, 0.20), (None, 0.02))  # steps from the own kind (None: uniform), share
LOOKS = {  # the class that a class is taken for
    "fashion_mnist": (6, 3, 4, 6, 2, 7, 0, 5, 8, 7),
    "mnist": (6, 7, 7, 5, 9, 3, 0, 2, 3, 4),
}
FEW = 150  # clean images that the weak annotator has seen
FOLDS, EPOCHS = 5, 12  # of the predictions for cleanlab
NET = {"name": "small_cnn", "width": 16}
COLUMNS = ("dataset", "kind", "seed", "score", "auroc", "average_precision")


def make_federation(name: str, folder: str, kind: str, seed: int) -> tuple[np.ndarray, ...]:
    """Draw images uint8 [n, H, W], clean labels [n], given labels [n] and sites [n] of a federation."""
    arrays = fn.dataset(name, [folder])
    draw = np.random.default_rng([seed, KINDS.index(kind)])
    rows, few = np.split(draw.permutation(arrays.n)[: sum(SIZES) + FEW], [sum(SIZES)])
    x, clean = np.asarray(arrays.x_train[rows]), arrays.y_train[rows]
    labels, site = clean.copy(), np.repeat(np.arange(len(SIZES)), draw.permutation(SIZES))
    annotator = Ridge(alpha=5).fit(flatten_images(arrays.x_train[few]), np.eye(10)[arrays.y_train[few]])
    for number, (step, share) in enumerate(RATES):
        of_site = np.flatnonzero(site == number)
        chosen = KINDS[0] if step is None else KINDS[(KINDS.index(kind) + step) % len(KINDS)]
        x[of_site], clean[of_site], labels[of_site] = corrupt_site(
            chosen, x[of_site], clean[of_site], share, draw, np.array(LOOKS[name]), annotator
        )
    return x, clean, labels, site


def flatten_images(x: np.ndarray) -> np.ndarray:
    """Every second pixel of each image in a vector, float [n, d]."""
    return np.asarray(x)[:, ::2, ::2].reshape(len(x), -1) / 255


def corrupt_site(
    kind: str,
    x: np.ndarray,
    y: np.ndarray,
    share: float,
    draw: np.random.Generator,
    looks: np.ndarray,
    annotator: Ridge,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corrupt about this share of a site's labels. Returns images, clean labels and given labels."""
    n, x, y = len(y), x.copy(), y.copy()
    count, labels = round(share * n), y.copy()
    rows = draw.permutation(n)[:count]
    if kind == "alike":  # taken for a class that looks alike
        rows = draw.permutation(np.flatnonzero(looks[y] != y))[:count]
        labels[rows] = looks[y[rows]]
    elif kind == "mirrored":  # a stretch of the list was labelled with the order of the classes reversed
        start = int(draw.integers(n - count + 1))
        labels[start : start + count] = 9 - y[start : start + count]
    elif kind == "annotator":  # the images that are hardest for a weak annotator got its label
        scores = annotator.predict(flatten_images(x))
        right = scores[np.arange(n), y].copy()
        scores[np.arange(n), y] = -np.inf
        rows = np.argsort(right - scores.max(1) + 0.15 * draw.gumbel(size=n))[:count]
        labels[rows] = scores[rows].argmax(1)
    else:
        if kind == "blurred":  # some of the images that are blurred and dark
            dark = draw.permutation(n)[: round(1.8 * count)]
            x[dark] = (uniform_filter(x[dark].astype(float), (0, 5, 5)) * 0.4).astype(np.uint8)
            rows = dark[:count]
        elif kind == "duplicates":  # copies of other images of the site
            rows, originals = np.split(draw.permutation(n)[: 2 * count], 2)
            x[rows], y[rows] = x[originals], y[originals]
            labels = y.copy()
        labels[rows] = (y[rows] + draw.integers(1, 10, len(rows))) % 10
    return x, y, labels


def score_federated(x: np.ndarray, labels: np.ndarray, site: np.ndarray, seed: int) -> np.ndarray:
    """P(wrong) [n] by `fn.find_label_errors`, 0 at sites that it leaves out."""
    frame = fn.find_label_errors(x, labels, site, net=NET, seed=seed, progress=False)
    p_wrong = np.zeros(len(labels))
    p_wrong[frame["sample"]] = frame["p_wrong"]
    return p_wrong


def score_pooled(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """One minus cleanlab's self confidence [n], from predictions of nets that have not seen the sample."""
    fold = np.random.default_rng(seed).permutation(np.arange(len(labels)) % FOLDS)
    p = np.zeros((len(labels), 10))
    for number in range(FOLDS):
        held_out = fold == number
        part = fn.arrays(x[~held_out], labels[~held_out], test=(x[:1], labels[:1]), classes=10)
        clients = fn.partition_of(part, {"kind": "iid", "clients": 1}, seed=seed)
        train = {"net": NET, "rounds": 1, "epochs": 1, "batch": 32, "lr": 0.05, "eval_every": 1000}
        method = {"name": "centralised", "epochs": EPOCHS}
        run = fn.run(part, part.y_train, clients, method, train, seed, progress=False)
        p[held_out] = run.predict(x[held_out]).probabilities
    return 1 - get_label_quality_scores(labels, p, method="self_confidence")


def main(argv: list[str] | None = None) -> int:
    """Measure every federation, write a row for each score, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--datasets", nargs="+", choices=LOOKS, default=list(LOOKS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/label_errors.csv"))
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    means: dict[str, list[tuple[float, float]]] = {}
    with args.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for name, kind, seed in (
            (name, kind, seed) for name in args.datasets for kind in args.kinds for seed in args.seeds
        ):
            x, clean, labels, site = make_federation(name, args.data, kind, seed)
            scores = {
                "find_label_errors": score_federated(x, labels, site, seed),
                "cleanlab": score_pooled(x, labels, seed),
            }
            for score, values in scores.items():
                numbers = roc_auc_score(labels != clean, values), average_precision_score(labels != clean, values)
                means.setdefault(score, []).append(numbers)
                table.writerow([name, kind, seed, score, *(f"{number:.4f}" for number in numbers)])
                file.flush()
    for score, rows in means.items():
        print(f"{score}: AUROC {np.mean(rows, 0)[0]:.3f}, average precision {np.mean(rows, 0)[1]:.3f}, n = {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
