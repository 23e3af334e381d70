"""A runner that drives many sessions at once, is disturbed in every way, and writes down all it asked and was told.

It keeps nothing: a step without an answer is sent again or the session taken over, as if by another runner; whatever
stands in a session is what the daemon says. Now and then it does what broken or superseded runners do (repeats, gaps,
conflicts, stale epochs), and what callers do (rollbacks, updates, new turns). A seeded generator chooses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from constraintd_client import ConstraintdError, SessionHandle
from constraintd_client.session_changes import Resumed

from tests.daemon_process import WIDTH
from tests.fault.drive import Drive, standing_at
from tests.fault.history import Answer, Call, Recorder
from tests.fault.sessions import pick
from tests.fault.told import is_doubtful, refusal_of, stands, step_call, stepped
from tests.fault.wire import Wire

T = TypeVar("T")

_PAUSE_SECONDS = 0.02
_MIGRATIONS = 0.01
"""How often, a turn, a runner goes to another daemon for no reason."""


class Driver:
    """Drives sessions until they end. One thread at a time."""

    def __init__(
        self,
        addresses: Sequence[str],
        recorder: Recorder,
        rng: random.Random,
        *,
        unary: float = 0.1,
        mischief: float = 0.25,
        patience: float = 3.0,
        client: str = "",
    ) -> None:
        """`addresses`: daemons on one store, any of which does. `unary`: how often a step goes by a call of its own;
        `mischief`: how often something else than a step is done; `patience`: seconds to wait for an answer.
        """
        self._recorder = recorder
        self._rng = rng
        self._unary = unary
        self._mischief = mischief
        self._patience = patience
        self._client_name = client
        self._wire = Wire(addresses, rng, patience)

    def close(self) -> None:
        """Ends the connection; sessions stay."""
        self._wire.close()

    def turn(self, drives: list[Drive]) -> None:
        """One iteration: every session does something, and all that step do so in one batch."""
        if not self._wire.found():
            time.sleep(_PAUSE_SECONDS)
            return
        if self._wire.replicas > 1 and self._rng.random() < _MIGRATIONS:
            self._wire.migrate()
        batch: list[Drive] = []
        now = time.monotonic()
        for drive in drives:
            if drive.ended or drive.rest > now:
                continue
            if self._wire.is_lost:
                return
            try:
                if self._prepared(drive):
                    batch.append(drive)
            except ConstraintdError as error:
                self._after(drive, error)
        if batch:
            self._step(batch)

    # --- one session's next deed ---

    def _prepared(self, drive: Drive) -> bool:
        """Whether it is to step in this turn's batch, with `pending`. Raises ConstraintdError."""
        if drive.handle is None:
            self._take_up(drive)
            return False
        if drive.pending is not None:  # no answer came: again, by the same owner or a new one
            if self._rng.random() < 0.5:
                return True
            self._take_up(drive)
            return False
        if drive.change is not None:
            self._change(drive, *drive.change)
            return False
        if drive.handle.directive.finish is not None:
            self._end_turn(drive)
            return False
        if self._rng.random() < self._mischief and self._misbehaved(drive):
            return False
        drive.pending = pick(drive.handle, drive.fed)
        if self._rng.random() < self._unary:
            self._step_alone(drive)
            return False
        return True

    def _take_up(self, drive: Drive) -> None:
        fresh = drive.turns == 1 and not drive.fed
        drive.drop()
        if not (fresh and self._rng.random() < 0.7) and self._take_over(drive):
            return
        vocabulary = self._wire.vocabulary()
        kind = drive.kind
        session = self._ask(
            drive,
            Call("open"),
            lambda: self._wire.client.open_session(
                vocabulary,
                kind.constraint,
                sampler=kind.sampler,
                prompt_tokens=kind.prompts[0],
                session_id=drive.session_id,
            ),
            stands,
        )
        if session.position == 0 and session.directive.mask is not None:
            drive.handle, drive.fed, drive.turns = session, list(kind.prompts[0]), 1
        elif not self._take_over(drive):  # it has been stepped already, perhaps by a runner that died
            drive.drop()

    def _take_over(self, drive: Drive) -> bool:
        """False: there is no such session."""
        try:
            resumed = self._resume(drive)
        except ConstraintdError as error:
            if error.reason == "UNKNOWN_SESSION":
                drive.fed, drive.turns = [], 1
                return False
            raise
        drive.drop()
        drive.handle, drive.fed, drive.turns = resumed.session, resumed.model_input(), len(resumed.turns)
        return True

    def _resume(self, drive: Drive) -> Resumed:
        return self._ask(
            drive,
            Call("resume"),
            lambda: self._wire.client.resume_session(drive.session_id),
            lambda resumed: replace(
                stands(resumed.session),
                tokens=resumed.tokens,
                begins=tuple(turn.position for turn in resumed.turns),
            ),
        )

    def _end_turn(self, drive: Drive) -> None:
        if drive.turns < len(drive.kind.prompts):
            self._change(drive, "turn", self._rng.randbytes(16))
            return
        self.read(drive)
        if self._rng.random() < 0.5:
            self._ask(
                drive,
                Call("close"),
                lambda: self._wire.client.close_session(drive.session_id),
                lambda closed: Answer(closed=closed),
            )
        drive.ended = True
        self._recorder.ended(drive.number)

    def read(self, drive: Drive) -> None:
        """Asks what stands there now. Raises ConstraintdError."""
        self._ask(
            drive,
            Call("get"),
            lambda: self._wire.client.get_session(drive.session_id),
            lambda got: Answer(tokens=tuple(got.tokens), finished=got.session.HasField("finish")),
        )

    def _misbehaved(self, drive: Drive) -> bool:
        """Something else than the next step; false where that is not possible here."""
        handle = drive.held
        deed = self._rng.choices(
            ["nap", "repeat", "gap", "conflict", "stale", "superseded", "rollback", "update"], [2, 3, 1, 1, 1, 2, 1, 1]
        )[0]
        if deed == "nap":
            drive.rest = time.monotonic() + self._rng.uniform(0.0, 0.4)
        elif deed == "gap":
            token, surprisal = pick(handle, drive.fed)
            self._provoke(drive, standing_at(handle, handle.position + self._rng.randint(1, 3)), token, surprisal)
        elif deed == "superseded":
            # The session is taken over, and the runner that held it doesn't know.
            token, surprisal = pick(handle, drive.fed)
            old = standing_at(handle, handle.position)
            if self._take_over(drive):
                self._provoke(drive, old, token, surprisal)
        elif deed == "rollback" and handle.position > 2:
            self._change(drive, "rollback", self._rng.randbytes(16))
        elif deed == "update":
            self._change(drive, "update", self._rng.randbytes(16))
        elif drive.before is not None and deed in ("repeat", "conflict", "stale"):
            old, token, surprisal = drive.before
            if deed == "repeat":
                self._provoke(drive, standing_at(old, old.position), token, surprisal)
            elif deed == "conflict":
                self._provoke(drive, standing_at(old, old.position), (token + 1) % WIDTH, surprisal)
            elif old.position > 0:
                self._provoke(drive, standing_at(old, old.position - 1), token, surprisal)
        else:
            return False
        return True

    def _provoke(self, drive: Drive, handle: SessionHandle, token: int, surprisal: float) -> None:
        """A step that should change nothing, whatever it is told."""
        try:
            self._ask(
                drive,
                step_call(handle, token),
                lambda: self._wire.client.step(handle, [token], [surprisal]),
                lambda _: stepped(handle),
            )
        except ConstraintdError as error:
            if is_doubtful(error):
                raise

    def _change(self, drive: Drive, kind: str, request_id: bytes) -> None:
        handle = drive.held
        drive.change = (kind, request_id)
        # A repeat has to be the same request: where to is told by the request's own id.
        back = 1 + request_id[0] % max(1, min(4, handle.position - 1))
        to = max(0, handle.position - back) if kind == "rollback" else 0
        call = Call(kind, handle.epoch, handle.position, request_id=request_id.hex(), to_position=to)
        sent = standing_at(handle, handle.position)  # the client moves a handle on even where we then doubt
        prompts = drive.kind.prompts

        def ask() -> SessionHandle:
            if kind == "rollback":
                self._wire.client.rollback_session(sent, to, request_id=request_id)
            elif kind == "turn":
                self._wire.client.update_session(sent, new_turn=prompts[drive.turns], request_id=request_id)
            else:
                self._wire.client.update_session(sent, sampler=drive.kind.sampler, request_id=request_id)
            return sent

        moved = self._ask(drive, call, ask, stands)
        drive.change = drive.before = None
        drive.handle = moved
        if kind == "turn":
            drive.fed += prompts[drive.turns]
            drive.turns += 1
        elif kind == "rollback":
            # Perhaps into an earlier turn: what the model is fed from there on is the daemon's to say.
            drive.drop()
            self._take_over(drive)

    # --- steps ---

    def _step_alone(self, drive: Drive) -> None:
        handle = drive.held
        token, surprisal = drive.picked
        sent = standing_at(handle, handle.position)
        self._ask(
            drive,
            step_call(sent, token),
            lambda: self._wire.client.step(handle, [token], [surprisal]),
            lambda _: stepped(handle),
        )
        drive.took(sent)

    def _step(self, batch: Sequence[Drive]) -> None:
        try:
            stream = self._wire.stream()
        except ConstraintdError as error:
            self._wire.failed(error)
            time.sleep(_PAUSE_SECONDS)
            return
        sent = [standing_at(drive.held, drive.held.position) for drive in batch]
        numbers = [
            self._recorder.invoke(drive.name, step_call(drive.held, drive.picked[0]), self._client_name)
            for drive in batch
        ]
        stream.send([(drive.held, [drive.picked[0]], [drive.picked[1]]) for drive in batch])
        until = time.monotonic() + self._patience
        failures: list[tuple[Drive, ConstraintdError]] = []
        for drive, number, old in zip(batch, numbers, sent, strict=True):
            try:
                stream.take(drive.held, max(0.0, until - time.monotonic()))
            except ConstraintdError as error:
                if not is_doubtful(error):
                    self._recorder.returned(number, refusal_of(error))
                failures.append((drive, error))
            else:
                self._recorder.returned(number, stepped(drive.held))
                drive.took(old)
        for drive, failure in failures:
            self._after(drive, failure)
        if any(not failure.reason for _, failure in failures):
            self._wire.hang_up()
            time.sleep(_PAUSE_SECONDS)

    # --- what was told ---

    def _ask(self, drive: Drive, call: Call, ask: Callable[[], T], answer: Callable[[T], Answer]) -> T:
        number = self._recorder.invoke(drive.name, call, self._client_name)
        try:
            told = ask()
        except ConstraintdError as error:
            if not is_doubtful(error):
                self._recorder.returned(number, refusal_of(error))
            raise
        self._recorder.returned(number, answer(told))
        return told

    def _after(self, drive: Drive, error: ConstraintdError) -> None:
        """A call failed: what is doubtful is asked again, by the same owner or a new one."""
        self._wire.failed(error)
        if not is_doubtful(error):
            drive.drop()
        drive.rest = time.monotonic() + _PAUSE_SECONDS
