"""Grammar sources that were read lately: sending one again costs no reading, a third of a warm CompileGrammar, and no
putting together of its answer, 55 us for a report of 50 keywords."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from constraintd.grammar.source import Grammar, GrammarSource, size_of
from constraintd.v1 import grammar_pb2

_MOST: Final = 512
_LONGEST_BYTES: Final = 32 << 10  # 16 MiB in all
_LOOKED_AT: Final = 1024


@dataclass(slots=True)
class Known:
    """A source as it was read, and the answer to sending it again once it has been compiled; not to be written to."""

    grammar: Grammar
    answer: grammar_pb2.CompileGrammarResponse | None = None


class KnownSources:
    """By the message's own bytes; least recently used out first. Used from one event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Known] = OrderedDict()

    @staticmethod
    def key(message: grammar_pb2.Grammar, source: GrammarSource) -> bytes:
        """What a message with this source is known by; empty for one that is too long to be kept, and so never known.

        Measuring a message means writing it out, 2 ms for one of 10 MB, so a long one is told by its texts.
        """
        texts = source.texts
        if len(texts) > _LONGEST_BYTES or size_of(texts[:_LOOKED_AT]) > _LONGEST_BYTES:
            return b""
        written = message.SerializeToString(deterministic=True)
        return written if len(written) <= _LONGEST_BYTES else b""

    def find(self, key: bytes) -> Known | None:
        """What was read from that message."""
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
        return known

    def add(self, key: bytes, grammar: Grammar) -> Known:
        """Keeps it, if it has a key."""
        known = Known(grammar)
        if key:
            self._known[key] = known
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return known
