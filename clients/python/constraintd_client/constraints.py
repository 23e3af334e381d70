"""Constraints beyond a grammar alone: grammars that sleep, several constraints at once, and where reasoning ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from constraintd.v1 import session_pb2

from .grammars import ConstraintLike, Grammar
from .grammars import constraint as constraint_message
from .json_document import utf8
from .triggers import Trigger

Constraint: TypeAlias = session_pb2.Constraint
"""What a session's text must satisfy, as the protocol has it."""

ReasoningEnd: TypeAlias = session_pb2.ReasoningEnd
"""Where a model's reasoning ends, as the protocol has it."""


def lazy(grammar: Grammar | str, *triggers: Trigger, rearm: bool = False) -> Constraint:
    """A grammar, or the id of a compiled one, that sleeps until one of the `triggers` wakes it; see `triggers`.

    While it sleeps the text is free and may end. With `rearm` it sleeps again where it is exhausted.
    """
    if isinstance(grammar, str):
        asleep = session_pb2.LazyGrammar(grammar_id=grammar, triggers=triggers, rearm=rearm)
    else:
        asleep = session_pb2.LazyGrammar(grammar=grammar, triggers=triggers, rearm=rearm)
    return Constraint(lazy=asleep)


def all_of(*constraints: ConstraintLike) -> Constraint:
    """All of these at once: a token is legal where each of them allows it."""
    return Constraint(all_of=session_pb2.AllOf(constraints=[constraint_message(each) for each in constraints]))


def reasoning_end(*texts: str | bytes, tokens: Sequence[int] = (), begin: str | bytes = "") -> ReasoningEnd:
    """Where the model's reasoning ends: after any of the `texts`, such as "</think>", or of the `tokens`.

    Until then every constraint sleeps. With `begin`, such as "<think>", a prompt reasons only if its last `begin` has
    no end behind it; without it, until an end stands somewhere in the prompt or in what is generated.
    """
    return ReasoningEnd(texts=[utf8(text) for text in texts], tokens=tokens, begin=utf8(begin))
