"""Stages put in order, checked once, and run for every token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.candidates import (
    Candidates,
    checked_highest,
    is_allowed,
    masked_candidates,
    unmasked_candidates,
)
from constraintd_runner.sampling.pick import Picked, pick_by_draw, pick_greedy
from constraintd_runner.sampling.stages import Greedy, MinP, Stage, Temperature, TopK, TopP


@dataclass(frozen=True, slots=True)
class Chain:
    """What happens to a row of logits after the mask: `stages` in order, then greedy or the pick by draw."""

    stages: tuple[Temperature | TopK | TopP | MinP, ...]
    greedy: bool

    @classmethod
    def of(cls, stages: Iterable[Stage]) -> Chain:
        """A chain from stages as a caller lists them.

        Greedy, or temperature 0, ends the list. What stands before it is left out: no stage changes which token is
        the most probable, so greedy alone picks the same one. Raises ValueError if anything follows.
        """
        given = tuple(stages)
        kept: list[Temperature | TopK | TopP | MinP] = []
        for index, stage in enumerate(given):
            if isinstance(stage, Greedy) or (isinstance(stage, Temperature) and stage.temperature == 0.0):
                if index + 1 < len(given):
                    raise ValueError(f"stage {index} is greedy, which ends the chain, but {given[index + 1]} follows")
                return cls((), greedy=True)
            kept.append(stage)
        return cls(tuple(kept), greedy=False)

    def sample(self, logits: NDArray[np.float32], mask: NDArray[np.uint32], draw: float) -> Picked:
        """A token that `mask` allows, from a row [width] float32; mask: [ceil(width / 32)] packed words.

        Raises BrokenLogits and NothingLeft (see `masked_candidates`), ValueError for a draw outside of [0, 1).
        """
        if self.greedy:
            # The model's favourite is legal at most positions; then nothing else needs to be looked at.
            highest = checked_highest(logits)
            if is_allowed(mask, highest):
                return Picked(highest, 0.0)
            return pick_greedy(masked_candidates(logits, mask))
        return self._pick(masked_candidates(logits, mask), draw)

    def sample_unmasked(self, logits: NDArray[np.float32], draw: float) -> Picked:
        """A token from the whole row [width]. For measuring what masks cost, and for nothing that a user sees."""
        if self.greedy:
            return Picked(checked_highest(logits), 0.0)
        return self._pick(unmasked_candidates(logits), draw)

    def _pick(self, candidates: Candidates, draw: float) -> Picked:
        for stage in self.stages:
            candidates = stage.apply(candidates)
        return pick_by_draw(candidates, draw)
