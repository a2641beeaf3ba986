"""FedMD and local-only training: methods.md 5.20 and 5.26."""

from __future__ import annotations

import pytest
import torch
import toy

from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.io import SpecError
from fednoise_core.methods import make
from fednoise_core.methods.fedmd import Digest
from fednoise_core.spec import Train

MLP = {"name": "mlp", "hidden": 6}


def started(name: str = "fedmd", fields: dict | None = None, **options):
    fed = toy.federation(**options)
    method = make({"name": name, **(fields or {})}, fed.train)
    return fed, method, method.init(fed)


def public_logits(fed, state, client: int, ids: torch.Tensor) -> torch.Tensor:
    x = (torch.from_numpy(toy.arrays().x_public)[ids].float()[:, None] / 255 - 0.25) / 0.2
    return fed.net(client).predict(state.clients[client]["model"], x)


# local-only


def test_a_clients_result_does_not_depend_on_the_others():
    """Another cohort's worth of clients, other data elsewhere, other sizes elsewhere: client 0 ends at the same."""
    fed, method, state = started("local")
    for round in (1, 2):
        state.round = round
        fed.fit(method, state, [0, 3, 5], {})
    other_fed, other, alone = started("local", split=toy.partition((17, 4, 30, 20)))
    for round in (1, 2):
        alone.round = round
        other_fed.fit(other, alone, [0], {})
    assert torch.equal(state.clients[0]["model"].flat, alone.clients[0]["model"].flat)
    assert not torch.equal(state.clients[0]["model"].flat, method.init(fed).clients[0]["model"].flat)


def test_whole_runs_of_one_client_agree_whoever_else_is_there():
    made = [
        toy.play("local", split=split, fraction=1.0, net=MLP).outcome.state.clients[0]["model"].flat
        for split in (None, toy.partition((17, 5)))
    ]
    assert torch.equal(*made)


def test_only_the_cohort_trains_and_nothing_is_sent():
    fed, method, state = started("local")
    before = {c: s["model"].flat.clone() for c, s in state.clients.items()}
    state.round = 1
    method.round(fed, state)
    trained = {c for c in before if not torch.equal(before[c], state.clients[c]["model"].flat)}
    assert trained == set(fed.sample(1))
    assert (fed.bytes_up, fed.bytes_down) == (0, 0)


def test_every_client_starts_from_its_own_draw():
    fed, _, state = started("local", train={"net": toy.PAIR})
    assert state.clients.keys() == set(fed.all)
    assert len({tuple(state.clients[c]["model"].flat.tolist()) for c in fed.all}) == 7
    assert state.clients[3]["model"].layout == fed.net(3).layout != state.clients[4]["model"].layout


def test_pretraining_is_a_round_of_everybody():
    fed, method, state = started("local", {"pretrain": 3})
    assert [(p.name, p.end) for p in method.phases(fed)] == [("pretrain", 1), ("train", 4)]
    assert [(p.name, p.end) for p in started("local")[1].phases(fed)] == [("train", 3)]
    state.round = 1
    before = {c: s["model"].flat.clone() for c, s in state.clients.items()}
    method.warm(fed, state)
    assert all(not torch.equal(before[c], state.clients[c]["model"].flat) for c in fed.all)
    assert fed.passes == 3 * 72


@pytest.mark.parametrize("name", ["local", "fedmd"])
def test_work_counts_pretraining(name):
    made = toy.play(name)  # all 72 samples twice, then the cohorts of rounds 2 to 4 twice
    digest = 3 * 4 * 6 if name == "fedmd" else 0  # 3 rounds of 4 clients that look at 6 public images once
    passes = 2 * 72 + toy.passes((2, 3, 4)) + digest
    assert made.summary["work"] == pytest.approx(passes / toy.A_ROUND, rel=1e-12)
    rows = {r[0]: r[1] for r in made.outcome.record.metrics}
    assert rows[1] == pytest.approx(1.75)


def test_accuracy_is_the_mean_over_clients():
    made = toy.play("local")
    last = {r[4]: r[6] for r in made.outcome.record.metrics if (r[0], r[3], r[5]) == (4, "personal", "accuracy")}
    assert last.keys() == {-1, *made.outcome.fed.all}
    assert last[-1] == pytest.approx(sum(v for c, v in last.items() if c >= 0) / 7)


# FedMD


@pytest.mark.parametrize("kind", ["l1", "kl"])
def test_equal_logits_have_no_digest_gradient(kind):
    digest = Digest(Train(), kind)
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)) * 3
    free = z.clone().requires_grad_()
    loss = digest.loss(free, z)
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), torch.zeros(6), rtol=0, atol=1e-6)
    torch.testing.assert_close(free.grad, torch.zeros_like(z), rtol=0, atol=1e-6)


def test_digest_losses_by_hand():
    z, y = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.0, 2.5, 3.0]])
    assert Digest(Train(), "l1").loss(z, y).item() == pytest.approx((1 + 0.5 + 3) / 3)
    p, q = torch.softmax(y, 1), torch.softmax(z, 1)
    assert Digest(Train(), "kl").loss(z, y).item() == pytest.approx(float((p * (p / q).log()).sum()), rel=1e-5)


def test_identical_models_stay_where_they_are():
    """Consensus of equal models is their own answer: digesting moves nothing (with KL, of smooth gradient)."""
    fed, method, state = started(fields={"digest_loss": "kl", "digest": 3}, train={"lr": 0.5})
    model = fed.fresh("model")
    for c in fed.all:
        state.clients[c] = {"model": model.clone()}
    watched = digested_only(method, fed, state)
    for c in watched:
        torch.testing.assert_close(state.clients[c]["model"].flat, model.flat, rtol=0, atol=1e-5)


