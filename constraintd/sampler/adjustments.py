"""Changes to single logits: what the penalties come to at one position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """One element a token, ids ascending and none twice; arrays of one length [n], n >= 1.

    A scale s (> 0) acts on logit l as l > 0 ? l / s : l * s, and then the offset is added.
    """

    ids: NDArray[np.uint32]
    scales: NDArray[np.float64]
    offsets: NDArray[np.float64]


def joined(first: Adjustments | None, second: Adjustments | None) -> Adjustments | None:
    """Both at once: scales multiplied, offsets added."""
    if first is None or second is None:
        return first or second
    ids = np.union1d(first.ids, second.ids)  # [n] uint32
    scales = np.ones(len(ids))
    offsets = np.zeros(len(ids))
    for part in (first, second):
        at = np.searchsorted(ids, part.ids)
        scales[at] *= part.scales
        offsets[at] += part.offsets
    return Adjustments(ids, scales, offsets)
