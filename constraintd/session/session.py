"""A session: id, epoch, config and log, and the SamplerState that folds from them."""

from __future__ import annotations

import math
import secrets
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from constraintd.constraint import Constraint, MaskView
from constraintd.errors import (
    InvalidField,
    InvalidSurprisal,
    PositionConflict,
    PositionGap,
    SessionFinished,
    StaleEpoch,
    StalePosition,
    StepInFlight,
    TokenNotAllowed,
)
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.draws import draw
from constraintd.sampler.state import Finish, SamplerState
from constraintd.session.directive import DenseMask, Directive, NoTokenAllowed, Outcome
from constraintd.vocabulary.vocabulary import Vocabulary

_SLOW_SECONDS = 0.002
_LONG_TEXT_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Verifier:
    """An independent check of a finished text against the JSON Schema of the part `name`, as it was given.

    `check` gives what is wrong, or None.
    """

    name: str
    check: Callable[[bytes], str | None]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a session was opened with; never changes."""

    session_id: bytes
    vocabulary: Vocabulary
    grammar_ids: tuple[str, ...]
    config: SamplerConfig
    prompt_tokens: tuple[int, ...]
    request_digest: bytes
    verifiers: tuple[Verifier, ...] = ()


class Session:
    """One session. `step` lets one caller in at a time and refuses the others; reads need no lock.

    The log (`tokens`, `surprisals`) is the truth; the SamplerState is folded from it and can be dropped at any time.
    """

    def __init__(
        self, identity: Identity, constraint: Callable[[], Constraint], *, min_tokens: int = 0, max_tokens: int
    ) -> None:
        """Computes the first Directive. Raises LimitExceeded."""
        self.identity = identity
        self.epoch = secrets.randbits(64)
        self.tokens = array("I")
        self.surprisals = array("f")
        self.last_step = time.monotonic()
        self._constraint = constraint
        self._min_tokens = min_tokens
        self._max_tokens = max_tokens
        self._busy = threading.Lock()
        self._last_position: int | None = None  # where the last applied step began
        began = time.perf_counter()
        state = self._at_start()
        self.directive = self._directive_at(state, state.mask())
        self._state: SamplerState | None = state
        self.awaiting_trigger = state.awaiting_trigger  # whether some grammar still sleeps
        self.step_seconds = time.perf_counter() - began  # of one token of the last step: tells slow from quick

    @property
    def position(self) -> int:
        """Number of accepted tokens."""
        return len(self.tokens)

    @property
    def is_slow(self) -> bool:
        """Whether its next step may take more than a moment: its last one did, or a long text is to be verified."""
        long_text = bool(self.identity.verifiers) and self.directive.settled_bytes > _LONG_TEXT_BYTES
        return long_text or self.step_seconds > _SLOW_SECONDS

    @property
    def finish(self) -> Finish | None:
        """The Finish, if it has finished."""
        outcome = self.directive.outcome
        return outcome if isinstance(outcome, Finish) else None

    def step(self, epoch: int, position: int, tokens: Sequence[int], surprisals: Sequence[float]) -> Directive:
        """Applies a step whole, or not at all, and gives the next Directive.

        Raises StepInFlight, StaleEpoch, InvalidField, PositionGap, PositionConflict, StalePosition, SessionFinished,
        InvalidSurprisal, TokenNotAllowed, LimitExceeded; the session is then as it was.
        """
        if not self._busy.acquire(blocking=False):
            raise StepInFlight(
                f"session {self.identity.session_id.hex()} has a step that is not answered yet; "
                "wait for its answer, then send again"
            )
        try:
            self._check_epoch(epoch)
            if not tokens:
                raise InvalidField("step.tokens", "a step reports at least one token")
            if len(surprisals) != len(tokens):
                raise InvalidField(
                    "step.surprisals", f"{len(surprisals)} surprisals for {len(tokens)} tokens; send one a token"
                )
            if position != self.position:
                return self._repeat(position, tokens)
            return self._apply(tokens, surprisals)
        finally:
            self._busy.release()

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise StaleEpoch(
                f"epoch {epoch:#x} is not the present one of session {self.identity.session_id.hex()}: "
                "another runner owns it, or the daemon has opened it anew; drop it here"
            )

    def _repeat(self, position: int, tokens: Sequence[int]) -> Directive:
        """The answer to a step that doesn't begin at the session's position."""
        if position > self.position:
            raise PositionGap(
                f"the step begins at position {position}, but {self.position} tokens are accepted: "
                "send the missing ones first",
                expected_position=self.position,
            )
        if position != self._last_position:
            raise StalePosition(
                f"the step begins at position {position}, before the last applied step at {self._last_position}; "
                f"the next one begins at {self.position}",
                expected_position=self.position,
            )
        logged = self.tokens[position:]
        if list(tokens) != logged.tolist():
            raise PositionConflict(
                f"other tokens were applied at position {position}; go on from those", logged_tokens=logged
            )
        return self.directive

    def _apply(self, tokens: Sequence[int], surprisals: Sequence[float]) -> Directive:
        if self.finish is not None:
            raise SessionFinished(
                f"the session has finished ({self.finish.reason.value}); close it or open another", illegal_index=0
            )
        for index, surprisal in enumerate(surprisals):
            if not (math.isfinite(surprisal) and surprisal >= 0):
                raise InvalidSurprisal(
                    f"surprisal {surprisal} at index {index} must be finite and at least 0 bits", illegal_index=index
                )
        began = time.perf_counter()
        directive, state = self._advance(tokens)
        if self.identity.verifiers and isinstance(directive.outcome, Finish):
            directive = replace(directive, outcome=self._verified(directive.outcome, state, tokens))
        self._last_position = self.position
        self.tokens.extend(tokens)
        self.surprisals.extend(surprisals)
        self._state = state
        self.directive = directive
        self.awaiting_trigger = state.awaiting_trigger
        self.last_step = time.monotonic()
        self.step_seconds = (time.perf_counter() - began) / len(tokens)
        return directive

    def _advance(self, tokens: Sequence[int]) -> tuple[Directive, SamplerState]:
        """The Directive after `tokens` and the state there, which is the session's only once it is all applied."""
        state = self._folded()
        if len(tokens) > 1:
            state = state.fork()  # a later token may be illegal; a copy costs 1 to 80 us, so single tokens go without
        outcome: Outcome = self.directive.outcome
        for index, token in enumerate(tokens):
            if isinstance(outcome, Finish):
                raise SessionFinished(
                    f"the token before index {index} finishes the session ({outcome.reason.value}); send none after it",
                    illegal_index=index,
                )
            if not (isinstance(outcome, DenseMask) and outcome.allows(token)):
                raise TokenNotAllowed(
                    f"token {token} at index {index} is not allowed at position {self.position + index}; "
                    "sample only tokens whose bit is set in the Directive's mask",
                    illegal_index=index,
                )
            if len(tokens) == 1:
                self._state = None  # advanced in place: if anything fails from here on, it is folded anew from the log
            directive = self._directive_at(state, state.advance(token) or state.mask())
            outcome = directive.outcome
        return directive, state

    def _verified(self, finish: Finish, state: SamplerState, tokens: Sequence[int]) -> Finish:
        if finish.constraint_incomplete:
            return finish
        bytes_of = self.identity.vocabulary.bytes_of
        text = b"".join(bytes_of(token) for token in [*self.tokens, *tokens])[: finish.cut_offset]
        for verifier in self.identity.verifiers:
            violation = verifier.check(text[state.begins_at(verifier.name) :])
            if violation is not None:
                return replace(finish, schema_satisfied=False, schema_violation=violation)
        return replace(finish, schema_satisfied=True)

    def _directive_at(self, state: SamplerState, here: MaskView | Finish) -> Directive:
        position = state.position
        next_draw = draw(self.identity.config.seed, position)
        if isinstance(here, Finish):
            return Directive(position, here, next_draw, settled_bytes=here.cut_offset)
        outcome: Outcome = DenseMask(here.dense)
        if here.dead_end:
            outcome = NoTokenAllowed(
                f"no token is left at position {position} by what must hold at once: "
                f"{', '.join(state.constraint_names)}; widen one of them"
            )
        return Directive(position, outcome, next_draw, settled_bytes=state.settled_bytes())

    def _at_start(self) -> SamplerState:
        identity = self.identity
        return SamplerState(
            identity.vocabulary,
            identity.config,
            self._constraint(),
            min_tokens=self._min_tokens,
            max_tokens=self._max_tokens,
        )

    def _folded(self) -> SamplerState:
        """The state at the session's position, folded from the log if it was dropped. Raises LimitExceeded."""
        if self._state is None:
            state = self._at_start()
            for token in self.tokens:
                state.advance(token)
            self._state = state
        return self._state
