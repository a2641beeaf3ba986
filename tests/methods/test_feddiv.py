"""FedDiv: its filter against scikit-learn, its choice of samples and its loss against second implementations."""

import numpy as np
import pytest
import torch
import toy
from scipy.special import softmax
from sklearn.mixture import GaussianMixture
from torch.nn import functional as F

from fednoise_core.engine.local import Batch
from fednoise_core.methods import make_method
from fednoise_core.methods.feddiv import fit_filter, merge_filters, posterior
from fednoise_core.ops.stats import beta_from_uniform
from fednoise_core.settings.train import Train

START = torch.tensor([[0.3, 0.7], [0.6, 0.2], [0.02, 0.05]], dtype=torch.float64)


def sklearn_mixture(start: torch.Tensor) -> GaussianMixture:
    weights, means, variances = start.numpy()
    options = {"weights_init": weights, "means_init": means[:, None], "precisions_init": 1 / variances[:, None, None]}
    return GaussianMixture(2, max_iter=1, warm_start=True, init_params="random", random_state=0, **options)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_filter_equals_three_warm_fits_of_scikit_learn():
    """The authors fit it one iteration at a time, from the broadcast filter."""
    draw = np.random.default_rng(0)
    x = np.concatenate([draw.beta(1, 9, 60), draw.beta(6, 3, 30)])
    theirs = sklearn_mixture(START)
    for _ in range(3):
        theirs.fit(x[:, None])
    ours = fit_filter(torch.from_numpy(x), START)
    expected = np.stack([theirs.weights_, theirs.means_[:, 0], theirs.covariances_[:, 0, 0]])
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-9)
    order = theirs.means_[:, 0].argsort()
    np.testing.assert_allclose(
        posterior(torch.from_numpy(x), ours).numpy(), theirs.predict_proba(x[:, None])[:, order], rtol=1e-6
    )


