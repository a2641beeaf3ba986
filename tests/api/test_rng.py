"""Named random streams: they depend on their key only, and all of the state of torch's streams comes from it."""

import itertools

import numpy as np
import pytest
import torch

from fednoise_core import rng


def drawn(generator: torch.Generator, n: int = 8) -> list[int]:
    """Draws of 32 bits from torch."""
    return torch.empty(n, dtype=torch.int64).random_(0, 1 << 32, generator=generator).tolist()


def words_of(generator: torch.Generator) -> np.ndarray:
    return generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)


def test_streams_are_named_by_seed_and_words():
    names = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", "1"), (0, 1, "a"), (0,), (0, "a", "1", ""), (-1, "a")]
    for make in (lambda name: drawn(rng.torch_stream(*name)), lambda name: rng.stream(*name).integers(1 << 60)):
        for a, b in itertools.combinations(names, 2):
            assert make(a) != make(b), (a, b)
            assert make(a) == make(a)


def test_keys_that_share_their_low_half_give_different_streams():
    """torch's manual_seed uses 32 bits, and among 100,000 such streams of one run two equal ones are likely."""
    low = [rng.stream_key(8, "augment", number) & 0xFFFFFFFF for number in range(200_000)]
    numbers = np.argsort(low, kind="stable")
    start = int(np.flatnonzero(np.diff(np.array(low)[numbers]) == 0)[0])
    pair = numbers[start : start + 2].tolist()
    a, b = (rng.stream_key(8, "augment", number) for number in pair)
    assert a != b
    assert drawn(torch.Generator().manual_seed(a)) == drawn(torch.Generator().manual_seed(b))  # why it is not used
    first, second = (rng.torch_stream(8, "augment", number) for number in pair)
    assert drawn(first) != drawn(second)
    assert not (words_of(first) == words_of(second)).any()


def test_all_words_of_the_state_come_from_the_key():
    states = np.stack([words_of(rng.torch_stream(3, "word", k)) for k in range(64)])
    assert len(np.unique(states)) == states.size  # 39,936 words of 32 bits: an equal pair has probability .17


def test_draws_are_those_of_numpys_mersenne_twister_with_the_same_words():
    generator = rng.torch_stream(7, "noise", 3)
    theirs = np.random.MT19937()
    state = theirs.state
    state["state"] = {"key": words_of(generator).astype(np.uint32), "pos": 624}
    theirs.state = state
    raw = theirs.random_raw(2000)
    uniform = torch.rand(2000, generator=generator)
    np.testing.assert_array_equal(uniform.numpy(), (raw & 0xFFFFFF).astype(np.float32) / (1 << 24))


def test_every_kind_of_draw_works_and_is_kept_by_a_state():
    generator = rng.torch_stream(1, "kinds")
    torch.randn(5, generator=generator)  # keeps half of a pair
    state = generator.get_state()
    again = torch.Generator()
    again.set_state(state)
    for draw in (torch.randn, torch.randperm, torch.rand):
        assert torch.equal(draw(9, generator=generator), draw(9, generator=again))


@pytest.mark.parametrize("seed", [1.5, "1", None])
def test_a_seed_is_a_whole_number(seed):
    for make in (rng.stream_key, rng.stream, rng.torch_stream):
        with pytest.raises(TypeError):
            make(seed, "a")
    assert rng.stream_key(np.int64(3), "a") == rng.stream_key(3, "a")


@pytest.mark.parametrize("damage", [slice(0, 8), slice(8, 12), slice(24, 32), slice(5015, 5016), slice(5040, 5056)])
def test_another_layout_of_torchs_state_is_refused(monkeypatch, damage):
    class Other(torch.Generator):
        def get_state(self):
            state = super().get_state()
            state[damage] += 1
            return state

    monkeypatch.setattr(torch, "Generator", Other)
    rng._fresh_state.cache_clear()
    try:
        with pytest.raises(RuntimeError, match=f"torch {torch.__version__}".replace("+", r"\+")):
            rng.torch_stream(0, "a")
    finally:
        rng._fresh_state.cache_clear()
