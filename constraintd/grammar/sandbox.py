"""The daemon's side of the compile sandbox: keeps one helper process alive and asks it to try grammars.

The helper is a process of its own, started by exec rather than by fork, since a daemon that runs gRPC can't be forked
safely, and a large one not quickly (26 to 52 ms at 1.6 GB, against 2 to 6 ms from the helper). What a grammar does to
the child that tries it stays there. If the helper itself dies, it is started again and what it was asked is asked once
more; nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from constraintd.errors import ConstraintdError
from constraintd.grammar.sandbox_protocol import (
    MAX_ANSWER_BYTES,
    AddVocabulary,
    CancelTry,
    CompileLimits,
    Faulted,
    Passed,
    ReadSource,
    Refused,
    TryGrammar,
    Verdict,
    answer_of,
    request_frame,
)
from constraintd.grammar.sandbox_socket import FrameSocket
from constraintd.grammar.source import LARGE_BYTES, Grammar, GrammarSource, are_large
from constraintd.vocabulary.vocabulary import Vocabulary

# Past a try's own limit, before the helper itself is taken to hang: it may be building another vocabulary's trie.
_GRACE_SECONDS: Final = 30.0
PROGRAM: Final = "from constraintd.grammar.sandbox_process import main; main()"
_log = logging.getLogger(__name__)


class SandboxUnavailable(Exception):
    """This system can't run the sandbox; the message says why and what to do."""


class GrammarRefused(Exception):
    """The try's outcome is this error of the protocol; `lasting` if it would come out the same again."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


class Sandbox(Protocol):
    """Tries grammars where they can hurt nobody. Used from one event loop, but for `start` and `close`."""

    def start(self) -> None:
        """Gets ready. Raises SandboxUnavailable."""

    async def add_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Makes the vocabulary known ahead of its first grammar."""

    async def try_grammar(self, vocabulary: Vocabulary, grammar: Grammar, limits: CompileLimits) -> Passed:
        """Compiles and probes the grammar. Cancelling ends the try. Raises GrammarRefused."""

    async def read(self, source: GrammarSource, max_bytes: int, limits: CompileLimits) -> Grammar:
        """Reads a source of JSON, at most `max_bytes` long. Cancelling ends it.

        Raises GrammarRefused, or what the source's own `read` raises.
        """

    def close(self) -> None:
        """Ends it."""


class NoSandbox:
    """Lets every grammar pass untried: for tools that compile their own user's grammars, and for tests."""

    def start(self) -> None:
        """See Sandbox."""

    async def add_vocabulary(self, vocabulary: Vocabulary) -> None:
        """See Sandbox."""

    async def try_grammar(self, vocabulary: Vocabulary, grammar: Grammar, limits: CompileLimits) -> Passed:  # noqa: ARG002
        """See Sandbox."""
        return Passed(seconds=0.0, step_seconds=0.0, steps=0, memory_bytes=0)

    async def read(self, source: GrammarSource, max_bytes: int, limits: CompileLimits) -> Grammar:  # noqa: ARG002
        """See Sandbox."""
        return source.read(max_bytes)

    def close(self) -> None:
        """See Sandbox."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of one HelperSandbox: times that a helper was started, grammars tried, and tries under way."""

    starts: int
    tried: int
    under_way: int
    pid: int | None


class HelperSandbox:
    """Owns the helper process. `start` may be called early, before an event loop runs."""

    def __init__(self, program: str = PROGRAM) -> None:
        """`program` is the helper's Python text; tests give one with an engine that breaks."""
        self._program = program
        self._helper: _Helper | None = None
        self._starts = self._tried = 0

    def start(self) -> None:
        """Starts the helper, so that the first grammar need not wait for it (0.3 s).

        Raises SandboxUnavailable on a system without Linux's process limits.
        """
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailable(
                f"compiling grammars safely needs Linux (fork, RLIMIT_AS, memfd), this is {sys.platform}; run the "
                "daemon in a Linux container, or with --no-sandbox if you trust every grammar that it will be sent"
            )
        self._starts += 1
        self._helper = _Helper(self._program)

    async def add_vocabulary(self, vocabulary: Vocabulary) -> None:
        """See Sandbox."""
        with contextlib.suppress(_HelperDied):  # the first grammar will start another helper
            await self._alive().know(vocabulary)

    async def try_grammar(self, vocabulary: Vocabulary, grammar: Grammar, limits: CompileLimits) -> Passed:
        """See Sandbox. Raises ConstraintdError if the helper dies over it twice."""
        self._tried += 1
        what = f"grammar {grammar.grammar_id}"
        return await self._passed(what, lambda helper: helper.try_grammar(vocabulary, grammar, limits))

    async def read(self, source: GrammarSource, max_bytes: int, limits: CompileLimits) -> Grammar:
        """See Sandbox. Raises ConstraintdError if the helper dies over it twice."""
        passed = await self._passed(source.field, lambda helper: helper.read(source, max_bytes, limits))
        texts = [passed.product]
        if len(passed.product) > LARGE_BYTES:
            return await asyncio.to_thread(source.canonical, texts)
        return source.canonical(texts)

    async def _passed(self, what: str, ask: Callable[[_Helper], Awaitable[Verdict]]) -> Passed:
        for _ in range(2):
            try:
                verdict = await ask(self._alive())
            except _HelperDied as died:
                _log.warning("the compile helper died (%s)", died)
                continue
            match verdict:
                case Passed():
                    return verdict
                case Refused():
                    raise GrammarRefused(verdict)
                case Faulted(trace):
                    _log.error("trying %s failed:\n%s", what, trace)
                    raise ConstraintdError("a fault of the daemon itself in trying the grammar; its log has the trace")
        raise ConstraintdError("the compile helper died twice over this grammar; its log may say why; try again")

    def close(self) -> None:
        """See Sandbox."""
        if self._helper is not None:
            self._helper.close()
            self._helper = None

    def statistics(self) -> Statistics:
        """At this instant."""
        helper = self._helper
        return Statistics(
            starts=self._starts,
            tried=self._tried,
            under_way=0 if helper is None else len(helper.waiting),
            pid=None if helper is None else helper.process.pid,
        )

    def _alive(self) -> _Helper:
        if self._helper is None or self._helper.gone:
            if self._helper is not None:
                self._helper.close()
            self.start()
        assert self._helper is not None
        return self._helper


