"""fn.find_label_errors: find the wrong labels of arrays in memory with one call."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd

from fednoise_core.api.run import INTERNAL, run
from fednoise_core.api.simulate import Options
from fednoise_core.data.array_checks import as_images, owners_of
from fednoise_core.data.arrays import Arrays
from fednoise_core.data.from_arrays import arrays
from fednoise_core.data.mean_std import mean_and_std
from fednoise_core.data.partition import Partition
from fednoise_core.data.user_values import number_labels, read_plain_column, read_probabilities, read_samples
from fednoise_core.io import SpecError
from fednoise_core.label_errors.decisions import LITTLE
from fednoise_core.label_errors.estimate import SiteLabels, beats_chance, estimate_held_out
from fednoise_core.label_errors.files import SITES, list_columns, list_sites, list_suspects
from fednoise_core.label_errors.result import LabelErrors
from fednoise_core.label_errors.systematic import find_systematic_errors
from fednoise_core.partition.registry import make as make_partition
from fednoise_core.rng import stream
from fednoise_core.settings.declare import build_settings, did_you_mean
from fednoise_core.settings.train import Train

TRAIN = {"rounds": 8, "fraction": 1.0, "epochs": 2, "batch": 32, "lr": 0.05, "momentum": 0.9, "eval_every": 1000}
TRAINING = {field.name for field in fields(Train)}
OPTIONS = TRAINING | {field.name for field in fields(Options)} - INTERNAL
FIRST = ("given_name", "proposed_name", "p_wrong", "verdict")  # a terminal shows both ends of a row
LAST = ("source", "given", "proposed", "client", "site", "sample")
NO_VOTE = ("-1", "nan", "None", "")


def find_label_errors(
    x: Any,
    y: Any = None,
    owner: Any = None,
    *,
    annotator: Any = None,
    pred_probs: Any = None,
    encoder: Any = None,
    net: Any = None,
    seed: int = 0,
    **options: Any,
) -> LabelErrors:
    """Find wrong labels with models that have not seen them (`cross_fitted`). docs/wrong_labels.md explains the result.

    Args:
        x: Images, integers 0..255, [n, H, W] or [n, H, W, C], or feature vectors [n, d]. It can be an array, a
            DataFrame of numbers, or a sparse matrix. It can also be a map-style torch Dataset of (image, label), or a
            DataLoader of such a Dataset. It can be None if `pred_probs` is given.
        y: Labels [n]: whole numbers, bools, names or categories. Or the votes of m annotators [n, m], with -1, NaN,
            None or an empty name where an annotator has not voted. Default: the labels of the Dataset.
        owner: Site of each sample [n], numbers or texts. Default: all samples belong to one site.
        annotator: Annotator of each label [n], numbers or texts. It is used to find annotators with more errors.
        pred_probs: Probabilities [n, K] by models of your own that have not seen the sample, for example from
            cross-validation at each site. Nothing is trained then.
        encoder: Pretrained net of torchvision that turns images into feature vectors: a name such as "resnet18", or
            {"name": …, "weights": a state dict, or a folder with torchvision's file}. Each site can encode on its own.
        net: Net to train in rounds. By default feature vectors get a linear discriminant from sums of one round. Images
            of at least 12 pixels a side get "small_cnn" of width 16, and smaller images get "mlp".
        seed: Whole number from 0.
        **options: Training settings, such as rounds=4 or lr=0.01. If one is given, feature vectors get a linear net.
            Other arguments of `fn.run` are also possible, such as device="cuda" or progress=False.

    Returns:
        A DataFrame with one row per sample, the most suspect first. It has the columns of suspects.csv, ordered for
        display in a terminal. `sample` is the row of `x`.
        Sites where the models agree with the labels no better than chance are left out, with a warning.
        `attrs["sites"]` has one dict per site, with the columns of sites.csv. `attrs["findings"]` has one dict per
        systematic error, with a `text`. `page(path)` writes a page for review. `corrected()` returns corrected labels.
        With votes, the given label is the label with the most votes, and `agreement` is the share of votes for it.
        `attrs["annotators"]` has one dict per annotator: the number of votes, and the share that match the given label.

    Raises:
        SpecError: An argument does not fit. The message names it.
        TypeError: An argument is no array.
    """
    if unknown := sorted(options.keys() - OPTIONS):
        raise TypeError(f"{unknown[0]}: no such argument{did_you_mean(unknown[0], OPTIONS)}")
    if x is None and pred_probs is not None:
        x = np.arange(len(y), dtype=np.float32)[:, None]  # placeholders, all distinct so that none count as duplicates
    x, y = read_samples(x, y)
    votes = np.asarray(y) if np.ndim(y) == 2 and np.shape(y)[1] > 1 else None
    if votes is not None:
        votes = votes.astype(str) if all(isinstance(value, str) for value in votes.ravel().tolist()) else votes
        y = take_majority(votes)
    if pred_probs is None:
        labels = number_labels(y)
    else:
        p, labels = read_probabilities(pred_probs, y)
    owner = None if owner is None else read_plain_column(owner, "owner")
    annotator = None if annotator is None else read_plain_column(annotator, "annotator")
    columns = {"y": labels.numbers, "owner": owner, "annotator": annotator, "pred_probs": pred_probs}
    for name, rows in columns.items():
        if rows is not None and len(rows) != len(x):
            raise SpecError(f"{name}: expected one for each of the {len(x)} samples of x, got {len(rows)}")
    kind = "natural" if owner is not None else {"kind": "iid", "clients": 1}
    if pred_probs is None:
        classes = labels.names or len(labels.classes)
        test = x[:1], labels.numbers[:1]  # a placeholder, because the accuracy is not used
        data = arrays(x, labels.numbers, test=test, owner=owner, classes=classes)
        split = make_partition(data, kind, seed=seed)
        encoded = _encode_data(data, encoder, options)
        suspects = train_and_judge(encoded, split, net, seed, options)
    else:
        options.pop("progress", None)
        options |= {name: value for name, value in (("encoder", encoder), ("net", net)) if value is not None}
        if options:
            raise SpecError(f"{next(iter(options))}: nothing is trained with pred_probs; leave it out")
        data = _describe_data(x, labels.numbers, p.shape[1], labels.names, owner)
        split = make_partition(data, kind, seed=seed)
        encoded, suspects = None, judge_probabilities(p, labels.numbers, split)
    warn_of_weak_models(encoded, suspects)
    judged = {one.site for one in suspects}
    if skipped := [name for number, name in enumerate(split.sites) if number not in judged]:
        warnings.warn(
            f"{len(skipped)} of {split.clients} sites are left out ({', '.join(skipped[:5])}): the models agree with "
            "their labels no more often than chance. Classes may be exchanged there. Else other features, or a larger "
            "net trained longer, may help",
            stacklevel=2,
        )
    rows = pd.DataFrame(list_suspects(suspects, data, data.y_train, split.sites), columns=list_columns(suspects))
    frame = LabelErrors(rows[[*FIRST, *rows.columns.difference([*FIRST, *LAST], sort=False), *LAST]])
    frame.data, frame.classes = data, labels.classes
    if votes is not None:
        voted, agreed = find_votes(votes), votes == np.asarray(y)[:, None]
        frame["agreement"] = (agreed.sum(1) / voted.sum(1))[frame["sample"]]
        counts = zip(voted.sum(0).tolist(), agreed.sum(0).tolist(), strict=True)
        frame.attrs["annotators"] = [{"votes": n, "agreement": k / n if n else None} for n, k in counts]
    frame.attrs["findings"] = find_systematic_errors(frame, annotator)
    frame.attrs["sites"] = [dict(zip(SITES, row, strict=True)) for row in list_sites(suspects, split.sites)]
    return frame


def train_and_judge(
    data: Arrays, split: Partition, net: Any, seed: int, options: dict[str, Any]
) -> Sequence[SiteLabels]:
    """Estimate the label errors of `data` with cross_fitted. `options`: training settings and arguments of `fn.run`."""
    chosen = {name: options.pop(name) for name in sorted(options.keys() & TRAINING)}
    vectors = data.x_train.shape[1:3] == (1, 1)
    by_sums, train = vectors and net is None and not chosen, {**TRAIN, "net": net}
    if net is None and vectors:
        train |= {"net": "linear", "rounds": 1 if by_sums else TRAIN["rounds"]}
    elif net is None:
        train["net"] = {"name": "small_cnn", "width": 16} if min(data.x_train.shape[1:3]) >= 12 else "mlp"
    method = {"name": "cross_fitted", "fit": "sums" if by_sums else "rounds"}
    settings = build_settings(Train, train | chosen, "train")
    return run(data, data.y_train, split, method, settings, seed, **options).outcome.suspects


def _encode_data(data: Arrays, encoder: Any, options: Mapping[str, Any]) -> Arrays:
    """Replace the images by feature vectors from the encoder, if there is one."""
    if encoder is None:
        return data
    if data.x_train.shape[1:3] == (1, 1):
        raise SpecError("encoder: x has feature vectors already; leave it out")
    from fednoise_core.nets.encoder import encode_images

    x = encode_images(data.x_train, encoder, options.get("device", "cpu"))[:, None, None]
    mean, std = mean_and_std(x)
    return replace(data, x_train=x, x_test=x[:1], mean=mean, std=std)


def warn_of_weak_models(data: Arrays | None, suspects: Sequence[SiteLabels]) -> None:
    """Warn if the models have learnt little.

    For images, the warning recommends a pretrained net. Otherwise it says if the number of errors is not estimated.

    Args:
        data: The training data. None if the user's own models made the predictions.
        suspects: Estimates of the sites.
    """
    counts = [len(one.samples) for one in suspects]
    if not counts:
        return
    agreement = float(np.average([one.agreement for one in suspects], weights=counts))
    if data is not None and data.x_train.shape[1:3] != (1, 1) and agreement < LITTLE:
        warnings.warn(
            f"the models agree with {100 * agreement:.0f} % of the labels that they have not seen. A pretrained net "
            'finds more: encoder="resnet18"',
            stacklevel=3,
        )
    elif not any(one.estimated for one in suspects):
        warnings.warn(
            "there is no number of wrong labels: the models are often wrong where they are confident, or images differ "
            "between sites. The most suspect labels come first all the same",
            stacklevel=3,
        )


def _describe_data(x: np.ndarray, y: np.ndarray, K: int, names: tuple[str, ...], owner: np.ndarray | None) -> Arrays:
    """Make the data set for labels with given predictions. Classes without a sample are possible."""
    x = as_images("x", x)
    mean, std = mean_and_std(x)
    client, sites = (None, ()) if owner is None else owners_of(owner, "owner")
    return Arrays(x, y, x[:1], y[:1], K, mean, std, names=names, client=client, sites=sites, clean_known=False)


def judge_probabilities(p: np.ndarray, labels: np.ndarray, split: Partition) -> list[SiteLabels]:
    """Estimate label errors from predictions of models that have not seen the samples.

    Sites where the models do not agree with the labels by more than two standard deviations above chance are left out.

    Args:
        p: Probabilities [n, K].
        labels: Class numbers, int64 [n].
        split: Samples of each site.
    """
    log_p = np.log(np.maximum(p, 1e-40))
    agrees = log_p.argmax(1) == labels
    rows = {number: split.of(number) for number in range(split.clients)}
    rows = {number: of for number, of in rows.items() if beats_chance(int(agrees[of].sum()), len(of), log_p.shape[1])}
    if not rows:
        return []
    parts, given = [log_p[of] for of in rows.values()], [labels[of] for of in rows.values()]
    predicted = [{"predicted": part.argmax(1)} for part in parts]
    return estimate_held_out(parts, parts, given, list(rows.values()), list(rows), extra_columns=predicted)


def find_votes(votes: np.ndarray) -> np.ndarray:
    """Return a mask, bool [n, m], that is True where an annotator has voted."""
    return ~np.isin(votes.astype(str), NO_VOTE)


def take_majority(votes: np.ndarray) -> np.ndarray:
    """Return the label [n] with the most votes. Ties are broken at random, with the same result in every call.

    Args:
        votes: Class numbers or names [n, m].

    Raises:
        SpecError: A sample has no vote, or each row is one-hot.
    """
    if votes.shape[1] > 2 and np.isin(votes, (0, 1)).all() and (votes.sum(1) == 1).all() and votes.any(0).all():
        raise SpecError("y: its rows look one-hot, and would be read as votes of annotators; pass y.argmax(1)")
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
