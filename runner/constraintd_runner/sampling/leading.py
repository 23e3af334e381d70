"""The few highest of a long row: all that a chain needs which begins with top-k, or is greedy.

Penalties, top-k 40, top-p, min-p and temperature over 131,072 logits, nearly all of them allowed: 0.2 ms, where
gathering all the allowed ones, in float64, and partitioning them takes 1.7. A row is cut into many columns; the k-th
highest of the columns' maxima is a bound that at least k logits reach, and only columns that reach it are looked into.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.adjustments import Adjustments, change
from constraintd_runner.sampling.candidates import (
    Candidates,
    checked_highest,
    filled_words,
    masked_candidates,
    set_bits,
)
from constraintd_runner.sampling.errors import NothingLeft

_COLUMNS = 1024
"""At least so many columns, and four times k: then hardly more than k logits reach the bound."""
_MINUS_INFINITY = np.float32(-np.inf).view(np.int32)
"""The bits of float32 -inf."""


def leading_candidates(
    logits: NDArray[np.float32], words: NDArray[np.uint32], k: int, adjustments: Adjustments | None
) -> Candidates:
    """Allowed tokens of a row [width], adjusted: the k highest are among them, ties at the k-th place too.

    Which others are, is nobody's business: the stage that follows drops them. Raises what `masked_candidates` and
    `Adjustments.apply` raise.
    """
    filled = filled_words(words)
    columns = max(_COLUMNS, 1 << (4 * k - 1).bit_length())
    if filled.size * 4 <= words.size or len(logits) < 8 * columns:
        candidates = masked_candidates(logits, words, filled)
        return candidates if adjustments is None else adjustments.apply(candidates)
    checked_highest(logits)
    row = _masked_row(logits, words)
    # Adjusted ones leave the row and are candidates whatever they have become: of the others, the k highest suffice.
    apart = None if adjustments is None else _taken_out(row, adjustments)
    ids = _reaching(row, k, columns)
    values = row.take(ids).astype(np.float64)
    if apart is not None:
        ids, values = np.concatenate((ids, apart.ids)), np.concatenate((values, apart.logits))
        order = ids.argsort()
        ids, values = ids.take(order), values.take(order)
    if not ids.size:
        raise NothingLeft("every token that the mask allows has the logit -inf, or gets it by penalties")
    return Candidates(ids, values)


def _masked_row(logits: NDArray[np.float32], words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """A copy of the row [width] with -inf at forbidden ids."""
    width = len(logits)
    inverted = np.invert(words)
    filled = filled_words(inverted)
    if filled.size * 4 <= words.size:
        row = logits.copy()
        forbidden = set_bits(inverted, filled)
        row[forbidden[: forbidden.searchsorted(width)]] = -np.inf
        return row
    # Bit arithmetic on the floats costs the same for every mask; a selection by bools is five times slower on mixed
    # ones (mispredicted branches).
    octets = words.astype("<u4", copy=False).view(np.uint8)
    keep = np.unpackbits(octets, count=width, bitorder="little").astype(np.int32)  # [width]
    np.negative(keep, out=keep)  # all bits of an allowed token's logit, none of another's
    raw = np.bitwise_and(logits.view(np.int32), keep)
    np.invert(keep, out=keep)
    keep &= _MINUS_INFINITY
    raw |= keep
    return raw.view(np.float32)


def _taken_out(row: NDArray[np.float32], adjustments: Adjustments) -> Candidates:
    """The adjusted tokens, possibly none, with their new logits; `row` has -inf in their place."""
    ids, scales, offsets = adjustments.ids, adjustments.scales, adjustments.offsets
    within = ids < len(row)
    if not within.all():
        ids, scales, offsets = ids[within], scales[within], offsets[within]
    values = row.take(ids).astype(np.float64)
    row[ids] = -np.inf
    legal = values > -np.inf  # before the change: of -inf, a scale and an offset can't make anything else
    changed = change(values[legal], scales[legal], offsets[legal])
    possible = changed > -np.inf
    return Candidates(ids[legal][possible].astype(np.int64), changed[possible])


def _reaching(row: NDArray[np.float32], k: int, columns: int) -> NDArray[np.int64]:
    """Ids, ascending, of those that reach a bound which at least k of the row reach; -inf never does."""
    rows = len(row) // columns
    body = row[: rows * columns].reshape(rows, columns)
    rest = row[rows * columns :]
    maxima = body.max(axis=0)  # [columns]
    bound = np.partition(maxima, columns - k)[columns - k]
    if bound == -np.inf:
        return np.flatnonzero(row > -np.inf)
    which = (maxima >= bound).nonzero()[0]
    down, across = (body[:, which] >= bound).nonzero()
    ids: NDArray[np.int64] = down * columns + which.take(across)
    if rest.size:
        return np.concatenate((ids, rows * columns + (rest >= bound).nonzero()[0]))
    return ids
