"""How many images out of scope and contradicting near copies are found (docs/wrong_labels.md).

python -m benchmarks.strange_images --data DIR --seeds 50     4 federations, 5 min on one core

The federations are those of `rank_labels`. 1 to 10 % of a site's images are replaced by images of the other data set,
by noise and by smooth textures. 3 % are near copies of another image of the site with another label: moved by a pixel,
darker, with noise, or after JPEG. DIR holds both data sets as docs/data.md says. cleanlab's OutOfDistribution has all
data in one place. It gets the features of one of the federated models, or those of a model that was trained there.
"""

import argparse
import dataclasses
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cleanlab.outlier import OutOfDistribution
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.metrics import average_precision_score, precision_recall_curve

from benchmarks.corruptions import Spoilt
from benchmarks.found_labels import train_on
from benchmarks.rank_labels import DATA, POOLED, observe
from benchmarks.unlike_sites import KINDS, Images, load_images, make_federation
from fednoise_core.api.run import Run
from fednoise_core.label_errors.image_checks import find_contradictions
from fednoise_core.label_errors.scope import FAR

SHARES = (0.04, 0.1, 0.02, 0.06, 0.01)  # of images out of scope at a site
COPIED = 0.03  # of the images of a site
PRECISIONS = (0.5, 0.8)


def move_image(image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Move to the right by a pixel, and perhaps up or down by one."""
    return np.roll(image, (int(draw.integers(-1, 2)), 1), (0, 1))


def darken_image(image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Lower the contrast by a tenth."""
    return 0.9 * image + 5


def add_noise(image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Add noise of standard deviation 8."""
    return image + draw.normal(0, 8, image.shape)


def compress_image(image: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Compress as JPEG of quality 60."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=60)
    return np.asarray(Image.open(file))


COPIES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "moved": move_image,
    "darker": darken_image,
    "noise": add_noise,
    "JPEG": compress_image,
}


def spoil_images(case: Spoilt, other: Images, seed: int) -> tuple[Spoilt, np.ndarray, np.ndarray]:
    """(federation, whether an image is out of scope, number of its kind of near copy from 1 or 0)."""
    draw, site = np.random.default_rng([seed, 7]), case.site
    x, y = case.data.x_train.copy(), case.data.y_train.copy()
    strange, copied = np.zeros(len(y), bool), np.zeros(len(y), int)
    for number, share in enumerate(SHARES):
        rows = draw.permutation(np.flatnonzero(site == number))
        count, pairs = round(share * len(rows)), round(COPIED * len(rows))
        for place, row in enumerate(rows[:count]):
            texture = gaussian_filter(draw.normal(0, 1, (28, 28)), 2)
            texture = 255 * (texture - texture.min()) / np.ptp(texture)
            noise = draw.integers(0, 256, (28, 28))
            x[row] = (other.x[draw.integers(len(other.x))], noise, texture)[place % 3]
            y[row] = draw.integers(10)
        strange[rows[:count]] = True
        copies, originals = rows[count : count + pairs], rows[count + pairs : count + 2 * pairs]
        for place, (copy, original) in enumerate(zip(copies, originals, strict=True)):
            kind = place % len(COPIES)
            image = list(COPIES.values())[kind](x[original], draw)
            x[copy], y[copy] = image.clip(0, 255).round(), (y[original] + draw.integers(1, 10)) % 10
            copied[[copy, original]] = kind + 1
    return dataclasses.replace(case, data=dataclasses.replace(case.data, x_train=x, y_train=y)), strange, copied


def read_features(run: Run, model: Any) -> np.ndarray:
    """Penultimate features of all samples, float32 [n, d]."""
    fed = run.outcome.fed
    pool = fed.world.pool("train")
    return fed.world.evaluate(fed.net(0), model, pool, torch.arange(pool.n), "features").numpy()


def recall_at(score: np.ndarray, truth: np.ndarray, precision: float) -> float:
    """The largest recall at this precision or a higher one."""
    reached, recall, _ = precision_recall_curve(truth, score)
    return float(recall[reached >= precision].max())


def measure(name: str, kind: str, seed: int, folder: str) -> tuple[list[str], str]:
    """Rows of both tables in Markdown."""
    images = {one: load_images(one, folder) for one in DATA}
    other = next(images[one] for one in DATA if one != name)
    case, strange, copied = spoil_images(make_federation(images[name], kind, seed), other, seed)
    n, site = case.data.n, case.site
    run = train_on(case.data, site, "cross_fitted", seed)
    score, near = np.zeros(n), np.zeros(n, bool)
    for one in run.outcome.suspects:
        score[one.samples], near[one.samples] = one.more["out_of_scope"], one.more["near_copy"]
    _, pooled, _ = observe(case, np.zeros(n, int), POOLED, seed)
    scores = {"out_of_scope": score}
    for text, made, model in (
        ("cleanlab, one of the models", run, run.outcome.state.server["models"][0]),
        ("cleanlab, pooled model", pooled, pooled.outcome.state.server["model"]),
    ):
        scores[text] = -OutOfDistribution().fit_score(features=read_features(made, model), verbose=False)
    listed, lines = score > FAR, []
    told = f"{listed.sum()} | {strange[listed].mean():.2f} | {listed[strange].mean():.2f}"
    for text, values in scores.items():
        numbers = [average_precision_score(strange, values), *(recall_at(values, strange, at) for at in PRECISIONS)]
        cells = " | ".join(f"{number:.2f}" for number in numbers)
        lines.append(f"| {name} | {kind} | {text} | {cells} | {'| |' if lines else told} |")
    found = " | ".join(f"{near[copied == number].mean():.2f}" for number in range(1, len(COPIES) + 1))
    right = (copied > 0) | find_contradictions(case.data.x_train, case.data.y_train)
    return lines, f"| {name} | {kind} | {near.sum()} | {right[near].mean():.2f} | {found} |"


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("FEDNOISE_DATA", "."), help="folder with both data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[50], help="of images, noise and training")
    parser.add_argument("--kinds", nargs="+", default=["uniform", "blurred"], choices=KINDS, help="corruptions")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    made = [measure(name, kind, seed, args.data) for seed in args.seeds for kind in args.kinds for name in DATA]
    print("| data | kind | score | AP | recall at .5 | recall at .8 | listed | precision | recall |")
    print("|---|---|---|" + "--:|" * 6)
    print("\n".join(line for lines, _ in made for line in lines))
    print(f"\n| data | kind | found | precision | {' | '.join(COPIES)} |\n|---|---|" + "--:|" * (2 + len(COPIES)))
    print("\n".join(line for _, line in made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
