"""A session in memory: its log, the SamplerState that folds from it, its owner's epoch, the Directive to answer.

Whatever changes a session happens in two halves. `prepare_...` checks, computes what comes of it, and holds the
session; it gives a Pending, whose events have to be kept before anybody may hear of them. Then `commit` makes the
session stand there, or `abort` leaves it where it was.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from constraintd import failpoints
from constraintd.errors import InvalidField, ReplayDiverged, SessionFinished, StepInFlight
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.finish import TERMINAL, Finish
from constraintd.sampler.state import SamplerState
from constraintd.session.admission import (
    check_epoch,
    check_form,
    check_position,
    check_repeat,
    check_surprisals,
    check_token,
    check_unfinished,
)
from constraintd.session.directing import directive_of, outcome_of
from constraintd.session.directive import Directive
from constraintd.session.events import (
    Accepted,
    Event,
    Finished,
    Opened,
    Reconfigured,
    Request,
    SessionSettings,
    Truncated,
    Turned,
)
from constraintd.session.log import Log, changed, fold
from constraintd.session.store.store import Head
from constraintd.vocabulary.vocabulary import Vocabulary

_SLOW_SECONDS = 0.002
_LONG_TEXT_BYTES = 8192
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What a session is known by; never changes. `request_digest` tells the call that opened it from others."""

    session_id: bytes
    vocabulary: Vocabulary
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """Who asks for a change, and from where: a repeat of `request_id` with the same digest gets the first answer."""

    request_id: bytes
    digest: bytes
    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a change or takeover came to."""

    epoch: int
    directive: Directive
    config: SamplerConfig


@dataclass(slots=True)
class Pending:
    """What will have happened to a session, which it holds until it is committed or aborted."""

    session: Session
    events: tuple[Event, ...]
    head: Head
    directive: Directive
    state: SamplerState
    log: Log | None = None
    """A log of its own where the change rewrites more than the end; None: the events go behind the present one."""
    settings: SessionSettings | None = None
    """Settings that begin with it."""
    step_seconds: float | None = None
    """Of one token, computing alone: neither waiting for the rest of its batch nor for the store."""

    def commit(self) -> Directive:
        """The session stands there now."""
        session = self.session
        if self.log is None:
            for event in self.events:
                session.log.apply(event)
        else:
            session.log = self.log
        session._stand(self)
        session._busy.release()
        return self.directive

    def abort(self) -> None:
        """Nothing has happened."""
        self.session._busy.release()


class Session:
    """One session. One caller at a time changes it, others are refused; reads need no lock.

    The log is the truth. The state is folded from it, and dropped whenever it may have gone astray.
    """

    def __init__(self, identity: Identity, log: Log, epoch: int | None = None) -> None:
        """Goes on from a log's end.

        Raises LimitExceeded; ReplayDiverged if the log's finish is not what comes of it.
        """
        self.identity = identity
        self.log = log
        self.epoch = secrets.randbits(64) if epoch is None else epoch
        self.last_step = time.monotonic()
        self._busy = threading.Lock()
        began = time.thread_time()
        self._state: SamplerState | None = fold(log)
        self.directive = directive_of(self._state, log)
        self.step_seconds = time.thread_time() - began  # of one token of the last step: tells slow from quick
        outcome = self.directive.outcome
        if isinstance(outcome, Finish) and log.finish is None and not log.position:
            log.apply(Finished(outcome))
        if log.finish != (outcome if isinstance(outcome, Finish) else None):
            raise ReplayDiverged(
                f"the log says {log.finish} at position {log.position}, the engines say {outcome!r:.200}",
                position=log.position,
            )

    @classmethod
    def open(cls, identity: Identity, settings: SessionSettings, prompt: tuple[int, ...], seed: int) -> Session:
        """A new session at its first Directive. Raises LimitExceeded."""
        log = Log()
        log.apply(Opened(settings, prompt, seed))
        return cls(identity, log)

    @property
    def position(self) -> int:
        """Number of accepted tokens."""
        return self.log.position

    @property
    def head(self) -> Head:
        """Where it stands, as a store has it."""
        return Head(self.epoch, self.log.version, self.log.position)

    @property
    def config(self) -> SamplerConfig:
        """The sampler config in force, the seed among it."""
        return replace(self.log.settings.sampling.config, seed=self.log.seed)

    @property
    def is_slow(self) -> bool:
        """Whether its next step may take more than a moment: its last one did, or a long text is to be verified, or a
        text against a long schema."""
        settings = self.log.settings
        long_text = bool(settings.verifiers) and self.directive.settled_bytes > _LONG_TEXT_BYTES
        return long_text or settings.verifies_slowly or self._state is None or self.step_seconds > _SLOW_SECONDS

    @property
    def is_busy(self) -> bool:
        """Whether something is pending."""
        return self._busy.locked()

    @property
    def finish(self) -> Finish | None:
        """The Finish, if it has finished."""
        return self.log.finish

    @property
    def turn_position(self) -> int:
        """Where the present turn begins."""
        return max(mark.position for mark in self.log.turns())

    # --- steps ---

    def step(
        self,
        epoch: int,
        position: int,
        tokens: Sequence[int],
        surprisals: Sequence[float],
        passes: Sequence[int] = (),
    ) -> Directive:
        """`prepare_step` and `commit` in one, for a session that nobody keeps."""
        pending = self.prepare_step(epoch, position, tokens, surprisals, passes)
        return pending if isinstance(pending, Directive) else pending.commit()

    def prepare_step(
        self,
        epoch: int,
        position: int,
        tokens: Sequence[int],
        surprisals: Sequence[float],
        passes: Sequence[int] = (),
    ) -> Pending | Directive:
        """What a step will come to, whole; or the present Directive, if it repeats the last one.

        Raises StepInFlight, StaleEpoch, InvalidField, PositionGap, PositionConflict, StalePosition, SessionFinished,
        InvalidSurprisal, TokenNotAllowed, LimitExceeded; the session is then as it was.
        """
        with self._held() as keep:
            if not failpoints.bug(failpoints.BUG_FENCING):
                check_epoch(self.identity.session_id, epoch, self.epoch)
            check_form(tokens, surprisals)
            if position != self.position:
                if failpoints.bug(failpoints.BUG_REPEAT) and position == self.log.last_step:
                    position = self.position
                else:
                    check_repeat(self.log, position, tokens)
                    return self.directive
            check_unfinished(self.finish)
            check_surprisals(surprisals)
            self.log.passes.checked(passes, self.log.input_length())
            began = time.thread_time()
            state = self._advanced(tokens, surprisals)
            directive = directive_of(state, self.log, tokens)
            events: tuple[Event, ...] = (Accepted(tuple(tokens), tuple(surprisals), tuple(passes)),)
            if isinstance(directive.outcome, Finish):
                events = (*events, Finished(directive.outcome))
            head = Head(self.epoch, self.log.version + len(events), self.position + len(tokens))
            keep()
            seconds = (time.thread_time() - began) / len(tokens)
            return Pending(self, events, head, directive, state, step_seconds=seconds)

    def _advanced(self, tokens: Sequence[int], surprisals: Sequence[float]) -> SamplerState:
        """The state behind `tokens`, which is the session's only once they are in the log."""
        state = self._folded()
        check_token(self.directive.outcome, tokens[0], index=0, position=self.position)
        if len(tokens) > 1:
            state = state.fork()  # a later token may be illegal; a copy costs 1 to 80 us, so single tokens go without
        else:
            self._state = None  # advanced in place: if anything fails from here on, it is folded anew from the log
        for index, (token, surprisal) in enumerate(zip(tokens, surprisals, strict=True)):
            if index:
                check_token(outcome_of(state), token, index=index, position=self.position + index)
            state.advance(token, surprisal)
        return state

    # --- changes ---

    def first_answer(self, request_id: bytes, digest: bytes) -> Answer | None:
        """The answer to this very request, if it was the last thing that happened here; None if it is new.

        Raises InvalidField if the id stands for another request, SupersededAnswer if more has happened since.
        """
        found = self.log.requests.get(request_id)
        if found is None:
            return None
        request, version = found
        if request.digest != digest:
            raise InvalidField("request_id", "was used for a different request; choose 16 fresh random bytes")
        # A finish is part of what the change came to.
        if version + (self.finish is not None) < self.log.version:
            raise SupersededAnswer(request.epoch, version)
        return Answer(request.epoch, self.directive, self.config)

    def prepare_update(self, change: Change, settings: SessionSettings, seed: int) -> Pending | Answer:
        """Other settings from here on, in the same turn.

        Raises StepInFlight, StaleEpoch, PositionGap, StalePosition, SessionFinished (after a terminal token),
        LimitExceeded; the session is then as it was.
        """
        return self._prepare_change(change, lambda request: Reconfigured(settings, seed, request))

    def prepare_turn(
        self, change: Change, settings: SessionSettings, prompt: tuple[int, ...], seed: int
    ) -> Pending | Answer:
        """A new turn under these settings, `prompt` between the last token and the next. Raises as `prepare_update`."""
        return self._prepare_change(change, lambda request: Turned(settings, prompt, seed, request))

    def prepare_rollback(self, change: Change, position: int, seed: int | None) -> Pending | Answer:
        """Back to `position`; without a seed a session that has none of its caller's takes a new one.

        Raises as `prepare_update` does, and InvalidField for a position past the end.
        """
        if position > change.position:
            raise InvalidField("to_position", f"{position} is past the session's position {change.position}")
        return self._prepare_change(
            change, lambda request: Truncated(position, self.next_seed(seed, position), request)
        )

    def _prepare_change(
        self, change: Change, event_for: Callable[[Request], Reconfigured | Turned | Truncated]
    ) -> Pending | Answer:
        with self._held() as keep:
            answered = self.first_answer(change.request_id, change.digest)
            if answered is not None:
                return answered
            check_epoch(self.identity.session_id, change.epoch, self.epoch)
            check_position(self.position, change.position)
            event = event_for(Request(change.request_id, change.digest, next_epoch(self.epoch)))
            if isinstance(event, Reconfigured) and self.finish is not None and self.finish.reason in TERMINAL:
                raise SessionFinished(
                    f"a terminal token ended the turn ({self.finish.reason.value}); begin a new turn, or roll back",
                    illegal_index=0,
                )
            log = self.log.copy()
            log.apply(event)
            if isinstance(event, Truncated):
                state = fold(log)
            elif isinstance(event, Reconfigured) and event.settings is self.log.settings:
                state = self._folded()  # the same settings once more
            else:
                state = changed(self._folded(), log.marks[-1])
            directive = directive_of(state, log)
            events: tuple[Event, ...] = (event,)
            if isinstance(directive.outcome, Finish):
                events = (event, Finished(directive.outcome))
                log.apply(events[1])
            assert event.request is not None
            head = Head(event.request.epoch, log.version, log.position)
            settings = None if isinstance(event, Truncated) else event.settings
            keep()
            return Pending(self, events, head, directive, state, log, settings)

    def prepare_takeover(self) -> Pending:
        """A new epoch, which fences off whoever held the session. Raises StepInFlight if a call takes seconds."""
        with self._held(patience=_PATIENCE_SECONDS) as keep:
            head = replace(self.head, epoch=next_epoch(self.epoch))
            state = self._folded()
            keep()
            return Pending(self, (), head, self.directive, state)

    def forked(self, position: int, seed: int | None) -> Log:
        """A log of its own that shares the history up to `position`. Raises InvalidField, StepInFlight."""
        with self._held(patience=_PATIENCE_SECONDS):
            if position > self.position:
                raise InvalidField("position", f"{position} is past the session's position {self.position}")
            log = self.log.until(position, self.next_seed(seed, position))
            log.requests.clear()
            return log

    def next_seed(self, given: int | None, position: int) -> int:
        """The seed of what draws anew from `position` on: the call's, else its caller's own, else a new one."""
        if given is not None:
            return given
        mark = self.log.at(position)
        return mark.seed if mark.settings.seeded else secrets.randbits(64)

    def snapshot(self) -> tuple[Log, bytes]:
        """The log as it stands, and the state that it leads to. Raises StepInFlight, LimitExceeded."""
        with self._held(patience=_PATIENCE_SECONDS):
            return self.log.copy(), self._folded().to_bytes()

    # --- inside ---

    def answer(self) -> Answer:
        """How it stands."""
        return Answer(self.epoch, self.directive, self.config)

    def _stand(self, pending: Pending) -> None:
        self._state = pending.state
        self.directive = pending.directive
        self.epoch = pending.head.epoch
        self.last_step = time.monotonic()
        if pending.step_seconds is not None:
            self.step_seconds = pending.step_seconds

    def _folded(self) -> SamplerState:
        """The state at the session's position, folded from the log if it was dropped. Raises LimitExceeded."""
        if self._state is None:
            self._state = fold(self.log)
        return self._state

    @contextmanager
    def _held(self, patience: float = 0.0) -> Iterator[Callable[[], None]]:
        """Holds the session; until the end of the block, or for a Pending if what this yields is called."""
        if not self._busy.acquire(blocking=patience > 0, timeout=patience or -1):
            raise StepInFlight(
                f"session {self.identity.session_id.hex()} has a call that is not answered yet; "
                "wait for its answer, then send again"
            )
        kept = []
        try:
            yield lambda: kept.append(True)
        finally:
            if not kept:
                self._busy.release()


class SupersededAnswer(Exception):
    """A change was answered before, and more has happened since: its answer is that of the log's first records."""

    def __init__(self, epoch: int, version: int) -> None:
        super().__init__(f"answered at version {version}")
        self.epoch = epoch
        self.version = version


def next_epoch(epoch: int) -> int:
    """A random one, other than `epoch`."""
    while (fresh := secrets.randbits(64)) == epoch:
        pass
    return fresh
