"""The draws: Philox4x64-10 in plain integers.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

WORD = 2**64
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
ROUNDS = 10


def draw(seed: int, position: int) -> float:
    """The number in [0, 1) that picks the token at `position`: the top 53 bits of the block's first word.

    The counter stands at [0, position, 0, 0] and is incremented before the first block, as NumPy does. `seed` and
    `position` are uint64.
    """
    return (block((1, position, 0, 0), (seed, 0))[0] >> 11) * 2.0**-53


def block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four random uint64 words of a counter (four words, the lowest first) and a key (two words)."""
    a, b, c, d = counter
    low_key, high_key = key
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = second // WORD ^ b ^ low_key, second % WORD, first // WORD ^ d ^ high_key, first % WORD
        low_key, high_key = (low_key + KEY_STEPS[0]) % WORD, (high_key + KEY_STEPS[1]) % WORD
    return a, b, c, d
