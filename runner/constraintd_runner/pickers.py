"""How the decode loop's generations choose tokens: under a mask, or (for measuring) without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from constraintd_client import Directive
from constraintd_client.errors import MalformedAnswer
from numpy.typing import NDArray

from constraintd_runner.sampling import Chain, Picked


@dataclass(frozen=True, slots=True)
class MaskedPicker:
    """The only picker that serves callers: no mask, no token."""

    chain: Chain

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Picked:
        """Raises MalformedAnswer for a mask that is missing or of another width, and what `Chain.sample` raises."""
        mask = directive.mask
        expected = (len(logits) + 31) // 32
        if mask is None or len(mask) != expected:
            found = "no mask" if mask is None else f"a mask of {len(mask)} words"
            raise MalformedAnswer(
                f"{found} at position {directive.position}; {len(logits)} logits need {expected} words"
            )
        return self.chain.sample(logits, mask, directive.draw)


@dataclass(frozen=True, slots=True)
class UnmaskedPicker:
    """Samples from the whole row, for measuring what the mask costs."""

    chain: Chain

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Picked:
        """Raises what `Chain.sample_unmasked` raises."""
        return self.chain.sample_unmasked(logits, directive.draw)


@dataclass(frozen=True, slots=True)
class ReplayPicker:
    """Samples from the whole row, then takes a given list's token instead: same work, known text."""

    chain: Chain
    tokens: Sequence[int]

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Picked:
        """The list's token at this position. Raises IndexError past its end, and what `UnmaskedPicker` raises."""
        picked = self.chain.sample_unmasked(logits, directive.draw)
        return Picked(self.tokens[directive.position], picked.surprisal)