def test_merging_by_loops():
    filters = torch.rand(4, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes = [5, 0, 3, 2]
    expected = np.zeros((3, 2))
    for k, size in enumerate(sizes):
        for row, power in ((0, 1), (1, 1), (2, 2)):
            for component in (0, 1):
                expected[row, component] += filters[k, row, component] * (size / 10) ** power
    np.testing.assert_allclose(merge_filters(filters, torch.tensor(sizes).double() / 10).numpy(), expected)


def choose_by_sets(p, loss, y, unbiased, mixture, visits, confidence):
    """The samples to train on and the labels, by the authors' rules with sets. None: all samples with given labels."""
    scaled = (loss - loss.min()) / (loss.max() - loss.min())
    weights, means, variances = mixture.numpy()
    densities = [
        weights[k] * np.exp(-((scaled - means[k]) ** 2) / 2 / variances[k]) / np.sqrt(variances[k]) for k in (0, 1)
    ]
    clean_share = densities[int(means.argmin())] / sum(densities)
    clean = {i for i in range(len(y)) if clean_share[i] > 0.5}
    noisy = set(range(len(y))) - clean
    level = len(noisy) / len(y)
    if level <= 0.1:
        return None
    agrees = {i for i in range(len(y)) if p[i].argmax() == unbiased[i]}
    relabelled = {i for i in noisy & agrees if p[i].max() > confidence}
    chosen = clean
    if visits >= 5:
        chosen = (clean & agrees) | (relabelled if level > 0.2 else set())
    return sorted(chosen), [int(p[i].argmax()) if i in relabelled else int(y[i]) for i in range(len(y))]


@pytest.mark.parametrize("visits", [0, 4, 5, 9])
@pytest.mark.parametrize("confidence", [0.0, 0.3])
def test_the_choice_of_samples(visits, confidence):
    fed, method, state = toy.started("feddiv", {"confidence": confidence, "warmup": 1})
    state.round = 2
    state.server["model"].flat.mul_(3)
    state.server["filter"] = torch.tensor([[0.5, 0.5], [0.1, 0.6], [0.05, 0.05]], dtype=torch.float64)
    cases = 0
    for c in (0, 3, 5, 6):
        x, y = toy.images_of(fed.world, c)
        z = fed.net().predict(state.server["model"], x)
        unbiased = torch.where(torch.arange(len(y)) % 3 == 0, (z.argmax(1) + 1) % 5, z.argmax(1))
        state.clients[c] = {"visits": visits, "unbiased": unbiased}
        loss = F.cross_entropy(z, y, reduction="none").double().numpy()
        p = softmax(z.numpy(), 1)
        expected = choose_by_sets(p, loss, y, unbiased, state.server["filter"], visits, confidence)

        def choose(client, broadcast):
            work = method.prepare_fit(client, broadcast)
            return {} if work is None else {"samples": work.samples, "targets": work.targets}

        (choice,) = fed.run_on_clients(state, [c], choose, method.make_broadcast(fed, state))
        if expected is None:
            assert not choice
            continue
        cases += 1
        assert choice["samples"].tolist() == expected[0]
        assert choice["targets"].tolist() == expected[1]
        assert state.clients[c]["visits"] == visits + 1
    assert cases > 1


def test_a_client_stores_its_bias_and_sends_its_filter():
    """Two rounds of client 0 alone. Only confident predictions change its bias."""
    fed, method, state = toy.started("feddiv", {"warmup": 1, "bias_confidence": 0.4}, train={"lr": 0.5})
    bias = np.full(5, 0.2)
    mixture = state.server["filter"]
    for state.round in (2, 3):
        _, (update,) = fed.fit(method, state, [0], method.make_broadcast(fed, state))
        x, y = toy.images_of(fed.world, 0)
        z = fed.net().predict(update["model"], x)
        unbiased = softmax(z.numpy() - 0.2 * np.log(bias), 1)
        assert state.clients[0]["unbiased"].tolist() == unbiased.argmax(1).tolist()
        confident = unbiased.max(1) > 0.4
        assert confident.any()
        bias = 0.5 * bias + 0.5 * softmax(z.numpy(), 1)[confident].mean(0)
        np.testing.assert_allclose(state.clients[0]["bias"].numpy(), bias, rtol=1e-4)
        loss = F.cross_entropy(z, y, reduction="none").double()
        scaled = (loss - loss.min()) / (loss.max() - loss.min())
        torch.testing.assert_close(update["filter"], fit_filter(scaled, mixture))


def test_the_loss_by_hand():
    net = toy.toy_net(toy.linear_body)
    draw = torch.Generator().manual_seed(2)
    w = net.fresh(draw)
    x, y, u = torch.rand(7, 1, 8, 8, generator=draw), torch.arange(7) % 5, torch.rand(7, 2, generator=draw)
    method = make_method({"name": "feddiv", "prior_weight": 0.3, "alpha": 2.0}, Train())
    loss = method.compute_objective(net, w, Batch([x], y, torch.arange(7), u, torch.zeros(7, 0), {}), {"filter": 0}, {})
    share, order = float(beta_from_uniform(u[:1, 0], 2.0)), sorted(range(7), key=lambda k: float(u[k, 1]))
    logits = x.flatten(1) @ w["head.weight"].T + w["head.bias"]
    mixed = share * logits + (1 - share) * logits[order]
    total = share * F.cross_entropy(mixed, y) + (1 - share) * F.cross_entropy(mixed, y[order])
    total += 0.3 * sum(0.2 * torch.log(0.2 / q) for q in mixed.softmax(1).mean(0))
    assert loss.item() == pytest.approx(float(total), rel=1e-5)


def test_the_server_stores_the_last_filter_of_every_client():
    state = toy.play("feddiv").outcome.state
    fed = toy.toy_federation()
    sampled = set(fed.sample_cohort(2)) | set(fed.sample_cohort(3))
    with_filter = [c for c in range(8) if float(state.server["filters"][c, 0].sum()) > 0]
    assert set(with_filter) == sampled
    shares = torch.tensor([fed.sizes[c] if c in sampled else 0 for c in range(8)]).double()
    torch.testing.assert_close(
        state.server["filter"], merge_filters(state.server["filters"], shares / shares.sum()), check_device=False
    )
