"""Stages put in order, checked once, and run for every token."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.adjustments import Adjustments
from constraintd_runner.sampling.candidates import (
    Candidates,
    checked_highest,
    is_allowed,
    masked_candidates,
    unmasked_candidates,
)
from constraintd_runner.sampling.leading import leading_candidates
from constraintd_runner.sampling.logit_bias import LogitBias
from constraintd_runner.sampling.mirostat import MirostatV1, MirostatV2
from constraintd_runner.sampling.pick import Picked, pick_by_draw, pick_greedy
from constraintd_runner.sampling.stages import Greedy, Stage, Temperature, TopK, WithMu, WithoutMu
from constraintd_runner.sampling.typical import TypicalP

_MAY_DROP_THE_HIGHEST: Final = (TypicalP, LogitBias)
"""Stages after which another token than before may have the highest logit. All others keep the most probable one."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What happens to a row of logits after mask and adjustments: `stages` in order, then greedy or a pick by draw."""

    stages: tuple[WithoutMu | WithMu, ...]
    greedy: bool

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> Chain:
        """A chain from stages as a caller lists them.

        Greedy, or temperature 0, ends the list. Stages right before it are left out as long as they can't change which
        token is the most probable: greedy alone picks that one. (Of two that are equally probable and yet have
        different logits, which then lie within 1e-16 of each other, it is the higher.) Raises ValueError if anything
        follows.
        """
        given = tuple(stages)
        kept: list[WithoutMu | WithMu] = []
        for index, stage in enumerate(given):
            if isinstance(stage, Greedy) or (isinstance(stage, Temperature) and stage.temperature == 0.0):
                if index + 1 < len(given):
                    raise ValueError(f"stage {index} is greedy, which ends the chain, but {given[index + 1]} follows")
                while kept and not isinstance(kept[-1], _MAY_DROP_THE_HIGHEST):
                    kept.pop()
                return cls(tuple(kept), greedy=True)
            kept.append(stage)
        return cls(tuple(kept), greedy=False)

    @property
    def takes_mu(self) -> bool:
        """Whether a stage takes mu, which `sample` then has to be given."""
        return any(isinstance(stage, WithMu) for stage in self.stages)

    def sample(
        self,
        logits: NDArray[np.float32],
        mask: NDArray[np.uint32],
        draw: float,
        *,
        adjustments: Adjustments | None = None,
        mu: float | None = None,
    ) -> Picked:
        """A token that `mask` allows, from a row [width] float32; mask: [ceil(width / 32)] packed words.

        `mu`: in bits, finite, for a chain that takes one. Raises BrokenLogits and NothingLeft (see
        `masked_candidates`, `Adjustments.apply`), ValueError for a draw outside of [0, 1) and for a lack of mu.
        """
        if self.greedy and not self.stages and adjustments is None:
            # The model's favourite is legal at most positions; then nothing else needs to be looked at.
            favourite = checked_highest(logits)
            if is_allowed(mask, favourite):
                return Picked(favourite, 0.0)
        # Where numbers leave float64's range, what becomes of them is defined stage by stage.
        with np.errstate(over="ignore"):
            return self._pick(self._candidates(logits, mask, adjustments), draw, mu)

    def sample_unmasked(self, logits: NDArray[np.float32], draw: float, *, mu: float | None = None) -> Picked:
        """A token from the whole row [width]. For measuring what masks cost, and for nothing that a user sees."""
        if self.greedy and not self.stages:
            return Picked(checked_highest(logits), 0.0)
        with np.errstate(over="ignore"):
            return self._pick(unmasked_candidates(logits), draw, mu)

    def _candidates(
        self, logits: NDArray[np.float32], mask: NDArray[np.uint32], adjustments: Adjustments | None
    ) -> Candidates:
        """The allowed tokens, adjusted; of a long row only those that can matter to the first stage."""
        if not self.stages and self.greedy:
            return leading_candidates(logits, mask, 1, adjustments)
        if self.stages and isinstance(self.stages[0], TopK):
            return leading_candidates(logits, mask, self.stages[0].k, adjustments)
        candidates = masked_candidates(logits, mask)
        return candidates if adjustments is None else adjustments.apply(candidates)

    def _pick(self, candidates: Candidates, draw: float, mu: float | None) -> Picked:
        for stage in self.stages:
            if isinstance(stage, (MirostatV1, MirostatV2)):
                if mu is None or not math.isfinite(mu):
                    raise ValueError(f"mu is {mu}; expected a finite number for {stage}")
                candidates = stage.apply(candidates, mu)
            else:
                candidates = stage.apply(candidates)
        return pick_greedy(candidates) if self.greedy else pick_by_draw(candidates, draw)
