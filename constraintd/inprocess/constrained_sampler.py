"""ConstrainedSampler: the constraint's mask in front of any sampler."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from constraintd.inprocess.errors import BrokenSampler, NoTokenAllowed
from constraintd.inprocess.rows import Allowed, Row, check_row, legal_row


class TokenConstraint(Protocol):
    """What may come next: a pure function of the tokens so far."""

    def allowed(self, generated: Sequence[int]) -> Allowed:
        """The mask or the ids that are legal behind `generated`: the same for the same tokens, whenever it is asked."""
        ...


class RowSampler(Protocol):
    """An object that picks a token."""

    def sample(self, logits: Row) -> int:
        """The token that is picked from one row, [logits_width]; forbidden ones are -inf. The row is the sampler's."""
        ...


InnerSampler: TypeAlias = RowSampler | Callable[[Row], int]
"""Picks a token from a row: an object with `sample`, or a function. Temperature, top-k and the like happen in it."""


class ConstrainedSampler:
    """One decode's sampler: asks the constraint, masks, lets the inner sampler pick, records.

    Owns the history of what it picked, and nothing else that changes. `constraint` may be replaced between calls: that
    is how a caller widens it after NoTokenAllowed. One caller at a time.

    Source: ConstrainedSampler of kopitiam-runtime.
    """

    __slots__ = ("_generated", "_pick", "constraint")

    def __init__(self, constraint: TokenConstraint, inner: InnerSampler) -> None:
        """Raises TypeError for an inner sampler that has no `sample` and can't be called."""
        pick = getattr(inner, "sample", inner)
        if not callable(pick):
            raise TypeError(f"the inner sampler is {type(inner).__name__}; expected a function or one with `sample`")
        self.constraint = constraint
        self._pick: Callable[[Row], int] = pick
        self._generated: list[int] = []

    @property
    def generated(self) -> tuple[int, ...]:
        """The tokens that it picked since it was made or reset, an EOG included."""
        return tuple(self._generated)

    def reset(self) -> None:
        """Forgets them: the constraint begins again from an empty text."""
        self._generated.clear()

    def try_sample(self, logits: Row) -> int:
        """Picks a legal token from the raw logits, [logits_width] float32 or float64, and records it.

        The row stays as it is: the inner sampler gets a copy. Entries that are -inf already stay forbidden.

        Raises NoTokenAllowed where nothing is left, BrokenSampler where the inner sampler picked what is forbidden,
        ValueError for anything but one row; whatever the constraint and the inner sampler raise goes through. On every
        error the history is as before.
        """
        check_row(logits)
        legal = legal_row(self.constraint.allowed(self.generated), len(logits))
        left = legal & ~np.isneginf(logits)
        if not left.any():
            raise NoTokenAllowed(_nothing_left(len(self._generated), int(legal.sum()), len(legal)))
        row = logits.copy()
        row[~left] = -np.inf
        token = operator.index(self._pick(row))
        if not (0 <= token < len(left) and left[token]):
            raise BrokenSampler(
                f"the inner sampler picked {token}, which is not among the {int(left.sum())} tokens that it may pick; "
                "it must never pick an entry that is -inf"
            )
        self._generated.append(token)
        return token


def _nothing_left(position: int, legal: int, width: int) -> str:
    if legal == 0:
        return f"the constraint allows none of the row's {width} ids at position {position}; widen it and try again"
    return f"the logits of all {legal} tokens that the constraint allows at position {position} are -inf already"
