"""What wakes a lazy grammar."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TriggerKind(Enum):
    """How a trigger is looked for; values are the protocol's names."""

    WORD = "word"
    """Literal text, anywhere in the text so far."""
    PATTERN = "pattern"
    """A regular expression, searched in the whole text so far."""
    PATTERN_FULL = "pattern_full"
    """A regular expression that the whole text so far matches."""
    TOKEN = "token"
    """One token id, by id alone."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger of a lazy grammar. Source: llama.cpp's lazy grammars."""

    kind: TriggerKind
    text: str = ""
    """WORD's literal text, or the pattern; empty for TOKEN."""
    token: int = -1
    """TOKEN's id."""
    at_start: bool = False
    """Only where the text begins with it (offset 0)."""
    exclusive: bool = False
    """The grammar is fed what comes after the trigger; otherwise from the trigger's start on."""
