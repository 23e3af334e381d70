"""The last stage: one token out of the kept ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.ranking import weights_of


@dataclass(frozen=True, slots=True)
class Picked:
    """A picked token and its surprisal: -log2 of its probability after all stages, in bits, finite and >= 0."""

    token: int
    surprisal: float


def pick_greedy(candidates: Candidates) -> Picked:
    """The highest logit, ties by the lowest id.

    Its surprisal is 0: after greedy the kept set is that one token, whose probability is 1.
    """
    # argmax gives the first of equals, and ids ascend.
    return Picked(int(candidates.ids[candidates.logits.argmax()]), 0.0)


def pick_by_draw(candidates: Candidates, draw: float) -> Picked:
    """The first id, ascending, at which the running sum of weights exceeds `draw` (in [0, 1)) times their total.

    Float64, summed in order of ids. Such an id always exists: draw * total is below the total, also rounded. A token
    whose weight underflows to 0 is never picked. Raises ValueError for a draw outside of [0, 1).
    """
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"the draw is {draw}; expected a number in [0, 1)")
    weights = weights_of(candidates.logits)
    sums = weights.cumsum()
    total = float(sums[-1])
    at = int(sums.searchsorted(draw * total, side="right"))
    # A difference of logarithms, since the quotient of a subnormal weight would be 0.
    surprisal = max(0.0, math.log2(total) - math.log2(float(weights[at])))
    return Picked(int(candidates.ids[at]), surprisal)
