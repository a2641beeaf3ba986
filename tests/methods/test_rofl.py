"""RoFL, against a second implementation with modules, torch.optim and plain sums in float64."""

import pytest
import torch
import toy
import toy64
from torch import nn
from torch.nn import functional as F

from fednoise_core.methods.rofl import merge_centroids, move_centroids
from fednoise_core.settings.train import resolve_warmup


def cos(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b) / max(float(a.norm() * b.norm()), 1e-8)


# centroids


def test_a_class_that_is_absent_from_the_batch_leaves_its_centroid_unchanged():
    """Client 4 holds class 2 only: after its epochs the other rows are bit for bit those that came down."""
    fed, method, state = toy.started("rofl", {"forget_rate": 0.0})
    state.round = 1
    state.server["centroids"] = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)) + 0.1
    before = state.server["centroids"].clone()
    _, (update,) = fed.fit(method, state, [4], method.make_broadcast(fed, state))
    others = [0, 1, 3, 4]
    assert torch.equal(update["centroids"][others], before[others])
    assert (update["centroids"][2] - before[2]).abs().max() > 1e-3


def test_the_move_of_a_centroid():
    """f <- (1 - s²) f + s² seen, s their cosine, by hand: f = (1, 0), seen = (3, 4), s = .6; opposite: s² = 1."""
    f = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 1.0]])
    seen = torch.tensor([[3.0, 4.0], [-2.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    expected = torch.tensor([[0.64 + 0.36 * 3, 0.36 * 4], [-2.0, 0.0], [0.0, 0.0], [2.0, 1.0]])
    torch.testing.assert_close(move_centroids(f, seen), expected)


def test_identical_client_centroids_are_the_global_ones():
    """sum_k s f / sum_k s = f, whatever the reference, also where s is clamped to 0 or the reference is new."""
    draw = torch.Generator().manual_seed(0)
    old, centroids = torch.randn(5, 6, generator=draw), torch.randn(5, 6, generator=draw)
    old[1], centroids[1] = 0.0, centroids[2]  # new
    old[3] = -centroids[3]  # opposite
    centroids[4] = 0.0  # no client has it: the old one stays
    torch.testing.assert_close(merge_centroids(old, torch.stack([centroids] * 4)), torch.cat([centroids[:4], old[4:]]))


def test_merging_by_hand():
    """Class by class: similar ones count by their cosine, opposite ones not at all; a class new to the server gets the
    mean of those who have it; if all are opposite, the same; a class that is nowhere keeps its centroid.
    """
    old = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [5.0, 7.0]])
    messages = torch.tensor(
        [
            [[3.0, 4.0], [2.0, 2.0], [-1.0, 0.0], [0.0, 0.0]],
            [[4.0, 3.0], [0.0, 0.0], [-3.0, 0.0], [0.0, 0.0]],
            [[-9.0, 0.0], [4.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
        ]
    )
    first = (0.6 * torch.tensor([3.0, 4.0]) + 0.8 * torch.tensor([4.0, 3.0])) / 1.4
    expected = torch.stack([first, torch.tensor([3.0, 1.0]), torch.tensor([-2.0, 0.0]), torch.tensor([5.0, 7.0])])
    torch.testing.assert_close(merge_centroids(old, messages), expected)


def test_warm_up_and_ramp_are_a_tenth_of_the_rounds_rounded_up():
    assert [resolve_warmup(41, length) for length in (0, 0.5, 7)] == [5, 21, 7]


# the step, against a second implementation


def features(module: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    return module[2](module[1](module[0](x)))


def naive_client(theta, f, batches, x_all, y_all, *, tau, pull, replaced, total):
    """One client's round: sums over samples and classes. Returns model and centroids."""
    base, module = toy64.module_of(theta), toy64.module_of(theta)
    f = f.clone()
    with torch.no_grad():
        h = features(base, x_all)
        for k in range(5):
            if not f[k].any() and (y_all == k).any():
                f[k] = h[y_all == k].mean(0)
    optimiser = torch.optim.SGD(module.parameters(), 0.05)
    for x, y in batches:
        h = features(module, x)
        z = module[3](h)
        selected = F.cross_entropy(z, y, reduction="none").argsort(stable=True)
        selected = selected[: max(1, int((1 - tau) * len(y) + 1e-9))].tolist()
        guess = base(x).argmax(1)
        loss, pulls = torch.zeros(()), torch.zeros(())
        for n in selected:
            agrees = max(range(5), key=lambda k, n=n: cos(f[k], h[n].detach())) == int(y[n])
            target = y[n] if agrees or not replaced else guess[n]
            p = torch.softmax(z[n], 0)
            loss = loss - torch.log(p[target]) / len(selected) - 0.8 * (p * p.log()).sum() / len(selected)
            if agrees:
                pulls = pulls + (h[n] - f[y[n]]).square().sum()
        loss = loss + pull * (pulls if total else pulls / len(selected))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for k in range(5):
                members = [n for n in selected if int(y[n]) == k]
                if members:
                    mean = sum(h[n] for n in members) / len(members)
                    s = cos(f[k], mean)
                    f[k] = (1 - s * s) * f[k] + s * s * mean
    return toy64.vector(module), f


def naive_merge(old, messages):
    new = old.clone()
    for k in range(5):
        s = [max(0.0, cos(old[k], f[k])) for f in messages]
        if sum(s) < 1e-6:
            s = [float(f[k].any()) for f in messages]
        if sum(s):
            new[k] = sum(a * f[k] for a, f in zip(s, messages, strict=True)) / sum(s)
    return new


@pytest.mark.parametrize(
    "fields",
    [
        {"forget_rate": 0.4, "ramp": 1, "label_rounds": 2},
        {"forget_rate": 0.25, "ramp": 2, "label_rounds": 1, "reduction": "sum", "centroid": 0.02},
    ],
)
def test_whole_rounds_against_a_second_implementation(fields):
    """Four rounds in float64 of two epochs of up to four batches. The entropy's log softmax is in float32: 1e-6."""
    with toy64.doubled():
        fed, state, seen, theta = toy64.rounds("rofl", fields, 4, lr=0.05)
        f = torch.zeros(5, 6)
        for round in (1, 2, 3, 4):
            t, models, messages = round - 1, {}, []
            for c in toy64.cohort(seen, round):
                x, y = toy.images_of(fed.world, c)
                models[c], centroids = naive_client(
                    theta,
                    f,
                    seen[round, c],
                    x.double(),
                    y,
                    tau=fields["forget_rate"] * min(t / fields["ramp"], 1),
                    pull=fields.get("centroid", 1.0) * min(1, t / fields["label_rounds"]),
                    replaced=t >= fields["label_rounds"],
                    total=fields.get("reduction") == "sum",
                )
                messages.append(centroids)
            theta, f = toy64.mean(models), naive_merge(f, messages)
        torch.testing.assert_close(state.server["model"].flat, theta, rtol=0, atol=1e-6)
        torch.testing.assert_close(state.server["centroids"], f, rtol=0, atol=1e-6)
        assert (f.norm(dim=1) > 0).all()


def test_suspects_are_the_forgotten_share():
    fed, method, state = toy.started("rofl", {"forget_rate": 0.25})
    ((p, proposed),) = fed.run_on_clients(
        state, [3], method.suspect_labels, method.make_broadcast(fed, state)
    )  # 12 samples
    assert int((p > 0.5).sum()) == 3
    x, y = toy.images_of(fed.world, 3)
    z = fed.net().predict(state.server["model"], x)
    assert set(p.argsort()[-3:].tolist()) == set(F.cross_entropy(z, y, reduction="none").argsort()[-3:].tolist())
    assert torch.equal(proposed, z.argmax(1))
