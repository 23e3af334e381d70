"""Mirostat: Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity", ICLR 2021.

The two stages, and how mu moves between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.vectors.reference.row import Cut, Row, descending, legal_count, only, probabilities


def mirostat_v1(row: Row, mu: float, max_keep: int = 100) -> Cut:
    """Keeps as many of the most probable tokens as the Zipf exponent of the first `max_keep` says."""
    if len(row) == 1:
        return Cut(dict(row))
    probability = probabilities(row)
    order = descending(probability)
    most = min(max_keep, len(order))
    exact = _zipf_count([probability[token] for token in order[:most]], mu, len(row))
    if exact is None:
        return Cut(only(row, order[:most]))
    keep = min(max(math.floor(exact), 1), most)
    # Between 2 and `most` it matters on which side of a whole number the count lies.
    matters = 1 < exact < most + 1
    return Cut(only(row, order[:keep]), abs(exact - round(exact)) / exact if matters else math.inf)


def _zipf_count(highest: Sequence[float], mu: float, count: int) -> float | None:
    """The number of tokens to keep, before it is rounded; None where the formula gives none."""
    numerator = denominator = 0.0
    for i in range(len(highest) - 1):
        if highest[i + 1] == 0:
            break
        t = math.log((i + 2) / (i + 1))
        numerator += t * math.log(highest[i] / highest[i + 1])
        denominator += t * t
    try:
        exponent = numerator / denominator
        epsilon = exponent - 1
        # The sum over ranks of rank^-exponent, by its integral.
        mass = math.log(count) if epsilon == 0 else (1 - float(count) ** -epsilon) / epsilon
        exact = float((2.0**mu / mass) ** (1 / exponent))
    except (ZeroDivisionError, OverflowError):
        return None
    return exact if math.isfinite(exact) else None


def mirostat_v2(row: Row, mu: float, max_keep: int = 100) -> Cut:
    """Of the `max_keep` most probable tokens keeps those whose surprisal is at most mu, at least one."""
    probability = probabilities(row)
    order = descending(probability)[:max_keep]
    surprisals = {token: -math.log2(probability[token]) if probability[token] > 0 else math.inf for token in order}
    kept = [token for token in order if surprisals[token] <= mu] or order[:1]
    return Cut(only(row, kept), min(abs(surprisal - mu) for surprisal in surprisals.values()))


def first_mu(tau: float) -> float:
    """mu before the first token."""
    return 2 * tau


def next_mu(mu: float, tau: float, eta: float, surprisal: float, mask: Sequence[int]) -> float:
    """mu after a token of that surprisal (bits). A mask with one legal token leaves it alone."""
    return mu if legal_count(mask) == 1 else mu - eta * (surprisal - tau)
