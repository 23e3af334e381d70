"""The daemon's changes to single logits, and the short way to the highest few of a long row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from constraintd_runner.sampling import (
    Adjustments,
    BrokenLogits,
    Candidates,
    Chain,
    Greedy,
    MinP,
    NothingLeft,
    Picked,
    Stage,
    Temperature,
    TopK,
    TopP,
    masked_candidates,
)
from constraintd_runner.sampling.leading import leading_candidates
from numpy.typing import NDArray

WIDE = 20_011  # not a multiple of anything
LARGEST = 1.7976931348623157e308


def changes(*entries: tuple[int, float, float]) -> Adjustments:
    """Of (id, scale, offset)."""
    ids, scales, offsets = zip(*entries, strict=True)
    return Adjustments(np.array(ids, dtype="<u4"), np.array(scales), np.array(offsets))


def packed(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    padded = np.zeros((len(bits) + 31) // 32 * 32, dtype=np.bool_)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view("<u4")


def changed(logits: list[float], adjustments: Adjustments) -> dict[int, float]:
    candidates = Candidates(np.arange(len(logits), dtype=np.int64), np.array(logits))
    with np.errstate(over="ignore"):
        after = adjustments.apply(candidates)
    assert candidates.logits.tolist() == logits
    return dict(zip(after.ids.tolist(), after.logits.tolist(), strict=True))


# --- what an adjustment does ---


def test_a_scale_divides_what_is_above_0_and_multiplies_the_rest_and_the_offset_comes_after() -> None:
    adjustments = changes((0, 1.5, 0.0), (1, 1.5, -1.0), (2, 1.5, -0.25), (3, 0.5, 0.0))
    assert changed([3.0, -3.0, 0.0, 3.0, 7.0], adjustments) == {0: 2.0, 1: -5.5, 2: -0.25, 3: 6.0, 4: 7.0}


def test_tokens_that_are_no_candidates_are_passed_over() -> None:
    candidates = Candidates(np.array([2, 5]), np.array([1.0, 2.0]))
    after = changes((0, 2.0, 1.0), (3, 2.0, 1.0), (5, 2.0, 1.0), (9, 2.0, 1.0)).apply(candidates)
    assert (after.ids.tolist(), after.logits.tolist()) == ([2, 5], [1.0, 2.0])
    assert changes((9, 2.0, 1.0)).apply(candidates) is candidates


def test_what_overflows_upwards_becomes_the_largest_number() -> None:
    assert changed([10.0, 1.0], changes((0, 1e-308, 0.0))) == {0: LARGEST, 1: 1.0}
    assert changed([10.0, 1.0], changes((0, 1e-308, -1e308))) == {0: LARGEST, 1: 1.0}


def test_what_overflows_downwards_drops_out() -> None:
    assert changed([-10.0, 1.0], changes((0, 1e308, 0.0))) == {1: 1.0}
    with pytest.raises(NothingLeft, match="penalties"):
        changed([-10.0], changes((0, 1e308, 0.0)))


def test_adjustments_come_before_the_first_stage() -> None:
    words = packed(np.ones(3, dtype=np.bool_))
    logits = np.array([5.0, 4.0, 0.0], dtype=np.float32)
    penalty = changes((0, 1.0, -3.0))
    for stages in ([Greedy()], [TopK(1)], [Temperature(0.0)], [TopP(0.1)]):
        assert Chain.of(stages).sample(logits, words, 0.5, adjustments=penalty) == Picked(1, 0.0)


def test_no_adjustment_makes_a_forbidden_token_legal() -> None:
    logits = np.array([5.0, 4.0, -math.inf], dtype=np.float32)
    reward = changes((0, 1.0, 50.0), (2, 1e-300, 1e308))
    only_1_and_2 = packed(np.array([False, True, True]))
    for stages in ([Greedy()], [TopK(1)], []):
        assert Chain.of(stages).sample(logits, only_1_and_2, 0.5, adjustments=reward) == Picked(1, 0.0)


# --- the short way gives what the long way gives ---


def row_of(generator: np.random.Generator, kind: str) -> NDArray[np.float32]:
    if kind == "spread":
        return (generator.standard_normal(WIDE) * 4).astype(np.float32)
    if kind == "tied":
        return generator.integers(0, 4, WIDE).astype(np.float32)
    if kind == "flat":
        return np.zeros(WIDE, dtype=np.float32)
    row = np.full(WIDE, -np.inf, dtype=np.float32)  # "hollow": nearly nothing is possible
    row[generator.choice(WIDE, 60, replace=False)] = 1.0
    return row


def bits_of(generator: np.random.Generator, kind: str) -> NDArray[np.bool_]:
    if kind == "full":
        return np.ones(WIDE, dtype=np.bool_)
    share = {"dense": 0.999, "half": 0.5, "thin": 0.02}[kind]
    return generator.random(WIDE) < share


@pytest.mark.parametrize("mask_kind", ["full", "dense", "half", "thin"])
@pytest.mark.parametrize("row_kind", ["spread", "tied", "flat", "hollow"])
@pytest.mark.parametrize("k", [1, 40, 300, 1000])
@pytest.mark.parametrize("adjusted", [False, True])
def test_the_short_way_keeps_the_same_k(row_kind: str, mask_kind: str, k: int, adjusted: bool) -> None:
    generator = np.random.default_rng(7)
    logits, words = row_of(generator, row_kind), packed(bits_of(generator, mask_kind))
    adjustments = None
    if adjusted:
        ids = np.sort(generator.choice(WIDE + 500, 3000, replace=False)).astype("<u4")  # some are past the width
        adjustments = Adjustments(
            ids, generator.choice([0.5, 1.0, 2.0], 3000), generator.choice([-1.0, 0.0, 1.0], 3000)
        )
    try:
        plain = masked_candidates(logits, words)
    except NothingLeft:
        with pytest.raises(NothingLeft):
            leading_candidates(logits, words, k, adjustments)
        return
    if adjustments is not None:
        plain = adjustments.apply(plain)
    before = logits.copy()
    short = TopK(k).apply(leading_candidates(logits, words, k, adjustments))
    long = TopK(k).apply(plain)
    assert short.ids.tolist() == long.ids.tolist()
    assert short.logits.tolist() == long.logits.tolist()
    assert (logits == before).all()


def test_the_short_way_drops_what_penalties_push_to_minus_infinity() -> None:
    logits = np.full(WIDE, -np.inf, dtype=np.float32)
    logits[[3, 700]] = -2.0, -5.0
    everything = packed(np.ones(WIDE, dtype=np.bool_))
    chain = Chain.of([TopK(2)])
    assert chain.sample(logits, everything, 0.0, adjustments=changes((3, 1e308, -1e308))) == Picked(700, 0.0)
    with pytest.raises(NothingLeft):
        chain.sample(logits, everything, 0.0, adjustments=changes((3, 1e308, -1e308), (700, 1e308, -1e308)))


@pytest.mark.parametrize("stages", [[TopK(3)], [Greedy()], [MinP(0.5)]], ids=repr)
def test_a_broken_row_is_found_on_every_way(stages: list[Stage]) -> None:
    logits = np.zeros(WIDE, dtype=np.float32)
    logits[17] = math.nan
    bits = np.ones(WIDE, dtype=np.bool_)
    bits[17] = False
    with pytest.raises(BrokenLogits, match="token 17 is nan"):
        Chain.of(stages).sample(logits, packed(bits), 0.5, adjustments=changes((5, 1.0, 1.0)))
