"""One Decode stream: reads step batches, answers every step, lets no session wait for another.

Two lanes. A session whose last step was quick (nearly all: some 60 us) is stepped right here on the event loop, which
saves a thread hop a batch. One that was slow is stepped in a thread, and its answer follows when it is ready. The loop
is given back every 2 ms, so that a batch of hundreds delays neither other streams nor health checks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from constraintd.config import Limits
from constraintd.errors import ConstraintdError, StepInFlight, TooLarge, VocabularyMismatch
from constraintd.server.errors import step_error
from constraintd.session.session import Session
from constraintd.session.table import SessionTable
from constraintd.translate import directive_message, session_id_of
from constraintd.v1 import constraint_service_pb2, session_pb2

_SLICE_SECONDS = 0.002
# Room that an answer takes in its batch besides its own bytes: field tags and lengths.
_ANSWER_OVERHEAD = 16

Write = Callable[[constraint_service_pb2.DecodeResponse], Awaitable[None]]


def step_session(session: Session, step: session_pb2.Step) -> session_pb2.Directive:
    """Applies one step: the synchronous heart of Decode and Step. Raises what Session.step raises."""
    return directive_message(session.step(step.epoch, step.position, step.tokens, step.surprisals, step.passes))


def check_step(step: session_pb2.Step, limits: Limits) -> None:
    """Raises InvalidField or TooLarge for a step that no session could take."""
    session_id_of(step.session_id)
    if len(step.tokens) > limits.max_step_tokens:
        raise TooLarge("step.tokens", limit=limits.max_step_tokens, actual=len(step.tokens), unit="tokens")


class DecodeStream:
    """The server's side of one stream, after its Hello. Used by that stream's task alone."""

    def __init__(
        self, vocabulary_id: str, sessions: SessionTable, limits: Limits, threads: Executor, write: Write
    ) -> None:
        self._vocabulary_id = vocabulary_id
        self._sessions = sessions
        self._limits = limits
        self._threads = threads
        self._write = write
        self._writing = asyncio.Lock()  # gRPC takes one write at a time
        self._slow: set[asyncio.Task[None]] = set()

    async def step_batch(self, batch: constraint_service_pb2.StepBatch) -> None:
        """Answers every step of a batch; slow ones later. Raises TooLarge, which ends the stream."""
        if len(batch.steps) > self._limits.max_batch_steps:
            raise TooLarge(
                "step_batch.steps", limit=self._limits.max_batch_steps, actual=len(batch.steps), unit="steps"
            )
        answers = _Answers(self._limits.directive_batch_bytes)
        seen: set[bytes] = set()
        slice_end = time.perf_counter() + _SLICE_SECONDS
        for step in batch.steps:
            session = self._admit(step, seen, answers)
            if session is None:
                pass
            elif session.is_slow or session.step_seconds * len(step.tokens) > _SLICE_SECONDS:
                self._step_in_thread(session, step)
            else:
                answers.add(_answer(session, step))
            if time.perf_counter() > slice_end:
                await self._send(answers.take())
                await asyncio.sleep(0)
                slice_end = time.perf_counter() + _SLICE_SECONDS
        await self._send(answers.take())

    async def drain(self) -> None:
        """Waits until every slow step is answered."""
        if self._slow:
            await asyncio.gather(*self._slow)

    def cancel(self) -> None:
        """Drops answers that nobody will read any more; their steps stay applied."""
        for task in self._slow:
            task.cancel()

    def _admit(self, step: session_pb2.Step, seen: set[bytes], answers: _Answers) -> Session | None:
        """The step's session, or None where the step is refused and its answer says so."""
        try:
            check_step(step, self._limits)
            if step.session_id in seen:
                raise StepInFlight(
                    f"the batch has two steps of session {step.session_id.hex()}; send one, then the other"
                )
            seen.add(step.session_id)
            session = self._sessions.get(step.session_id)
            if session.identity.vocabulary.fingerprint != self._vocabulary_id:
                raise VocabularyMismatch(
                    f"session {step.session_id.hex()} has vocabulary {session.identity.vocabulary.fingerprint}, "
                    f"this stream {self._vocabulary_id}; step it on a stream of its own vocabulary"
                )
            return session
        except ConstraintdError as error:
            answers.add(_refusal(step, error))
            return None

    def _step_in_thread(self, session: Session, step: session_pb2.Step) -> None:
        async def run() -> None:
            loop = asyncio.get_running_loop()
            answer = await loop.run_in_executor(self._threads, _answer, session, step)
            await self._send([constraint_service_pb2.DirectiveBatch(answers=[answer])])

        task = asyncio.create_task(run())
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)

    async def _send(self, batches: list[constraint_service_pb2.DirectiveBatch]) -> None:
        async with self._writing:
            for batch in batches:
                await self._write(constraint_service_pb2.DecodeResponse(directive_batch=batch))


def _answer(session: Session, step: session_pb2.Step) -> constraint_service_pb2.StepAnswer:
    try:
        return constraint_service_pb2.StepAnswer(session_id=step.session_id, directive=step_session(session, step))
    except ConstraintdError as error:
        return _refusal(step, error)


def _refusal(step: session_pb2.Step, error: ConstraintdError) -> constraint_service_pb2.StepAnswer:
    return constraint_service_pb2.StepAnswer(session_id=step.session_id[:64], error=step_error(error))


class _Answers:
    """Answers that wait to be sent, cut into batches that each stay under the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: list[constraint_service_pb2.DirectiveBatch] = []
        self._size = 0

    def add(self, answer: constraint_service_pb2.StepAnswer) -> None:
        size = answer.ByteSize() + _ANSWER_OVERHEAD
        if not self._batches or self._size + size > self._limit:
            self._batches.append(constraint_service_pb2.DirectiveBatch())
            self._size = 0
        self._batches[-1].answers.append(answer)
        self._size += size

    def take(self) -> list[constraint_service_pb2.DirectiveBatch]:
        batches, self._batches, self._size = self._batches, [], 0
        return batches
