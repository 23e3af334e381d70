"""A session's constraint: the AND of all that it must satisfy, as one mask.

Parts are grammars (awake from the first token, or lazy) and token rules. EOG is legal where every part lets the text
end. Only grammars can leave a text incomplete: a token rule shapes it, and says nothing about what it means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import cast

import numpy as np

from constraintd.engine.deferred import LazyMatcher
from constraintd.engine.llguidance_ import LlguidanceMatcher
from constraintd.engine.matcher import ByteMatcher, Matcher
from constraintd.engine.permissive import ForkWalk, PermissiveWalk, staying
from constraintd.engine.region import PERMISSIVE_BYTES, Region
from constraintd.errors import InvalidEnvelope, InvalidField
from constraintd.mask.packed import Words, empty, has, to_bytes, without
from constraintd.metrics import recording
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
    identity: bytes
    """sha256 over all that makes the part what it is: a place in it is a place in any part of the same identity."""
    start: Callable[[], Matcher]
    at: Callable[[bytes], Matcher]
    """The matcher at a place that `Matcher.place` wrote."""


@dataclass(frozen=True, slots=True)
class MaskView:
    """The mask at one place. `dense` is its wire form: 4 * ceil(logits_width / 32) bytes."""

    dense: bytes
    allows_eog: bool
    complete: bool
    """The text so far satisfies every grammar."""
    exhausted: bool
    """The text may end, and nothing but EOG can follow."""
    dead_end: bool
    """No token at all can follow."""


class Constraint:
    """One session's constraint at its present place. Owns its matchers; one caller at a time."""

    __slots__ = ("_matchers", "_real", "_specs", "_vocabulary", "_words")

    def __init__(self, specs: Sequence[PartSpec], matchers: Sequence[Matcher], vocabulary: Vocabulary) -> None:
        self._specs = tuple(specs)
        self._matchers = tuple(matchers)
        self._vocabulary = vocabulary
        self._real: Words = vocabulary.real_ids
        self._words = empty(vocabulary.logits_width)

    @classmethod
    def start(cls, specs: Sequence[PartSpec], vocabulary: Vocabulary) -> Constraint:
        """Before the first token. No parts: every real id is legal everywhere, and the mask says so."""
        return cls(specs, [spec.start() for spec in specs], vocabulary)

    @classmethod
    def at(cls, specs: Sequence[PartSpec], places: Sequence[tuple[bytes, bytes]], vocabulary: Vocabulary) -> Constraint:
        """At the places that `places` gave, for the same parts in the same order.

        Raises InvalidEnvelope for other parts and for bytes that are no place, ReplayDiverged for tokens that are
        refused now, LimitExceeded.
        """
        if [identity for identity, _ in places] != [spec.identity for spec in specs]:
            raise InvalidEnvelope(
                f"these are places in {len(places)} parts, and not in this constraint: {[s.name for s in specs]}"
            )
        matchers = []
        for spec, (_, place) in zip(specs, places, strict=True):
            try:
                matchers.append(spec.at(place))
            except InvalidField as error:
                raise InvalidEnvelope(f"{spec.name}: {error.message}") from error
        return cls(specs, matchers, vocabulary)

    @classmethod
    def resumed(cls, specs: Sequence[PartSpec], cached: Constraint, vocabulary: Vocabulary) -> Constraint:
        """Each part where `cached` has it (see `carried`), every other at its start; `cached` stays as it is."""
        pairs = zip(specs, carried(cached._specs, specs), strict=True)
        matchers = [spec.start() if old is None else cached._matchers[old].fork() for spec, old in pairs]
        return cls(specs, matchers, vocabulary)

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, for people."""
        return tuple(spec.name for spec in self._specs)

    def mask(self, *, may_end: bool = True) -> MaskView:
        """The legal tokens here. Raises LimitExceeded.

        `may_end` False takes EOG out where another token is legal; where none is, the text ends all the same.
        """
        recorder = recording.active
        began = 0.0 if recorder is None else time.perf_counter()
        words = self._and_of_masks()
        eog_ids = self._vocabulary.eog_ids
        ends = any(has(words, token) for token in eog_ids)
        rest = without(words, eog_ids) if ends else words
        goes_on = bool(rest.any())
        allows_eog = ends and (may_end or not goes_on)
        view = MaskView(
            to_bytes(words if allows_eog else rest),
            allows_eog=allows_eog,
            complete=self.is_complete(),
            exhausted=ends and not goes_on,
            dead_end=not ends and not goes_on,
        )
        if recorder is not None:
            recorder.mask_seconds.observe(time.perf_counter() - began)
        return view

    def consume(self, token: int) -> None:
        """Advances over a legal token that is not terminal. Raises LimitExceeded."""
        recorder = recording.active
        began = 0.0 if recorder is None else time.perf_counter()
        for matcher in self._matchers:
            matcher.consume(token)
        if recorder is not None:
            recorder.advance_seconds.observe(time.perf_counter() - began)

    def consume_all(self, tokens: Sequence[int]) -> None:
        """`consume` for each in turn, faster. Raises LimitExceeded; the constraint is then undefined."""
        for matcher in self._matchers:
            if isinstance(matcher, LlguidanceMatcher):
                matcher.consume_all(tokens)
            else:
                for token in tokens:
                    matcher.consume(token)

    def is_complete(self) -> bool:
        """Whether the text so far satisfies every grammar; a lazy one that never woke is satisfied if it may sleep."""
        return all(
            matcher.is_accepting()
            for spec, matcher in zip(self._specs, self._matchers, strict=True)
            if spec.kind is not PartKind.RULE
        )

    def any_complete(self) -> bool:
        """Whether some grammar is satisfied that is awake: an eager one, or a lazy one that was woken."""
        return any(matcher.is_accepting() for _, matcher in self._awake())

    def incomplete_at_end(self) -> bool:
        """Whether a text that ends here leaves something unsatisfied: two clauses that don't know of each other.

        There are eager grammars and none is complete (behind a reasoning they are eager too, and asleep incomplete);
        or some lazy grammar was woken and is not complete. Source: drama_llama's `constraint_incomplete_at_end`.
        """
        eager = [m for spec, m in zip(self._specs, self._matchers, strict=True) if spec.kind is PartKind.GRAMMAR]
        if eager and not any(matcher.is_accepting() for matcher in eager):
            return True
        return any(kind is PartKind.LAZY and not matcher.is_accepting() for kind, matcher in self._awake())

    def region(self) -> Region:
        """Where this place lies. Token rules and grammars that sleep don't count. Raises LimitExceeded."""
        unfinished = self._unfinished()
        if not unfinished:
            return Region.PROSE
        permissive = all(np.count_nonzero(matcher.legal_bytes()) >= PERMISSIVE_BYTES for matcher in unfinished)
        return Region.PERMISSIVE if permissive else Region.STRUCTURAL

    def stays_within(self, tokens: Sequence[int]) -> list[bool]:
        """For a permissive place, whether each token stays permissive to its last byte, that one included.

        A token without bytes, and one that is refused, does not. Raises LimitExceeded. Some 20 us a token of
        6 bytes, whatever the grammar.
        """
        texts = [self._vocabulary.bytes_of(token) for token in tokens]
        distinct = sorted({text for text in texts if text})
        for matcher in self._unfinished():
            stay = staying(_walk(matcher), distinct)
            distinct = [text for text, stays in zip(distinct, stay, strict=True) if stays]
        within = set(distinct)
        return [text in within for text in texts]

    def places(self) -> list[tuple[bytes, bytes]]:
        """(identity, place) of each part, in order, for `at`."""
        return [(spec.identity, matcher.place()) for spec, matcher in zip(self._specs, self._matchers, strict=True)]

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
        twin._specs, twin._vocabulary = self._specs, self._vocabulary
        twin._real = self._real
        twin._matchers = tuple(matcher.fork() for matcher in self._matchers)
        twin._words = np.empty_like(self._words)
        return twin

    def _awake(self) -> Iterator[tuple[PartKind, ByteMatcher]]:
        """The grammars that don't sleep, as what is awake inside of them."""
        for spec, matcher in zip(self._specs, self._matchers, strict=True):
            if spec.kind is not PartKind.RULE and not is_asleep(matcher):
                yield spec.kind, _innermost(matcher)

    def _unfinished(self) -> list[ByteMatcher]:
        return [matcher for _, matcher in self._awake() if not matcher.is_accepting()]

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


def carried(old: Sequence[PartSpec], new: Sequence[PartSpec]) -> list[int | None]:
    """For each new part the index of the old one whose place it takes over; None: it starts anew.

    An old part is taken over at most once, in order: where a grammar is named once more than before, one of them starts
    anew.
    """
    left = list(enumerate(part.identity for part in old))
    pairs: list[int | None] = []
    for part in new:
        found = next((entry for entry in left if entry[1] == part.identity), None)
        if found is not None:
            left.remove(found)
        pairs.append(None if found is None else found[0])
    return pairs


def is_asleep(matcher: Matcher) -> bool:
    """Whether this is a lazy grammar that waits for its trigger."""
    return isinstance(matcher, LazyMatcher) and matcher.is_awaiting


def _innermost(matcher: Matcher) -> ByteMatcher:
    """What is awake inside a grammar that doesn't sleep, or was refused."""
    while isinstance(matcher, LazyMatcher) and matcher.inner is not None:
        matcher = matcher.inner
    return cast(ByteMatcher, matcher)  # every part but a token rule is one


def _walk(matcher: ByteMatcher) -> PermissiveWalk:
    return matcher.walk() if isinstance(matcher, LlguidanceMatcher) else ForkWalk(matcher)
