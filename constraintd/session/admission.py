"""What a step must be to be applied: its checks, each with its typed error."""

from __future__ import annotations

import math
from collections.abc import Sequence

from constraintd.errors import (
    InvalidField,
    InvalidSurprisal,
    PositionConflict,
    PositionGap,
    SessionFinished,
    StaleEpoch,
    StalePosition,
    TokenNotAllowed,
)
from constraintd.sampler.finish import Finish
from constraintd.session.directive import DenseMask, Outcome
from constraintd.session.log import Log


def check_epoch(session_id: bytes, epoch: int, present: int) -> None:
    """Raises StaleEpoch."""
    if epoch != present:
        raise StaleEpoch(
            f"epoch {epoch:#x} is not the present one of session {session_id.hex()}: another runner owns it, it was "
            "changed, or the daemon has opened it anew; take it over with ResumeSession, or drop it here"
        )


def check_form(tokens: Sequence[int], surprisals: Sequence[float]) -> None:
    """Raises InvalidField for a step without tokens, or whose lists differ in length."""
    if not tokens:
        raise InvalidField("step.tokens", "a step reports at least one token")
    if len(surprisals) != len(tokens):
        raise InvalidField(
            "step.surprisals", f"{len(surprisals)} surprisals for {len(tokens)} tokens; send one a token"
        )


def check_repeat(log: Log, position: int, tokens: Sequence[int]) -> None:
    """For a step that doesn't begin at the log's end: raises unless it repeats the last applied one."""
    if position > log.position:
        raise PositionGap(
            f"the step begins at position {position}, but {log.position} tokens are accepted: "
            "send the missing ones first",
            expected_position=log.position,
        )
    if position != log.last_step:
        last = "" if log.last_step is None else f", before the last applied step at {log.last_step}"
        raise StalePosition(
            f"the step begins at position {position}{last}; the next one begins at {log.position}",
            expected_position=log.position,
        )
    logged = log.tokens[position:]
    if list(tokens) != logged.tolist():
        raise PositionConflict(
            f"other tokens were applied at position {position}; go on from those", logged_tokens=logged
        )


def check_position(present: int, position: int) -> None:
    """Raises PositionGap or StalePosition unless a change was asked for from the present position."""
    if position == present:
        return
    kind = PositionGap if position > present else StalePosition
    raise kind(f"the call names position {position}, the session is at {present}", expected_position=present)


def check_unfinished(finish: Finish | None) -> None:
    """Raises SessionFinished."""
    if finish is not None:
        raise SessionFinished(
            f"the session has finished ({finish.reason.value}); close it, roll it back, or begin a new turn",
            illegal_index=0,
        )


def check_surprisals(surprisals: Sequence[float]) -> None:
    """Raises InvalidSurprisal."""
    for index, surprisal in enumerate(surprisals):
        if not (math.isfinite(surprisal) and surprisal >= 0):
            raise InvalidSurprisal(
                f"surprisal {surprisal} at index {index} must be finite and at least 0 bits", illegal_index=index
            )


def check_token(outcome: Outcome, token: int, *, index: int, position: int) -> None:
    """Raises SessionFinished or TokenNotAllowed unless the outcome at `position` lets the token come."""
    if isinstance(outcome, Finish):
        raise SessionFinished(
            f"the token before index {index} finishes the session ({outcome.reason.value}); send none after it",
            illegal_index=index,
        )
    if not (isinstance(outcome, DenseMask) and outcome.allows(token)):
        raise TokenNotAllowed(
            f"token {token} at index {index} is not allowed at position {position}; "
            "sample only tokens whose bit is set in the Directive's mask",
            illegal_index=index,
        )
