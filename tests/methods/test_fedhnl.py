"""FedHNL: its switches, both sizes of federation, and a second implementation."""

from collections import OrderedDict
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import toy
import toy64
from torch import Tensor, nn
from torch.nn import functional as F

from fednoise_core.data.partition import Partition
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Work
from fednoise_core.methods import make_method, mutual
from fednoise_core.methods.local import LocalOnly
from fednoise_core.methods.mutual import FedHNL
from fednoise_core.ops import losses
from fednoise_core.settings.declare import build_settings
from fednoise_core.settings.train import Train

OFF = {"hma": False, "cl": False, "cws": False}


def same(a: Any, b: Any) -> bool:
    """True if all clients ended with the same models."""
    return toy.same_state(*({c: state["model"] for c, state in run.outcome.state.clients.items()} for run in (a, b)))


# the switches


def test_all_off_is_local_only_bit_for_bit():
    run, alone = toy.play("fedhnl", method=OFF), toy.play("local")
    assert same(run, alone)
    assert run.summary["accuracy"] == alone.summary["accuracy"]


class LocalSCE(LocalOnly):
    def compute_loss(self, logits, y):
        return losses.sce(logits, y, 0.1, 1.0)


def test_cl_alone_is_local_training_with_symmetric_cross_entropy_bit_for_bit():
    train = Train(**{**toy.TRAIN, "net": toy.PAIR})
    method = make_method({"name": "fedhnl", **OFF, "cl": True, "pretrain": 2}, train)
    a, b = (toy.run_method(m) for m in (method, build_settings(LocalSCE, {"pretrain": 2}, "method", train=train)))
    assert toy.same_state(dict(a.state.clients), {c: {"model": state["model"]} for c, state in b.state.clients.items()})


@pytest.mark.parametrize(("hma", "cl", "cws"), list(product([False, True], repeat=3)))
@pytest.mark.parametrize("target", ["kl", "cl"])
def test_the_grid_of_switches_runs_and_sends_what_it_needs(hma, cl, cws, target):
    run = toy.play("fedhnl", method={"hma": hma, "cl": cl, "cws": cws, "cws_target": target})
    weighs = cws and (hma or target == "cl")
    outputs = 4 * 10 * 5 * 4 if hma else 0  # 4 clients, 10 images, 5 numbers
    assert run.summary["bytes_up"] == 3 * (outputs + (4 * 8 if weighs else 0))
    assert run.summary["bytes_down"] == 3 * (outputs + (4 * 8 if cws and target == "cl" else 0))
    digest = 3 * 4 * 10 if hma else 0
    assert run.summary["work"] == pytest.approx(
        (2 * 72 + toy.count_passes((2, 3, 4)) + digest) / toy.A_ROUND, rel=1e-12
    )


def test_each_switch_changes_the_numbers():
    on = toy.play("fedhnl")
    for off in ({"hma": False}, {"cl": False}, {"cws": False}, {"cws_target": "cl"}, {"kl": "reverse"}):
        assert not same(on, toy.play("fedhnl", method=off)), off


def test_with_all_on_it_is_rhfl_bit_for_bit():
    plain = {"denominator": "signed", "normalise": "softmax", "confidence_ce": None, "confidence_rce": None}
    rhfl = toy.play("rhfl", method={**plain, "kl": "forward", "public": 0, "fresh_optimizer_per_batch": False})
    assert same(toy.play("fedhnl"), rhfl)


@pytest.mark.parametrize(("fields", "later"), [({"eta": 0.0}, 1 / 4), ({"cws": False}, 1 / 3)])
def test_without_eta_or_weighing_weights_are_equal(fields, later, monkeypatch):
    used, work = [], mutual.mix_messages
    monkeypatch.setattr(
        mutual, "mix_messages", lambda messages, weights, kl: used.extend(weights) or work(messages, weights, kl)
    )
    toy.play("fedhnl", method={**fields, "public_batch": 10})
    assert used == pytest.approx([1 / 3] * 4 + [later] * 8)


# both sizes of federation


FOUR = [{"name": "mlp", "hidden": 6}, {"name": "small_cnn", "width": 2, "hidden": 6}, "toy_norm", "toy_drop"]


