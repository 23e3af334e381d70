"""N-grams and what can be seen of their statistics: frozen values, for tests, people and comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NGram = tuple[int, ...]
"""1 to 7 token ids."""


@dataclass(frozen=True, slots=True)
class NGramCount:
    """One n-gram's recordings within the window."""

    positions: tuple[int, ...]
    """Ascending: the numbers of the passes that recorded it."""
    effective: float
    """Sum of decay^age, where the newest pass of the statistics has age 0."""

    @property
    def count(self) -> int:
        """Its recordings."""
        return len(self.positions)


@dataclass(frozen=True, slots=True)
class NGramStats:
    """Statistics at one moment; equal iff every number is equal."""

    step: int = 0
    """Passes so far, those that have left the window included."""
    entries: Mapping[NGram, NGramCount] = field(default_factory=dict)
    """In the order of their oldest recordings within the window, of one position the shorter first."""

    @property
    def total(self) -> int:
        """Recordings within the window."""
        return sum(entry.count for entry in self.entries.values())
