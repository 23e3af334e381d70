"""A cut at the largest gap between neighbours, by probability or by logit (the split samplers of drama_llama)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.ranking import descending, probabilities_of


@dataclass(frozen=True, slots=True)
class SplitP:
    """Keeps the most probable tokens up to the largest gap between neighbouring probabilities.

    At least `min_keep` >= 1 are kept and at most `max_keep` >= min_keep; of equal gaps the first one counts.
    """

    min_keep: int = 1
    max_keep: int = 50

    def __post_init__(self) -> None:
        _check("split-p", self.min_keep, self.max_keep)

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, by ascending id; all of them if there are no more than `min_keep`."""
        return _split(candidates, probabilities_of(candidates.logits), self.min_keep, self.max_keep)


@dataclass(frozen=True, slots=True)
class SplitL:
    """Keeps the highest logits up to the largest gap between neighbours.

    At least `min_keep` >= 1 are kept and at most `max_keep` >= min_keep; of equal gaps the first one counts.
    """

    min_keep: int = 1
    max_keep: int = 50

    def __post_init__(self) -> None:
        _check("split-l", self.min_keep, self.max_keep)

    def apply(self, candidates: Candidates) -> Candidates:
        """The kept ones, by ascending id; all of them if there are no more than `min_keep`."""
        return _split(candidates, candidates.logits, self.min_keep, self.max_keep)


def _check(name: str, min_keep: int, max_keep: int) -> None:
    if min_keep < 1:
        raise ValueError(f"{name} keeps at least {min_keep}; expected at least 1")
    if max_keep < min_keep:
        raise ValueError(f"{name} keeps at most {max_keep}; expected at least min_keep, {min_keep}")


def _split(candidates: Candidates, values: NDArray[np.float64], min_keep: int, max_keep: int) -> Candidates:
    count = len(values)
    if count <= min_keep:
        return candidates
    order = descending(values, max_keep + 1)
    ranked = values[order]
    gaps = ranked[min_keep - 1 : -1] - ranked[min_keep:]  # the first one follows the first min_keep tokens
    return candidates.at(order[: min_keep + int(gaps.argmax())])
