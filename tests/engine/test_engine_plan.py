"""Index plans: which samples, in which order, with which random numbers."""

import pytest
import torch

from fednoise_core.engine.plan import batch_boundaries, make_plan, make_side_plan


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("n", "batch", "last", "length", "ends"),
    [
        (10, 4, "short", 10, [4, 8, 10]),
        (10, 4, "drop", 8, [4, 8]),
        (10, 4, "wrap", 12, [4, 8, 12]),
        (8, 4, "short", 8, [4, 8]),
        (8, 4, "drop", 8, [4, 8]),
        (8, 4, "wrap", 8, [4, 8]),
        (3, 4, "short", 3, [3]),
        (3, 4, "drop", 3, [3]),  # never a client's only batch
        (3, 4, "wrap", 3, [3]),
        (9, 4, "short", 9, [4, 8, 9]),
        (1, 4, "short", 1, [1]),
        (0, 4, "short", 0, []),
        (0, 4, "wrap", 0, []),
    ],
)
def test_cut_by_hand(n, batch, last, length, ends):
    size, steps = batch_boundaries(n, 2, batch, last, single_ok=True)
    once = list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []
    assert size == length
    assert steps == once + [(a + length, b + length) for a, b in once]


def test_a_last_batch_of_one_is_skipped_where_it_cannot_be_normalised():
    assert batch_boundaries(9, 1, 4, "short", single_ok=False) == (9, [(0, 4), (4, 8)])
    assert batch_boundaries(10, 1, 4, "short", single_ok=False)[1][-1] == (8, 10)
    assert batch_boundaries(9, 1, 4, "wrap", single_ok=False) == (12, [(0, 4), (4, 8), (8, 12)])
    assert batch_boundaries(1, 3, 4, "short", single_ok=False) == (1, [])


@pytest.mark.parametrize("last", ["short", "drop", "wrap"])
def test_every_epoch_is_a_permutation(last):
    rows = torch.tensor([50, 51, 52, 53, 54, 55, 56])
    plan = make_plan(rows, 3, 3, last, True, source(), [(2, source(1))], [])
    length = {"short": 7, "drop": 6, "wrap": 9}[last]
    for epoch in range(3):
        seen = torch.cat(
            [plan.order[a:b] for a, b in plan.steps if epoch * length <= a < (epoch + 1) * length]
        ).tolist()
        assert len(seen) == length
        assert len(set(seen[:7])) == min(length, 7)
        assert set(seen) <= set(rows.tolist())
        assert seen[7:] == seen[: length - 7 if length > 7 else 0]  # wrapped from the epoch's own beginning
    assert len({tuple(plan.order[e * length : (e + 1) * length].tolist()) for e in range(3)}) == 3
    assert plan.u.shape == (3 * length, 2)
    assert plan.masks.shape == (3 * length, 0)


def test_each_user_of_numbers_has_a_stream_of_its_own():
    rows = torch.arange(6)
    plain = make_plan(rows, 2, 4, "short", True, source(), [(0, source(1))], [(3, source(2))])
    drawing = make_plan(
        rows, 2, 4, "short", True, source(), [(5, source(9)), (2, source(1))], [(3, source(2)), (3, source(3))]
    )
    assert torch.equal(plain.order, drawing.order)
    assert torch.equal(plain.masks, drawing.masks[:, :3])
    assert not torch.equal(drawing.masks[:, :3], drawing.masks[:, 3:])
    torch.testing.assert_close(drawing.u[:, :5], torch.rand(12, 5, generator=source(9)), rtol=0, atol=0)
    torch.testing.assert_close(drawing.u[:, 5:], torch.rand(12, 2, generator=source(1)), rtol=0, atol=0)


def test_a_side_pool_is_gone_through_before_it_starts_again():
    rows = torch.arange(100, 107)
    steps = [(0, 3), (3, 6), (6, 8), (8, 11), (11, 14)]
    plan = make_side_plan(rows, steps, source(), [(2, source(1))], [(3, source(2))])
    drawn = [plan.order[a:b].tolist() for a, b in plan.steps]
    assert plan.u.shape == (len(plan.order), 2)
    assert plan.masks.shape == (len(plan.order), 3)
    assert sum(b - a for a, b in plan.steps) == 14
    assert [len(d) for d in drawn] == [3, 3, 2, 3, 3]
    assert len(set(drawn[0] + drawn[1])) == 6  # the seventh is left out rather than mixed with the next pass
    assert len(set(drawn[2] + drawn[3])) == 5
    assert {row for each in drawn for row in each} <= set(rows.tolist())


def test_a_side_pool_that_batches_fill_exactly_is_used_up():
    plan = make_side_plan(torch.arange(7), [(0, 3), (3, 7)], source(), [], [])
    assert sorted(plan.order[a].item() for step in plan.steps for a in range(*step)) == list(range(7))


def test_a_small_side_pool_gives_all_of_itself_each_time():
    plan = make_side_plan(torch.tensor([7, 9]), [(0, 5), (5, 10), (10, 15)], source(), [], [])
    assert [sorted(plan.order[a:b].tolist()) for a, b in plan.steps] == [[7, 9]] * 3
