"""Estimate the label errors of each site at the end of a run.

`estimate_label_errors` uses the headline model's predictions at each site, and the method's own scores if it has any.
`estimate_held_out` uses predictions of models that have not seen the sample.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fednoise_core.engine.evaluate import EvaluatedModels, iterate_models
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import SERVER
from fednoise_core.label_errors.estimate import (
    MethodScores,
    SiteLabels,
    beats_chance,
    estimate_held_out,
    estimate_label_errors,
)
from fednoise_core.ops.weights import Weights

Answer = tuple[Any, Any] | None  # of `suspect_labels`


def judge_sites(
    fed: Federation, views: EvaluatedModels, clients: Mapping[int, Mapping[str, Any]], answers: Mapping[int, Answer]
) -> list[SiteLabels]:
    """Estimate the label errors of every site, including its validation split.

    If the headline view is personal, a site with its own model uses this model. Otherwise the first view with models of
    the server is used. Sites without samples are left out. Sites are also left out if the predictions are not finite,
    or agree with the given labels no more often than chance.

    Args:
        fed: The federation.
        views: Views of the finished run, the headline first.
        clients: Client states.
        answers: client -> P(wrong) [n] and proposed labels [n] of its training samples, or None.

    Returns:
        The estimates, in order of sites.
    """
    world, rows, log_p, labels, sites = fed.world, [], [], [], []
    opinions: dict[int, MethodScores] = {}
    for parts in _predict_parts(fed, views, clients):
        if not _agrees_beyond_chance(parts, world.labels, fed.classes):
            continue
        for client, samples, predicted in parts:
            for site, positions in world.split_by_site(client):
                log_p.append(predicted[positions].cpu().numpy())
                rows.append(samples[positions].cpu().numpy())
                labels.append(world.labels[samples[positions]].cpu().numpy())
                sites.append(site)
                opinion = _make_opinion(answers.get(client), fed.sizes[client], positions)
                if opinion is not None:
                    opinions[site] = opinion
    judged = estimate_label_errors(log_p, labels, rows, sites, opinions)
    return sorted(judged, key=lambda site_labels: site_labels.site)


def judge_held_out(fed: Federation, answers: Mapping[int, Any]) -> list[SiteLabels]:
    """Estimate the label errors of every site from models that have not seen the samples.

    Sites are left out if the predictions are not finite, or agree with the given labels no more often than chance.

    Args:
        fed: The federation.
        answers: client -> result of `predict_held_out` for its training and validation samples, or None.

    Returns:
        The estimates, in order of sites.
    """
    world, parts_by_site = fed.world, list[tuple[Any, ...]]()
    for client, answer in answers.items():
        if answer is None:
            continue
        rows, held_p = _list_rows(fed, client), answer[0].log().clamp_min(-100.0)
        mixed = held_p if answer[1] is answer[0] else answer[1].log().clamp_min(-100.0)
        if _agrees_beyond_chance([(client, rows, held_p)], world.first, fed.classes):
            for site, positions in world.split_by_site(client):
                unseen = held_p[positions].cpu().numpy()  # not copied twice, as it is large with many classes
                by_all = unseen if mixed is held_p else mixed[positions].cpu().numpy()
                parts = (world.first[rows[positions]], world.labels[rows[positions]], rows[positions])
                columns = {name: values[positions].cpu().numpy() for name, values in answer[2].items()}
                confidence = columns.pop("confidence", unseen.max(1))
                parts_by_site.append(
                    (site, unseen, by_all, *(part.cpu().numpy() for part in parts), columns, confidence)
                )
    if not parts_by_site:
        return []
    sites, held_out, mixtures, labels, now, samples, columns_by_site, confidence_by_site = zip(
        *sorted(parts_by_site, key=itemgetter(0)), strict=True
    )
    return estimate_held_out(held_out, mixtures, labels, samples, sites, now, columns_by_site, confidence_by_site)


# (client, rows of the data set [n], log-probabilities [n, K])
Part = tuple[int, Tensor, Tensor]


def _predict_parts(
    fed: Federation, views: EvaluatedModels, clients: Mapping[int, Mapping[str, Any]]
) -> Iterator[list[Part]]:
    """Yield predictions: one list per personal model, and one list for all clients that use the server's models."""
    headline = next(iter(views.values()))
    personal = {
        client: [member for member in headline if member[0] == client] for client, _ in headline if client != SERVER
    }
    for client, members in sorted(personal.items()):
        if len(_list_rows(fed, client)):
            yield [_predict_part(fed, client, list(iterate_models(members, clients)))]
    others = [client for client in range(fed.n) if client not in personal and len(_list_rows(fed, client))]
    ofserver = next((members for members in views.values() if members[0][0] == SERVER), None)
    if others and ofserver is not None:
        models = list(iterate_models(ofserver, clients))
        yield [_predict_part(fed, client, models) for client in others]


def _list_rows(fed: Federation, client: int) -> Tensor:
    """List the rows of the client's training samples, then of its validation samples."""
    return torch.cat([fed.world.index[client], fed.world.valid[client]])


def _predict_part(fed: Federation, client: int, members: list[tuple[int, list[Weights]]]) -> Part:
    """Compute the log of the members' mean probabilities. If a member has several models, their logits are summed."""
    world, rows = fed.world, _list_rows(fed, client)
    each = []
    for member, models in members:
        parts = [world.evaluate(fed.net(member), w, world.pool("train"), rows) for w in models]
        each.append(torch.log_softmax(torch.stack(parts).sum(0).double(), -1))
    mean = torch.logsumexp(torch.stack(each), 0) - float(np.log(len(each)))
    return client, rows, mean.clamp_min(-100.0)


def _agrees_beyond_chance(parts: Sequence[Part], all_labels: Tensor, classes: int) -> bool:
    """Return True if predictions are finite and agree with the given labels beyond chance."""
    logs = torch.cat([predicted for _, _, predicted in parts])
    if not bool(torch.isfinite(logs).all()):
        return False
    labels = torch.cat([all_labels[rows] for _, rows, _ in parts])
    return beats_chance(int((logs.argmax(1) == labels).sum()), len(labels), classes)


def _make_opinion(answer: Answer, n: int, rows: Tensor) -> MethodScores | None:
    """Select the method's scores for the positions `rows`. Only training samples (positions below n) have scores."""
    if answer is None:
        return None
    score, proposed = (torch.as_tensor(part).cpu().numpy() for part in answer)
    if not np.isfinite(score).all():
        return None
    position = rows.cpu().numpy()
    which = position < n
    return MethodScores(which, score[position[which]].astype(np.float64), proposed[position[which]].astype(np.int64))
