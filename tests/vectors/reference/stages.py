"""The stages of the chain, one function each: a row (never empty) goes in, what is left of it comes out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.vectors.reference.row import Cut, Row, descending, only, probabilities


def greedy(row: Row) -> Cut:
    """Keeps the highest logit alone."""
    return Cut(only(row, descending(row)[:1]))


def temperature(row: Row, temperature: float) -> Cut:
    """Divides the logits; 0 is greedy."""
    if temperature == 0:
        return greedy(row)
    return Cut({token: logit / temperature for token, logit in row.items()})


def top_k(row: Row, k: int) -> Cut:
    """Keeps the k highest logits."""
    return Cut(only(row, descending(row)[:k]))


def top_p(row: Row, p: float) -> Cut:
    """Keeps the smallest set of most probable tokens whose probability reaches p."""
    probability = probabilities(row)
    return _prefix_that_reaches(row, descending(probability), probability, p)


def min_p(row: Row, p: float) -> Cut:
    """Keeps what is at least p times as probable as the most probable. The margin is in units of that."""
    probability = probabilities(row)
    highest = max(probability.values())
    kept = [token for token in row if probability[token] >= p * highest]
    return Cut(only(row, kept), min(abs(value / highest - p) for value in probability.values()))


def typical_p(row: Row, p: float) -> Cut:
    """Keeps the smallest set, closest to the entropy first, whose probability reaches p.

    Meister et al., "Locally typical sampling", TACL 2023.
    """
    probability = probabilities(row)
    surprisal = {token: -math.log(value) if value > 0 else math.inf for token, value in probability.items()}
    entropy = sum(probability[token] * surprisal[token] for token in row if probability[token] > 0)
    distance = {token: abs(surprisal[token] - entropy) for token in row}
    order = sorted(row, key=lambda token: (distance[token], token))
    return _prefix_that_reaches(row, order, probability, p)


def tail_free(row: Row, z: float) -> Cut:
    """Keeps what stands before the place where the second differences of the probabilities have come to z.

    Phénix & Egan, "Tail Free Sampling", 2019.
    """
    probability = probabilities(row)
    order = descending(probability)
    if len(order) < 3 or z == 1:
        return Cut(dict(row))
    first = [probability[order[i]] - probability[order[i + 1]] for i in range(len(order) - 1)]
    second = [abs(first[i] - first[i + 1]) for i in range(len(first) - 1)]
    total = sum(second)
    shares = [value / total if total > 0 else 1 / len(second) for value in second]
    running, margin, keep = 0.0, math.inf, len(order)
    for place, share in enumerate(shares):
        running += share
        margin = min(margin, abs(running - z))
        if running > z:
            keep = max(1, place)
            break
    return Cut(only(row, order[:keep]), margin)


def split_p(row: Row, min_keep: int = 1, max_keep: int = 50) -> Cut:
    """Cuts at the largest gap between neighbouring probabilities."""
    return _largest_gap(row, probabilities(row), min_keep, max_keep)


def split_l(row: Row, min_keep: int = 1, max_keep: int = 50) -> Cut:
    """Cuts at the largest gap between neighbouring logits."""
    return _largest_gap(row, row, min_keep, max_keep)


def logit_bias(row: Row, ids: Sequence[int], biases: Sequence[float]) -> Cut:
    """Adds to the logits of those ids that are still kept."""
    bias = dict(zip(ids, biases, strict=True))
    return Cut({token: logit + bias.get(token, 0.0) for token, logit in row.items()})


def _prefix_that_reaches(row: Row, order: Sequence[int], probability: Mapping[int, float], p: float) -> Cut:
    if p == 1:
        return Cut(dict(row))
    running, margin = 0.0, math.inf
    for place, token in enumerate(order):
        running += probability[token]
        margin = min(margin, abs(running - p))
        if running >= p:
            return Cut(only(row, order[: place + 1]), margin)
    return Cut(dict(row), margin)


def _largest_gap(row: Row, values: Mapping[int, float], min_keep: int, max_keep: int) -> Cut:
    order = descending(values)
    if len(order) <= min_keep:
        return Cut(dict(row))
    # Gap k lies between the k tokens that it would keep and the rest.
    gaps = {k: values[order[k - 1]] - values[order[k]] for k in range(min_keep, min(max_keep, len(order) - 1) + 1)}
    best = min(gaps, key=lambda k: (-gaps[k], k))
    rivals = [gaps[best] - gap for k, gap in gaps.items() if k != best and gap > 0]
    return Cut(only(row, order[:best]), min(rivals, default=math.inf))
