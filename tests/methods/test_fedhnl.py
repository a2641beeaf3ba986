"""FedHNL: its switches, both sizes of federation, and a second implementation (methods.md 5.24)."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import toy
import toy64
from torch import Tensor, nn
from torch.nn import functional as F

from fednoise_core import losses
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.engine.federation import Federation
from fednoise_core.engine.local import Work
from fednoise_core.methods import make, mutual
from fednoise_core.methods.fedhnl import FedHNL
from fednoise_core.methods.local import LocalOnly
from fednoise_core.partition.artifact import Partition
from fednoise_core.settings import parse
from fednoise_core.spec import Train

OFF = {"hma": False, "cl": False, "cws": False}


def models(made: Any) -> dict[int, Tensor]:
    return {c: kept["model"].flat for c, kept in made.outcome.state.clients.items()}


def same(a: Any, b: Any) -> bool:
    return models(a).keys() == models(b).keys() and all(torch.equal(models(a)[c], models(b)[c]) for c in models(a))


# the switches


def test_all_off_is_local_only_bit_for_bit():
    made, alone = toy.play("fedhnl", method=OFF), toy.play("local")
    assert same(made, alone)
    assert made.summary["accuracy"] == alone.summary["accuracy"]
    assert made.summary["bytes_up"] == made.summary["bytes_down"] == 0


class LocalSCE(LocalOnly):
    def loss(self, logits, y):
        return losses.sce(logits, y, 0.1, 1.0)


def test_cl_alone_is_local_training_with_symmetric_cross_entropy_bit_for_bit():
    train = Train(**{**toy.TRAIN, "net": toy.PAIR})
    method = make({"name": "fedhnl", **OFF, "cl": True, "pretrain": 2}, train)
    a, b = (toy.finished(m) for m in (method, parse(LocalSCE, {"pretrain": 2}, "method", train=train)))
    for c in a.state.clients:
        assert torch.equal(a.state.clients[c]["model"].flat, b.state.clients[c]["model"].flat)


@pytest.mark.parametrize(("hma", "cl", "cws"), list(product([False, True], repeat=3)))
@pytest.mark.parametrize("target", ["kl", "cl"])
def test_the_grid_of_switches_runs_and_sends_what_it_needs(hma, cl, cws, target):
    made = toy.play("fedhnl", method={"hma": hma, "cl": cl, "cws": cws, "cws_target": target})
    weighs = cws and (hma or target == "cl")
    outputs = 4 * 10 * 5 * 4 if hma else 0  # 4 clients, 10 images, 5 numbers
    assert made.summary["bytes_up"] == 3 * (outputs + (4 * 8 if weighs else 0))
    assert made.summary["bytes_down"] == 3 * (outputs + (4 * 8 if cws and target == "cl" else 0))
    digest = 3 * 4 * 10 if hma else 0
    assert made.summary["work"] == pytest.approx((2 * 72 + toy.passes((2, 3, 4)) + digest) / toy.A_ROUND, rel=1e-12)


def test_each_switch_changes_the_numbers():
    on = toy.play("fedhnl")
    for off in ({"hma": False}, {"cl": False}, {"cws": False}, {"cws_target": "cl"}, {"kl": "reverse"}):
        assert not same(on, toy.play("fedhnl", method=off)), off


def test_weights_without_anything_to_weigh_do_nothing():
    """Alignment off, weights on what is learnt from others: nobody is asked for a loss."""
    a, b = (toy.play("fedhnl", method={"hma": False, "cws": cws}) for cws in (True, False))
    assert same(a, b)
    assert a.summary["bytes_up"] == 0


def test_with_all_on_it_is_rhfl_bit_for_bit():
    a, b = (toy.play(name, method={"pretrain": 2, "kl": "forward", **fields}) for name, fields in (
        ("fedhnl", {"public_batch": 4}),
        ("rhfl", {"public": 0, "denominator": "signed", "normalise": "softmax", "confidence_ce": None,
                  "confidence_rce": None, "fresh_optimizer_per_batch": False}),
    ))
    assert same(a, b)


def test_without_eta_weights_are_1_over_m(monkeypatch):
    used = []
    work = mutual.mixtures
    monkeypatch.setattr(mutual, "mixtures", lambda said, weights, kl: used.append(weights) or work(said, weights, kl))
    toy.play("fedhnl", method={"eta": 0.0, "public_batch": 10})
    assert used == [[1 / 3] * 4, [pytest.approx(1 / 4)] * 4, [pytest.approx(1 / 4)] * 4]
    used.clear()
    toy.play("fedhnl", method={"cws": False, "public_batch": 10})
    assert used == [[1 / 3] * 4] * 3


def test_equation_13_as_printed_multiplies_ones_own_loss():
    """SGD with one full batch: the step of client k is W_k times the plain one; others teach alike."""
    steps = {}
    for cws in (True, False):
        fed = toy.federation(train={"epochs": 1, "batch": 100})
        fields = {"hma": False, "cws": cws, "cws_target": "cl"}
        method = make({"name": "fedhnl", **fields}, fed.train)
        state = method.init(fed)
        state.notes["losses"] = [2.0] * fed.n
        start = {c: state.clients[c]["model"].flat.clone() for c in fed.sample(1)}
        state.round = 1
        method.round(fed, state)
        steps[cws] = {c: state.clients[c]["model"].flat - start[c] for c in start}
    who = fed.sample(1)
    ratio = {c: float(steps[True][c].norm() / steps[False][c].norm()) for c in who}
    for c in who:
        torch.testing.assert_close(steps[True][c], ratio[c] * steps[False][c], rtol=0, atol=1e-6)
    assert sum(ratio.values()) == pytest.approx(1, abs=1e-4)  # softmax weights
    assert len({round(v, 4) for v in ratio.values()}) > 1


SGD, ADAM = {"lr": 0.2}, {"optimiser": "adam", "lr": 0.01}


@pytest.mark.parametrize(("how", "least", "most"), [(SGD, 0.1, 10), (ADAM, 1e-9, 0.02)])
def test_under_adam_equation_13_as_printed_changes_next_to_nothing(how, least, most):
    """A factor on the loss cancels in Adam's step, but for its 1e-8; under SGD the same weights matter."""
    a, b = (
        toy.play("fedhnl", method={"hma": False, "cws": cws, "cws_target": "cl"}, fraction=1.0, **how)
        for cws in (True, False)
    )
    away = [float((flat - models(b)[c]).norm() / models(b)[c].norm()) for c, flat in models(a).items()]
    assert least < max(away) < most


