"""Named random streams, keyed by a seed and a few words.

`stream(seed, "noise")` and `stream(seed, "batches", round, client)` are independent. They need no saving and do not
depend on which was made first. So neither scheduling nor resuming can change a result. Nothing draws from global state.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fednoise_core.io import SpecError

if TYPE_CHECKING:
    import torch

Word = str | int
WORDS = 624  # of 32 bits: the state of a Mersenne Twister (Matsumoto & Nishimura 1998)
# torch's CPU generator as 632 numbers of 64 bits: its seed; how many words are left before the next twist, and whether
# it is seeded, 32 bits each; the next word's place; the words, one a number; what is kept of the last normal draw
NUMBERS = 632
STATE = slice(3, 3 + WORDS)
SEEDED = (1 << 32) | 1  # seeded, one word left: the first draw twists


def stream_key(seed: int, *key: Word) -> int:
    """Key of a stream.

    Args:
        seed: Whole number.
        *key: Texts and numbers. `1` and `"1"` are different words.

    Returns:
        A number of 64 bits.

    Raises:
        TypeError: The seed is not a whole number.
    """
    return int.from_bytes(hashlib.blake2b(_encode_words(seed, key), digest_size=8).digest(), "little")


def stream(seed: int, *key: Word) -> np.random.Generator:
    """Fresh numpy generator of a stream.

    Args:
        seed: Whole number.
        *key: Texts and numbers.

    Returns:
        A generator (PCG64) at the start of its stream.
    """
    return np.random.Generator(np.random.PCG64(stream_key(seed, *key)))


@contextlib.contextmanager
def refuse_global_draws(place: str) -> Iterator[None]:
    """Check that code of others draws its random numbers from the generator that it was given.

    Args:
        place: What the code is, for messages.

    Raises:
        SpecError: numpy's or torch's global generator was used.
    """
    before = _global_states()
    yield
    if drawn := [name for name, state in _global_states().items() if state != before.get(name, state)]:
        raise SpecError(f"{place}: it uses {drawn[0]}'s global random numbers; draw from its argument `rng`")


def _global_states() -> dict[str, bytes]:
    numpy = np.random.get_state(legacy=False)["state"]
    states = {"numpy": numpy["key"].tobytes() + bytes(str(numpy["pos"]), "ascii")}
    if torch := sys.modules.get("torch"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def torch_stream(seed: int, *key: Word) -> torch.Generator:
    """Fresh torch generator of a stream.

    Draw on the CPU and move the result. Then every device sees the same numbers.

    All 19,968 bits of the state come from a hash of seed and words. `manual_seed` would keep 32 bits of a key, and some
    streams of one long run would be equal.

    Args:
        seed: Whole number.
        *key: Texts and numbers.

    Returns:
        A CPU generator (MT19937) at the start of its stream.

    Raises:
        RuntimeError: This torch keeps the state of its generator in another form.
    """
    import torch

    state = _fresh_state().copy()
    bits = np.frombuffer(hashlib.shake_128(_encode_words(seed, key)).digest(4 * (WORDS + 1)), "<u4")
    state[0] = bits[WORDS]  # what `initial_seed` tells; nothing is drawn from it
    state[STATE] = bits[:WORDS]
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(state.view(np.uint8)))
    return generator


def _encode_words(seed: int, key: tuple[Word, ...]) -> bytes:
    named = (operator.index(seed), *key)
    return "\x1f".join(("s" if isinstance(word, str) else "i") + str(word) for word in named).encode()


@functools.cache
def _fresh_state() -> np.ndarray:
    """State of a torch generator that was just seeded, uint64 [632].

    Its layout is not documented. Therefore it is compared with numpy's generator of the same seed, which is the same
    algorithm.
    """
    import torch

    seed = 5489
    state = torch.Generator().manual_seed(seed).get_state().numpy().copy()
    numbers = state.view(np.uint64) if state.nbytes == 8 * NUMBERS else np.zeros(NUMBERS, np.uint64)
    expected = np.zeros(NUMBERS, np.uint64)
    expected[:2] = seed, SEEDED
    expected[STATE] = np.random.RandomState(seed).get_state(legacy=False)["state"]["key"]
    if not np.array_equal(numbers, expected):
        version = f"torch {torch.__version__}"
        raise RuntimeError(
            f"{version} keeps the state of its CPU generator in a form that fednoise_core.rng does not know; "
            "use a torch from 2.11 to 2.14"
        )
    return expected
