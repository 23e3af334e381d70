"""The sampler chain: mask first, stages in order, pick by draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from constraintd_runner.sampling import (
    BrokenLogits,
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
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

INF = math.inf
# Logits whose softmax is 1/2, 1/4, 1/8, 1/8.
HALVES = [3.0 * math.log(2), 2.0 * math.log(2), math.log(2), math.log(2)]


def row(*logits: float) -> NDArray[np.float32]:
    return np.array(logits, dtype=np.float32)


def mask(width: int, ids: list[int]) -> NDArray[np.uint32]:
    words = np.zeros((width + 31) // 32, dtype=np.uint32)
    for token in ids:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words


def everything(width: int) -> NDArray[np.uint32]:
    return mask(width, list(range(width)))


def sample(logits: list[float], stages: list[Stage], draw: float, allowed: list[int] | None = None) -> Picked:
    ids = list(range(len(logits))) if allowed is None else allowed
    return Chain.of(stages).sample(row(*logits), mask(len(logits), ids), draw)


def kept(logits: list[float], stages: list[Stage]) -> list[int]:
    """Which ids can be picked at all: those that some draw on a fine grid picks."""
    return sorted({sample(logits, stages, draw).token for draw in np.linspace(0, 1, 4000, endpoint=False)})


# --- mask ---


def test_bit_i_of_word_w_is_token_32_w_plus_i() -> None:
    words = np.array([0x80000001, 0x00000004], dtype=np.uint32)
    candidates = masked_candidates(np.arange(40, dtype=np.float32), words)
    assert candidates.ids.tolist() == [0, 31, 34]
    assert candidates.logits.tolist() == [0.0, 31.0, 34.0]


def test_a_bit_past_the_width_is_never_a_candidate() -> None:
    words = np.array([0xFFFFFFFF], dtype=np.uint32)
    assert masked_candidates(row(1, 2, 3), words).ids.tolist() == [0, 1, 2]


def test_a_forbidden_favourite_is_not_picked() -> None:
    assert sample([9.0, 1.0, 2.0], [Greedy()], 0.0, allowed=[1, 2]) == Picked(2, 0.0)


def test_minus_infinity_stays_so_under_the_mask() -> None:
    assert sample([5.0, -INF, 1.0], [], 0.999999, allowed=[1, 2]) == Picked(2, 0.0)


@pytest.mark.parametrize("broken", [math.nan, INF])
@pytest.mark.parametrize("stages", [[Greedy()], []])
def test_nan_or_inf_anywhere_in_the_row_is_a_broken_forward_pass(broken: float, stages: list[Stage]) -> None:
    with pytest.raises(BrokenLogits, match="token 1"):
        sample([0.0, broken, 1.0], stages, 0.5, allowed=[0, 2])


def test_a_row_of_nothing_but_minus_infinity_is_a_broken_forward_pass() -> None:
    with pytest.raises(BrokenLogits, match="all 2 logits"):
        sample([-INF, -INF], [], 0.5)


@pytest.mark.parametrize("stages", [[Greedy()], []])
def test_a_mask_whose_every_token_is_minus_infinity_leaves_nothing(stages: list[Stage]) -> None:
    with pytest.raises(NothingLeft):
        sample([3.0, -INF, -INF], stages, 0.5, allowed=[1, 2])


def test_an_empty_mask_leaves_nothing() -> None:
    with pytest.raises(NothingLeft):
        sample([3.0, 1.0], [Greedy()], 0.5, allowed=[])


# --- pick ---


@pytest.mark.parametrize(
    ("draw", "token", "bits"),
    [(0.0, 0, 1.0), (0.4999, 0, 1.0), (0.5001, 1, 2.0), (0.7499, 1, 2.0), (0.7501, 2, 3.0), (0.9999, 3, 3.0)],
)
def test_a_draw_falls_into_the_running_sum_of_probabilities(draw: float, token: int, bits: float) -> None:
    picked = sample(HALVES, [], draw)
    assert picked.token == token
    assert picked.surprisal == pytest.approx(bits, abs=1e-6)


def test_a_draw_on_the_boundary_goes_to_the_next_token() -> None:
    # Two equal tokens: sums are exactly 1 and 2, and 0.5 * 2 is not exceeded by 1.
    assert sample([0.0, 0.0], [], 0.5) == Picked(1, 1.0)
    assert sample([0.0, 0.0], [], math.nextafter(0.5, 0)) == Picked(0, 1.0)


def test_a_token_too_improbable_to_count_is_never_picked() -> None:
    assert sample([-2000.0, 0.0, -2000.0], [], 0.0) == Picked(1, 0.0)
    assert sample([-2000.0, 0.0, -2000.0], [], math.nextafter(1.0, 0)) == Picked(1, 0.0)


def test_the_only_token_has_no_surprisal() -> None:
    assert sample([1.0, 7.0], [], 0.3, allowed=[0]) == Picked(0, 0.0)


@pytest.mark.parametrize("draw", [-0.1, 1.0, math.nan])
def test_a_draw_outside_of_0_to_1_is_refused(draw: float) -> None:
    with pytest.raises(ValueError, match="draw"):
        sample([0.0, 0.0], [], draw)


# --- stages ---


def test_greedy_breaks_ties_by_the_lowest_id() -> None:
    assert sample([1.0, 4.0, 4.0, 4.0], [Greedy()], 0.9) == Picked(1, 0.0)
    assert sample([1.0, 4.0, 4.0, 4.0], [Greedy()], 0.9, allowed=[0, 2, 3]) == Picked(2, 0.0)


def test_temperature_0_is_greedy() -> None:
    assert Chain.of([TopP(0.5), Temperature(0.0)]) == Chain.of([Greedy()])


def test_temperature_2_halves_the_logits() -> None:
    # 1/4 and 1/16 against 1: at temperature 2 they weigh 1/2 and 1/4, of 7/4 in all.
    logits = [0.0, -2 * math.log(2), -4 * math.log(2)]
    assert sample(logits, [Temperature(2.0)], 0.57).token == 0
    assert sample(logits, [Temperature(2.0)], 0.58).token == 1
    assert sample(logits, [Temperature(2.0)], 0.86).token == 2
    assert sample(logits, [Temperature(2.0)], 0.86).surprisal == pytest.approx(math.log2(7), abs=1e-6)


def test_the_smallest_temperature_comes_to_greedy_and_not_to_nan() -> None:
    assert sample([-3.0, -1.0, -2.0], [Temperature(5e-324)], 0.99) == Picked(1, 0.0)


def test_top_k_breaks_ties_by_the_lowest_id() -> None:
    assert kept([0.0, 1.0, 0.0, 2.0, 0.0], [TopK(4)]) == [0, 1, 2, 3]


def test_top_k_past_the_number_of_candidates_keeps_all() -> None:
    assert kept([0.0, 1.0, 0.5], [TopK(100)]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("p", "ids"),
    [(0.3, [0]), (0.49, [0]), (0.51, [0, 1]), (0.76, [0, 1, 2]), (0.88, [0, 1, 2, 3]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_token_that_crosses_p(p: float, ids: list[int]) -> None:
    assert kept(HALVES, [TopP(p)]) == ids


def test_top_p_keeps_ids_that_are_far_apart_in_order_of_probability() -> None:
    logits = np.zeros(5000, dtype=np.float32)
    logits[[4, 4321]] = 20.0, 21.0
    picks = {Chain.of([TopP(0.99)]).sample(logits, everything(5000), draw).token for draw in (0.0, 0.1, 0.5, 0.999)}
    assert picks == {4, 4321}


def test_top_p_on_a_flat_row_keeps_the_lowest_ids() -> None:
    logits = np.zeros(5000, dtype=np.float32)
    chain = Chain.of([TopP(0.5)])
    assert chain.sample(logits, everything(5000), 0.0).token == 0
    last = chain.sample(logits, everything(5000), math.nextafter(1.0, 0))
    assert last.token == 2499
    assert last.surprisal == pytest.approx(math.log2(2500), abs=1e-9)


@pytest.mark.parametrize(
    ("p", "ids"), [(0.0, [0, 1, 2, 3]), (0.2, [0, 1, 2, 3]), (0.3, [0, 1]), (0.6, [0]), (1.0, [0])]
)
def test_min_p_counts_from_the_most_probable(p: float, ids: list[int]) -> None:
    assert kept(HALVES, [MinP(p)]) == ids


def test_stages_run_in_the_order_given() -> None:
    # At temperature 4 the weights are 1, 0.84, 0.71, 0.71 of 3.26: 0.4 is reached by two; before it by one.
    assert kept(HALVES, [Temperature(4.0), TopP(0.4)]) == [0, 1]
    assert kept(HALVES, [TopP(0.4), Temperature(4.0)]) == [0]


@pytest.mark.parametrize("first", [Greedy(), Temperature(0.0)])
def test_nothing_may_follow_greedy(first: Stage) -> None:
    with pytest.raises(ValueError, match="stage 0 is greedy"):
        Chain.of([first, TopK(3)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Temperature(-1.0),
        lambda: Temperature(math.nan),
        lambda: Temperature(INF),
        lambda: TopK(0),
        lambda: TopP(0.0),
        lambda: TopP(1.5),
        lambda: TopP(math.nan),
        lambda: MinP(-0.1),
        lambda: MinP(1.1),
    ],
)
def test_a_stage_out_of_range_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="expected"):
        make()


# --- properties ---

STAGES = st.lists(
    st.one_of(
        st.floats(0.01, 5.0).map(Temperature),
        st.integers(1, 80).map(TopK),
        st.floats(0.01, 1.0).map(TopP),
        st.floats(0.0, 1.0).map(MinP),
    ),
    max_size=4,
)
ROWS = hnp.arrays(np.float32, st.integers(1, 100), elements=st.floats(-30, 30, width=32))
DRAWS = st.floats(0.0, 1.0, exclude_max=True)


def _by_the_rule(logits: NDArray[np.float32], ids: list[int], draw: float) -> int:
    """DESIGN's pick, one token at a time."""
    top = max(float(logits[token]) for token in ids)
    weights = [float(np.exp(np.float64(logits[token]) - top)) for token in ids]
    total = 0.0
    for weight in weights:
        total += weight
    running = 0.0
    for token, weight in zip(ids, weights, strict=True):
        running += weight
        if running > draw * total:
            return token
    raise AssertionError("no token exceeds the draw")