def test_pre_training_on_cross_entropy_is_that_of_local_only_bit_for_bit():
    runs = {}
    for id_, method in (
        ("ce", {"name": "fedhnl", "pretrain": 2, "pretrain_loss": "ce"}),
        ("own", {"name": "fedhnl", "pretrain": 2}),
        ("local", {"name": "local", "pretrain": 2}),
    ):
        fed = toy.federation()
        made = make(method, fed.train)
        state = made.init(fed)
        state.round = 1
        made.warm(fed, state)
        runs[id_] = torch.stack([state.clients[c]["model"].flat for c in fed.all])
    assert torch.equal(runs["ce"], runs["local"])
    assert not torch.equal(runs["ce"], runs["own"])


# both sizes of federation


FOUR = [{"name": "mlp", "hidden": 6}, {"name": "small_cnn", "width": 2, "hidden": 6}, "toy_norm", "toy_drop"]


@pytest.mark.parametrize("name", ["rhfl", "fedhnl"])
def test_four_clients_of_four_architectures(name, toy_nets):
    """As in paper 003: everybody takes part in every round, and each client's accuracy is told beside their mean."""
    how = {"split": toy.partition((20, 18, 20, 18)), "fraction": 1.0, "net": FOUR}
    made = toy.play(name, **how)
    fed, state = made.outcome.fed, made.outcome.state
    assert [state.clients[c]["model"].layout for c in range(4)] == [fed.net(c).layout for c in range(4)]
    assert len({fed.net(c).layout for c in range(4)}) == 4
    assert list(made.summary["views"]) == ["personal"]
    last = {r[4]: r[6] for r in made.outcome.record.metrics if (r[0], r[3], r[5]) == (4, "personal", "accuracy")}
    assert last.keys() == {-1, 0, 1, 2, 3}
    assert last[-1] == pytest.approx(sum(last[c] for c in range(4)) / 4)


