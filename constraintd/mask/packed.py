"""Masks as packed words: little-endian uint32, bit i of word w is token 32 * w + i."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]  # [word_count(logits_width)], dtype "<u4"


def word_count(logits_width: int) -> int:
    """Words that a mask of `logits_width` bits takes."""
    return (logits_width + 31) // 32


def empty(logits_width: int) -> Words:
    """A mask without a bit set."""
    return np.zeros(word_count(logits_width), dtype="<u4")


def of_ids(ids: Iterable[int], logits_width: int) -> Words:
    """A mask of exactly these ids, each in [0, logits_width)."""
    words = empty(logits_width)
    for token in ids:
        words[token >> 5] |= np.uint32(1 << (token & 31))
    return words


def without(words: Words, ids: Iterable[int]) -> Words:
    """A copy of the mask less these ids, each of them inside the mask."""
    rest = words.copy()
    for token in ids:
        rest[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)
    return rest


def has(words: Words, token: int) -> bool:
    """Whether the token's bit is set; false for every id outside the mask."""
    return 0 <= token < 32 * len(words) and bool((int(words[token >> 5]) >> (token & 31)) & 1)


def ids(words: Words) -> NDArray[np.int64]:
    """The set ids, ascending. [n] int64"""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))


def to_bytes(words: Words) -> bytes:
    """The wire form: 4 bytes a word, little-endian."""
    return words.tobytes()
