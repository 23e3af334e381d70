"""Mask first: a row of logits and a mask become the few tokens that are still in play.

Ids are gathered instead of forbidden ones being set to -inf. On a row of 49,152 that costs 80 us for the densest
masks (find the ids, gather, compare) and 15 us for sparse ones, where writing -inf through a boolean mask costs 240 us
whatever the mask is. A forbidden token and one that is -inf come to the same: neither is ever a candidate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.errors import BrokenLogits, NothingLeft


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The tokens still in play, at least one.

    `ids`: int64, ascending. `logits`: float64, of the same length, all finite.
    """

    ids: NDArray[np.int64]
    logits: NDArray[np.float64]

    def keep(self, kept: NDArray[np.bool_]) -> Candidates:
        """Those for which `kept` (one bool a candidate, at least one true) is true."""
        if kept.all():
            return self
        return Candidates(self.ids[kept], self.logits[kept])


def allowed_ids(words: NDArray[np.uint32], width: int) -> NDArray[np.int64]:
    """Ids below `width` whose bit is set, ascending; bit i of little-endian word w is token 32 * w + i."""
    octets = words.astype("<u4", copy=False).view(np.uint8)
    bits = np.unpackbits(octets, count=width, bitorder="little")
    return np.flatnonzero(bits.view(np.bool_))


def is_allowed(words: NDArray[np.uint32], token: int) -> bool:
    """Whether the token's bit is set; `token` is below 32 * len(words)."""
    return bool(int(words[token // 32]) >> token % 32 & 1)


def checked_highest(logits: NDArray[np.float32]) -> int:
    """The id of the highest logit in a row [width], ties by the lowest id.

    Raises BrokenLogits for a row that holds NaN or +inf anywhere, or nothing but -inf. Forbidden ids count too: a row
    with a NaN in it is the work of a broken forward pass, all of it.
    """
    # argmax stops at the first NaN, wherever it is, and is four times as fast as max.
    highest = int(logits.argmax())
    value = float(logits[highest])
    if math.isfinite(value):
        return highest
    if value == -math.inf:
        raise BrokenLogits(f"all {len(logits)} logits are -inf: the model allows no token at all")
    raise BrokenLogits(f"the logit of token {highest} is {value}: the model's forward pass went wrong")


def masked_candidates(logits: NDArray[np.float32], words: NDArray[np.uint32]) -> Candidates:
    """The allowed tokens of a row [width], as `words` (ceil(width / 32) packed words) names them.

    Raises BrokenLogits (see `checked_highest`), and NothingLeft where the row is -inf at every allowed id.
    """
    checked_highest(logits)
    ids = allowed_ids(words, len(logits))
    return _finite(ids, logits.take(ids))


def unmasked_candidates(logits: NDArray[np.float32]) -> Candidates:
    """Every token of a row [width] that is not -inf. For measuring, and for nothing that a user sees.

    Raises BrokenLogits (see `checked_highest`).
    """
    checked_highest(logits)
    return _finite(np.arange(len(logits), dtype=np.int64), logits)


def _finite(ids: NDArray[np.int64], logits: NDArray[np.float32]) -> Candidates:
    possible = logits > -np.inf
    if not possible.all():
        ids, logits = ids[possible], logits[possible]
    if not len(ids):
        raise NothingLeft("every token that the mask allows has the logit -inf")
    return Candidates(ids, logits.astype(np.float64))
