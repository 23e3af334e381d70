"""Which token an n-gram punishes: the two modes, each with the cells that it keeps in the table's columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from constraintd.sampler.config import PenaltyMode
from constraintd.sampler.ngrams import NGram
from constraintd.vocabulary.vocabulary import MAX_IDS

NOBODY = -1
"""The target of an n-gram that punishes no token."""

_BITS = (MAX_IDS - 1).bit_length()  # of a token id
_PACKED = 3  # so many ids fit into one int64
_NONE = -1  # a prefix that the n-gram hasn't

Punishable = Callable[[int], bool]


class Targets(Protocol):
    """A mode's way from n-grams to the tokens they punish."""

    @property
    def fields(self) -> int:
        """Cells of an n-gram."""
        ...

    def cells(self, ngram: NGram) -> list[int]:
        """What `of` needs of an n-gram: [fields] int64."""
        ...

    def of(self, cells: NDArray[np.int64], tail: NGram) -> NDArray[np.int64]:
        """From cells [fields, n] and the history's tail the targets: [n] token ids or NOBODY."""
        ...


def targets_of(mode: PenaltyMode, max_size: int, punishable: Punishable) -> Targets:
    """The mode's targets for n-grams of up to `max_size` tokens."""
    return BroadTargets(punishable) if mode is PenaltyMode.BROAD else SurgicalTargets(max_size, punishable)


@dataclass(frozen=True, slots=True)
class BroadTargets:
    """The n-gram's last token that may be punished."""

    punishable: Punishable

    @property
    def fields(self) -> int:
        """The target."""
        return 1

    def cells(self, ngram: NGram) -> list[int]:
        """[target]."""
        return [next(filter(self.punishable, reversed(ngram)), NOBODY)]

    def of(self, cells: NDArray[np.int64], tail: NGram) -> NDArray[np.int64]:  # noqa: ARG002
        """[n]: the same, whatever the tail."""
        targets: NDArray[np.int64] = cells[0]
        return targets


@dataclass(frozen=True, slots=True)
class SurgicalTargets:
    """The token with which the n-gram would go on: the one behind its longest proper prefix that ends the history.

    Cells: the tokens [max_size], NOBODY for those that may not be punished; then the prefixes of 1, 2, .. tokens
    [max_size - 1], packed, _NONE where the n-gram is not longer than that. A prefix over three tokens is packed
    without its first three, which stand in the prefix of three.
    """

    max_size: int
    punishable: Punishable

    @property
    def fields(self) -> int:
        """Tokens and prefixes."""
        return 2 * self.max_size - 1

    def cells(self, ngram: NGram) -> list[int]:
        """[2 * max_size - 1]."""
        size = len(ngram)
        absent = self.max_size - size
        return [
            *[token if self.punishable(token) else NOBODY for token in ngram],
            *[NOBODY] * absent,
            *[_packed(ngram[_PACKED:k] if k > _PACKED else ngram[:k]) for k in range(1, size)],
            *[_NONE] * absent,
        ]

    def of(self, cells: NDArray[np.int64], tail: NGram) -> NDArray[np.int64]:
        """[n]; `tail` is the history's last `max_size` tokens, fewer where it is shorter."""
        targets: NDArray[np.int64] = cells[0].copy()  # of the empty prefix
        size = self.max_size
        prefixes = cells[size:]  # [max_size - 1, n]
        longest = min(size - 1, len(tail))
        short = min(longest, _PACKED)
        if short == 0:
            return targets
        ends = np.array([[_packed(tail[-k:])] for k in range(1, short + 1)])  # [short, 1]
        lengths, at = (prefixes[:short] == ends).nonzero()
        if lengths.size:
            # Lengths ascend, and of several assignments to one element the last one, the longest prefix, holds.
            targets[at] = cells[lengths + 1, at]
        for k in range(_PACKED + 1, longest + 1):
            head, rest = _packed(tail[-k:][:_PACKED]), _packed(tail[-k:][_PACKED:])
            at = ((prefixes[_PACKED - 1] == head) & (prefixes[k - 1] == rest)).nonzero()[0]
            targets[at] = cells[k, at]
        return targets


def _packed(tokens: NGram) -> int:
    """At most three ids in one number; prefixes are compared by their length apart, so that none is mistaken."""
    packed = 0
    for token in tokens:
        packed = packed << _BITS | token
    return packed
