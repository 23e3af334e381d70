"""A session's constraint: one mask for all that it must satisfy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from constraintd.engine.matcher import CompiledGrammar, Matcher
from constraintd.mask.packed import Words, empty, of_ids, to_bytes
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class MaskView:
    """The mask at one place. `dense` is its wire form: 4 * ceil(logits_width / 32) bytes."""

    dense: bytes
    complete: bool
    """The text so far satisfies the constraint."""
    exhausted: bool
    """It does, and nothing but EOG can follow."""
    dead_end: bool
    """No token at all can follow."""


class Constraint(Protocol):
    """One session's constraint at its present place."""

    def mask(self) -> MaskView:
        """The legal tokens here. Raises LimitExceeded."""

    def consume(self, token: int) -> None:
        """Advances over a legal token that is not terminal. Raises LimitExceeded."""

    def is_complete(self) -> bool:
        """Whether the text so far satisfies it."""

    def completes_with_terminal(self, token: int) -> bool:
        """Whether the text would satisfy it with this legal token's bytes. Changes nothing."""

    def fork(self) -> Constraint:
        """The same place, to go on from independently."""


class Unconstrained:
    """Every real id is legal everywhere; the mask says so explicitly. Has no state."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._view = MaskView(to_bytes(vocabulary.real_ids), complete=True, exhausted=False, dead_end=False)

    def mask(self) -> MaskView:
        """See Constraint."""
        return self._view

    def consume(self, token: int) -> None:
        """See Constraint."""

    def is_complete(self) -> bool:
        """See Constraint."""
        return True

    def completes_with_terminal(self, token: int) -> bool:  # noqa: ARG002
        """See Constraint."""
        return True

    def fork(self) -> Unconstrained:
        """See Constraint."""
        return self


class GrammarConstraint:
    """One grammar, awake from the first token. Owns its matcher."""

    __slots__ = ("_matcher", "_not_eog", "_words")

    def __init__(self, matcher: Matcher, not_eog: Words, logits_width: int) -> None:
        self._matcher = matcher
        self._not_eog = not_eog
        self._words = empty(logits_width)

    @classmethod
    def start(cls, grammar: CompiledGrammar, vocabulary: Vocabulary) -> GrammarConstraint:
        """Before the first token."""
        width = vocabulary.logits_width
        return cls(grammar.start(), ~of_ids(vocabulary.eog_ids, width), width)

    def mask(self) -> MaskView:
        """See Constraint."""
        self._matcher.fill_mask(self._words)
        complete = self._matcher.is_accepting()
        goes_on = bool(np.bitwise_and(self._words, self._not_eog).any())
        return MaskView(
            to_bytes(self._words),
            complete=complete,
            exhausted=complete and not goes_on,
            dead_end=not complete and not goes_on,
        )

    def consume(self, token: int) -> None:
        """See Constraint."""
        self._matcher.consume(token)

    def is_complete(self) -> bool:
        """See Constraint."""
        return self._matcher.is_accepting()

    def completes_with_terminal(self, token: int) -> bool:
        """See Constraint."""
        ahead = self._matcher.fork()
        ahead.consume(token)
        return ahead.is_accepting()

    def fork(self) -> GrammarConstraint:
        """See Constraint."""
        return GrammarConstraint(self._matcher.fork(), self._not_eog, 32 * len(self._words))
