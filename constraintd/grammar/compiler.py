"""The front of the compile plane: from a grammar's source to a compiled grammar, once, safely, within a deadline.

A new grammar is first compiled and probed by a disposable child of the sandbox. Only what comes through that is
compiled here, in threads of its own, and kept. Lowering it, which is Python's work and would hold every step back, is
the child's alone: its result comes along with the verdict. Everybody who asks for the same new grammar at the same time
waits for one compilation, which goes on while anybody still waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from constraintd.config import Limits
from constraintd.engine.matcher import CompiledGrammar
from constraintd.errors import ConstraintdError, LimitExceeded, LimitReached, UnknownGrammar
from constraintd.grammar import cache
from constraintd.grammar.cache import GrammarCache, Key, Lease, RefusalCache
from constraintd.grammar.engines import Engines
from constraintd.grammar.native_memory import return_freed_memory
from constraintd.grammar.sandbox import GrammarRefused, Sandbox
from constraintd.grammar.sandbox_protocol import CompileLimits, Refused
from constraintd.grammar.source import Grammar, GrammarKind, GrammarSource, are_large, size_of
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary

# What takes more than this leaves enough behind to be worth a trim, some time later.
_LARGE_BYTES: Final = 256 << 10
# More than these are taken for so much, uncounted.
_MANY_TEXTS: Final = 4096
# Up to here, reading a source takes less than the hop to a thread and back.
_SMALL_SOURCE_BYTES: Final = 2048
_TRIM_SECONDS: Final = 1.0
_NICENESS: Final = 10


class DeadlinePassed(LimitExceeded):
    """The caller's deadline came before the grammar was compiled."""

    code = "DEADLINE_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What compiling gave. Keep `lease` for as long as the grammar is used. `seconds` is 0.0 if it was cached."""

    lease: Lease
    cached: bool
    seconds: float

    @property
    def grammar(self) -> CompiledGrammar:
        """The compiled grammar."""
        return self.lease.grammar


@dataclass(frozen=True, slots=True)
class Statistics:
    """The compile plane at one instant: answers from the cache, compilations begun, and what waits and is kept."""

    hits: int
    misses: int
    joined: int
    """Callers that found somebody else's compilation under way."""
    refused: int
    """Refusals, remembered ones included."""
    in_flight: int
    refusals_kept: int
    cache: cache.Statistics


@dataclass(frozen=True, slots=True)
class _Made:
    lease: Lease
    seconds: float


@dataclass(slots=True)
class _Flight:
    """One compilation under way, and how many wait for it."""

    key: tuple[Key, CompileLimits]
    task: asyncio.Task[_Made | Refused]
    waiters: int = 0


def default_limits(limits: Limits) -> CompileLimits:
    """What a compilation may take if its request doesn't say."""
    return CompileLimits(
        seconds=limits.compile_seconds,
        memory_bytes=limits.compile_memory_bytes,
        stack_bytes=limits.compile_stack_bytes,
        step_seconds=limits.compile_step_seconds,
    )


def most_limits(limits: Limits) -> CompileLimits:
    """What a request may ask for at most."""
    return CompileLimits(
        seconds=max(limits.compile_seconds, limits.max_compile_seconds),
        memory_bytes=max(limits.compile_memory_bytes, limits.max_compile_memory_bytes),
        stack_bytes=limits.compile_stack_bytes,
        step_seconds=max(limits.compile_step_seconds, limits.max_compile_step_seconds),
    )


