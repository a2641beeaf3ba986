"""Joint optimisation: whole rounds against a second implementation, and labels that do not change."""

import collections

import pytest
import torch
import toy
import toy64
from torch.nn import functional as F


@pytest.mark.parametrize("memory", [3, 10])
def test_whole_rounds_against_a_second_implementation(memory):
    """Ordinary modules; the predictions of each sample in a queue of its own; labels from the second round on."""
    fields = {"warmup": 1, "alpha": 0.7, "beta": 0.4, "memory": memory}
    with toy64.doubled():
        fed, state, seen, theta = toy64.rounds(
            "joint_optim", fields, 4, keep=lambda batch: (batch.x.double(), batch.i.clone()), fraction=1.0
        )
        queues = collections.defaultdict(lambda: collections.deque(maxlen=memory))
        targets = {k: F.one_hot(toy.images_of(fed.world, k)[1], 5).double() for k in fed.all}
        for round in (1, 2, 3, 4):
            ends = {}
            for k in toy64.cohort(seen, round):
                flat, steps = theta, seen[round, k]
                for number, (x, i) in enumerate(steps):

                    def loss(module, x=x, i=i, k=k):
                        z = module(x)
                        p = z.softmax(1)
                        for sample, row in zip(i.tolist(), p.detach(), strict=True):
                            queues[k, sample].append(row)
                        l_p = -sum(0.2 * torch.log(q) for q in p.mean(0))
                        l_e = -(p * z.log_softmax(1)).sum(1).mean()
                        return -(targets[k][i] * z.log_softmax(1)).sum(1).mean() + 0.7 * l_p + 0.4 * l_e

                    flat = toy64.step(flat, loss, 0.2)
                    if round > 1 and (number + 1) % (len(steps) // 2) == 0:  # at the end of each of the two epochs
                        rows = [torch.stack(list(queues[k, sample])).mean(0) for sample in range(toy.SIZES[k])]
                        targets[k] = torch.stack(rows)
                ends[k] = flat
            theta = toy64.mean(ends)
        toy64.close(state.server["model"], theta)
        for k in fed.all:
            toy64.close(state.relabelled[k], targets[k])


def test_warm_up_leaves_labels_alone_and_without_terms_it_is_fedavg():
    fields = {"warmup": 3, "alpha": 0.0, "beta": 0.0}
    run, plain = toy.play("joint_optim", method=fields).outcome, toy.play("fedavg").outcome
    torch.testing.assert_close(run.state.server["model"].flat, plain.state.server["model"].flat, rtol=1e-5, atol=1e-6)
    assert not run.state.relabelled


def test_a_client_without_a_step_keeps_its_given_label():
    fed, method, state = toy.started("joint_optim", {"warmup": 1}, net=toy.toy_net(toy.normed_point))
    state.round = 1
    toy.round_of(method, fed, state, [1])
    y = toy.images_of(fed.world, 1)[1]
    assert torch.equal(state.relabelled[1], F.one_hot(y, 5).float())


def test_suspects_are_those_whose_label_was_learnt_anew():
    fed, method, state = toy.started("joint_optim")
    y = toy.images_of(fed.world, 3)[1]
    learnt = F.one_hot(y, 5).float()
    learnt[[2, 5]] = learnt[[2, 5]].roll(1, 1)
    state.relabelled[3] = learnt
    ((p, proposed),) = fed.run_on_clients(state, [3], method.suspect_labels, method.make_broadcast(fed, state))
    assert [k for k in range(12) if p[k] > 0.5] == [2, 5]
    assert torch.equal(proposed, learnt.argmax(1))
