"""A session: its log, the SamplerState that folds from it, the present owner's epoch, and the Directive to answer."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from constraintd.errors import InvalidField, SessionFinished, StepInFlight
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
    Finished,
    Opened,
    Reconfigured,
    SessionSettings,
    Truncated,
    Turned,
)
from constraintd.session.log import Log, changed, fold
from constraintd.vocabulary.vocabulary import Vocabulary

_SLOW_SECONDS = 0.002
_LONG_TEXT_BYTES = 8192
_REMEMBERED_CHANGES = 64
_TAKEOVER_SECONDS = 5.0


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


class Session:
    """One session. One caller at a time changes it, others are refused; reads need no lock.

    The log is the truth. The state is folded from it, and dropped whenever it may have gone astray.
    """

    def __init__(self, identity: Identity, log: Log) -> None:
        """Goes on from a log's end. Raises LimitExceeded."""
        self.identity = identity
        self.log = log
        self.epoch = secrets.randbits(64)
        self.last_step = time.monotonic()
        self._busy = threading.Lock()
        self._answers: OrderedDict[bytes, tuple[bytes, Answer]] = OrderedDict()
        self._state: SamplerState | None
        began = time.perf_counter()
        state = fold(log)
        self._stand(state, directive_of(state, log))
        self.step_seconds = time.perf_counter() - began  # of one token of the last step: tells slow from quick

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
    def config(self) -> SamplerConfig:
        """The sampler config in force, the seed among it."""
        return replace(self.log.settings.sampling.config, seed=self.log.seed)

    @property
    def is_slow(self) -> bool:
        """Whether its next step may take more than a moment: its last one did, or a long text is to be verified."""
        long_text = bool(self.log.settings.verifiers) and self.directive.settled_bytes > _LONG_TEXT_BYTES
        return long_text or self.step_seconds > _SLOW_SECONDS

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
        """Applies a step whole, or not at all, and gives the next Directive.

        Raises StepInFlight, StaleEpoch, InvalidField, PositionGap, PositionConflict, StalePosition, SessionFinished,
        InvalidSurprisal, TokenNotAllowed, LimitExceeded; the session is then as it was.
        """
        with self._alone():
            check_epoch(self.identity.session_id, epoch, self.epoch)
            check_form(tokens, surprisals)
            if position != self.position:
                check_repeat(self.log, position, tokens)
                return self.directive
            check_unfinished(self.finish)
            check_surprisals(surprisals)
            self.log.passes.checked(passes, self.log.input_length())
            began = time.perf_counter()
            state = self._advanced(tokens, surprisals)
            directive = directive_of(state, self.log, tokens)
            self.log.apply(Accepted(tuple(tokens), tuple(surprisals), tuple(passes)))
            self._stand(state, directive)
            self.step_seconds = (time.perf_counter() - began) / len(tokens)
            return directive

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
        """The answer to this very request, if it has been answered.

        Raises InvalidField if the id stands for another request.
        """
        found = self._answers.get(request_id)
        if found is None:
            return None
        if found[0] != digest:
            raise InvalidField("request_id", "was used for a different request; choose 16 fresh random bytes")
        return found[1]

    def update(self, change: Change, settings: SessionSettings, seed: int) -> Answer:
        """Other settings from here on, in the same turn.

        Raises StepInFlight, StaleEpoch, PositionGap, StalePosition, SessionFinished (after a terminal token),
        LimitExceeded; the session is then as it was.
        """
        return self._change(change, Reconfigured(settings, seed))

    def new_turn(self, change: Change, settings: SessionSettings, prompt: tuple[int, ...], seed: int) -> Answer:
        """A new turn under these settings, `prompt` between the last token and the next. Raises as `update` does."""
        return self._change(change, Turned(settings, prompt, seed))

    def rollback(self, change: Change, position: int, seed: int | None) -> Answer:
        """Back to `position`; without a seed a session that has none of its caller's takes a new one.

        Raises as `update` does, and InvalidField for a position past the end.
        """
        if position > change.position:
            raise InvalidField("to_position", f"{position} is past the session's position {change.position}")
        return self._change(change, Truncated(position, self.next_seed(seed, position)))

    def _change(self, change: Change, event: Reconfigured | Turned | Truncated) -> Answer:
        with self._alone():
            answered = self.first_answer(change.request_id, change.digest)
            if answered is not None:
                return answered
            check_epoch(self.identity.session_id, change.epoch, self.epoch)
            check_position(self.position, change.position)
            if isinstance(event, Reconfigured) and self.finish is not None and self.finish.reason in TERMINAL:
                raise SessionFinished(
                    f"a terminal token ended the turn ({self.finish.reason.value}); begin a new turn, or roll back",
                    illegal_index=0,
                )
            log = self.log.until(self.position, self.log.seed)
            log.apply(event)
            state = fold(log) if isinstance(event, Truncated) else changed(self._folded(), log.marks[-1])
            directive = directive_of(state, log)
            self.log = log
            self._stand(state, directive)
            answer = self._under_new_epoch()
            self._answers[change.request_id] = (change.digest, answer)
            if len(self._answers) > _REMEMBERED_CHANGES:
                self._answers.popitem(last=False)
            return answer

    def take_over(self) -> Answer:
        """Fences off whoever held the session. Raises StepInFlight if a step takes more than a few seconds."""
        with self._alone(patience=_TAKEOVER_SECONDS):
            return self._under_new_epoch()

    def fork(self, identity: Identity, position: int, seed: int | None) -> Session:
        """A session of its own that shares the history up to `position`. Raises InvalidField, LimitExceeded."""
        with self._alone(patience=_TAKEOVER_SECONDS):
            if position > self.position:
                raise InvalidField("position", f"{position} is past the session's position {self.position}")
            log = self.log.until(position, self.next_seed(seed, position))
        return Session(identity, log)

    def next_seed(self, given: int | None, position: int) -> int:
        """The seed of what draws anew from `position` on: the call's, else its caller's own, else a new one."""
        if given is not None:
            return given
        mark = self.log.at(position)
        return mark.seed if mark.settings.seeded else secrets.randbits(64)

    def snapshot(self) -> tuple[Log, bytes]:
        """The log as it stands, and the state that it leads to. Raises StepInFlight, LimitExceeded."""
        with self._alone(patience=_TAKEOVER_SECONDS):
            return self.log.until(self.position, self.log.seed), self._folded().to_bytes()

    # --- inside ---

    def _under_new_epoch(self) -> Answer:
        self.epoch = next_epoch(self.epoch)
        return Answer(self.epoch, self.directive, self.config)

    def _stand(self, state: SamplerState, directive: Directive) -> None:
        """The session stands here now."""
        self._state = state
        self.directive = directive
        if isinstance(directive.outcome, Finish):
            self.log.apply(Finished(directive.outcome))
        self.last_step = time.monotonic()

    def _folded(self) -> SamplerState:
        """The state at the session's position, folded from the log if it was dropped. Raises LimitExceeded."""
        if self._state is None:
            self._state = fold(self.log)
        return self._state

    @contextmanager
    def _alone(self, patience: float = 0.0) -> Iterator[None]:
        if not self._busy.acquire(blocking=patience > 0, timeout=patience or -1):
            raise StepInFlight(
                f"session {self.identity.session_id.hex()} has a call that is not answered yet; "
                "wait for its answer, then send again"
            )
        try:
            yield
        finally:
            self._busy.release()


def next_epoch(epoch: int) -> int:
    """A random one, other than `epoch`."""
    while (fresh := secrets.randbits(64)) == epoch:
        pass
    return fresh
