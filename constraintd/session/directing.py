"""From a state to the Directive that goes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from constraintd.constraint import MaskView
from constraintd.sampler.draws import draw
from constraintd.sampler.finish import Finish, FinishReason
from constraintd.sampler.state import SamplerState
from constraintd.session.directive import DenseMask, Directive, NoTokenAllowed, Outcome, Standing
from constraintd.session.log import Log


def outcome_of(state: SamplerState) -> Outcome:
    """What may come at the state's position. Raises LimitExceeded."""
    here = state.mask()
    return here if isinstance(here, Finish) else _outcome(state, here)


def directive_of(state: SamplerState, log: Log, tokens: Sequence[int] = ()) -> Directive:
    """The Directive at the state's position, which is `tokens` behind the log's; a finish is verified.

    Raises LimitExceeded.
    """
    here = state.mask()
    position = state.position
    next_draw = draw(log.seed, position)
    if isinstance(here, Finish):
        finish = _verified(here, state, log, tokens)
        ended = here.reason is FinishReason.GRAMMAR_EXHAUSTED
        standing = Standing(state.awaiting_trigger, ended, not here.constraint_incomplete, ended)
        return Directive(position, finish, next_draw, here.cut_offset, standing, mu=state.mu)
    standing = Standing(state.awaiting_trigger, here.allows_eog, here.complete, here.exhausted)
    outcome = _outcome(state, here)
    adjustments = None if here.dead_end else state.adjustments()
    return Directive(position, outcome, next_draw, state.settled_bytes(), standing, adjustments, state.mu)


def _outcome(state: SamplerState, here: MaskView) -> Outcome:
    if not here.dead_end:
        return DenseMask(here.dense)
    return NoTokenAllowed(
        f"no token is left at position {state.position} by what must hold at once: "
        f"{', '.join(state.constraint_names)}; widen one of them"
    )


def _verified(finish: Finish, state: SamplerState, log: Log, tokens: Sequence[int]) -> Finish:
    """The finish with what the independent check of the turn's text says, where the session has one."""
    verifiers = log.settings.verifiers
    if finish.constraint_incomplete or not verifiers:
        return finish
    offset = state.turn_offset
    turn = [*log.tokens[state.turn_position :], *tokens]
    text = state.settings.vocabulary.text_of(turn)[: finish.cut_offset - offset]
    for verifier in verifiers:
        violation = verifier.check(text[max(0, state.begins_at(verifier.name) - offset) :])
        if violation is not None:
            return replace(finish, schema_satisfied=False, schema_violation=violation)
    return replace(finish, schema_satisfied=True)