@pytest.mark.parametrize("net", [["resnet10", "mobilenet_v1"], ["resnet12", "shufflenet"], ["mobilenet_v2", "mlp"]])
def test_nets_of_the_library_align(net):
    """Two clients, one step each; their own training is that of any method."""
    fed, method, state = toy.started("fedhnl", {"public": 4}, train={"net": net, "lr": 0.01})
    before = {c: state.clients[c]["model"].flat.clone() for c in (0, 3)}
    state.round = 1
    method._align(fed, state, [0, 3], [1.0, 1.0])
    for c in (0, 3):
        moved = state.clients[c]["model"].flat - before[c]
        assert torch.isfinite(moved).all()
        assert moved.abs().max() > 1e-5
    assert fed.dropped == []


@pytest.mark.parametrize("name", ["rhfl", "fedhnl"])
def test_ten_of_a_hundred_clients(name):
    """As paper 000 has RHFL: tiny clients that overlap, of two architectures."""
    draw = np.random.default_rng(0)
    parts = [np.sort(draw.choice(toy.N, 6, replace=False)) for _ in range(100)]
    split = Partition.build(parts, {"artifact": "partition", "partition": {"kind": "toy"}, "notes": {"samples": toy.N}})
    fields = {"pretrain": 1, "public": 0, "public_batch": 4, "kl": "forward", "normalise": "softmax"}
    if name == "fedhnl":
        fields.pop("normalise")
    made = toy.play(name, method=fields, split=split, fraction=0.1)
    fed, record = made.outcome.fed, made.outcome.record
    who = fed.sample(4)
    assert len(who) == 10
    value = {(r[0], r[3], r[4]): r[6] for r in record.metrics if r[5] == "accuracy"}
    for view, members in (("personal", range(100)), ("participants", who)):
        assert value[4, view, -1] == pytest.approx(sum(value[4, view, c] for c in members) / len(members))
        assert {key[2] for key in value if key[:2] == (4, view)} == {-1, *members}
    rows = {(r[0], r[5]): r[6] for r in record.metrics if r[3] == ""}
    assert [rows[r, "clients"] for r in (1, 2, 3, 4)] == [100, 10, 10, 10]
    assert rows[4, "bytes_up"] == 10 * (8 + 10 * 5 * 4)
    assert rows[4, "bytes_down"] == 10 * 10 * 5 * 4
    known = [c for c, loss in enumerate(made.summary["notes"]["losses"]) if loss is not None]
    assert known == sorted({*fed.sample(2), *fed.sample(3), *fed.sample(4)})


# a second implementation


def with_norm(ops: Any, x: Tensor) -> Tensor:
    return torch.relu(ops.norm("norm", ops.conv("conv", x.double(), 3, 3, stride=2))).flatten(1)


def deep(ops: Any, x: Tensor) -> Tensor:
    return torch.relu(ops.linear("second", torch.tanh(ops.linear("first", x.double().flatten(1), 7)), 5))