class GrammarCompiler:
    """Owns the engines, the compile threads and the caches. Used from one event loop."""

    def __init__(self, vocabularies: VocabularyRegistry, sandbox: Sandbox, limits: Limits) -> None:
        self._vocabularies = vocabularies
        self._sandbox = sandbox
        self._default = default_limits(limits)
        self._most = most_limits(limits)
        self._max_waiting = limits.max_waiting_compilations
        self._kept = GrammarCache(limits.max_grammar_cache_bytes)
        self._refusals = RefusalCache(limits.refused_grammar_seconds)
        self._flights: dict[tuple[Key, CompileLimits], _Flight] = {}
        self._room = asyncio.Semaphore(limits.max_compilations)
        self._max_bytes = limits.max_grammar_bytes
        self._threads = ThreadPoolExecutor(limits.max_compilations, "compile", initializer=_stand_back)
        self._interpreters = ThreadPoolExecutor(limits.max_compilations, "compile in Python")
        self._readers = ThreadPoolExecutor(2, "read")
        self._engines: dict[str, Engines] = {}
        self._engines_lock = threading.Lock()
        self._trim_due = False
        self._hits = self._misses = self._joined = self._refused = 0

    def close(self) -> None:
        """Ends what is under way and lets go of the threads; the sandbox is its owner's to close."""
        for flight in list(self._flights.values()):
            flight.task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._interpreters.shutdown(wait=False, cancel_futures=True)
        self._readers.shutdown(wait=False, cancel_futures=True)

    async def prepare(self, vocabulary: Vocabulary) -> None:
        """Builds the vocabulary's engine here and in the helper, 0.1 to 0.6 s, so that no grammar has to wait."""
        await self._sandbox.add_vocabulary(vocabulary)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._interpreters, self._engines_of(vocabulary).prepare, GrammarKind.JSON_SCHEMA)
        gc.freeze()  # a vocabulary stays for good: the collector need not walk its tokens in the middle of a mask

    async def read(self, source: GrammarSource) -> Grammar:
        """The source in canonical form: here, in a thread, or, where that would hold up others, in a child.

        Raises TooLarge, InvalidField, InvalidGrammar, LimitExceeded.
        """
        is_large = are_large(source.texts)
        if not is_large and size_of(source.texts) <= _SMALL_SOURCE_BYTES:
            return source.read(self._max_bytes)
        # Large JSON holds all other threads up for more than a millisecond; a child takes 6 ms more.
        if not (source.is_json and is_large and len(source.texts[0]) <= self._max_bytes):
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._readers, source.read, self._max_bytes)
        try:
            async with self._room:
                return await self._sandbox.read(source, self._max_bytes, self._default)
        except GrammarRefused as error:
            raise error.refused.error() from None

    async def compile(
        self,
        vocabulary_id: str,
        grammar: Grammar,
        *,
        deadline: float | None = None,
        limits: CompileLimits | None = None,
    ) -> Compiled:
        """The grammar, compiled or found. `deadline` by time.monotonic; `limits` are cut to the server's.

        Cancelling, or a deadline that passes, takes away this caller only; the last one's ends the compilation.
        Raises UnknownVocabulary, InvalidGrammar, LimitExceeded (DeadlinePassed among them), LimitReached.
        """
        vocabulary = self._vocabularies.get(vocabulary_id)
        key = (vocabulary_id, grammar.grammar_id)
        lease = self._kept.find(key)
        if lease is not None:
            self._hits += 1
            return Compiled(lease, cached=True, seconds=0.0)
        wanted = self._default if limits is None else limits.capped(self._most)
        refused = self._refusals.find((key, wanted))
        if refused is not None:
            self._refused += 1
            raise refused.error()
        if deadline is not None and time.monotonic() >= deadline:
            raise _too_late()
        made = await self._wait(self._flight(vocabulary, grammar, wanted), deadline)
        return Compiled(made.lease, cached=False, seconds=made.seconds)

    def get(self, vocabulary_id: str, grammar_id: str) -> Lease:
        """A hold on the grammar of that id, compiled before. Raises UnknownVocabulary, UnknownGrammar."""
        self._vocabularies.get(vocabulary_id)
        lease = self._kept.find((vocabulary_id, grammar_id))
        if lease is None:
            raise UnknownGrammar(
                f"no grammar {grammar_id[:80]!r} is compiled for vocabulary {vocabulary_id}; "
                "compile it with CompileGrammar (it may have been evicted), or send its source"
            )
        self._hits += 1
        return lease

    def statistics(self) -> Statistics:
        """At this instant."""
        return Statistics(
            hits=self._hits,
            misses=self._misses,
            joined=self._joined,
            refused=self._refused,
            in_flight=len(self._flights),
            refusals_kept=len(self._refusals),
            cache=self._kept.statistics(),
        )

    def _flight(self, vocabulary: Vocabulary, grammar: Grammar, limits: CompileLimits) -> _Flight:
        """The compilation under way, or a new one. Raises LimitReached."""
        key = ((vocabulary.fingerprint, grammar.grammar_id), limits)
        flight = self._flights.get(key)
        if flight is not None:
            self._joined += 1
            return flight
        if len(self._flights) >= self._max_waiting:
            raise LimitReached("places for waiting compilations", limit=self._max_waiting)
        self._misses += 1
        flight = _Flight(key, asyncio.create_task(self._make(vocabulary, grammar, limits)))
        self._flights[key] = flight

        def landed(task: asyncio.Task[_Made | Refused]) -> None:
            self._forget(flight)
            if not task.cancelled():
                task.exception()  # every waiter has it; asked for here, or asyncio logs it as never seen

        flight.task.add_done_callback(landed)
        return flight

    async def _wait(self, flight: _Flight, deadline: float | None) -> _Made:
        flight.waiters += 1
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                result = await asyncio.shield(flight.task)
        except TimeoutError:
            raise _too_late() from None
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                self._forget(flight)  # at once: who asks from now on must not join what is being ended
                flight.task.cancel()
        if isinstance(result, Refused):
            self._refused += 1
            raise result.error()
        return result

    def _forget(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    async def _make(self, vocabulary: Vocabulary, grammar: Grammar, limits: CompileLimits) -> _Made | Refused:
        """The compilation itself. A refusal is a value here: as an exception it would tie every waiter's frame, and the
        source with it, into a cycle that only the garbage collector could undo."""
        key = (vocabulary.fingerprint, grammar.grammar_id)
        if len(grammar.texts) > _MANY_TEXTS or size_of(grammar.texts) > _LARGE_BYTES:
            self._trim_soon()
        async with self._room:
            try:
                passed = await self._sandbox.try_grammar(vocabulary, grammar, limits)
            except GrammarRefused as error:
                if error.refused.lasting:
                    self._refusals.add((key, limits), error.refused)
                return error.refused
            loop = asyncio.get_running_loop()
            # What nothing has lowered yet is Python's work, or all of it is.
            threads = self._threads if passed.product else self._interpreters
            compiled, size, seconds = await loop.run_in_executor(
                threads, self._compile_here, vocabulary, grammar, passed.product
            )
        # The child's heap grew by what the grammar and its lexer take.
        evicted = self._kept.evicted
        lease = self._kept.add(key, compiled, grammar, size + passed.memory_bytes)
        if passed.memory_bytes > _LARGE_BYTES or self._kept.evicted > evicted:
            self._trim_soon()
        return _Made(lease, seconds)

    def _trim_soon(self) -> None:
        """Gives freed memory back once the present burst of compilations is over."""
        if not self._trim_due:
            self._trim_due = True
            asyncio.get_running_loop().call_later(_TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        self._trim_due = False
        with contextlib.suppress(RuntimeError):  # the threads are gone: the daemon stops
            self._threads.submit(return_freed_memory)

    def _compile_here(
        self, vocabulary: Vocabulary, grammar: Grammar, lowered: bytes | memoryview
    ) -> tuple[CompiledGrammar, int, float]:
        """The compiled grammar, the size of its source, and the seconds that it took."""
        engines = self._engines_of(vocabulary)
        engines.prepare(grammar.kind)
        began = time.perf_counter()
        try:
            compiled = engines.compile(grammar, lowered)
        except ValueError as error:
            raise ConstraintdError(f"what the grammar was lowered to can't be used: {error}; try again") from None
        return compiled, size_of(grammar.texts), time.perf_counter() - began

    def _engines_of(self, vocabulary: Vocabulary) -> Engines:
        with self._engines_lock:
            return self._engines.setdefault(vocabulary.fingerprint, Engines(vocabulary))


def _stand_back() -> None:
    """Lets the threads that step go before this one, which works outside the GIL.

    Not for a thread that works in Python: waiting for a core it would hold the GIL, and all others up.
    """
    if sys.platform == "linux":  # where a thread has a priority of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.nice(0) + _NICENESS))


def _too_late() -> DeadlinePassed:
    return DeadlinePassed("the call's deadline came before the grammar was compiled; allow more time", limit="deadline")