def digested_only(method, fed, state) -> list[int]:
    """A round without its revisit; returns the cohort."""
    fit = fed.fit
    fed.fit = lambda local, *args, **kw: fit(local, *args, **kw) if isinstance(local, Digest) else []
    state.round += 1
    method.round(fed, state)
    fed.fit = fit
    return fed.sample(state.round)


@pytest.mark.parametrize("kind", ["l1", "kl"])
def test_digesting_moves_models_together(kind):
    fed, method, state = started(fields={"digest_loss": kind, "digest": 60}, train={"lr": 0.05, "net": toy.PAIR})
    who, ids = fed.sample(1), torch.arange(10)

    def spread() -> float:
        return float(torch.stack([public_logits(fed, state, c, ids) for c in who]).std(0).mean())

    before = spread()
    digested_only(method, fed, state)
    assert spread() < 0.7 * before


def test_the_consensus_is_the_mean_of_the_cohorts_logits(monkeypatch):
    fed, method, state = started(fields={"public": 4}, train={"net": toy.PAIR})
    jobs = []
    work = Sequential.run
    monkeypatch.setattr(Sequential, "run", lambda self, some: (jobs.extend(some), work(self, some))[1])
    state.round = 1
    ids = fed.draw(1, "consensus", 4)
    expected = torch.stack([public_logits(fed, state, c, ids) for c in fed.sample(1)]).mean(0)
    method.round(fed, state)
    digest = [job for job in jobs if isinstance(job.local, Digest)]
    assert [job.client for job in digest] == fed.sample(1)
    for job in digest:
        torch.testing.assert_close(job.pool_targets, expected)
        torch.testing.assert_close(job.down["consensus"], expected)
        assert torch.equal(job.ids, ids)
        assert (job.on, job.epochs, job.batch) == ("public", 1, 256)
    own = [job for job in jobs if not isinstance(job.local, Digest)]
    assert [(job.client, job.on, job.epochs) for job in own] == [(c, "train", 2) for c in fed.sample(1)]
    assert jobs.index(digest[-1]) < jobs.index(own[0])  # digest first, then revisit


def test_the_consensus_does_not_depend_on_the_order_of_clients():
    fed, method, state = started(train={"net": toy.PAIR})
    ids = torch.arange(10)
    forward, backward = (
        [said["logits"] for said in fed.on_clients(state, order, method._say, {"ids": ids})]
        for order in ([0, 3, 5], [5, 3, 0])
    )
    torch.testing.assert_close(torch.stack(forward).mean(0), torch.stack(backward).mean(0), rtol=0, atol=1e-6)


def test_a_digest_step_by_hand():
    """One full batch on public images: theta - lr * gradient of the mean L1 distance to the consensus."""
    fed, method, state = started(train={"batch": 100, "lr": 0.2})
    who = fed.sample(1)
    start = {c: state.clients[c]["model"].clone() for c in who}
    ids = torch.arange(10)
    consensus = torch.stack([public_logits(fed, state, c, ids) for c in who]).mean(0)
    digested_only(method, fed, state)
    x = (torch.from_numpy(toy.arrays().x_public).float()[:, None] / 255 - 0.25) / 0.2
    for c in who:
        leaves = {n: v.detach().clone().requires_grad_() for n, v in start[c].views.items()}
        w = start[c].clone()
        w.__dict__["views"] = leaves
        (fed.net(c).predict(w, x) - consensus).abs().mean().backward()
        for name, leaf in leaves.items():
            expected = (leaf - 0.2 * leaf.grad).detach()
            torch.testing.assert_close(state.clients[c]["model"][name], expected, rtol=0, atol=1e-5)


def test_one_client_alone_trains_as_if_alone():
    """Its consensus is its own answer, so that only revisiting moves it (KL; under L1 rounding decides the sign)."""
    split = toy.partition((30,))
    alone = {"split": split, "fraction": 1.0, "net": MLP}
    federated = toy.play("fedmd", method={"digest_loss": "kl", "pretrain": 2}, **alone)
    local = toy.play("local", method={"pretrain": 2}, **alone)
    a, b = (made.outcome.state.clients[0]["model"].flat for made in (federated, local))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-4)
    assert (a - toy.federation(split=split).fresh("model", 0, client=0).flat).abs().max() > 0.05


def test_heterogeneous_clients_keep_their_architectures():
    made = toy.play("fedmd")
    layouts = [made.outcome.state.clients[c]["model"].layout for c in made.outcome.fed.all]
    assert layouts == [made.outcome.fed.net(c).layout for c in made.outcome.fed.all]
    assert len(set(layouts)) == 2
    assert made.summary["parameters"] == sorted({made.outcome.fed.net(c).parameters for c in (0, 1)})


def test_public_images_are_not_augmented():
    """The consensus was made on the images as they are."""
    plain, flipped = (toy.federation(train={"augment": a}) for a in ("none", "flip"))
    states = []
    for fed in (plain, flipped):
        method = make({"name": "fedmd"}, fed.train)
        state = method.init(fed)
        digested_only(method, fed, state)
        states.append(state)
    assert toy.same(states[0], states[1])


@pytest.mark.parametrize(("fields", "epochs"), [({}, 2), ({"revisit": 3}, 3)])
def test_epochs_of_revisiting(fields, epochs):
    fed, method, state = started(fields=fields)
    state.round = 1
    method.round(fed, state)
    assert fed.passes == toy.passes([1], per_sample=epochs) + 4 * 10  # and 4 clients digest 10 public images


def test_without_public_images_it_says_so():
    with pytest.raises(SpecError, match="public"):
        make({"name": "fedmd"}, Train()).init(without_public())


def without_public():
    fed = toy.federation()
    fed._world.pools.pop("public")
    return fed