def test_four_clients_of_four_architectures(toy_nets):
    """As in Liu et al. (2024): all take part in every round, and each client's accuracy is reported beside the mean."""
    run = toy.play("fedhnl", split=toy.toy_partition((20, 18, 20, 18)), fraction=1.0, net=FOUR)
    fed, state = run.outcome.fed, run.outcome.state
    assert [state.clients[c]["model"].layout for c in range(4)] == [fed.net(c).layout for c in range(4)]
    assert len({fed.net(c).layout for c in range(4)}) == 4
    assert list(run.summary["views"]) == ["personal"]
    last = {r[4]: r[6] for r in run.outcome.record.metrics if (r[0], r[3], r[5]) == (4, "personal", "accuracy")}
    assert last.keys() == {-1, 0, 1, 2, 3}
    assert last[-1] == pytest.approx(sum(last[c] for c in range(4)) / 4)


def test_ten_of_a_hundred_clients():
    """As Di et al. (2024) has RHFL: tiny clients that overlap, of two architectures."""
    draw = np.random.default_rng(0)
    parts = [np.sort(draw.choice(toy.N, 6, replace=False)) for _ in range(100)]
    spec = {"artifact": "partition", "partition": {"kind": "toy"}, "notes": {"samples": toy.N}}
    split = Partition.from_parts(parts, spec)
    run = toy.play("fedhnl", method={"pretrain": 1}, split=split, fraction=0.1)
    fed, record = run.outcome.fed, run.outcome.record
    value = {(r[0], r[3], r[4]): r[6] for r in record.metrics if r[5] == "accuracy"}
    for view, members in (("personal", range(100)), ("participants", fed.sample_cohort(4))):
        assert value[4, view, -1] == pytest.approx(sum(value[4, view, c] for c in members) / len(members))
        assert {key[2] for key in value if key[:2] == (4, view)} == {-1, *members}
    rows = {(r[0], r[5]): r[6] for r in record.metrics if r[3] == ""}
    assert [rows[r, "clients"] for r in (1, 2, 3, 4)] == [100, 10, 10, 10]
    with_loss = [c for c, loss in enumerate(run.summary["notes"]["losses"]) if loss is not None]
    assert with_loss == sorted({*fed.sample_cohort(2), *fed.sample_cohort(3), *fed.sample_cohort(4)})


# a second implementation


def with_norm(ops: Any, x: Tensor) -> Tensor:
    return torch.relu(ops.norm("norm", ops.conv("conv", x.double(), 3, 3, stride=2))).flatten(1)


def modules() -> list[nn.Module]:
    """The nets of four clients as torch modules, their parameters named as the library's."""
    return [
        nn.Sequential(OrderedDict(flat=nn.Flatten(), hidden=nn.Linear(64, 6), act=nn.ReLU(), head=nn.Linear(6, 5)))
        if c % 2 == 0
        else nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(1, 3, 3, stride=2),
                norm=nn.BatchNorm2d(3),
                act=nn.ReLU(),
                flat=nn.Flatten(),
                head=nn.Linear(27, 5),
            )
        )
        for c in range(4)
    ]


def combinational(z: Tensor, y: Tensor, lam: float = 0.1) -> Tensor:
    """Equations 4 to 6 as means: p one-hot with zeros taken as 1e-4, q the prediction."""
    q = torch.softmax(z, 1)
    p = torch.zeros_like(q).scatter_(1, y[:, None], 1.0)
    ce = -(p * q.log()).sum(1)
    rce = -(q * torch.where(p > 0, p, 1e-4).log()).sum(1)
    return (lam * ce + rce).mean()


def divergence(a: Tensor, b: Tensor) -> Tensor:
    """Equation 1, the mean over images."""
    return (a * (a / b).log()).sum(1).mean()


def weigh(before: list[float] | None, now: list[float]) -> list[float]:
    """Equations 8 to 12; 1/(K-1) in the first round, which has no drop."""
    if before is None:
        return [1 / 3] * 4
    quality, progress = 1 / np.array(now), np.array(before) - np.array(now)
    w = 1 / 3 + 0.5 * quality * progress / (quality * progress).sum()
    return (np.exp(w) / np.exp(w).sum()).tolist()


def descend(adam: torch.optim.Adam, loss: Tensor) -> None:
    adam.zero_grad()
    loss.backward()
    adam.step()


