"""From logits to a token: mask, adjustments, stages in their order, the pick by draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.vectors.reference import mirostat, stages
from tests.vectors.reference.row import Adjustments, Cut, Row, adjusted, candidates, weights

Stage: TypeAlias = Mapping[str, Mapping[str, Any]]
"""A SamplerStage in protobuf's JSON: its one key is the stage's name, `{"top_p": {"p": 0.9}}`."""

TAU = 3.0
ETA = 0.1


class NothingLeft(Exception):
    """No token is legal and above -inf."""


@dataclass(frozen=True, slots=True)
class Picked:
    """A token, and how it came about."""

    row: Row
    """What was kept, with the logits that it was picked from."""
    token: int
    surprisal: float
    """-log2 of the probability with which it was picked, in bits."""
    margin: float
    """The smallest margin of all stages and of the pick."""


def sample(
    logits: Sequence[float],
    mask: Sequence[int],
    chain: Sequence[Stage],
    draw: float,
    mu: float | None = None,
    adjustments: Adjustments | None = None,
) -> Picked:
    """One token. `mu` is None where the chain has no mirostat stage.

    Raises: NothingLeft.
    """
    row = candidates(logits, mask)
    if not row:
        raise NothingLeft
    cut = Cut(adjusted(row, adjustments or Adjustments()))
    margin = cut.margin
    for stage in chain:
        cut = apply(stage, cut.row, mu)
        margin = min(margin, cut.margin)
    token, surprisal, closeness = pick(cut.row, draw)
    return Picked(cut.row, token, surprisal, min(margin, closeness))


def apply(stage: Stage, row: Row, mu: float | None) -> Cut:
    """One stage, run on a row that isn't empty."""
    ((name, fields),) = stage.items()
    if name in ("mirostat_v1", "mirostat_v2"):
        assert mu is not None
        return getattr(mirostat, name)(row, mu, fields.get("max_keep", 100))  # type: ignore[no-any-return]
    return getattr(stages, name)(row, **fields)  # type: ignore[no-any-return]


def pick(row: Row, draw: float) -> tuple[int, float, float]:
    """The token that the draw in [0, 1) falls on, its surprisal in bits, and the margin of the decision."""
    weight = weights(row)
    total = sum(weight.values())
    last = max(row)
    running, margin = 0.0, math.inf
    for token, value in weight.items():
        running += value
        if draw > 0 and token != last:
            margin = min(margin, abs(running - draw * total) / total)
        if running > draw * total:
            return token, max(0.0, math.log2(total) - math.log2(value)), margin
    raise AssertionError("a draw below 1 falls on a token")


def mirostat_of(chain: Sequence[Stage]) -> Mapping[str, Any] | None:
    """The fields of the chain's mirostat stage, defaults filled in; None without one."""
    for stage in chain:
        for name in ("mirostat_v1", "mirostat_v2"):
            if name in stage:
                return {"tau": TAU, "eta": ETA} | dict(stage[name])
    return None


def mu_after(chain: Sequence[Stage], mu: float, surprisal: float, mask: Sequence[int]) -> float:
    """The chain's mu after a token of that surprisal."""
    fields = mirostat_of(chain)
    assert fields is not None
    return mirostat.next_mu(mu, fields["tau"], fields["eta"], surprisal, mask)
