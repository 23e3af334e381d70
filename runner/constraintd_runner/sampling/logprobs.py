"""Log probabilities of the taken token and the most probable ones, for callers who ask."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.candidates import masked_candidates
from constraintd_runner.sampling.ranking import descending, weights_of


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the natural logarithm of its probability, at most 0."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """The log probabilities at one position."""

    taken: TokenLogprob
    top: tuple[TokenLogprob, ...]
    """The most probable ones, descending, ties by the lowest id; fewer than asked for where fewer are possible."""


def position_logprobs(
    logits: NDArray[np.float32], mask: NDArray[np.uint32], taken: int, count: int
) -> PositionLogprobs:
    """Of the allowed tokens of a row [width] as the model has it: after the mask, before adjustments and stages.

    mask: [ceil(width / 32)] packed words. `taken`: an allowed token whose logit is not -inf. `count` >= 0: how many of
    the most probable ones. Raises BrokenLogits and NothingLeft (see `masked_candidates`).
    """
    candidates = masked_candidates(logits, mask)
    shift = float(candidates.logits.max())
    log_total = math.log(float(weights_of(candidates.logits).sum()))

    def logprob_at(index: int) -> TokenLogprob:
        return TokenLogprob(int(candidates.ids[index]), float(candidates.logits[index]) - shift - log_total)

    top = descending(candidates.logits, count).tolist() if count else []
    return PositionLogprobs(
        taken=logprob_at(int(candidates.ids.searchsorted(taken))),
        top=tuple(logprob_at(index) for index in top[:count]),
    )
