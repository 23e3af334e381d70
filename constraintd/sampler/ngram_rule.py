"""What an n-gram penalty means for one vocabulary, and what it comes to at one position.

Powers are products in a fixed order, never `pow`: NumPy's and the C library's differ from machine to machine in the
last bit, and a session may move to another machine between two tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.config import NGramPenalty, PenaltyMode, SamplerConfig
from constraintd.sampler.ignored import resolve_ignored
from constraintd.sampler.ngram_table import NGramTable
from constraintd.sampler.ngram_targets import Targets, targets_of
from constraintd.sampler.ngrams import NGram
from constraintd.vocabulary.vocabulary import Vocabulary

LARGEST_ADJUSTMENT = 1e15
"""Scales are held within [1 / this, this] and offsets within [-this, this]: so no product of two penalties and a logit
overflows float32, and no token that the mask allows becomes -inf."""

_LOW_BITS = 8
_LOW = (1 << _LOW_BITS) - 1
_HIGH_SIZE = 1 << 13  # 2^21 in all: 65,536 passes of 28 tokens in n-grams of 1 to 7 are fewer


@dataclass(frozen=True, slots=True, eq=False)
class NGramRule:
    """Immutable, and shared by all statistics of a session and its forks. Build it with `of`."""

    penalty: NGramPenalty
    ignored: frozenset[NGram]
    targets: Targets
    frequency: float
    presence: float
    powers: NDArray[np.float64]
    """[window]: decay^age."""
    tabled_from: int
    """An n-gram has a column in the table from so many recordings on: 2 where one that came once can't be punished."""
    id_limit: int
    """Token ids are below this."""

    @classmethod
    def of(cls, penalty: NGramPenalty, config: SamplerConfig, vocabulary: Vocabulary) -> NGramRule:
        """The penalty of a config. Raises InvalidField for texts to ignore that can't be tokenised."""
        ignored = resolve_ignored(penalty.ignored, config.stop_ids, vocabulary)
        width = vocabulary.logits_width

        def punishable(token: int) -> bool:
            # A tokenizer may list more ids than the model has logits.
            return token < width and (token,) not in ignored

        return cls(
            penalty=penalty,
            ignored=ignored,
            targets=targets_of(penalty.mode, penalty.max_size, punishable),
            frequency=max(-LARGEST_ADJUSTMENT, min(penalty.frequency, LARGEST_ADJUSTMENT)),
            presence=max(-LARGEST_ADJUSTMENT, min(penalty.presence, LARGEST_ADJUSTMENT)),
            powers=_powers(penalty.decay, penalty.window),
            tabled_from=1 if penalty.mode is PenaltyMode.BROAD or penalty.max_count < 1 else 2,
            id_limit=max(width, len(vocabulary.token_bytes)),
        )

    def same_as(self, other: NGramRule) -> bool:
        """Whether statistics under the other rule are statistics under this one as they are."""
        return self.penalty == other.penalty and self.ignored == other.ignored and self.id_limit == other.id_limit

    def adjustments(self, table: NGramTable, now: int, tail: NGram) -> Adjustments | None:
        """At the last pass's position `now`, with the history's tail. Sums go by the table's order."""
        n = table.size
        if n == 0:
            return None
        penalty = self.penalty
        effective = table.weights[:n] * self.powers.take(now - table.newest[:n])  # [n] float64
        hot = effective > penalty.max_count  # [n] bool
        surgical = penalty.mode is PenaltyMode.SURGICAL
        acting = hot.nonzero()[0] if surgical else np.arange(n)  # [m]
        targets = self.targets.of(table.cells.take(acting, axis=1), tail)  # [m] int64
        # By target, and stable, so that each target's n-grams stay in the table's order.
        order = targets.argsort(kind="stable")
        targets = targets.take(order)
        nobody = int(targets.searchsorted(0))
        if nobody == len(targets):
            return None
        targets = targets[nobody:]  # [k]
        acting = acting.take(order[nobody:])  # [k]
        begins = np.zeros(len(targets), dtype=np.bool_)  # [k]: where another target begins
        np.not_equal(targets[1:], targets[:-1], out=begins[1:])
        group = begins.cumsum()  # [k]: 0 for the lowest target
        begins[0] = True
        lengths = table.lengths.take(acting)
        if not surgical:
            lengths *= hot.take(acting)
        offsets = np.bincount(group, effective.take(acting) * -self.frequency - self.presence)
        return Adjustments(
            ids=targets[begins].astype(np.uint32),
            scales=_scales(penalty.repeat, np.bincount(group, lengths).astype(np.int64)),
            offsets=within(offsets.astype(np.float64, copy=False), -LARGEST_ADJUSTMENT, LARGEST_ADJUSTMENT),
        )


def within(values: NDArray[np.float64], least: float, most: float) -> NDArray[np.float64]:
    """Each value, held within bounds. A third of `np.clip`'s time for few values."""
    held: NDArray[np.float64] = np.minimum(np.maximum(values, least), most)
    return held


def _scales(repeat: float, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """repeat^length, within bounds."""
    low, high = _repeat_powers(repeat)
    scales = high.take(lengths >> _LOW_BITS) * low.take(lengths & _LOW)
    return within(scales, 1 / LARGEST_ADJUSTMENT, LARGEST_ADJUSTMENT)


@lru_cache(maxsize=64)
def _powers(base: float, size: int) -> NDArray[np.float64]:
    powers = np.full(size, base)
    powers[0] = 1.0
    with np.errstate(over="ignore"):
        powers = powers.cumprod()
    powers.flags.writeable = False
    return powers


@lru_cache(maxsize=64)
def _repeat_powers(repeat: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """repeat^n for n < 256, and repeat^(256 n), as far out as two of them can be multiplied."""
    powers = _powers(repeat, _LOW + 2)
    low, high = powers[:-1], _powers(float(powers[-1]), _HIGH_SIZE)
    return within(low, 1e-150, 1e150), within(high, 1e-150, 1e150)
