"""A session's constraint: the AND of all that it must satisfy, as one mask.

Parts are grammars (awake from the first token, or lazy) and token rules. EOG is legal where every part lets the text
end. Only grammars can leave a text incomplete: a token rule shapes it, and says nothing about what it means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from constraintd.engine.deferred import LazyMatcher
from constraintd.engine.matcher import Matcher
from constraintd.mask.packed import Words, empty, of_ids, to_bytes
from constraintd.vocabulary.vocabulary import Vocabulary


class PartKind(Enum):
    """What a part is: who judges completeness."""

    GRAMMAR = "grammar"
    LAZY = "lazy grammar"
    RULE = "token rule"


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One thing that a session's text must satisfy. `name` is for people, such as "json_schema 1f2e3d4c"."""

    name: str
    kind: PartKind
    start: Callable[[], Matcher]


@dataclass(frozen=True, slots=True)
class MaskView:
    """The mask at one place. `dense` is its wire form: 4 * ceil(logits_width / 32) bytes."""

    dense: bytes
    complete: bool
    """The text so far satisfies every grammar."""
    exhausted: bool
    """The text may end, and nothing but EOG can follow."""
    dead_end: bool
    """No token at all can follow."""


class Constraint:
    """One session's constraint at its present place. Owns its matchers; one caller at a time."""

    __slots__ = ("_eog", "_matchers", "_real", "_specs", "_words")

    def __init__(
        self, specs: Sequence[PartSpec], matchers: Sequence[Matcher], vocabulary: Vocabulary, eog: Words
    ) -> None:
        self._specs = tuple(specs)
        self._matchers = tuple(matchers)
        self._real: Words = vocabulary.real_ids
        self._eog = eog
        self._words = empty(vocabulary.logits_width)

    @classmethod
    def start(cls, specs: Sequence[PartSpec], vocabulary: Vocabulary) -> Constraint:
        """Before the first token. No parts: every real id is legal everywhere, and the mask says so."""
        eog = of_ids(vocabulary.eog_ids, vocabulary.logits_width)
        return cls(specs, [spec.start() for spec in specs], vocabulary, eog)

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, for people."""
        return tuple(spec.name for spec in self._specs)

    def mask(self, *, may_end: bool = True) -> MaskView:
        """The legal tokens here. Raises LimitExceeded.

        `may_end` False takes EOG out where another token is legal; where none is, the text ends all the same.
        """
        words = self._and_of_masks()
        goes_on = bool((words & ~self._eog).any())
        ends = bool((words & self._eog).any())
        if ends and goes_on and not may_end:
            words = words & ~self._eog
        return MaskView(
            to_bytes(words),
            complete=self.is_complete(),
            exhausted=ends and not goes_on,
            dead_end=not ends and not goes_on,
        )

    def consume(self, token: int) -> None:
        """Advances over a legal token that is not terminal. Raises LimitExceeded."""
        for matcher in self._matchers:
            matcher.consume(token)

    def is_complete(self) -> bool:
        """Whether the text so far satisfies every grammar; a lazy one that never woke is satisfied if it may sleep."""
        return all(
            matcher.is_accepting()
            for spec, matcher in zip(self._specs, self._matchers, strict=True)
            if spec.kind is not PartKind.RULE
        )

    def completes_with_terminal(self, token: int) -> bool:
        """Whether the text would satisfy every grammar with this legal token's bytes. Changes nothing.

        A terminal token wakes no lazy grammar.
        """
        ahead = self.fork()
        for spec, matcher in zip(ahead._specs, ahead._matchers, strict=True):
            if spec.kind is not PartKind.RULE and not is_asleep(matcher):
                matcher.consume(token)
        return ahead.is_complete()

    def begins_at(self, name: str) -> int:
        """Where in the text that part's own text begins, in bytes: 0, but for one that was woken later."""
        for spec, matcher in zip(self._specs, self._matchers, strict=True):
            if spec.name == name and isinstance(matcher, LazyMatcher):
                return matcher.fed_from
        return 0

    @property
    def awaiting_trigger(self) -> bool:
        """Whether some lazy grammar still sleeps."""
        return any(is_asleep(matcher) for matcher in self._matchers)

    def fork(self) -> Constraint:
        """The same place, to go on from independently."""
        twin = object.__new__(Constraint)
        twin._specs, twin._real, twin._eog = self._specs, self._real, self._eog
        twin._matchers = tuple(matcher.fork() for matcher in self._matchers)
        twin._words = np.empty_like(self._words)
        return twin

    def _and_of_masks(self) -> Words:
        if not self._matchers:
            return self._real
        words = self._words
        self._matchers[0].fill_mask(words)
        if len(self._matchers) > 1:
            other = np.empty_like(words)
            for matcher in self._matchers[1:]:
                matcher.fill_mask(other)
                np.bitwise_and(words, other, out=words)
        return words


def is_asleep(matcher: Matcher) -> bool:
    """Whether this is a lazy grammar that waits for its trigger."""
    return isinstance(matcher, LazyMatcher) and matcher.is_awaiting
