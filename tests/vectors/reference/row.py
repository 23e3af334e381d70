"""A row of logits as the reference sees it: the candidates by id, and what the softmax makes of them.

Everything in this folder is plain Python without NumPy and without a line of the project, slow on purpose, so that a
reader can check it against `proto/constraintd/v1/sampler.proto` and port it to any language.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Row: TypeAlias = dict[int, float]
"""Logit of each candidate, ids ascending."""


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What the penalties do to the logits of `ids`: first the scale, then the offset. Ids ascend, none twice."""

    ids: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    offsets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """What a stage leaves of a row."""

    row: Row
    margin: float = math.inf
    """How near the closest decision came to falling the other way; a margin within rounding proves nothing."""


def allowed(mask: Sequence[int], token: int) -> bool:
    """Whether bit `token % 32` of the uint32 word `token // 32` is set."""
    return mask[token // 32] >> (token % 32) & 1 == 1


def legal_count(mask: Sequence[int]) -> int:
    """The number of bits set in a mask."""
    return sum(word.bit_count() for word in mask)


def candidates(logits: Sequence[float], mask: Sequence[int]) -> Row:
    """The ids whose bit is set and whose logit is above -inf."""
    return {
        token: float(logit) for token, logit in enumerate(logits) if allowed(mask, token) and float(logit) > -math.inf
    }


def adjusted(row: Mapping[int, float], adjustments: Adjustments) -> Row:
    """The row after the penalties. Ids that are no candidates are passed over."""
    result = dict(row)
    for token, scale, offset in zip(adjustments.ids, adjustments.scales, adjustments.offsets, strict=True):
        if token in result:
            logit = result[token]
            result[token] = (logit / scale if logit > 0 else logit * scale) + offset
    return result


def weights(row: Mapping[int, float]) -> dict[int, float]:
    """e^(logit - the highest logit) of each candidate."""
    highest = max(row.values())
    return {token: 1.0 if logit == highest else math.exp(logit - highest) for token, logit in row.items()}


def probabilities(row: Mapping[int, float]) -> dict[int, float]:
    """The softmax over the row."""
    weight = weights(row)
    total = sum(weight.values())
    return {token: value / total for token, value in weight.items()}


def descending(values: Mapping[int, float]) -> list[int]:
    """The ids by falling value, ties by the lowest id."""
    return sorted(values, key=lambda token: (-values[token], token))


def only(row: Mapping[int, float], kept: Sequence[int]) -> Row:
    """The row with nothing but the kept ids."""
    chosen = set(kept)
    return {token: logit for token, logit in row.items() if token in chosen}
