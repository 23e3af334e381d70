"""The daemon's answer to a step, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.finish import Finish


@dataclass(frozen=True, slots=True)
class DenseMask:
    """The legal tokens: packed little-endian uint32 words, at least one bit set."""

    words: bytes

    def allows(self, token: int) -> bool:
        """Whether the token's bit is set; false for every id past the mask."""
        byte = token >> 3
        return byte < len(self.words) and bool(self.words[byte] >> (token & 7) & 1)


@dataclass(frozen=True, slots=True)
class NoTokenAllowed:
    """Nothing may come next; `message` says what met."""

    message: str


Outcome: TypeAlias = DenseMask | Finish | NoTokenAllowed


@dataclass(frozen=True, slots=True)
class Standing:
    """How the constraint stands at a position; see the protocol's Directive."""

    awaiting_trigger: bool
    allows_eog: bool
    complete: bool
    exhausted: bool


@dataclass(frozen=True, slots=True, eq=False)
class Directive:
    """What to do at `position`. `draw` in [0, 1); `settled_bytes` counts text bytes from position 0; `mu` in bits."""

    position: int
    outcome: Outcome
    draw: float
    settled_bytes: int
    standing: Standing
    adjustments: Adjustments | None = None
    mu: float | None = None
