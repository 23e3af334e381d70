"""What wakes a lazy grammar: `triggers.word("<call>")`, `triggers.token(7)`, and so on.

`at_start`: only at the very beginning of the text. `exclusive`: the grammar is fed what comes after the trigger, not
the trigger itself.
"""

from __future__ import annotations

from typing import TypeAlias

from constraintd.v1 import session_pb2

from .json_document import utf8

Trigger: TypeAlias = session_pb2.Trigger
"""One trigger, as the protocol has it."""


def word(text: str | bytes, *, at_start: bool = False, exclusive: bool = False) -> Trigger:
    """Literal text. A word that is exactly the spelling of one special token is that token, and nothing else."""
    return Trigger(word=utf8(text), at_start=at_start, exclusive=exclusive)


def pattern(expression: str | bytes, *, at_start: bool = False, exclusive: bool = False) -> Trigger:
    """A regular expression (RE2) that some part of the text so far matches.

    The grammar is fed from its first non-empty group on, if it has groups.
    """
    return Trigger(pattern=utf8(expression), at_start=at_start, exclusive=exclusive)


def pattern_full(expression: str | bytes, *, at_start: bool = False, exclusive: bool = False) -> Trigger:
    """A regular expression (RE2) that the whole text so far matches."""
    return Trigger(pattern_full=utf8(expression), at_start=at_start, exclusive=exclusive)


def token(token_id: int, *, at_start: bool = False, exclusive: bool = False) -> Trigger:
    """A token, by its id alone. Raises ValueError if it doesn't fit its field."""
    return Trigger(token=token_id, at_start=at_start, exclusive=exclusive)
