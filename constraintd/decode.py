"""One Decode stream: reads step batches, answers every step, lets no session wait for another.

Two lanes. A session whose last step was quick (nearly all: some 60 us) is stepped right here on the event loop, which
saves a thread hop a batch. One that was slow, or is not in memory and not short either, is stepped in a thread, and
its answer follows when it is ready. The loop is given back every 2 ms, so that a batch of hundreds delays neither other
streams nor health checks. What 4 ms of a batch came to is kept as one append; only then does any answer leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any

from constraintd import failpoints
from constraintd.answers import Answers
from constraintd.config import Limits
from constraintd.errors import ConstraintdError, StepInFlight, StoreUnavailable, TooLarge, VocabularyMismatch
from constraintd.metrics import recording
from constraintd.session.directive import Directive
from constraintd.session.session import Pending, Session
from constraintd.session.table import SessionTable, StaleCopy
from constraintd.translate import session_id_of
from constraintd.v1 import constraint_service_pb2, session_pb2

_SLICE_SECONDS = 0.002
_ANSWER_SECONDS = 0.004  # what was prepared waits so long for the rest of its batch
_READ_AHEAD = 32  # sessions that the store is asked for at once
_ATTEMPTS = 3

Write = Callable[[constraint_service_pb2.DecodeResponse], Awaitable[None]]


async def step_kept(table: SessionTable, step: session_pb2.Step, threads: Executor) -> Directive:
    """Applies one step and keeps it, in a thread; a stale copy of the session is replaced first.

    Raises what `Session.prepare_step` raises, UnknownSession, StoreUnavailable.
    """
    loop = asyncio.get_running_loop()
    for _ in range(_ATTEMPTS):
        session = await table.get(step.session_id)
        try:
            done = await loop.run_in_executor(threads, _step_and_keep, table, session, step)
        except ConstraintdError:
            # What a stale copy refuses may be right.
            if table.store.shared and not await table.revalidate(step.session_id):
                continue
            raise
        if isinstance(done, Directive):
            return done
        if done is None and (not table.store.shared or await table.revalidate(step.session_id)):
            return session.directive  # a repeat
    raise StoreUnavailable(f"session {step.session_id.hex()} is being changed by several daemons; send the same again")


def _step_and_keep(table: SessionTable, session: Session, step: session_pb2.Step) -> Directive | StaleCopy | None:
    """The next Directive; None for a repeat, whose Directive the session has."""
    pending = prepare(session, step)
    if isinstance(pending, Directive):
        return None
    result = table.keep([pending])[0]
    if isinstance(result, ConstraintdError):
        raise result
    return pending.directive if result is None else result


def prepare(session: Session, step: session_pb2.Step) -> Pending | Directive:
    """What the step will come to. Raises what `Session.prepare_step` raises."""
    return session.prepare_step(step.epoch, step.position, step.tokens, step.surprisals, step.passes)


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
        began = time.perf_counter()
        recorder = recording.active
        if recorder is not None:
            recorder.batch_steps.observe(len(batch.steps))
            recorder.wire_bytes_in.add(batch.ByteSize())
        answers = Answers(self._limits.directive_batch_bytes)
        seen: set[bytes] = set()
        pendings: list[tuple[session_pb2.Step, Pending]] = []
        slice_end, answered_by = began + _SLICE_SECONDS, began + _ANSWER_SECONDS
        try:
            for index, step in enumerate(batch.steps):
                if index % _READ_AHEAD == 0:
                    self._sessions.read_ahead([each.session_id for each in batch.steps[index : index + _READ_AHEAD]])
                try:
                    self._take(step, seen, pendings, answers)
                except ConstraintdError as error:
                    answers.refusal(step, error)
                now = time.perf_counter()
                if now > answered_by:
                    prepared, pendings = pendings, []
                    await self._keep(prepared, answers, began)
                    answers = Answers(self._limits.directive_batch_bytes)
                    answered_by = time.perf_counter() + _ANSWER_SECONDS
                if now > slice_end:
                    await asyncio.sleep(0)
                    slice_end = time.perf_counter() + _SLICE_SECONDS
            prepared, pendings = pendings, []
            await self._keep(prepared, answers, began)
        except BaseException:  # the stream ends; what it has kept is not undone
            for _, pending in pendings:
                pending.abort()
            raise

    async def drain(self) -> None:
        """Waits until every slow step is answered."""
        while self._slow:
            await asyncio.gather(*self._slow)

    async def say_draining(self) -> None:
        """Tells the client that no more of its Steps will be read here. Raises StreamGone."""
        async with self._writing:
            try:
                await self._write(constraint_service_pb2.DecodeResponse(draining=constraint_service_pb2.Draining()))
            except Exception as error:  # gRPC has no one class for it
                raise StreamGone from error

    def cancel(self) -> None:
        """Drops answers that nobody will read any more; their steps stay applied."""
        for task in self._slow:
            task.cancel()

    def _take(
        self,
        step: session_pb2.Step,
        seen: set[bytes],
        pendings: list[tuple[session_pb2.Step, Pending]],
        answers: Answers,
    ) -> None:
        """Prepares a step right here, or hands it to the slow lane. Raises what it is refused with."""
        check_step(step, self._limits)
        if step.session_id in seen:
            raise StepInFlight(f"the batch has two steps of session {step.session_id.hex()}; send one, then the other")
        seen.add(step.session_id)
        session = self._sessions.at_hand(step.session_id)
        if session is None or session.is_slow or session.step_seconds * len(step.tokens) > _SLICE_SECONDS:
            self._later(self._step_slowly(step))
            return
        self._check_vocabulary(session)
        try:
            pending = prepare(session, step)
        except ConstraintdError:
            if self._sessions.store.shared:  # perhaps the copy is stale
                self._later(self._step_slowly(step))
                return
            raise
        if isinstance(pending, Pending):
            pendings.append((step, pending))
        elif self._sessions.store.shared:
            self._later(self._step_slowly(step))
        else:
            answers.directive(step, pending)

    def _check_vocabulary(self, session: Session) -> None:
        if session.identity.vocabulary.fingerprint != self._vocabulary_id:
            raise VocabularyMismatch(
                f"session {session.identity.session_id.hex()} has the vocabulary "
                f"{session.identity.vocabulary.fingerprint}, this stream {self._vocabulary_id}; "
                "step it on a stream of its own vocabulary"
            )

    async def _keep(self, pendings: Sequence[tuple[session_pb2.Step, Pending]], answers: Answers, began: float) -> None:
        """Keeps what is pending, then sends its answers with those that are ready; where keeping takes long, later.

        `began`: when the batch came, by time.perf_counter.
        """
        if self._sessions.store.quick or not pendings:
            kept = self._sessions.keep([pending for _, pending in pendings]) if pendings else []
            await self._answer(pendings, kept, answers, began)
            return
        await self._send(answers.take())

        async def keep_in_thread() -> None:
            loop = asyncio.get_running_loop()
            held = [pending for _, pending in pendings]
            # Shielded: what is pending holds its sessions until it is kept, whether or not anybody still waits for it.
            kept = await asyncio.shield(loop.run_in_executor(self._threads, self._sessions.keep, held))
            await self._answer(pendings, kept, Answers(self._limits.directive_batch_bytes), began)

        self._later(keep_in_thread())

    async def _answer(
        self,
        pendings: Sequence[tuple[session_pb2.Step, Pending]],
        kept: Sequence[StaleCopy | ConstraintdError | None],
        answers: Answers,
        began: float,
    ) -> None:
        applied = 0
        for (step, pending), result in zip(pendings, kept, strict=True):
            if result is None:
                applied += 1
                answers.directive(step, pending.directive)
            elif isinstance(result, ConstraintdError):
                answers.refusal(step, result)
            else:
                self._later(self._step_slowly(step))
        recorder = recording.active
        if recorder is not None:
            recorder.step_seconds["quick"].observe_many(time.perf_counter() - began, applied)
        failpoints.hit(failpoints.REPLY_BEFORE)
        await self._send(answers.take())
        failpoints.hit(failpoints.REPLY_AFTER)

    async def _step_slowly(self, step: session_pb2.Step) -> None:
        began = time.perf_counter()
        answers = Answers(self._limits.directive_batch_bytes)
        try:
            self._check_vocabulary(await self._sessions.get(step.session_id))
            answers.directive(step, await step_kept(self._sessions, step, self._threads))
            recorder = recording.active
            if recorder is not None:
                recorder.step_seconds["slow"].observe(time.perf_counter() - began)
        except ConstraintdError as error:
            answers.refusal(step, error)
        failpoints.hit(failpoints.REPLY_BEFORE)
        await self._send(answers.take())
        failpoints.hit(failpoints.REPLY_AFTER)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            # The client learns of it by its stream, and sends again what was not answered.
            with contextlib.suppress(StreamGone):
                await work

        task = asyncio.create_task(run())
        self._slow.add(task)
        task.add_done_callback(self._slow.discard)

    async def _send(self, responses: list[constraint_service_pb2.DecodeResponse]) -> None:
        async with self._writing:
            for response in responses:
                try:
                    await self._write(response)
                except Exception as error:  # gRPC has no one class for it
                    raise StreamGone from error


class StreamGone(Exception):
    """An answer could not be sent: the stream has ended."""
