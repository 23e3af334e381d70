"""How the decode loop's generations choose tokens: under a mask, or (for measuring) without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from constraintd_client import Directive
from constraintd_client.errors import MalformedAnswer
from numpy.typing import NDArray

from constraintd_runner.generation import Choice
from constraintd_runner.sampling import Adjustments, Chain, position_logprobs


@dataclass(frozen=True, slots=True)
class MaskedPicker:
    """The only picker that serves callers: no mask, no token."""

    chain: Chain
    logprobs: int | None = None
    """How many of the most probable tokens each choice tells of, beside the taken one; None: no log probabilities."""

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Choice:
        """Raises MalformedAnswer for a mask that is missing or of another width and for a lack of mu where the chain
        takes one, and what `Chain.sample` raises.
        """
        mask = directive.mask
        expected = (len(logits) + 31) // 32
        if mask is None or len(mask) != expected:
            found = "no mask" if mask is None else f"a mask of {len(mask)} words"
            raise MalformedAnswer(
                f"{found} at position {directive.position}; {len(logits)} logits need {expected} words"
            )
        if directive.mu is None and self.chain.takes_mu:
            raise MalformedAnswer(f"no mu at position {directive.position}; the config has a mirostat stage")
        changes = directive.adjustments
        picked = self.chain.sample(
            logits,
            mask,
            directive.draw,
            adjustments=None if changes is None else Adjustments(changes.ids, changes.scales, changes.offsets),
            mu=directive.mu,
        )
        if self.logprobs is None:
            return Choice(picked.token, picked.surprisal)
        return Choice(picked.token, picked.surprisal, position_logprobs(logits, mask, picked.token, self.logprobs))


@dataclass(frozen=True, slots=True)
class UnmaskedPicker:
    """Samples from the whole row, for measuring what the mask costs."""

    chain: Chain

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Choice:
        """Raises what `Chain.sample_unmasked` raises."""
        picked = self.chain.sample_unmasked(logits, directive.draw, mu=directive.mu)
        return Choice(picked.token, picked.surprisal)


@dataclass(frozen=True, slots=True)
class ReplayPicker:
    """Samples from the whole row, then takes a given list's token instead: same work, known text."""

    chain: Chain
    tokens: Sequence[int]

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Choice:
        """The list's token at this position. Raises IndexError past its end, and what `UnmaskedPicker` raises."""
        picked = self.chain.sample_unmasked(logits, directive.draw, mu=directive.mu)
        return Choice(self.tokens[directive.position], picked.surprisal)
