"""What happens to a session, as its log keeps it. A session is the fold of these, and nothing else.

Opened         first, once
Accepted       tokens of one Step, with surprisals and the lengths of the forward passes before them
Truncated      a rollback: what came after the position has never happened
Reconfigured   other settings from the present position on, in the same turn
Turned         a new turn, its prompt behind the last token
Finished       how the present turn ended; follows from the others, and is written for those who only read
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from constraintd.sampler.finish import Finish
from constraintd.sampler.settings import Settings


@dataclass(frozen=True, slots=True)
class Verifier:
    """An independent check of a finished text against the JSON Schema of the part `name`, as it was given.

    `check` gives what is wrong, or None.
    """

    name: str
    check: Callable[[bytes], str | None]


@dataclass(frozen=True, slots=True, eq=False)
class SessionSettings:
    """Settings with what a session needs of them besides its state."""

    sampling: Settings
    source: bytes = b""
    """The caller's constraint, sampler config and reasoning end, canonically encoded; what the log is written with."""
    grammar_ids: tuple[str, ...] = ()
    verifiers: tuple[Verifier, ...] = ()
    seeded: bool = True
    """Whether the caller chose the seed: then rollback, new turn and fork keep it."""
    pins: tuple[object, ...] = ()
    """Held so that the grammars stay compiled while a session uses them."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The session begins."""

    settings: SessionSettings
    prompt: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """A Step was applied."""

    tokens: tuple[int, ...]
    surprisals: tuple[float, ...]
    passes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Truncated:
    """The session is back at `position`, drawing by `seed` from there on."""

    position: int
    seed: int


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """Other settings, in the same turn."""

    settings: SessionSettings
    seed: int


@dataclass(frozen=True, slots=True)
class Turned:
    """A new turn."""

    settings: SessionSettings
    prompt: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is over."""

    finish: Finish


Event: TypeAlias = Opened | Accepted | Truncated | Reconfigured | Turned | Finished