@settings(deadline=None)
@given(ROWS, STAGES, DRAWS, st.data())
def test_what_is_picked_is_allowed_and_has_a_finite_surprisal(
    logits: NDArray[np.float32], stages: list[Stage], draw: float, data: st.DataObject
) -> None:
    ids = sorted(data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1)))
    picked = Chain.of(stages).sample(logits, mask(len(logits), ids), draw)
    assert picked.token in ids
    assert 0.0 <= picked.surprisal < INF


@settings(deadline=None)
@given(ROWS, st.data())
def test_greedy_is_the_lowest_id_of_the_highest_logit(logits: NDArray[np.float32], data: st.DataObject) -> None:
    ids = sorted(data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1)))
    picked = Chain.of([Greedy()]).sample(logits, mask(len(logits), ids), 0.5)
    assert picked.token == min(ids, key=lambda token: (-float(logits[token]), token))


@settings(deadline=None)
@given(ROWS, DRAWS, st.data())
def test_the_pick_follows_the_rule_to_the_bit(logits: NDArray[np.float32], draw: float, data: st.DataObject) -> None:
    ids = sorted(data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1)))
    assert Chain.of([]).sample(logits, mask(len(logits), ids), draw).token == _by_the_rule(logits, ids, draw)


@settings(deadline=None)
@given(ROWS, STAGES, DRAWS, st.data())
def test_forbidding_by_mask_and_by_minus_infinity_pick_the_same_to_the_bit(
    logits: NDArray[np.float32], stages: list[Stage], draw: float, data: st.DataObject
) -> None:
    ids = sorted(data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1)))
    dense = np.full_like(logits, -np.inf)
    dense[ids] = logits[ids]
    chain = Chain.of(stages)
    sparse = chain.sample(logits, mask(len(logits), ids), draw)
    assert chain.sample(dense, everything(len(logits)), draw) == sparse


@settings(deadline=None)
@given(ROWS, STAGES, DRAWS)
def test_a_full_mask_is_no_mask(logits: NDArray[np.float32], stages: list[Stage], draw: float) -> None:
    chain = Chain.of(stages)
    assert chain.sample(logits, everything(len(logits)), draw) == chain.sample_unmasked(logits, draw)
