"""Cross-fitting: folds, held-out predictions, and labels that somebody has corrected."""

import dataclasses

import numpy as np
import pytest
import torch
import toy

import fednoise_core as fn
from fednoise_core.engine.client import Client
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.world import World
from fednoise_core.label_errors.scope import find_near_copies, measure_distances, score_scope
from fednoise_core.methods.cross_fitted import CrossFitted, find_mislabelled
from fednoise_core.ops.discriminant import choose_ridge, fit_discriminant, sum_classes

TRAIN = {**toy.TRAIN, "fraction": 1.0, "rounds": 2}


def make_cross_fitted() -> CrossFitted:
    return CrossFitted(train=fn.Train(**TRAIN), skip=0)


def client_of(fed: Federation, number: int = 0) -> Client:
    return Client(fed.world, number, {}, None, 1)


def test_every_sample_has_a_fold_and_equal_images_share_one() -> None:
    fed = toy.toy_federation(train=TRAIN)
    rows, pool = fed.world.index[0], fed.world.pools["train"]
    images = pool._whole = pool._whole.clone()  # other tests read the same images
    images[rows[5:8]] = images[rows[2]].clone()
    folds = make_cross_fitted().find_folds(client_of(fed))
    assert set(folds.tolist()) == set(range(5))
    assert len(set(folds[[2, 5, 6, 7]].tolist())) == 1


def test_a_sample_of_two_clients_is_in_the_same_fold_at_both() -> None:
    """Otherwise the model that judges it at one client would have seen its label at the other."""
    labels, parts = toy.toy_labels(), [np.arange(0, 40), np.arange(20, 60)]
    world = World(toy.arrays(), labels.noisy, fn.Partition.from_parts(parts, {}), fn.Train(**TRAIN), 0)
    fed = Federation(world, Sequential(world))
    first, second = (make_cross_fitted().find_folds(client_of(fed, number)) for number in (0, 1))
    assert first[20:].tolist() == second[:20].tolist()
    assert set(first.tolist()) == set(range(5))


def test_a_model_never_trains_on_its_own_fold() -> None:
    method, client = make_cross_fitted(), client_of(toy.toy_federation(train=TRAIN))
    folds = method.find_folds(client)
    for fold in range(5):
        work = method.prepare_fit(client, {"fold": fold})
        assert work is not None
        assert work.samples is not None
        assert sorted(work.samples.tolist()) == torch.where(folds != fold)[0].tolist()


def test_predictions_are_means_over_the_models_that_have_not_seen_a_sample() -> None:
    fed = toy.toy_federation(train=TRAIN)
    method, client = make_cross_fitted(), client_of(fed)
    models = [fed.init_weights("model", fold) for fold in range(5)]
    for keep in (method.keep_predictions, method.keep_distances):  # two rounds
        for fold, model in enumerate(models):
            keep(client, {"model": model, "fold": fold})
    p = torch.stack([torch.softmax(client.predict(model).double(), -1) for model in models])
    folds, samples = method.find_folds(client), torch.arange(client.n)
    answer = method.predict_held_out(client, {})
    assert answer is not None
    torch.testing.assert_close(answer[0], p[folds, samples])
    seen = (p.sum(0) - p[folds, samples]) / 4
    torch.testing.assert_close(answer[1], (p[folds, samples] + seen) / 2)
    apart = [measure_distances(client.features(model), client.labels, toy.CLASSES)[:2] for model in models]
    mean, nearest = (torch.stack(part).mean(0) for part in zip(*apart, strict=True))
    torch.testing.assert_close(answer[2]["out_of_scope"], score_scope(mean, answer[1]))
    assert answer[2]["near_copy"].tolist() == find_near_copies(mean, nearest, client.net.features_size).tolist()


def test_corrected_labels_are_held_out_and_judged_as_they_are_now() -> None:
    data = toy.arrays()
    labels = data.y_train.copy()
    first = labels.copy()
    first[[0, 3]] = (labels[[0, 3]] + 1) % toy.CLASSES
    data = dataclasses.replace(data, first=first, clean_known=False)
    train = {**TRAIN, "rounds": 4, "lr": 0.1}
    done = fn.run(data, labels, toy.toy_partition(), CrossFitted, train, progress=False)
    assert torch.where(client_of(done.outcome.fed).corrected)[0].tolist() == [0, 3]
    assert torch.where(done.outcome.state.clients[0]["folds"] < 0)[0].tolist() == [0, 3]
    site = next(entry for entry in done.outcome.suspects if entry.site == 0)
    assert (site.proposed != labels[site.samples]).all()
    assert site.p_wrong[0] < 0.5


