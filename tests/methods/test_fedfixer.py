"""FedFixer, in our reading, against a second implementation in float64."""

import math

import torch
import toy
import toy64
from torch.nn import functional as F

from fednoise_core.methods.fedfixer import pass_sieve


def test_without_choice_and_regulariser_it_is_ditto_bit_for_bit():
    """Warm-up to the end, beta = 0: the averaged model is FedAvg's, the personal ones Ditto's."""
    ours = toy.play("fedfixer", method={"warmup": 9, "confidence": 0.0, "strength": 0.7}).outcome.state
    theirs = toy.play("ditto", method={"strength": 0.7}).outcome.state
    assert torch.equal(ours.server["model"].flat, theirs.server["model"].flat)
    assert set(ours.clients) == set(theirs.clients)
    for c in ours.clients:
        assert torch.equal(ours.clients[c]["personal"].flat, theirs.clients[c]["personal"].flat)


def test_the_sieve_by_hand():
    """p = (.7, .2, .1): mean CE over classes = (.357 + 1.609 + 2.303) / 3 = 1.423; only class 0 is below. A
    uniform prediction passes no sample.
    """
    z = torch.log(torch.tensor([[0.7, 0.2, 0.1]] * 3 + [[1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64))
    assert pass_sieve(z, torch.tensor([0, 1, 2, 0])).tolist()[:3] == [1, 0, 0]
    z = torch.log(torch.tensor([[0.45, 0.45, 0.1]] * 3, dtype=torch.float64))
    assert pass_sieve(z, torch.tensor([0, 1, 2])).tolist() == [1, 1, 0]
    assert pass_sieve(torch.zeros(1, 4), torch.tensor([2])).tolist() == [0]


def naive_client(theta, v, batches, prior, choose, beta, strength, lr):
    """(model, personal) after these batches; both choose by their state before the step."""
    broadcast, model, personal = theta, toy64.module_of(theta), toy64.module_of(v)
    picked = 0
    for x, y in batches:
        chosen, new = [], []
        for m in (model, personal):
            log_p = torch.log_softmax(m(x), 1).detach()
            chosen.append([n for n in range(len(y)) if not choose or -log_p[n, y[n]] < -log_p[n].sum() / 5])
        picked += len(chosen[0]) + len(chosen[1])
        for m, selected, pull in ((model, chosen[1], 0.0), (personal, chosen[0], strength)):
            flat = torch.nn.utils.parameters_to_vector(m.parameters())
            loss = pull / 2 * (flat - broadcast).square().sum()
            z = m(x)
            for n in selected:
                each = [F.cross_entropy(z[n : n + 1], torch.tensor([k])) for k in range(5)]
                against = sum(prior[k] * each[k] for k in range(5) if each[k] < -math.log(1e-8))  # else a constant
                loss = loss + (F.cross_entropy(z[n : n + 1], y[n : n + 1]) - beta * against) / len(selected)
            grads = torch.autograd.grad(loss, list(m.parameters()))
            new.append([(p - lr * g).detach() for p, g in zip(m.parameters(), grads, strict=True)])
        for m, values in zip((model, personal), new, strict=True):
            for p, value in zip(m.parameters(), values, strict=True):
                p.data = value
    return toy64.vector(model), toy64.vector(personal), picked


def test_whole_rounds_against_a_second_implementation():
    """Four rounds in float64; the regulariser's log softmax is in float32: 1e-6."""
    beta, strength, lr = 0.3, 0.4, 0.2
    with toy64.doubled():
        fields = {"warmup": 2, "confidence": beta, "strength": strength}
        fed, state, seen, theta = toy64.rounds("fedfixer", fields, 4, lr=lr)
        personal: dict[int, torch.Tensor] = {}
        shares = []
        for round in (1, 2, 3, 4):
            models = {}
            for c in toy64.cohort(seen, round):
                _, y = toy.images_of(fed.world, c)
                prior = [float((y == k).sum()) / len(y) for k in range(5)]
                start = personal.get(c, theta)
                batches = seen[round, c]
                models[c], personal[c], picked = naive_client(
                    theta, start, batches, prior, round > 2, beta, strength, lr
                )
                shares.append((round, picked / sum(2 * len(y) for _, y in batches)))
            theta = toy64.mean(models)
        torch.testing.assert_close(state.server["model"].flat, theta, rtol=0, atol=1e-6)
        for c, v in personal.items():
            torch.testing.assert_close(state.clients[c]["personal"].flat, v, rtol=0, atol=1e-6)
        assert {share for round, share in shares if round < 3} == {1.0}
        assert any(0 < share < 1 for round, share in shares if round > 2)


def test_suspects_are_judged_by_the_mean_of_both_models():
    fed, method, state = toy.started("fedfixer")
    toy.round_of(method, fed, state, [3])
    ((wrong, proposed),) = fed.run_on_clients(state, [3], method.suspect_labels, method.make_broadcast(fed, state))
    x, y = toy.images_of(fed.world, 3)
    z = sum(fed.net().predict(w, x) for w in (state.server["model"], state.clients[3]["personal"])) / 2
    torch.testing.assert_close(wrong, 1 - torch.softmax(z, 1)[torch.arange(len(y)), y])
    assert torch.equal(proposed, z.argmax(1))
