"""The stages between mask and pick. Each is a value; `apply` computes, and changes nothing that it was given.

All arithmetic is float64; probabilities are a softmax over the candidates that are still there. Ties go to the lowest
id everywhere. Here are the plain ones; `typical`, `tail_free`, `split`, `mirostat` and `logit_bias` have the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.logit_bias import LogitBias
from constraintd_runner.sampling.mirostat import MirostatV1, MirostatV2
from constraintd_runner.sampling.ranking import highest, reaching, weights_of
from constraintd_runner.sampling.split import SplitL, SplitP
from constraintd_runner.sampling.tail_free import TailFree
from constraintd_runner.sampling.typical import TypicalP

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
        others (who drop out) where dividing alone would give inf for the highest, and NaN after it. (The chain
        silences NumPy's warning of it.)
        """
        scaled = (candidates.logits - candidates.logits[candidates.logits.argmax()]) / self.temperature
        return Candidates(candidates.ids, scaled).keep(scaled > -np.inf)


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the `k` highest logits (k >= 1), ties by the lowest id (Fan et al. 2018, arXiv 1805.04833)."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top-k is {self.k}; expected at least 1")

    def apply(self, candidates: Candidates) -> Candidates:
        """The k highest, still by ascending id; all of them if there are no more than k."""
        if self.k >= len(candidates.ids):
            return candidates
        return candidates.keep(highest(candidates.logits, self.k))


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
        weights = weights_of(candidates.logits)
        count = len(weights)
        if count > _HEAD:
            # Nearly always the first few reach p: finding them takes a fifth of the time of sorting 49,152.
            head = np.sort(np.partition(weights, count - _HEAD)[count - _HEAD :])[::-1]
            crossing = int(head.cumsum().searchsorted(self.p * float(weights.sum()), side="left"))
            if crossing < _HEAD:
                return candidates.keep(reaching(weights, head[crossing], crossing + 1))
        ranked = np.sort(weights)[::-1]
        sums = ranked.cumsum()
        crossing = int(sums.searchsorted(self.p * sums[-1], side="left"))
        return candidates.keep(reaching(weights, ranked[crossing], crossing + 1))


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps tokens at least `p` times as probable as the most probable one; p in [0, 1].

    Nguyen et al. 2024, "Turning Up the Heat", arXiv 2407.01082.
    """

    p: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.p <= 1.0:
            raise ValueError(f"min-p is {self.p}; expected a number in [0, 1]")

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, by ascending id; the most probable is always among them."""
        return candidates.keep(weights_of(candidates.logits) >= self.p)


WithoutMu: TypeAlias = Temperature | TopK | TopP | MinP | TypicalP | TailFree | SplitP | SplitL | LogitBias
"""Stages that compute from the candidates alone."""
WithMu: TypeAlias = MirostatV1 | MirostatV2
"""Stages that take mu, from the Directive."""
Stage: TypeAlias = Greedy | WithoutMu | WithMu
