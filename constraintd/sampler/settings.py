"""What a session's state is folded under: everything that its caller chose, checked and resolved."""

from __future__ import annotations

from dataclasses import dataclass

from constraintd.constraint import PartSpec
from constraintd.sampler.config import SamplerConfig
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """In force from one position to the next change. `config.seed` counts for nothing here: draws are not state."""

    vocabulary: Vocabulary
    config: SamplerConfig
    parts: tuple[PartSpec, ...] = ()
    """What must hold: the constraint's grammars and rules, and those of the config (deny ranges, banned specials)."""
    min_tokens: int = 0
    """No end before this many tokens of the turn: the largest that config and constraint ask for."""
    max_tokens: int = 1 << 62
    """The turn's bound: the smallest that config and constraint ask for."""
    max_position: int = 1 << 62
    """The session's own bound, whatever its turns."""
