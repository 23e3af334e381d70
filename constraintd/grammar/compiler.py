"""Compiles grammars for vocabularies and keeps what it compiled."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.engine.matcher import CompiledGrammar
from constraintd.errors import UnknownGrammar
from constraintd.grammar.source import Grammar
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling gave. `seconds` is 0.0 if it was cached."""

    grammar: CompiledGrammar
    cached: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The cache, for people: entries held, answers from it, and compilations."""

    entries: int
    hits: int
    misses: int


class GrammarCompiler:
    """Engines by vocabulary and compiled grammars by (vocabulary, grammar), least recently used out first.

    Owns both; safe to use from many threads. An evicted grammar lives on in the sessions that use it.
    """

    def __init__(self, vocabularies: VocabularyRegistry, *, max_grammars: int) -> None:
        self._vocabularies = vocabularies
        self._max_grammars = max_grammars
        self._engines: dict[str, LlguidanceEngine] = {}
        self._compiled: OrderedDict[tuple[str, str], CompiledGrammar] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    def prepare(self, vocabulary: Vocabulary) -> None:
        """Builds the vocabulary's engine (its token trie), 0.1 to 0.6 s, so that no grammar has to wait for it."""
        engine = LlguidanceEngine(vocabulary)
        with self._lock:
            self._engines.setdefault(vocabulary.fingerprint, engine)

    def compile(self, vocabulary_id: str, grammar: Grammar) -> Compiled:
        """The grammar, compiled or found. Raises UnknownVocabulary, InvalidGrammar, LimitExceeded."""
        key = (vocabulary_id, grammar.grammar_id)
        with self._lock:
            found = self._compiled.get(key)
            if found is not None:
                self._compiled.move_to_end(key)
                self._hits += 1
                return Compiled(found, cached=True, seconds=0.0)
            self._misses += 1
        began = time.perf_counter()
        compiled = self._engine(vocabulary_id).compile(grammar)
        seconds = time.perf_counter() - began
        with self._lock:
            self._compiled[key] = compiled
            while len(self._compiled) > self._max_grammars:
                self._compiled.popitem(last=False)
        return Compiled(compiled, cached=False, seconds=seconds)

    def get(self, vocabulary_id: str, grammar_id: str) -> CompiledGrammar:
        """The grammar of that id, compiled before. Raises UnknownVocabulary, UnknownGrammar."""
        self._vocabularies.get(vocabulary_id)
        key = (vocabulary_id, grammar_id)
        with self._lock:
            found = self._compiled.get(key)
            if found is None:
                raise UnknownGrammar(
                    f"no grammar {grammar_id[:80]!r} is compiled for vocabulary {vocabulary_id}; "
                    "compile it with CompileGrammar (it may have been evicted), or send its source"
                )
            self._compiled.move_to_end(key)
            self._hits += 1
            return found

    def statistics(self) -> Statistics:
        """The cache at this instant."""
        with self._lock:
            return Statistics(len(self._compiled), self._hits, self._misses)

    def _engine(self, vocabulary_id: str) -> LlguidanceEngine:
        engine = self._engines.get(vocabulary_id)
        if engine is None:
            self.prepare(self._vocabularies.get(vocabulary_id))
            engine = self._engines[vocabulary_id]
        return engine
