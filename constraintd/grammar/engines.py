"""Which engine compiles which kind of grammar: one table, read by the daemon and by the disposable child alike.

The choice is made for each grammar and never for a process: no request's kind can decide for a later one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.engine.matcher import CompiledGrammar
from constraintd.engine.pushdown import PushdownEngine
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.vocabulary.vocabulary import Vocabulary


class Engine(Protocol):
    """Compiles grammars of its kinds for one vocabulary; safe to use from many threads."""

    def lower(self, grammar: Grammar) -> bytes:
        """What Python works out before the engine itself sees the grammar, for `compile` in another process.

        Empty for an engine that is Python as a whole: that one compiles in the daemon, too, where every step of
        everybody waits for it in part. Raises InvalidGrammar, LimitExceeded.
        """

    def compile(self, grammar: Grammar, lowered: bytes | memoryview = b"") -> CompiledGrammar:
        """`lowered`, if it is given, is what `lower` made of this grammar. Raises InvalidGrammar, LimitExceeded, and
        ValueError for bytes that `lower` never made.
        """


class GbnfEngine:
    """The pushdown engine, for grammars as they come from the protocol: a text and the name of its root."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._engine = PushdownEngine(vocabulary)

    def lower(self, grammar: Grammar) -> bytes:  # noqa: ARG002
        """See Engine."""
        return b""

    def compile(self, grammar: Grammar, lowered: bytes | memoryview = b"") -> CompiledGrammar:  # noqa: ARG002
        """See Engine."""
        text, root = grammar.texts
        return self._engine.compile(grammar.grammar_id, text, root=root)


MakeEngine = Callable[[Vocabulary], Engine]

_ENGINES: Final[Mapping[GrammarKind, MakeEngine]] = {
    GrammarKind.JSON_SCHEMA: LlguidanceEngine,
    GrammarKind.JSON_OBJECT: LlguidanceEngine,
    GrammarKind.REGEX: LlguidanceEngine,
    GrammarKind.LARK: LlguidanceEngine,
    GrammarKind.CHOICE: LlguidanceEngine,
    GrammarKind.STRUCTURAL_TAG: LlguidanceEngine,
    GrammarKind.TOOLS: LlguidanceEngine,
    GrammarKind.GBNF: GbnfEngine,
}


def engine_for(kind: GrammarKind) -> MakeEngine:
    """What makes the engine that compiles grammars of this kind. Every kind has exactly one."""
    return _ENGINES[kind]


class Engines:
    """The engines of one vocabulary, each made when a grammar first needs it. Owns them; thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._made: dict[MakeEngine, Engine] = {}
        self._lock = threading.Lock()

    def has(self, kind: GrammarKind) -> bool:
        """Whether the engine of that kind has been made."""
        with self._lock:
            return engine_for(kind) in self._made

    def prepare(self, kind: GrammarKind) -> Engine:
        """The engine of that kind; the first call makes it (token trie: 0.1 to 0.6 s)."""
        make = engine_for(kind)
        with self._lock:
            engine = self._made.get(make)
            if engine is None:
                engine = self._made[make] = make(self.vocabulary)
            return engine

    def lower(self, grammar: Grammar) -> bytes:
        """See Engine."""
        return self.prepare(grammar.kind).lower(grammar)

    def compile(self, grammar: Grammar, lowered: bytes | memoryview = b"") -> CompiledGrammar:
        """The grammar, compiled here and now without any bound. See Engine."""
        return self.prepare(grammar.kind).compile(grammar, lowered)