def test_models_from_sums_are_those_of_the_pooled_samples_of_other_folds() -> None:
    method = {"name": "cross_fitted", "fit": "sums"}
    data = toy.arrays()
    done = fn.run(data, data.y_train, toy.toy_partition(), method, {**TRAIN, "rounds": 1}, progress=False)
    fed, state = done.outcome.fed, done.outcome.state
    models = state.server["models"]
    clients = [client_of(fed, number) for number in fed.all]
    features = torch.cat([client.features(models[0]) for client in clients])
    labels = torch.cat([client.labels for client in clients])
    folds = torch.cat([state.clients[client.id]["folds"] for client in clients])
    parts = [sum_classes(features[folds == fold], labels[folds == fold], toy.CLASSES) for fold in range(5)]
    others = folds != 2
    weight, _ = fit_discriminant(sum_classes(features[others], labels[others], toy.CLASSES), choose_ridge(parts))
    torch.testing.assert_close(models[2]["head.weight"].double(), weight, rtol=1e-2, atol=1e-2)
    assert done.outcome.suspects


def points(seed: int, n: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(points around three centres, classes, labels of which a fifth is wrong, sites of three) [n]."""
    random = np.random.default_rng(seed)
    centres, classes, site = np.random.default_rng(99).normal(size=(3, 20)), *random.integers(0, 3, (2, n))
    x = (centres[classes] + spread * random.normal(size=(n, 20))).astype(np.float32)
    labels = np.where(random.random(n) < 0.2, (classes + random.integers(1, 3, n)) % 3, classes)
    return x, classes, labels, site


def test_a_class_that_one_site_labels_as_another_is_found_there() -> None:
    """The votes of the site's own samples would confirm these labels."""
    x, classes, labels, site = points(3, 900, 0.5)
    labels[(site == 0) & (classes == 2)] = 0
    suspects = fn.find_label_errors(x, labels, site, progress=False)
    table = suspects.set_index("sample").sort_index()
    assert (table["verdict"][(site == 0) & (classes == 2)] == "wrong").mean() > 0.8
    for row in suspects.attrs["sites"]:
        wrong = (labels != classes)[site == row["client"]].sum()
        assert abs(row["wrong"] - wrong) < 0.15 * wrong


@pytest.mark.parametrize(("share", "classes", "expected"), [(60, 1, 1), (40, 1, 0), (60, 3, 0), (90, 3, 3)])
def test_votes_are_ignored_for_classes_that_are_mostly_mislabelled(share: int, classes: int, expected: int) -> None:
    """If these are most classes, nearly all labels must differ, since the models may be wrong about the client."""
    predicted = torch.arange(4).repeat_interleave(100)
    labels = predicted.clone()
    for k in range(classes):
        labels[100 * k : 100 * k + share] = (k + 1) % 4
    assert find_mislabelled(predicted, labels, 4).tolist() == [k < expected for k in range(4)]


def test_intervals_hold_at_sites_of_a_few_hundred_samples() -> None:
    covered = []
    for seed in range(8):
        x, classes, labels, site = points(seed, 1500)
        for row in fn.find_label_errors(x, labels, site, progress=False).attrs["sites"]:
            wrong = (labels != classes)[site == row["client"]].sum()
            covered.append(row["wrong_low"] <= wrong <= row["wrong_high"])
    assert np.mean(covered) >= 0.9


def test_no_site_has_to_be_clean() -> None:
    """One site labels most of a class as another, and the two others have random errors."""
    covered, found = [], []
    for seed in (1, 2):
        random = np.random.default_rng(seed)
        centres, classes, site = random.normal(size=(4, 16)) * 1.5, *random.integers(0, 4, (2, 1200)) % [[4], [3]]
        x = (centres[classes] + random.normal(size=(1200, 16))).astype(np.float32)
        wrong = random.random(1200) < np.array([0.1, 0.4, 0.0])[site]
        labels = np.where(wrong, (classes + random.integers(1, 4, 1200)) % 4, classes)
        labels[(site == 2) & (classes == 2) & (random.random(1200) < 0.6)] = 3
        suspects = fn.find_label_errors(x, labels, site, progress=False)
        verdict = suspects.set_index("sample")["verdict"].sort_index()
        found.append((verdict == "wrong")[(site == 2) & (labels != classes)].mean())
        for row in suspects.attrs["sites"]:
            count = (labels != classes)[site == row["client"]].sum()
            covered.append(row["wrong_low"] <= count <= row["wrong_high"])
    assert all(covered)
    assert min(found) > 0.9
