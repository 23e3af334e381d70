"""A decoder and a source of directives that do what a test says."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from constraintd_client import Directive, Finish, SessionHandle
from constraintd_client.errors import ConstraintdError, DeadlineExceeded
from constraintd_runner.decode import DecodeLoop
from constraintd_runner.directives import StepReport, ends_stream
from constraintd_runner.generation import Accepted, Event, Generation
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampling import Chain, Greedy
from numpy.typing import NDArray

WIDTH = 40


class CountingDecoder:
    """Its favourite next token is always the last one plus 1. Reuses one array for its rows, as the real one does."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.lengths: dict[int, int] = {}
        self.passes: list[list[int]] = []
        self.events: list[str] = []
        self.fail: Callable[[], None] = lambda: None
        self.broken_row = False
        self._rows = np.zeros((slots, WIDTH), dtype=np.float32)

    def acquire(self) -> int:
        slot = next(slot for slot in range(self.slots) if slot not in self.lengths)
        self.lengths[slot] = 0
        return slot

    def prefill(self, slot: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        self.fail()
        self.lengths[slot] += len(tokens)
        return self._run([int(tokens[-1])])[0]

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        self.fail()
        self.events.append("pass")
        self.passes.append(list(tokens))
        for slot in slots:
            self.lengths[slot] += 1
        return self._run(tokens)

    def release(self, slot: int) -> None:
        del self.lengths[slot]

    def _run(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        self._rows[:] = 0.0
        for row, token in enumerate(tokens):
            self._rows[row, (token + 1) % WIDTH] = np.nan if self.broken_row else 5.0
        return self._rows[: len(tokens)]


Answer = Directive | ConstraintdError | None
"""None: no answer for the time being."""


class ScriptedSource:
    """Answers by a script: (position after the step, its tokens) -> answer."""

    def __init__(self, decoder: CountingDecoder | None = None) -> None:
        self.decoder = decoder
        self.scripts: dict[bytes, Callable[[int, int], Answer]] = {}
        self.pending: dict[bytes, tuple[int, int]] = {}
        self.batches: list[int] = []
        self.passes: dict[bytes, list[list[int]]] = {}
        self.closed: list[bytes] = []
        self.left: list[bytes] = []
        self.reconnects = 0
        self.on_reconnect: Callable[[], None] = lambda: None
        self.heard = threading.Event()

    def open(self, script: Callable[[int, int], Answer]) -> SessionHandle:
        session_id = os.urandom(16)
        self.scripts[session_id] = script
        return SessionHandle(session_id, 1, 7, anything(0))

    def send(self, reports: Sequence[StepReport]) -> None:
        if self.decoder is not None:
            self.decoder.events.append("send")
        self.batches.append(len(reports))
        for session, tokens, surprisals, passes in reports:
            assert len(tokens) == len(surprisals) == 1
            assert session.session_id not in self.pending, "two unanswered steps"
            self.pending[session.session_id] = (session.position + 1, tokens[0])
            self.passes.setdefault(session.session_id, []).append(list(passes))

    def take(self, session: SessionHandle, timeout: float) -> Directive:
        self.heard.set()
        answer = self.scripts[session.session_id](*self.pending[session.session_id])
        if answer is None:
            threading.Event().wait(min(timeout, 0.002))
            raise DeadlineExceeded("not yet")
        if isinstance(answer, ConstraintdError):
            if not ends_stream(answer):
                del self.pending[session.session_id]
            raise answer
        del self.pending[session.session_id]
        session.directive = answer
        return answer

    def reconnect(self) -> None:
        self.reconnects += 1
        self.on_reconnect()

    def close_session(self, session: SessionHandle) -> None:
        self.pending.pop(session.session_id, None)
        self.closed.append(session.session_id)

    def leave_session(self, session: SessionHandle) -> None:
        self.pending.pop(session.session_id, None)
        self.left.append(session.session_id)


def anything(position: int, settled: int = 0) -> Directive:
    return Directive(position, np.array([0xFFFFFFFF, 0xFF], "<u4"), None, None, 0.5, settled, 100)


def only(position: int, *tokens: int) -> Directive:
    words = np.zeros(2, "<u4")
    for token in tokens:
        words[token // 32] |= np.uint32(1 << token % 32)
    return Directive(position, words, None, None, 0.5, 0, 100)


def end(position: int, reason: str = "EOG") -> Directive:
    return Directive(position, None, Finish(reason, b"", None, 3, False), None, 0.0, 3, 100)


def dead(position: int, settled: int = 0) -> Directive:
    return Directive(position, None, None, "nothing fits here", 0.0, settled, 100)


def until(length: int) -> Callable[[int, int], Answer]:
    """Anything goes, and the generation ends after `length` tokens."""
    return lambda position, token: end(position) if position == length else anything(position)


def generation(
    session: SessionHandle, first: int = 0, *, limit: int = 1000, eog: frozenset[int] = frozenset()
) -> Generation:
    """Greedy; the prompt is one token, so the text counts up from it."""
    return Generation(
        session, np.array([first]), MaskedPicker(Chain.of([Greedy()])), token_limit=limit, terminal_ids=eog
    )


def tokens_of(events: Sequence[Event]) -> list[int]:
    return [event.token for event in events if isinstance(event, Accepted)]


class Running:
    """A loop that is stopped at the end of a `with`."""

    def __init__(self, decoder: CountingDecoder, source: ScriptedSource, **options: Any) -> None:
        self.loop = DecodeLoop(decoder, source, **options)

    def __enter__(self) -> DecodeLoop:
        self.loop.start()
        return self.loop

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
