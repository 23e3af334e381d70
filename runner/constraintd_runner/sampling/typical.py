"""Locally typical sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.ranking import descending, probabilities_of

_HEAD = 512
"""How many of the most typical tokens are put in order at first. The result is the same for any number."""


@dataclass(frozen=True, slots=True)
class TypicalP:
    """Keeps the smallest set of most typical tokens whose probability reaches `p`, in (0, 1].

    Typical is whose surprisal is close to the entropy H of them all: the order is by |-ln p_i - H|, ascending (Meister
    et al. 2023, "Locally Typical Sampling", arXiv 2202.00666). The token that crosses p is kept. The most probable
    token need not be among the kept ones.
    """

    p: float

    def __post_init__(self) -> None:
        if not 0.0 < self.p <= 1.0:
            raise ValueError(f"typical-p is {self.p}; expected a number in (0, 1]")

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, by ascending id. p = 1 keeps all, and so does a sum that misses p by rounding alone."""
        if self.p == 1.0:
            return candidates
        probabilities = probabilities_of(candidates.logits)
        with np.errstate(divide="ignore"):
            surprisals = -np.log(probabilities)  # nats; inf where the probability is 0
        counted = probabilities > 0.0
        entropy = float((probabilities[counted] * surprisals[counted]).sum())
        nearness = -np.abs(surprisals - entropy)
        for count in (_HEAD, len(nearness)):
            order = descending(nearness, count)
            crossing = int(probabilities[order].cumsum().searchsorted(self.p, side="left"))
            if crossing < len(order):
                return candidates.at(order[: crossing + 1])
        return candidates