def align(nets: list[nn.Module], batches: list[Tensor], weights: list[float], kl: str) -> None:
    """Equations 2, 3 and 13's reading: every client on one batch after the other, from outputs of before it."""
    adams = [torch.optim.Adam(net.train().parameters(), 0.01) for net in nets]
    for x in batches:
        outputs = [torch.softmax(net(x), 1) for net in nets]
        fixed = [p.detach() for p in outputs]
        for k, adam in enumerate(adams):
            pairs = {i: (fixed[i], outputs[k]) if kl == "forward" else (outputs[k], fixed[i]) for i in range(4)}
            descend(adam, sum(weights[i] * divergence(*pair) for i, pair in pairs.items() if i != k))


@pytest.mark.parametrize(
    ("kl", "target", "first"),
    [("forward", "kl", "own"), ("reverse", "kl", "own"), ("forward", "cl", "own"), ("forward", "kl", "ce")],
)
def test_whole_rounds_against_a_second_implementation(kl, target, first, monkeypatch):
    """All weights and all numbers of four models, of two architectures, after pre-training and three rounds on Adam.
    Public images are never augmented.
    """
    private: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
    public: dict[tuple[int, int], list[Tensor]] = {}
    weights = []

    class Own(FedHNL):
        def prepare_fit(self, client, broadcast):
            return Work(facts={"me": client.id, "round": client.round})

        def compute_objective(self, net, w, batch, broadcast, client_state):
            private.setdefault((client_state["round"], client_state["me"]), []).append(
                (batch.x.double(), batch.y.clone())
            )
            return super().compute_objective(net, w, batch, broadcast, client_state)

        def _weigh_clients(self, fed, state, clients, alike):
            shares = super()._weigh_clients(fed, state, clients, alike)
            weights.append([shares[clients.index(c)] for c in range(4)])
            return shares

    class Public(mutual.Align):
        prepare_fit = Own.prepare_fit

        def compute_objective(self, net, w, batch, broadcast, client_state):
            public.setdefault((client_state["round"], client_state["me"]), []).append(batch.x.double())
            return super().compute_objective(net, w, batch, broadcast, client_state)

    monkeypatch.setattr(mutual, "Align", Public)
    monkeypatch.setattr(losses, "log_probs", lambda z: torch.log_softmax(z, -1))  # the library's are of float32
    monkeypatch.setattr(losses, "ce", lambda z, y: F.cross_entropy(z, y, reduction="none"))
    train = {"fraction": 1.0, "optimiser": "adam", "lr": 0.01, "augment": "flip"}
    with toy64.doubled():
        world = toy.toy_world(train, split=toy.toy_partition((17, 14, 20, 12)))
        world.nets = [toy.toy_net(toy64.perceptron), toy.toy_net(with_norm)]
        fed = Federation(world, Sequential(world))
        fields = {"pretrain": 2, "public_batch": 4, "kl": kl, "cws_target": target, "pretrain_loss": first}
        method = build_settings(Own, fields, "method", train=fed.train)
        state, nets, before = method.init_state(fed), modules(), None
        for c, net in enumerate(nets):
            net.load_state_dict(state.clients[c]["model"].named(), strict=False)
        for state.round, play in enumerate((method.run_pretraining, *[method.run_round] * 3), 1):
            play(fed, state)
        for round in (1, 2, 3, 4):
            if round > 1:
                data = [toy.images_of(world, c) for c in range(4)]
                with torch.no_grad():
                    now = [
                        combinational(net.eval()(x.double()), y).item() for net, (x, y) in zip(nets, data, strict=True)
                    ]
                w, before = weigh(before, now), now
                np.testing.assert_allclose(weights[round - 2], w, rtol=0, atol=1e-6)
                align(nets, public[round, 0], w if target == "kl" else [1 / 3] * 4, kl)
            for c, net in enumerate(nets):
                adam = torch.optim.Adam(net.train().parameters(), 0.01)
                for x, y in private[round, c]:
                    loss = F.cross_entropy(net(x), y) if (round, first) == (1, "ce") else combinational(net(x), y)
                    descend(adam, loss * (w[c] if target == "cl" and round > 1 else 1.0))
        for c, net in enumerate(nets):
            for name, value in state.clients[c]["model"].named().items():
                torch.testing.assert_close(value, net.state_dict()[name], rtol=0, atol=1e-6)
    assert np.ptp(weights[1]) > 1e-3
    images = {tuple(image) for image in toy.public_images().double().flatten(1).tolist()}
    for batches in public.values():
        assert [len(x) for x in batches] == [4, 4, 2]
        assert {tuple(image) for x in batches for image in x.flatten(1).tolist()} == images
