"""Changes to single logits: the penalties that a Directive brings, and a caller's logit bias."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd_runner.sampling.candidates import Candidates
from constraintd_runner.sampling.errors import NothingLeft

_HIGHEST = np.finfo(np.float64).max


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """One scale and one offset a token; tokens that are no candidates are left out when they are applied.

    `ids`: integers, none twice. `scales`: float64, > 0 and finite. `offsets`: float64, finite.
    """

    ids: NDArray[np.integer]
    scales: NDArray[np.float64]
    offsets: NDArray[np.float64]

    def apply(self, candidates: Candidates) -> Candidates:
        """The candidates with changed logits. Raises NothingLeft if every one of them drops out (see `change`)."""
        ids = candidates.ids
        wanted = self.ids.astype(np.int64, copy=False)
        at = ids.searchsorted(wanted)
        # Past the last id there is none to compare with; that one is smaller, and so the answer is the right one.
        found = (ids.take(at, mode="clip") == wanted).nonzero()[0]
        if not found.size:
            return candidates
        at = at.take(found)
        changed = change(candidates.logits.take(at), self.scales.take(found), self.offsets.take(found))
        logits = candidates.logits.copy()
        logits[at] = changed
        if changed.min() > -np.inf:
            return Candidates(ids, logits)
        possible = logits > -np.inf
        if not possible.any():
            raise NothingLeft("the penalties or the logit bias leave every allowed token at -inf")
        return Candidates(ids, logits).keep(possible)


def change(
    logits: NDArray[np.float64], scales: NDArray[np.float64], offsets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The logits, changed: each l becomes l > 0 ? l / scale : l * scale, and the offset is then added.

    The repetition penalty of Keskar et al. 2019, "CTRL", in the form that leaves no logit more probable for a scale
    above 1. What overflows downwards becomes -inf, and its token drops out; upwards, the largest finite float64. (The
    chain silences NumPy's warning of it.)
    """
    changed: NDArray[np.float64] = np.where(logits > 0.0, logits / scales, logits * scales)
    changed += offsets
    np.minimum(changed, _HIGHEST, out=changed)
    return changed
