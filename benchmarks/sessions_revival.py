"""Benchmark `sessions`: what it takes to bring back one long session, in this process and without gRPC.

Revival is all that `SessionTable.get` does for a session that is not hot: its records read from the sqlite file and
decoded, its settings found, its log folded, its next Directive made. Raw replay is a Matcher from its start, moved over
the same tokens one by one; and, for comparison, the same in the bare engine.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import statistics
import tempfile
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from llguidance import LLMatcher

from benchmarks.form import Progress
from benchmarks.sessions_text import SCHEMA, Walk
from constraintd.config import Limits
from constraintd.constraint_plan import GrammarRef
from constraintd.engine.llguidance_ import LlguidanceGrammar, LlguidanceMatcher
from constraintd.grammar.cache import Lease
from constraintd.grammar.compiler import GrammarCompiler
from constraintd.grammar.sandbox import NoSandbox
from constraintd.grammar.source import GrammarSource
from constraintd.replay import Replay, SettingsShelf
from constraintd.revival import Revival
from constraintd.session.session import Pending
from constraintd.session.store.sqlite import SqliteStore
from constraintd.session.store.store import SessionStore
from constraintd.session.table import SessionTable, TableLimits
from constraintd.session_calls import SessionCalls
from constraintd.translate import grammar_source_of
from constraintd.v1 import grammar_pb2, sampler_pb2, session_pb2
from constraintd.vocabularies import Vocabularies
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary

TOKENS = 4096
_T = TypeVar("_T")


def measure_revival(progress: Progress, rounds: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """`revive_ratio_4096`: revival over raw replay, the median of the rounds; `revive_ngram_ms_4096`: with statistics.

    Both by the clock; `..._cpu` by the process's CPU time, which leaves out what other processes took; `..._engine`
    over replay in the bare engine.
    """
    walk = Walk(TOKENS)
    vocabulary = walk.vocabulary()
    raw: list[_Took] = []
    bare: list[_Took] = []
    plain: list[_Took] = []
    ngram: list[_Took] = []
    with tempfile.TemporaryDirectory(prefix="constraintd-") as folder:
        path = Path(folder) / "sessions.sqlite"
        ids = _filled(path, vocabulary, walk)
        # Opened anew, as after a restart: everything lies in the file's tables.
        daemon = _Daemon(vocabulary, SqliteStore(path))
        grammar = daemon.grammar()
        daemon.revive(ids[0]), daemon.revive(ids[1])
        gc.collect()
        gc.freeze()
        for number in range(rounds):
            progress("revivals of a long session", number, rounds)
            raw.append(_replayed(grammar.start(), walk.tokens))
            bare.append(_replayed_bare(grammar._template, walk.tokens))
            plain.append(daemon.revive(ids[0]))
            ngram.append(daemon.revive(ids[1]))
        gc.unfreeze()
        daemon.close()
    progress("revivals of a long session", rounds, rounds)
    ratios = [mine.clock / least.clock for mine, least in zip(plain, raw, strict=True)]
    bare_ratios = [mine.clock / least.clock for mine, least in zip(plain, bare, strict=True)]
    cpu_ratios = [mine.cpu / least.cpu for mine, least in zip(plain, raw, strict=True)]
    figures = {
        "revive_ratio_4096": statistics.median(ratios),
        "revive_ngram_ms_4096": statistics.median(took.clock for took in ngram),
        "revive_ratio_4096_engine": statistics.median(bare_ratios),
        "revive_ratio_4096_cpu": statistics.median(cpu_ratios),
        "revive_ngram_ms_4096_cpu": statistics.median(took.cpu for took in ngram),
    }
    samples = {
        "revive_ratio": ratios,
        "raw_ms": [took.clock for took in raw],
        "engine_ms": [took.clock for took in bare],
        "revive_ms": [took.clock for took in plain],
        "revive_ngram_ms": [took.clock for took in ngram],
    }
    return figures, samples


@dataclass(frozen=True, slots=True)
class _Took:
    """Milliseconds by the clock and of this process's CPU time."""

    clock: float
    cpu: float


