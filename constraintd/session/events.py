"""What happens to a session, as its log keeps it. A session is the fold of these, and nothing else.

Opened         first, once
Accepted       tokens of one Step, with surprisals and the lengths of the forward passes before them
Truncated      a rollback: what came after the position has never happened
Reconfigured   other settings from the present position on, in the same turn
Turned         a new turn, its prompt behind the last token
Finished       how the present turn ended; follows from the others, and is written for those who only read
Fed            the forward passes so far, all at once: in logs that were written as one piece
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class SettingsRef:
    """What names settings in a record: hashes of blobs that stores and envelopes keep."""

    source: bytes = b""
    """Of the caller's constraint, sampler config and reasoning end, canonically encoded."""
    grammars: tuple[bytes, ...] = ()
    """Of the grammars that the constraint names by id, in its order."""


_NOWHERE = SettingsRef()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SessionSettings:
    """Settings with what a session needs of them besides its state. Sessions with the same ones may share them."""

    sampling: Settings
    ref: SettingsRef = _NOWHERE
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)
    """What `ref` names."""
    grammar_ids: tuple[str, ...] = ()
    verifiers: tuple[Verifier, ...] = ()
    verifies_slowly: bool = False
    """Whether the verifiers take more than a moment even for a short text."""
    seeded: bool = True
    """Whether the caller chose the seed: then rollback, new turn and fork keep it."""
    pins: tuple[object, ...] = ()
    """Held so that the grammars stay compiled while a session uses them."""


@dataclass(frozen=True, slots=True)
class Request:
    """The call that a change answers: its id, its digest, and the epoch that it brought."""

    request_id: bytes
    digest: bytes
    epoch: int


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
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """Other settings, in the same turn."""

    settings: SessionSettings
    seed: int
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Turned:
    """A new turn."""

    settings: SessionSettings
    prompt: tuple[int, ...]
    seed: int
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is over."""

    finish: Finish


@dataclass(frozen=True, slots=True)
class Fed:
    """Lengths of all forward passes so far."""

    passes: tuple[int, ...]


Changed: TypeAlias = Truncated | Reconfigured | Turned
Event: TypeAlias = Opened | Accepted | Changed | Finished | Fed
