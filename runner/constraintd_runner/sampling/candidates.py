"""Mask first: a row of logits and a mask become the few tokens that are still in play.

Ids are gathered instead of forbidden ones being set to -inf. On a row of 49,152 that costs 80 us for the densest
masks (find the ids, gather, compare) and 15 us for sparse ones, where writing -inf through a boolean mask costs 240 us
whatever the mask is. A forbidden token and one that is -inf come to the same: neither is ever a candidate. (Where only
the few highest are wanted, `leading` does with less.)
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
        indices = kept.nonzero()[0]
        if len(indices) == len(kept):
            return self
        return Candidates(self.ids.take(indices), self.logits.take(indices))

    def at(self, indices: NDArray[np.int64]) -> Candidates:
        """Those at `indices`, at least one, none twice, in any order; by ascending id again."""
        ordered = np.sort(indices)
        return Candidates(self.ids.take(ordered), self.logits.take(ordered))


def set_bits(words: NDArray[np.uint32], filled: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the set bits, ascending: bit i of little-endian word w is 32 * w + i.

    `filled`: indices of the words that have any, ascending. Others are not unpacked: of 4,096 words with 500 bits
    between them, that takes 18 us instead of 300.
    """
    if filled.size == words.size:
        return np.flatnonzero(_bits(words))
    at = _bits(words.take(filled)).nonzero()[0]
    numbers: NDArray[np.int64] = (filled.take(at >> 5) << 5) | (at & 31)
    return numbers


def filled_words(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Indices of the words that are not 0, ascending."""
    # Comparing first makes a search through bools of it, which takes half of the time.
    indices: NDArray[np.int64] = (words != 0).nonzero()[0]
    return indices


def allowed_ids(words: NDArray[np.uint32], width: int, filled: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Ids below `width` whose bit is set, ascending; bit i of little-endian word w is token 32 * w + i.

    `filled`: what `filled_words` gives, where it is known already.
    """
    if filled is None:
        filled = filled_words(words)
    if filled.size * 4 > words.size:
        return np.flatnonzero(_bits(words)[:width])
    ids = set_bits(words, filled)
    return ids[: ids.searchsorted(width)] if ids.size and ids[-1] >= width else ids


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


def masked_candidates(
    logits: NDArray[np.float32], words: NDArray[np.uint32], filled: NDArray[np.int64] | None = None
) -> Candidates:
    """The allowed tokens of a row [width], as `words` (ceil(width / 32) packed words) names them.

    `filled` as for `allowed_ids`. Raises BrokenLogits (see `checked_highest`), and NothingLeft where the row is -inf
    at every allowed id.
    """
    checked_highest(logits)
    ids = allowed_ids(words, len(logits), filled)
    return finite_candidates(ids, logits.take(ids))


def unmasked_candidates(logits: NDArray[np.float32]) -> Candidates:
    """Every token of a row [width] that is not -inf. For measuring, and for nothing that a user sees.

    Raises BrokenLogits (see `checked_highest`).
    """
    checked_highest(logits)
    return finite_candidates(np.arange(len(logits), dtype=np.int64), logits)


def finite_candidates(ids: NDArray[np.int64], logits: NDArray[np.float32]) -> Candidates:
    """The given tokens, ids ascending, without those whose logit is -inf. Raises NothingLeft if that leaves none."""
    possible = (logits > -np.inf).nonzero()[0]
    if len(possible) < len(ids):
        ids, logits = ids.take(possible), logits.take(possible)
    if not len(ids):
        raise NothingLeft("every token that the mask allows has the logit -inf")
    return Candidates(ids, logits.astype(np.float64))


def _bits(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """[32 * len(words)]: the words' bits in order, on hosts of either byte order."""
    octets = words.astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, bitorder="little").view(np.bool_)
