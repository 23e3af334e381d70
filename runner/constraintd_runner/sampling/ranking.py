"""Weights, probabilities and order among candidates. Ties go to the lowest id, which is the lowest index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def weights_of(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax before its division: exp(logit - highest), so the highest has exactly 1."""
    weights: NDArray[np.float64] = logits - logits[logits.argmax()]  # argmax takes a third of the time of max
    # In place: a second array of 49,152 costs more in page faults than the exponentials do.
    np.exp(weights, out=weights)
    return weights


def probabilities_of(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax, float64. The most improbable may come out as 0."""
    weights = weights_of(logits)
    weights /= weights.sum()
    return weights


def highest(values: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Which ones are the `count` highest, 1 <= count < len(values)."""
    return reaching(values, np.partition(values, len(values) - count)[len(values) - count], count)


def reaching(values: NDArray[np.float64], threshold: np.float64, count: int) -> NDArray[np.bool_]:
    """Which ones are the `count` highest, given the `count`-th highest of them, `threshold`."""
    kept: NDArray[np.bool_] = values >= threshold
    surplus = int(np.count_nonzero(kept)) - count
    if surplus:
        ties = (values == threshold).nonzero()[0]
        kept[ties[len(ties) - surplus :]] = False
    return kept


def descending(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Indices of the `count` >= 1 highest (all, if there are no more), the highest first."""
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    # Only what is wanted is put in order: sorting 131,072 takes 17 ms, finding the highest hundred of them 1.3.
    indices = np.flatnonzero(highest(values, count))
    ordered: NDArray[np.int64] = indices[np.argsort(-values[indices], kind="stable")]
    return ordered
