"""What every engine gives: a compiled grammar that many sessions share, and a matcher for each one's place in it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from constraintd.mask.packed import Words


class Matcher(Protocol):
    """One session's place in one compiled grammar. Not thread-safe: its session lets one caller in at a time.

    After an error the matcher's place is undefined; its owner drops it.
    """

    def fill_mask(self, words: Words) -> None:
        """Writes the legal tokens into `words` ([word_count] uint32), EOG ids included iff `is_accepting`.

        Raises LimitExceeded if the engine gave up. An engine error is never a mask.
        """

    def consume(self, token: int) -> None:
        """Advances over a token whose bit `fill_mask` has set, EOG ids excepted. Raises LimitExceeded."""

    def is_accepting(self) -> bool:
        """Whether what was consumed so far is a whole text of the grammar."""

    def fork(self) -> Matcher:
        """A second matcher at the same place."""

    def place(self) -> bytes:
        """The place, for the `at` of what made the matcher: the same place gives the same bytes in every process.

        An engine that can't write its place by structure writes what it was fed: there two ways to one place differ.
        """


class ByteMatcher(Matcher, Protocol):
    """A Matcher that also advances over bytes, for texts that a token only partly belongs to."""

    def consume_bytes(self, data: bytes) -> bool:
        """Advances over the bytes; False, the place unchanged, if the grammar refuses them. Raises LimitExceeded."""

    def legal_bytes(self) -> NDArray[np.bool_]:
        """[256] bool: with which bytes some continuation of the text goes on from here. Raises LimitExceeded."""

    def fork(self) -> ByteMatcher:
        """A second matcher at the same place."""


class MatcherSource(Protocol):
    """What matchers begin from: shared by all its sessions, safe to use from many threads."""

    def start(self) -> ByteMatcher:
        """A matcher before the first token."""

    def at(self, place: bytes) -> ByteMatcher:
        """A matcher at a place that `Matcher.place` wrote, in this process or another.

        Raises InvalidEnvelope or InvalidField for bytes that are no place here, ReplayDiverged for tokens that are
        refused now, LimitExceeded.
        """


class CompiledGrammar(MatcherSource, Protocol):
    """A grammar compiled for a vocabulary: immutable, shared by all its sessions, safe to use from many threads."""

    @property
    def grammar_id(self) -> str:
        """sha256 of the grammar's canonical form, hex."""

    @property
    def vocabulary_id(self) -> str:
        """Fingerprint of the vocabulary that it was compiled for."""
