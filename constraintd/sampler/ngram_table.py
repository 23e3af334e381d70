"""The n-grams that a pick may have to look at, one a column of a few arrays, so that a pick is a few vector operations.

Of a full window of 2,048 passes some 8,000 n-grams are held and a few hundred of them came twice; only those need a
column as long as one that came once can't be punished (`benchmarks sampler` has the figures).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraintd.sampler.ngrams import NGram

_FIRST_CAPACITY = 64


class NGramTable:
    """Columns 0..size-1, without gaps. A column's number changes only when `remove` moves the last one into a gap.

    `weights[i]` is the sum of decay^(newest - position) over the n-gram's recordings, so at least 1: a value that
    never needs a sweep, can't overflow, and loses nothing but what the recordings' own age takes.
    """

    __slots__ = ("_capacity", "cells", "counts", "lengths", "newest", "ngrams", "size", "weights")

    def __init__(self, fields: int) -> None:
        """`fields`: how many numbers the penalty's mode keeps with each n-gram."""
        self._capacity = _FIRST_CAPACITY
        self.size = 0
        self.ngrams: list[NGram] = []
        self.counts: list[int] = []
        self.cells: NDArray[np.int64] = np.zeros((fields, _FIRST_CAPACITY), dtype=np.int64)  # [fields, capacity]
        self.lengths: NDArray[np.int64] = np.zeros(_FIRST_CAPACITY, dtype=np.int64)  # [capacity] tokens
        self.newest: NDArray[np.int64] = np.zeros(_FIRST_CAPACITY, dtype=np.int64)  # [capacity] position
        self.weights: NDArray[np.float64] = np.zeros(_FIRST_CAPACITY)  # [capacity]

    def add(self, ngram: NGram, cells: list[int], *, count: int, newest: int, weight: float) -> int:
        """Gives the n-gram a column; the column's number."""
        at = self.size
        if at == self._capacity:
            self._grow()
        self.size = at + 1
        self.ngrams.append(ngram)
        self.counts.append(count)
        self.cells[:, at] = cells
        self.lengths[at] = len(ngram)
        self.newest[at] = newest
        self.weights[at] = weight
        return at

    def remove(self, at: int) -> NGram | None:
        """Takes a column out; the n-gram that stands there now, if another one was moved."""
        self.size = end = self.size - 1
        ngram = self.ngrams.pop()
        count = self.counts.pop()
        if at == end:
            return None
        self.ngrams[at] = ngram
        self.counts[at] = count
        self.cells[:, at] = self.cells[:, end]
        self.lengths[at] = self.lengths[end]
        self.newest[at] = self.newest[end]
        self.weights[at] = self.weights[end]
        return ngram

    def fork(self) -> NGramTable:
        """An independent copy."""
        twin = object.__new__(NGramTable)
        twin._capacity = self._capacity
        twin.size = self.size
        twin.ngrams = self.ngrams.copy()
        twin.counts = self.counts.copy()
        twin.cells = self.cells.copy()
        twin.lengths = self.lengths.copy()
        twin.newest = self.newest.copy()
        twin.weights = self.weights.copy()
        return twin

    def _grow(self) -> None:
        more = self._capacity
        self._capacity = 2 * more
        self.cells = np.pad(self.cells, ((0, 0), (0, more)))
        self.lengths = np.pad(self.lengths, (0, more))
        self.newest = np.pad(self.newest, (0, more))
        self.weights = np.pad(self.weights, (0, more))
