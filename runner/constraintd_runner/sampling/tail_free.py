"""Tail-free sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.ranking import highest, probabilities_of


@dataclass(frozen=True, slots=True)
class TailFree:
    """Cuts off the tail of the sorted probabilities, which begins where their curve has become flat.

    Of the absolute second differences of the descending probabilities, normalised to sum 1, the running sum tells how
    much of the bend lies behind; kept are the tokens before the first at which it exceeds `z`, in (0, 1] (Phénix and
    Egan 2019, "Tail Free Sampling").
    """

    z: float

    def __post_init__(self) -> None:
        if not 0.0 < self.z <= 1.0:
            raise ValueError(f"tail-free z is {self.z}; expected a number in (0, 1]")

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, at least one, by ascending id. z = 1 keeps all, and so do fewer than three candidates."""
        count = len(candidates.ids)
        if count < 3 or self.z == 1.0:
            return candidates
        probabilities = probabilities_of(candidates.logits)
        bends = np.abs(np.diff(np.sort(probabilities)[::-1], n=2))  # [count - 2]
        total = float(bends.sum())
        if total > 0.0:
            bends /= total
        else:
            bends.fill(1.0 / (count - 2))  # a straight line bends nowhere, and so everywhere alike
        cut = int(bends.cumsum().searchsorted(self.z, side="right"))
        if cut == len(bends):
            return candidates
        return candidates.keep(highest(probabilities, max(1, cut)))