class _Timer:
    """From its making on."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.perf_counter(), time.process_time()

    def took(self) -> _Took:
        return _Took((time.perf_counter() - self._clock) * 1e3, (time.process_time() - self._cpu) * 1e3)


def _filled(path: Path, vocabulary: Vocabulary, walk: Walk) -> list[bytes]:
    """A file with one session without n-gram statistics, and one with them, a record a token."""
    daemon = _Daemon(vocabulary, SqliteStore(path))
    ids = [
        daemon.grown(sampler, walk)
        for sampler in (
            sampler_pb2.SamplerConfig(),
            sampler_pb2.SamplerConfig(ngram_penalty=sampler_pb2.NGramPenalty()),
        )
    ]
    daemon.close()
    return ids


def _replayed(matcher: LlguidanceMatcher, tokens: list[int]) -> _Took:
    timer = _Timer()
    for token in tokens:
        matcher.consume(token)
    return timer.took()


def _replayed_bare(template: LLMatcher, tokens: list[int]) -> _Took:
    timer = _Timer()
    matcher = template.deep_copy()
    consume = matcher.consume_token
    for token in tokens:
        consume(token)
    took = timer.took()
    if matcher.is_error():
        raise RuntimeError(f"the walk is refused: {matcher.get_error()}")
    return took


class _Daemon:
    """One daemon's sessions over one vocabulary, as `constraintd.service` puts them together."""

    def __init__(self, vocabulary: Vocabulary, store: SessionStore) -> None:
        limits = Limits()
        self._store = store
        self._vocabulary = vocabulary
        self._loop = asyncio.new_event_loop()
        registry = VocabularyRegistry(1)
        registry.add(vocabulary)
        self._compiler = GrammarCompiler(registry, NoSandbox(), limits)
        self._threads = ThreadPoolExecutor(4)
        vocabularies = Vocabularies(registry, self._compiler.prepare, store.blob, self._threads)
        shelf = SettingsShelf()
        revival = Revival(store, vocabularies, Replay(shelf, limits), self._hold, self._threads)
        bounds = TableLimits(limits.max_sessions, limits.max_hot_session_bytes, limits.session_idle_seconds, 60.0)
        self._table = SessionTable(store, bounds, revival.session, self._threads, revive_at_once=revival.at_once)
        self._calls = SessionCalls(self._table, vocabularies, shelf, limits, self._threads)

    def grown(self, sampler: sampler_pb2.SamplerConfig, walk: Walk) -> bytes:
        """Opens a session and steps it over the walk, token by token; its id."""
        request = session_pb2.OpenSessionRequest(
            session_id=secrets.token_bytes(16),
            vocabulary_id=self._vocabulary.fingerprint,
            constraint=_CONSTRAINT,
            sampler=sampler,
            prompt_tokens=walk.prompt,
        )
        self._run(self._calls.open(request, self._hold))
        session = self._run(self._table.get(request.session_id))
        for position, token in enumerate(walk.tokens):
            passes = (1,) if position else (len(walk.prompt),)
            pending = session.prepare_step(session.epoch, position, [token], [1.5], passes)
            assert isinstance(pending, Pending)
            failed = self._table.keep([pending])[0]
            if failed is not None:
                raise failed
        return request.session_id

    def revive(self, session_id: bytes) -> _Took:
        """Brings a session back."""
        self._table.drop(session_id)
        timer = _Timer()
        session = self._run(self._table.get(session_id))
        took = timer.took()
        if session.position != TOKENS:
            raise RuntimeError(f"{session.position} tokens came back, not {TOKENS}")
        return took

    def grammar(self) -> LlguidanceGrammar:
        """SCHEMA, compiled."""
        ref = GrammarRef("", grammar_source_of(_CONSTRAINT.grammar))
        grammar = self._run(self._hold(self._vocabulary.fingerprint, ref)).grammar
        assert isinstance(grammar, LlguidanceGrammar)
        return grammar

    def close(self) -> None:
        """Ends threads and loop, and writes the file."""
        self._threads.shutdown()
        self._compiler.close()
        self._loop.close()
        self._store.close()

    def _run(self, call: Coroutine[Any, Any, _T]) -> _T:
        return self._loop.run_until_complete(call)

    async def _hold(self, vocabulary_id: str, ref: GrammarRef) -> Lease:
        if not isinstance(ref.source, GrammarSource):
            return self._compiler.get(vocabulary_id, ref.grammar_id)
        return (await self._compiler.compile(vocabulary_id, await self._compiler.read(ref.source))).lease


_CONSTRAINT = session_pb2.Constraint(grammar=grammar_pb2.Grammar(json_schema=SCHEMA.encode()))
