"""Compiled grammars that are kept, least recently used out first, bounded in bytes; and refusals, for some seconds.

A session holds a Lease on its grammar, and a grammar is pinned while any lease on it lives. The cache itself refers to
the lease only weakly, so there is nothing to count and nothing to forget: a session that is closed, that expires or
that never came to be drops its lease with itself.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from constraintd.engine.matcher import CompiledGrammar
from constraintd.grammar.honesty import is_long_schema, verifier_of
from constraintd.grammar.sandbox_protocol import Refused
from constraintd.grammar.source import Grammar

Key = tuple[str, str]
"""Vocabulary id and grammar id."""

# What the smallest grammar costs: 160 KB measured over 200 schemas of eight properties, and as much again for what its
# lexer grows in use.
SMALLEST_BYTES: Final = 320 << 10
_MOST_REFUSALS: Final = 4096


class Lease:
    """A hold on a compiled grammar: it can't be evicted while this lives. All holders of a grammar share one.

    `source` is what it was compiled from.
    """

    __slots__ = ("__weakref__", "_verifier", "grammar", "source")

    def __init__(self, grammar: CompiledGrammar, source: Grammar) -> None:
        self.grammar = grammar
        self.source = source
        self._verifier: tuple[Callable[[bytes], str | None] | None] | None = None

    def verifier(self) -> Callable[[bytes], str | None] | None:
        """`verifier_of(source)`, made once: it takes 2 ms, four times as much as the rest of opening a session."""
        if self._verifier is None:
            self._verifier = (verifier_of(self.source),)
        return self._verifier[0]

    @property
    def verifies_slowly(self) -> bool:
        """Whether `verifier` takes more than a moment even for a short text."""
        return is_long_schema(self.source)


@dataclass(slots=True)
class _Entry:
    grammar: CompiledGrammar
    source: Grammar
    size: int
    lease: weakref.ref[Lease] | None = None

    def hold(self) -> Lease:
        lease = None if self.lease is None else self.lease()
        if lease is None:
            lease = Lease(self.grammar, self.source)
            self.lease = weakref.ref(lease)
        return lease

    @property
    def pinned(self) -> bool:
        return self.lease is not None and self.lease() is not None


@dataclass(frozen=True, slots=True)
class Statistics:
    """A GrammarCache at one instant; sizes in bytes."""

    entries: int
    size: int
    pinned: int
    limit: int
    evicted: int


class GrammarCache:
    """Owns the compiled grammars. Used from one thread.

    Pinned grammars and the newest stay even if they are more than `limit` bytes: sessions need the former, and whoever
    compiled the latter is about to open a session in it. `evicted` counts what was evicted so far.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._size = 0
        self.evicted = 0

    def add(self, key: Key, grammar: CompiledGrammar, source: Grammar, size: int) -> Lease:
        """Keeps a grammar that takes about `size` bytes."""
        self._drop(key)
        entry = self._entries[key] = _Entry(grammar, source, max(size, SMALLEST_BYTES))
        self._size += entry.size
        lease = entry.hold()
        self.trim()
        return lease

    def find(self, key: Key) -> Lease | None:
        """A hold on the grammar, if it is here."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.hold()

    def trim(self) -> None:
        """Evicts until the bound holds: least recently used first, never a pinned one."""
        if self._size <= self._limit:
            return
        for key in [key for key, entry in self._entries.items() if not entry.pinned]:
            if self._size <= self._limit:
                return
            self._drop(key)
            self.evicted += 1

    def statistics(self) -> Statistics:
        """At this instant."""
        pinned = sum(entry.pinned for entry in self._entries.values())
        return Statistics(len(self._entries), self._size, pinned, self._limit, self.evicted)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry.size


class RefusalCache:
    """Remembers for `seconds` what was refused, so that a client which asks again and again costs no compilation."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._refusals: OrderedDict[object, tuple[float, Refused]] = OrderedDict()

    def add(self, key: object, refused: Refused) -> None:
        """Remembers it, and forgets the oldest of too many."""
        self._refusals[key] = self._clock() + self._seconds, refused
        self._refusals.move_to_end(key)
        if len(self._refusals) > _MOST_REFUSALS:
            self._refusals.popitem(last=False)

    def find(self, key: object) -> Refused | None:
        """The refusal, while it is remembered."""
        found = self._refusals.get(key)
        if found is None:
            return None
        ends, refused = found
        if self._clock() >= ends:
            del self._refusals[key]
            return None
        return refused

    def __len__(self) -> int:
        return len(self._refusals)
