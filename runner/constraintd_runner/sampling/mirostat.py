"""Mirostat: a cut that holds the surprisal of the picked tokens near a target.

Basu et al. 2021, "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", arXiv 2007.14966. The
daemon keeps mu, which the reported surprisals move; the stages take it and keep nothing, so target and learning rate
(tau, eta) are the daemon's alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.ranking import descending, probabilities_of


@dataclass(frozen=True, slots=True)
class MirostatV1:
    """Keeps as many of the most probable tokens as Zipf's law says (the paper's algorithm 1).

    The law's exponent is estimated from the first `max_keep` >= 2 tokens, and no more than those are kept.
    """

    max_keep: int = 100

    def __post_init__(self) -> None:
        if self.max_keep < 2:
            raise ValueError(f"mirostat keeps at most {self.max_keep}; expected at least 2")

    def apply(self, candidates: Candidates, mu: float) -> Candidates:
        """The kept ones, at least one, by ascending id. `mu`: the most surprisal that is wanted, in bits."""
        count = len(candidates.ids)
        if count == 1:
            return candidates
        probabilities = probabilities_of(candidates.logits)
        order = descending(probabilities, self.max_keep)
        exponent = _zipf_exponent(probabilities[order])
        kept = _wanted(exponent, mu, count)
        # An estimate that makes no sense cuts nothing: infinity and NaN keep them all.
        number = min(max(math.floor(kept), 1), len(order)) if math.isfinite(kept) else len(order)
        return candidates.at(order[:number])


@dataclass(frozen=True, slots=True)
class MirostatV2:
    """Keeps the most probable tokens whose surprisal is at most mu, `max_keep` >= 1 of them at most (algorithm 2)."""

    max_keep: int = 100

    def __post_init__(self) -> None:
        if self.max_keep < 1:
            raise ValueError(f"mirostat keeps at most {self.max_keep}; expected at least 1")

    def apply(self, candidates: Candidates, mu: float) -> Candidates:
        """The kept ones, by ascending id; the most probable is always among them. `mu`: in bits."""
        probabilities = probabilities_of(candidates.logits)
        order = descending(probabilities, self.max_keep)
        with np.errstate(divide="ignore"):
            surprisals = -np.log2(probabilities[order])  # ascending; inf where the probability is 0
        return candidates.at(order[: max(1, int(surprisals.searchsorted(mu, side="right")))])


def _zipf_exponent(descending_probabilities: NDArray[np.float64]) -> np.float64:
    """Zipf's exponent s, by least squares on the logarithms of neighbours' ratios. NaN where there is no ratio.

    Ratios end at the first probability of 0.
    """
    positive = descending_probabilities[descending_probabilities > 0.0]
    ranks = np.arange(1, len(positive), dtype=np.float64)
    t = np.log((ranks + 1.0) / ranks)
    with np.errstate(all="ignore"):
        b = np.log(positive[:-1] / positive[1:])
        return np.float64((t * b).sum() / (t * t).sum())


def _wanted(exponent: np.float64, mu: float, count: int) -> float:
    """How many of `count` >= 2 tokens have surprisals of mu and less; infinity or NaN where that is undefined."""
    if not (np.isfinite(exponent) and exponent > 0.0):
        return math.inf
    epsilon = exponent - 1.0
    with np.errstate(all="ignore"):
        if epsilon == 0.0:
            inner = np.float64(2.0) ** mu / np.log(np.float64(count))
        else:
            inner = epsilon * np.float64(2.0) ** mu / (1.0 - np.float64(count) ** -epsilon)
        return float(inner ** (1.0 / exponent))
