"""FedMD and local-only training."""

import dataclasses

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.io import SpecError
from fednoise_core.methods import fedmd
from fednoise_core.methods.fedmd import Digest, FedMD
from fednoise_core.settings.declare import build_settings
from fednoise_core.settings.train import Train

MLP = {"name": "mlp", "hidden": 6}


# local-only


def test_a_clients_result_does_not_depend_on_the_others():
    """Client 0 ends at the same model whatever the number, sizes and data of other clients."""
    models = [
        toy.play("local", split=split, fraction=1.0, net=MLP).outcome.state.clients[0]["model"].flat
        for split in (None, toy.toy_partition((17, 5)))
    ]
    assert torch.equal(*models)


def test_only_the_cohort_trains_and_everybody_pretrains():
    fed, method, state = toy.started("local", {"pretrain": 3}, train={"net": toy.PAIR})
    before = {c: s["model"].flat.clone() for c, s in state.clients.items()}
    assert before.keys() == set(fed.all)
    assert len({tuple(flat.tolist()) for flat in before.values()}) == 7  # each from a draw of its own
    assert state.clients[3]["model"].layout == fed.net(3).layout != state.clients[4]["model"].layout
    assert [(p.name, p.end) for p in method.list_phases(fed)] == [("pretrain", 1), ("train", 4)]
    for state.round, play, clients in (
        (1, method.run_pretraining, set(fed.all)),
        (2, method.run_round, set(fed.sample_cohort(2))),
    ):
        before = {c: s["model"].flat.clone() for c, s in state.clients.items()}
        play(fed, state)
        assert {c for c in before if not torch.equal(before[c], state.clients[c]["model"].flat)} == clients
    assert fed.passes == 3 * 72 + toy.count_passes([2])


def test_accuracy_is_the_mean_over_clients():
    run = toy.play("local")
    last = {r[4]: r[6] for r in run.outcome.record.metrics if (r[0], r[3], r[5]) == (4, "personal", "accuracy")}
    assert last.keys() == {-1, *run.outcome.fed.all}
    assert last[-1] == pytest.approx(sum(v for c, v in last.items() if c >= 0) / 7)


# FedMD


def test_digest_losses_by_hand():
    """Equal logits give no loss and no gradient."""
    z, y = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.0, 2.5, 3.0]])
    p, q = torch.softmax(y, 1), torch.softmax(z, 1)
    for kind, expected in (("l1", (1 + 0.5 + 3) / 3), ("kl", float((p * (p / q).log()).sum()))):
        digest = Digest(Train(), kind)
        assert digest.compute_loss(z, y).item() == pytest.approx(expected, rel=1e-5)
        free = z.clone().requires_grad_()
        loss = digest.compute_loss(free, z)
        loss.sum().backward()
        torch.testing.assert_close(loss.detach(), torch.zeros(1), rtol=0, atol=1e-6)
        torch.testing.assert_close(free.grad, torch.zeros_like(z), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["l1", "kl"])
def test_a_round_against_a_second_implementation(kind, monkeypatch):
    """In float64, but for losses in float32: the mean of the cohort's logits on the drawn public images, two epochs of
    digesting it in batches, then the run's epochs on the client's data; public images are never augmented.
    """
    fits: list[tuple[int, list[tuple[torch.Tensor, torch.Tensor]]]] = []

    class Noted:
        def prepare_fit(self, client, broadcast):
            fits.append((client.id, []))
            return super().prepare_fit(client, broadcast)

        def train_step(self, net, carry, batch, broadcast, client_state):
            fits[-1][1].append((batch.x.double(), batch.y.clone()))
            super().train_step(net, carry, batch, broadcast, client_state)

    class NotedDigest(Noted, Digest):
        pass

    class NotedFedMD(Noted, FedMD):
        pass

    monkeypatch.setattr(fedmd, "Digest", NotedDigest)
    with toy64.doubled():
        fed = toy.toy_federation(train={"augment": "flip"}, net=toy.toy_net(toy64.perceptron))
        fields = {"digest_loss": kind, "digest": 2, "public": 6, "digest_batch": 4}
        method = build_settings(NotedFedMD, fields, "method", train=fed.train)
        state = method.init_state(fed)
        state.round = 1
        clients, images = fed.sample_cohort(1), toy.public_images()[fed.draw_public_ids(1, "consensus", 6)].double()
        modules = {c: toy64.module_of(state.clients[c]["model"].flat) for c in clients}
        method.run_round(fed, state)
        assert [c for c, _ in fits] == clients + clients  # digest first, then revisit
        consensus = torch.stack([modules[c](images) for c in clients]).mean(0).detach()
        for n, (c, steps) in enumerate(fits):
            assert n >= 4 or [len(x) for x, _ in steps] == [4, 2, 4, 2]
            assert n < 4 or sum(len(x) for x, _ in steps) == 2 * toy.SIZES[c]
            optimiser = torch.optim.SGD(modules[c].parameters(), 0.2)
            for x, y in steps:
                z = modules[c](x)
                if n < 4:
                    goal = consensus[[int((images == image).all((1, 2, 3)).nonzero()) for image in x]]
                    p, q = torch.softmax(goal, 1), torch.softmax(z, 1)
                    loss = (z - goal).abs().mean() if kind == "l1" else (p * (p / q).log()).sum(1).mean()
                else:
                    loss = F.cross_entropy(z, y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        for c in clients:
            torch.testing.assert_close(state.clients[c]["model"].flat, toy64.vector(modules[c]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["l1", "kl"])
def test_digesting_moves_models_together(kind):
    fed, method, state = toy.started("fedmd", {"digest_loss": kind, "digest": 60}, train={"lr": 0.05, "net": toy.PAIR})
    fit, clients = fed.fit, fed.sample_cohort(1)
    fed.fit = lambda local, *args, **kw: fit(local, *args, **kw) if isinstance(local, Digest) else []

    def spread() -> float:
        logits = [fed.net(c).predict(state.clients[c]["model"], toy.public_images()) for c in clients]
        return float(torch.stack(logits).std(0).mean())

    before = spread()
    state.round = 1
    method.run_round(fed, state)
    assert spread() < 0.7 * before


def test_one_client_alone_trains_as_if_alone():
    """Its consensus is its own answer, so only its own data move it (KL; under L1 rounding decides the sign)."""
    split = toy.toy_partition((30,))
    alone = {"split": split, "fraction": 1.0, "net": MLP}
    federated = toy.play("fedmd", method={"digest_loss": "kl", "pretrain": 2}, **alone)
    local = toy.play("local", method={"pretrain": 2}, **alone)
    a, b = (run.outcome.state.clients[0]["model"].flat for run in (federated, local))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-4)
    assert (a - toy.toy_federation(split=split).init_weights("model", 0, client=0).flat).abs().max() > 0.05


@pytest.mark.parametrize("name", ["fedmd", "rhfl", "fedhnl"])
def test_missing_public_images_are_reported_before_the_pre_training(name):
    data = dataclasses.replace(toy.arrays(), x_public=None)
    with pytest.raises(SpecError, match=f"^method: {name} needs public images"):
        toy.play(name, data=data)
