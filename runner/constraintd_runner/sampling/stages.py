"""The stages between mask and pick. Each is a value; `apply` computes, and changes nothing that it was given.

All arithmetic is float64. Ties go to the lowest id everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.candidates import Candidates

_HEAD = 512
"""How many of the most probable tokens top-p looks at first. The result is the same for any number."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """Takes the highest logit, ties by the lowest id. Ends the chain."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits by `temperature`, finite and >= 0; 0 is greedy and ends the chain."""

    temperature: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ValueError(f"temperature is {self.temperature}; expected a finite number >= 0")

    def apply(self, candidates: Candidates) -> Candidates:
        """The candidates with scaled logits, the highest at 0.

        The highest is subtracted first: it changes no probability, and a tiny temperature then gives -inf for the
        others (who drop out) where dividing alone would give inf for the highest, and NaN after it.
        """
        with np.errstate(over="ignore"):
            scaled = (candidates.logits - candidates.logits.max()) / self.temperature
        return Candidates(candidates.ids, scaled).keep(scaled > -np.inf)


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the `k` highest logits (k >= 1), ties by the lowest id."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top-k is {self.k}; expected at least 1")

    def apply(self, candidates: Candidates) -> Candidates:
        """The k highest, still by ascending id; all of them if there are no more than k."""
        if self.k >= len(candidates.ids):
            return candidates
        return candidates.keep(_highest(candidates.logits, self.k))


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the smallest set of most probable tokens whose probability reaches `p`, in (0, 1].

    The token that crosses p is kept (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration").
    """

    p: float

    def __post_init__(self) -> None:
        if not 0.0 < self.p <= 1.0:
            raise ValueError(f"top-p is {self.p}; expected a number in (0, 1]")

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, by ascending id. p = 1 keeps all, also those too improbable to change the sum."""
        if self.p == 1.0:
            return candidates
        logits = candidates.logits
        goal = self.p * float(weights_of(logits).sum())
        if len(logits) > _HEAD:
            # Nearly always the first few reach p: finding them takes a fifth of the time of sorting 49,152.
            head = np.partition(logits, len(logits) - _HEAD)[len(logits) - _HEAD :]
            crossing = _crossing(np.sort(head)[::-1], goal)
            if crossing < _HEAD:
                return TopK(crossing + 1).apply(candidates)
        # Summed in another order, all of them may miss a goal just under the total by a rounding.
        crossing = _crossing(np.sort(logits)[::-1], goal)
        return TopK(crossing + 1).apply(candidates)


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps tokens at least `p` times as probable as the most probable one; p in [0, 1]."""

    p: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"min-p is {self.p}; expected a number in [0, 1]")

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, by ascending id; the most probable is always among them."""
        return candidates.keep(weights_of(candidates.logits) >= self.p)


Stage: TypeAlias = Greedy | Temperature | TopK | TopP | MinP


def weights_of(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax before its division: exp(logit - highest), so the highest has exactly 1."""
    weights: NDArray[np.float64] = logits - logits.max()
    # In place: a second array of 49,152 costs more in page faults than the exponentials do.
    np.exp(weights, out=weights)
    return weights


def _highest(logits: NDArray[np.float64], k: int) -> NDArray[np.bool_]:
    """Which ones are the k highest, 1 <= k < len(logits), ties by the lowest id."""
    threshold = np.partition(logits, len(logits) - k)[len(logits) - k]
    kept: NDArray[np.bool_] = logits > threshold
    ties = np.flatnonzero(logits == threshold)
    kept[ties[: k - int(np.count_nonzero(kept))]] = True
    return kept


def _crossing(descending: NDArray[np.float64], goal: float) -> int:
    """Index of the first whose running sum of weights reaches `goal`; the length if none does."""
    return int(weights_of(descending).cumsum().searchsorted(goal, side="left"))
