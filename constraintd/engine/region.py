"""Which statistics of the n-gram penalty a place belongs to."""

from __future__ import annotations

from enum import Enum

PERMISSIVE_BYTES = 64
"""So many bytes may come next where a constraint is permissive: the text inside of it is the model's own."""


class Region(Enum):
    """Where a position lies in the constraint."""

    PROSE = "prose"
    """No constraint is unfinished: the text's own statistics."""
    PERMISSIVE = "permissive"
    """Every unfinished constraint is permissive: the statistics of constrained regions."""
    STRUCTURAL = "structural"
    """In the structure of a constraint: nothing is counted, nobody is punished."""