class Module(nn.Module):
    """The same three nets as torch modules, their parameters named alike."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        if kind == "perceptron":
            self.hidden, width = nn.Linear(64, 6), 6
        elif kind == "with_norm":
            self.conv, self.norm, width = nn.Conv2d(1, 3, 3, stride=2), nn.BatchNorm2d(3), 27
        else:
            self.first, self.second, width = nn.Linear(64, 7), nn.Linear(7, 5), 5
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "perceptron":
            return self.head(F.relu(self.hidden(x.flatten(1))))
        if self.kind == "with_norm":
            return self.head(F.relu(self.norm(self.conv(x))).flatten(1))
        return self.head(F.relu(self.second(torch.tanh(self.first(x.flatten(1))))))


@dataclasses.dataclass
class Seen:
    """What a run handed out and came to: batches and losses of every fit in order, by client."""

    own: dict[int, list[tuple[int, Tensor, Tensor, float]]]  # round, x, y, loss
    public: dict[int, list[tuple[int, Tensor, float]]]  # round, x, loss
    weights: list[list[float]]
    start: dict[int, dict[str, Tensor]]


def watched(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Federation, Any, Seen]:
    """Pre-training and three rounds of four clients in float64 on Adam, with all that is needed to play them again."""
    made = toy.world({"fraction": 1.0, "optimiser": "adam", "lr": 0.01}, split=toy.partition((17, 14, 20, 12)))
    made.nets = [toy.net(body) for body in (toy64.perceptron, with_norm, deep)]
    fed = Federation(made, Sequential(made))
    seen = Seen({c: [] for c in range(4)}, {c: [] for c in range(4)}, [], {})
    state: Any = None

    class Own(FedHNL):
        def prepare(self, me, down):
            return Work(facts={"me": me.id})

        def objective(self, net, w, batch, down, mine):
            loss = super().objective(net, w, batch, down, mine)
            seen.own[mine["me"]].append((state.round, batch.x.double(), batch.y.clone(), float(loss.detach())))
            return loss

    class Public(mutual.Align):
        def prepare(self, me, down):
            return Work(facts={"me": me.id})

        def objective(self, net, w, batch, down, mine):
            loss = super().objective(net, w, batch, down, mine)
            seen.public[mine["me"]].append((state.round, batch.x.double(), float(loss.detach())))
            return loss

    weigh = Own._weigh

    def watched_weigh(self, fed, state, who, alike):
        found = weigh(self, fed, state, who, alike)
        seen.weights.append([found[who.index(c)] for c in range(4)])
        return found

    Own._weigh = watched_weigh  # type: ignore[method-assign]
    monkeypatch.setattr(mutual, "Align", Public)
    method = parse(Own, {"pretrain": 2, "public_batch": 4, **fields}, "method", train=fed.train)
    state = method.init(fed)
    seen.start = {c: state.clients[c]["model"].named() for c in range(4)}
    state.round = 1
    method.warm(fed, state)
    for state.round in (2, 3, 4):
        method.round(fed, state)
    return fed, state, seen


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


class Reference:
    """The paper's equations on ordinary modules, with the batches of the run."""

    def __init__(self, fed: Federation, seen: Seen, eta: float, kl: str, target: str, first: str = "own"):
        self.seen, self.eta, self.kl, self.target, self.plain = seen, eta, kl, target, first == "ce"
        kinds = ["perceptron", "with_norm", "deep"]
        self.nets = [Module(kinds[c % 3]).double() for c in range(4)]
        for c, net in enumerate(self.nets):
            net.load_state_dict(seen.start[c], strict=False)
        self.data = [(x.double(), y) for x, y in (toy.images_of(fed._world, c) for c in range(4))]
        self.before: list[float] | None = None
        self.losses: list[tuple[str, int, float]] = []
        self.weights: list[list[float]] = []

    def train(self, c: int, round: int, factor: float = 1.0, loss_of: Any = combinational) -> None:
        """Equation 7 (13 with a factor): one's own epochs on a fresh Adam."""
        net, adam = self.nets[c].train(), torch.optim.Adam(self.nets[c].parameters(), 0.01)
        for at, x, y, _ in self.seen.own[c]:
            if at == round:
                loss = factor * loss_of(net(x), y)
                adam.zero_grad()
                loss.backward()
                adam.step()
                self.losses.append(("own", c, loss.item()))

    def weigh(self) -> list[float]:
        """Equations 8 to 12; 1/(K-1) in the first round, which has no drop."""
        with torch.no_grad():
            now = [combinational(net.eval()(x), y).item() for net, (x, y) in zip(self.nets, self.data, strict=True)]
        before, self.before = self.before, now
        if before is None:
            return [1 / 3] * 4
        quality = [1 / loss for loss in now]
        progress = [old - new for old, new in zip(before, now, strict=True)]
        confidence = np.array(quality) * np.array(progress)
        w = 1 / 3 + self.eta * confidence / confidence.sum()
        return (np.exp(w) / np.exp(w).sum()).tolist()

    def align(self, round: int, weights: list[float]) -> None:
        """Equations 2, 3 and 13's reading: every client on one batch after the other, from outputs of before it."""
        adams = [torch.optim.Adam(net.train().parameters(), 0.01) for net in self.nets]
        batches = [x for at, x, _ in self.seen.public[0] if at == round]
        for x in batches:
            outputs = [torch.softmax(net(x), 1) for net in self.nets]
            fixed = [p.detach() for p in outputs]
            for k in range(4):
                others = [i for i in range(4) if i != k]
                pairs = [(fixed[i], outputs[k]) if self.kl == "forward" else (outputs[k], fixed[i]) for i in others]
                loss = sum(weights[i] * divergence(a, b) for i, (a, b) in zip(others, pairs, strict=True))
                adams[k].zero_grad()
                loss.backward()
                adams[k].step()
                known = sum(weights[i] * -(fixed[i] * fixed[i].log()).sum(1).mean().item() for i in others)
                self.losses.append(("public", k, loss.item() + (known if self.kl == "forward" else 0.0)))

    def play(self) -> None:
        for c in range(4):
            self.train(c, 1, loss_of=F.cross_entropy if self.plain else combinational)
        for round in (2, 3, 4):
            weights = self.weigh()
            self.weights.append(weights)
            self.align(round, weights if self.target == "kl" else [1 / 3] * 4)
            for c in range(4):
                self.train(c, round, weights[c] if self.target == "cl" else 1.0)