class _HelperDied(Exception):
    """The helper closed its side, or does not answer."""


class _Helper:
    """One helper process, from its start to its end."""

    def __init__(self, program: str) -> None:
        ours, theirs = socket.socketpair()
        # One thread only, or a fork could catch another one holding a lock.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", program, str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the daemon, which ends the helper when it is done
            )
        self.gone = False
        self.waiting: dict[int, asyncio.Future[Verdict]] = {}
        self._socket = FrameSocket(ours)
        self._numbers = count(1)
        self._known: set[str] = set()
        self._listener: asyncio.Task[None] | None = None

    async def know(self, vocabulary: Vocabulary) -> None:
        """Sends the vocabulary unless it was sent. Raises _HelperDied."""
        if vocabulary.fingerprint not in self._known:
            self._known.add(vocabulary.fingerprint)  # who asks meanwhile sends behind it
            await self._send(request_frame(AddVocabulary.of(vocabulary)))

    async def try_grammar(self, vocabulary: Vocabulary, grammar: Grammar, limits: CompileLimits) -> Verdict:
        """The verdict on a grammar. Raises _HelperDied."""
        await self.know(vocabulary)
        return await self._ask(TryGrammar(next(self._numbers), vocabulary.fingerprint, grammar, limits))

    async def read(self, source: GrammarSource, max_bytes: int, limits: CompileLimits) -> Verdict:
        """The verdict on a source. Raises _HelperDied."""
        return await self._ask(ReadSource(next(self._numbers), source, max_bytes, limits))

    async def _ask(self, request: TryGrammar | ReadSource) -> Verdict:
        number = request.number
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.waiting[number] = verdict
        try:
            async with asyncio.timeout(request.limits.seconds + _GRACE_SECONDS):
                if are_large(request.texts):
                    await self._send(await asyncio.to_thread(request_frame, request))
                else:
                    await self._send(request_frame(request))
                return await verdict
        except TimeoutError:
            self._end("it does not answer")
            raise _HelperDied("it does not answer") from None
        except asyncio.CancelledError:
            with contextlib.suppress(ConnectionError):
                self._socket.begin(request_frame(CancelTry(number)))
            raise
        finally:
            del self.waiting[number]
            if verdict.done() and not verdict.cancelled():
                verdict.exception()  # or asyncio logs it as never seen, if sending has failed too

    def close(self) -> None:
        """Ends the process: it ends by itself when its socket closes, and soon."""
        self._end("it was closed")
        try:
            self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    async def _send(self, frame: Sequence[bytes]) -> None:
        if self._listener is None and not self.gone:
            self._listener = asyncio.create_task(self._listen())
        try:
            await self._socket.send(frame)
        except ConnectionError as error:
            raise _HelperDied(str(error)) from None

    async def _listen(self) -> None:
        why = "it closed its socket"
        try:
            while True:
                number, verdict = answer_of(await self._socket.receive(MAX_ANSWER_BYTES))
                future = self.waiting.get(number)
                if future is not None and not future.done():
                    future.set_result(verdict)
        except (EOFError, ConnectionError):
            pass
        except ValueError as error:
            why = f"it talks nonsense: {error}"
        finally:
            self._end(why)

    def _end(self, why: str) -> None:
        if self.gone:
            return
        self.gone = True
        self.process.kill()
        if self._listener is not None:
            self._listener.cancel()
        self._socket.close()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(_HelperDied(why))
