"""fn.find_label_errors: the list of wrong labels of arrays in memory, in one call."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fednoise_core.api.run import run
from fednoise_core.data.from_arrays import arrays
from fednoise_core.io import SpecError
from fednoise_core.label_errors.files import SITES, list_columns, list_sites, list_suspects
from fednoise_core.partition.registry import make as make_partition
from fednoise_core.rng import stream
from fednoise_core.settings.declare import build_settings
from fednoise_core.settings.train import Train

if TYPE_CHECKING:
    import pandas as pd

TRAIN = {"rounds": 8, "fraction": 1.0, "epochs": 2, "batch": 32, "lr": 0.05, "momentum": 0.9, "eval_every": 1000}
NO_VOTE = ("-1", "nan", "None", "")


def find_label_errors(
    x: Any, y: Any, owner: Any = None, *, net: Any = None, seed: int = 0, **options: Any
) -> "pd.DataFrame":
    """Find wrong labels with models that have not seen them (`cross_fitted`). docs/wrong_labels.md explains the result.

    Args:
        x: Images, integers 0..255, [n, H, W] or [n, H, W, C], or feature vectors, floats [n, d].
        y: Labels [n], class numbers from 0 or class names. Or the votes of m annotators [n, m], with -1, NaN, None or
            an empty name where an annotator has not voted.
        owner: Who holds each sample [n], numbers or texts. Left out, all samples lie in one place.
        net: Net to train in rounds. By default feature vectors get a linear discriminant from sums of one round, images
            of at least 12 pixels a side "small_cnn" of width 16, and smaller ones "mlp".
        seed: Whole number from 0.
        **options: Other arguments of `fn.run`, such as device="cuda" or progress=False.

    Returns:
        A row a sample, with the columns of suspects.csv, most suspect first. `sample` is the row of `x`. Sites on whose
        labels the models are no better than chance are left out. Its `attrs["sites"]` has a dict a site, with the
        columns of sites.csv.
        With votes the given label is the one with the most votes, and `agreement` is the share of the votes for it.
        `attrs["annotators"]` has a dict an annotator: number of votes, and share of those that are the given label.

    Raises:
        SpecError: An argument does not fit. The message names it.
        TypeError: An argument is no array.
    """
    import pandas as pd

    x, y, owner = np.asarray(x), _as_array(y), None if owner is None else _as_array(owner)
    if not x.ndim or not y.ndim or len(x) != len(y):
        raise SpecError(f"y: expected a label for each of x, got {list(y.shape)} for {list(x.shape)}")
    if owner is not None and owner.shape != x.shape[:1]:
        raise SpecError(f"owner: expected one for each of x, got {list(owner.shape)} for {list(x.shape)}")
    votes, y = (y, take_majority(y)) if y.ndim == 2 else (None, y)
    data = arrays(x, y, test=(x[:1], y[:1]), owner=owner)  # accuracy is not asked for
    by_sums, train = net is None and x.ndim == 2, {**TRAIN, "net": net}
    if by_sums:
        train |= {"net": "linear", "rounds": 1}
    elif net is None:
        shortest = min(data.x_train.shape[1:3])
        train["net"] = {"name": "small_cnn", "width": 16} if shortest >= 12 else "mlp"
    split = make_partition(data, "natural" if owner is not None else {"kind": "iid", "clients": 1}, seed=seed)
    method = {"name": "cross_fitted", "fit": "sums" if by_sums else "rounds"}
    done = run(data, data.y_train, split, method, build_settings(Train, train, "train"), seed, **options)
    suspects, sites = done.outcome.suspects, split.sites or [str(number) for number in range(split.clients)]
    frame = pd.DataFrame(list_suspects(suspects, data, data.y_train, sites), columns=list_columns(suspects))
    if votes is not None:
        voted, agreed = find_votes(votes), votes == y[:, None]
        frame["agreement"] = (agreed.sum(1) / voted.sum(1))[frame["sample"]]
        counts = zip(voted.sum(0).tolist(), agreed.sum(0).tolist(), strict=True)
        frame.attrs["annotators"] = [{"votes": n, "agreement": k / n if n else None} for n, k in counts]
    frame.attrs["sites"] = [dict(zip(SITES, row, strict=True)) for row in list_sites(suspects, sites)]
    return frame


def _as_array(values: Any) -> np.ndarray:
    """An array, of numpy's texts where all values are Python's, as in a column of pandas."""
    array = np.asarray(values)
    return array.astype(str) if all(isinstance(value, str) for value in array.ravel().tolist()) else array


def find_votes(votes: np.ndarray) -> np.ndarray:
    """Find the votes of annotators: True where one has voted, bool [n, m]."""
    return ~np.isin(votes.astype(str), NO_VOTE)


def take_majority(votes: np.ndarray) -> np.ndarray:
    """The label [n] with the most votes. Of several such labels one is drawn, in every call the same.

    Args:
        votes: Class numbers or names [n, m].

    Raises:
        SpecError: A sample has no vote.
    """
    voted = find_votes(votes)
    if not voted.any(1).all():
        row = int(voted.any(1).argmin())
        raise SpecError(
            f"y: expected a vote for each sample, got none for row {row}. leave such samples out of x and y"
        )
    counts = np.stack([(votes == votes[:, [j]]).sum(1) for j in range(votes.shape[1])], 1)
    draw = stream(0, "tied votes").random(votes.shape)
    chosen = votes[np.arange(len(votes)), np.where(voted, counts + draw, 0).argmax(1)]
    labels = np.array(chosen.tolist())
    return labels.astype(np.int64) if labels.dtype.kind == "f" else labels