@pytest.mark.parametrize(
    ("kl", "target", "first"),
    [("forward", "kl", "own"), ("reverse", "kl", "own"), ("forward", "cl", "own"), ("forward", "kl", "ce")],
)
def test_whole_rounds_against_a_second_implementation(kl, target, first, monkeypatch):
    """Every loss and all numbers of the four models, of three architectures, after pre-training and three rounds."""
    monkeypatch.setattr(losses, "log_probs", lambda z: torch.log_softmax(z, -1))  # the library's are of float32
    monkeypatch.setattr(losses, "ce", lambda z, y: F.cross_entropy(z, y, reduction="none"))
    with toy64.doubled():
        fed, state, seen = watched({"kl": kl, "cws_target": target, "pretrain_loss": first}, monkeypatch)
        reference = Reference(fed, seen, 0.5, kl, target, first)
        reference.play()
        np.testing.assert_allclose(seen.weights, reference.weights, rtol=0, atol=1e-6)
        for c in range(4):
            for kind, steps in (("own", seen.own[c]), ("public", seen.public[c])):
                found = [one[-1] for one in steps]
                expected = [loss for k, client, loss in reference.losses if (k, client) == (kind, c)]
                np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
            model, module = state.clients[c]["model"], reference.nets[c].state_dict()
            assert model.flat.dtype == torch.float64
            for name, value in model.named().items():
                torch.testing.assert_close(value, module[name], rtol=0, atol=1e-6)
    assert np.ptp(seen.weights[1]) > 1e-3
    assert {len(one) for one in seen.public.values()} == {3 * 3}  # batches of 4, 4 and 2 images
