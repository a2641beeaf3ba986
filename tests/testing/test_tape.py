"""The stand-in for CUDA graphs replays what was recorded, and notices what calling the Python again would hide."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import toy
from toy_jobs import Everything, apart, jobs

from fednoise_core.engine.executors.gpu.captured import freeze_value
from fednoise_core.engine.executors.gpu.eager_graphs import Graphs
from fednoise_core.engine.executors.gpu.replay import Replay
from fednoise_core.engine.executors.sequential import Sequential
from fednoise_core.testing.tape import TapeGraphs

# the tape itself


def recorded(body: Callable[[], None], rewind: Callable[[], None] = lambda: None) -> Callable[[], None]:
    return TapeGraphs().capture(body, rewind, None, None)


def test_a_replay_runs_the_operations_and_not_the_python():
    x, total, called = torch.ones(3), torch.zeros(3), []

    def body() -> None:
        called.append(1)
        total.add_((x * 2).view(3, 1).squeeze(1) + 1)

    replay = recorded(body, total.zero_)
    assert (len(called), total.tolist()) == (4, [0.0] * 3)  # three warm-ups and the recording, all undone
    replay()
    x.copy_(torch.tensor([0.0, 1.0, 2.0]))  # read where it lay
    replay()
    assert total.tolist() == [3 + 1, 3 + 3, 3 + 5]
    assert len(called) == 4


def test_host_numbers_stay_what_they_were():
    total, factor = torch.zeros(()), [1.0]
    replay = recorded(lambda: total.add_(torch.ones(()), alpha=factor[0]), total.zero_)
    factor[0] = 100.0
    replay()
    assert total.item() == 1.0


def test_results_lie_at_fixed_addresses_as_in_a_graph():
    x, out = torch.ones(2), []

    def body() -> None:
        out.append(x * 3)

    replay = recorded(body)
    x.fill_(5)
    replay()
    assert out[-1].tolist() == [15.0, 15.0]
    assert out[-2].tolist() == [3.0, 3.0]


def test_gradients_and_statistics_are_replayed_and_views_of_changed_shape_too():
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    leaf.grad = torch.zeros(2)
    x, mean, var = torch.tensor([[1.0], [3.0]]), torch.zeros(1), torch.ones(1)

    def body() -> None:
        leaf.grad.zero_()
        part = leaf.detach().clone()
        part.unsqueeze_(0)
        torch.batch_norm(x, None, None, mean, var, True, 0.5, 1e-5, False)
        ((leaf * part[0]).sum() * x.sum()).backward()

    def rewind() -> None:
        mean.zero_()
        var.fill_(1)

    replay = recorded(body, rewind)
    x.mul_(2)
    replay()
    assert leaf.grad.tolist() == [8.0, 16.0]  # x.sum() = 8 times `part`
    assert mean.item() == 2.0  # half of the mean 4


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: bool(x[0] > 0),
        lambda x: torch.equal(x, x),
        lambda x: x.nonzero(),
        lambda x: x.masked_select(x > 0),
        lambda x: x.unique(),
        lambda x: x[x > 0],
        lambda x: x.__setitem__(x > 0, 1.0),
        lambda x: x * torch.tensor([1.0, 2.0]),
        lambda x: torch.rand(2),
        lambda x: x.bernoulli_(0.5),
        lambda x: torch.dropout(x, 0.5, True),
        lambda x: torch.randperm(3),
    ],
)
def test_what_a_graph_cannot_record_is_refused(body):
    x, undone = torch.ones(2), []
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        recorded(lambda: body(x), lambda: undone.append(1))
    assert len(undone) == 4  # also after the recording that failed
    torch.set_rng_state(before)


def test_a_step_that_uses_all_it_may_is_replayed_bit_for_bit():
    made = toy.toy_world({"precision": "bf16", "augment": "flip"})
    found = {}
    for graphs in (Graphs(), TapeGraphs()):
        replay = Replay(made, graphs)
        ran = [r for k in (1, 2) for r in replay.run(jobs(made, Everything(made.train), round=k))]
        found[type(graphs).__name__] = [(r.update, r.client_state) for r in ran]
    assert toy.same_state(found["Graphs"], found["TapeGraphs"])


# what it notices


class Scaled(toy.Plain):
    """Its loss has a factor, which another round changes."""

    shared = 1.0

    def factor(self) -> Any:
        return type(self).shared

    def turn(self, round: int) -> None:
        """Before each round."""
        type(self).shared = 1.0 + round

    def compute_loss(self, logits, y):
        return super().compute_loss(logits, y) * self.factor()


COUNT = 1


class Global(Scaled):
    def factor(self):
        return COUNT

    def turn(self, round):
        global COUNT
        COUNT = 1 + round


class Box:
    """Equal to itself only, whatever is in it."""


class Boxed(Scaled):
    """A tensor is made anew where captured steps are not told apart."""

    def __init__(self, train: Any):
        super().__init__(train)
        self.box: Any = Box()

    def factor(self):
        return self.box.factor

    def turn(self, round):
        self.box.factor = torch.full((), 1.0 + round)


class Field(Scaled):
    """A tensor field of many numbers, of which one in the middle changes: its text stays the same."""

    def __init__(self, train: Any):
        super().__init__(train)
        self.table = torch.ones(2000)

    def factor(self):
        return self.table[1000:1001]

    def turn(self, round):
        self.table = torch.ones(2000)
        self.table[1000] = 1.0 + round


def trained(runner: Any, local: Scaled) -> list[Any]:
    made, updates = runner.world, []
    for round in (1, 2, 3):
        local.turn(round)
        updates.append([r.update for r in runner.run(jobs(made, local, clients=(0, 3), round=1))])
    return updates


@pytest.mark.parametrize("kind", [Scaled, Global, Boxed])
def test_a_step_that_reads_what_captures_are_not_told_apart_by_is_wrong_here_as_on_a_gpu(kind):
    made = toy.toy_world()
    expected = trained(Sequential(made), kind(made.train))
    assert apart(expected[0], expected[1]) > 1e-2
    eager, tape = (trained(Replay(made, graphs), kind(made.train)) for graphs in (Graphs(), TapeGraphs()))
    assert apart(expected, eager) < 1e-4
    assert apart(expected[0], tape[0]) < 1e-4
    assert toy.same_state(tape[0], tape[1])  # the first round's factor for good
    assert apart(expected[1:], tape[1:]) > 1e-2


def test_a_field_of_many_numbers_that_changes_is_not_replayed_stale():
    made = toy.toy_world()
    expected = trained(Sequential(made), Field(made.train))
    assert apart(expected[0], expected[1]) > 1e-2
    replay = Replay(made, TapeGraphs())
    assert apart(expected, trained(replay, Field(made.train))) < 1e-4
    assert len(replay.steps) == 3  # one kind of step for each table


def test_fields_are_compared_by_their_numbers():
    a, b = Field(toy.toy_world().train), Field(toy.toy_world().train)
    assert repr(a.table) == repr(b.table)
    assert freeze_value(a) == freeze_value(b)
    hash(freeze_value(a))
    b.table[1000] = 2.0
    assert repr(a.table) == repr(b.table)  # the text leaves it out
    assert freeze_value(a) != freeze_value(b)
    assert len({freeze_value(1), freeze_value(1.0), freeze_value(True)}) == 3
    assert freeze_value(torch.zeros(2)) != freeze_value(torch.zeros(2, dtype=torch.int32))
    assert freeze_value(torch.zeros(2, 1)) != freeze_value(torch.zeros(1, 2))
    assert freeze_value({"a": [torch.ones(1)]}) != freeze_value({"a": (torch.ones(1),)})
