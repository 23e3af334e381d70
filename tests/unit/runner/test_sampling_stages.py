"""Each stage that is more than a cut by rank or probability, on cases small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from constraintd_runner.sampling import (
    Candidates,
    Chain,
    Greedy,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    NothingLeft,
    Picked,
    SplitL,
    SplitP,
    Stage,
    TailFree,
    Temperature,
    TopK,
    TopP,
    TypicalP,
)

# Logits whose softmax is 1/2, 1/4, 1/8, 1/8.
HALVES = [3.0 * math.log(2), 2.0 * math.log(2), math.log(2), math.log(2)]
# 1/2, 1/4, 1/8, 1/16, 1/16.
FIVE = [4.0 * math.log(2), 3.0 * math.log(2), 2.0 * math.log(2), math.log(2), math.log(2)]
HUGE = 1.7e308


def tokens(logits: list[float]) -> Candidates:
    return Candidates(np.arange(len(logits), dtype=np.int64), np.array(logits, dtype=np.float64))


def kept(stage: Stage, logits: list[float], mu: float | None = None) -> list[int]:
    """The ids that the stage leaves."""
    if isinstance(stage, MirostatV1 | MirostatV2):
        assert mu is not None
        return stage.apply(tokens(logits), mu).ids.tolist()
    assert not isinstance(stage, Greedy)
    return stage.apply(tokens(logits)).ids.tolist()


def pick(stages: list[Stage], logits: list[float], draw: float = 0.5, mu: float | None = None) -> Picked:
    """The pick from a row of these logits, all of them allowed."""
    words = np.full((len(logits) + 31) // 32, 0xFFFFFFFF, dtype=np.uint32)
    return Chain.of(stages).sample(np.array(logits, dtype=np.float32), words, draw, mu=mu)


# --- what all of them have in common ---

WITHOUT_MU: list[Stage] = [TypicalP(0.5), TailFree(0.5), SplitP(), SplitL(), LogitBias((0,), (1.0,))]
WITH_MU: list[Stage] = [MirostatV1(), MirostatV2()]


@pytest.mark.parametrize("stage", WITHOUT_MU + WITH_MU, ids=lambda stage: type(stage).__name__)
def test_one_candidate_is_kept(stage: Stage) -> None:
    assert kept(stage, [-3.0], mu=0.1) == [0]


@pytest.mark.parametrize("stage", WITHOUT_MU + WITH_MU, ids=lambda stage: type(stage).__name__)
def test_logits_at_both_ends_of_float64_give_no_nan(stage: Stage) -> None:
    stages: list[Stage] = [LogitBias((0, 1), (HUGE, -HUGE)), stage]
    assert pick(stages, [0.0, 0.0, 0.0], mu=5.0) == Picked(0, 0.0)


@pytest.mark.parametrize(
    ("stage", "ids"),
    [
        (TypicalP(0.4), [0, 1, 2, 3]),
        (TypicalP(0.5), [0, 1, 2, 3]),
        (TailFree(0.6), [0, 1, 2]),
        (SplitP(), [0]),
        (SplitP(3, 5), [0, 1, 2]),
        (SplitL(2, 2), [0, 1]),
        (MirostatV1(), [0, 1, 2, 3, 4, 5, 6, 7]),
        (MirostatV1(5), [0, 1, 2, 3, 4]),
        (MirostatV2(), [0, 1, 2, 3, 4, 5, 6, 7]),
        (MirostatV2(3), [0, 1, 2]),
        (TopP(0.5), [0, 1, 2, 3]),
        (MinP(1.0), [0, 1, 2, 3, 4, 5, 6, 7]),
        (TopK(3), [0, 1, 2]),
    ],
    ids=repr,
)
def test_of_eight_equal_ones_the_lowest_ids_are_kept(stage: Stage, ids: list[int]) -> None:
    # Each has probability 1/8, surprisal 3 bits; tail-free's six shares are 1/6 each.
    assert kept(stage, [1.5] * 8, mu=3.0) == ids


# --- locally typical ---


@pytest.mark.parametrize(
    ("p", "ids"),
    [(0.2, [1]), (0.3, [0, 1]), (0.7, [0, 1]), (0.76, [0, 1, 2]), (0.9, [0, 1, 2, 3]), (1.0, [0, 1, 2, 3])],
)
def test_typical_keeps_those_first_whose_surprisal_is_close_to_the_entropy(p: float, ids: list[int]) -> None:
    # The entropy is 1.75 bits; 1, 2, 3, 3 bits are 0.75, 0.25, 1.25, 1.25 away from it.
    assert kept(TypicalP(p), HALVES) == ids


def test_typical_finds_the_same_among_many_improbable_ones() -> None:
    # 2,000 more, a four-millionth each, change the entropy by a hundredth of a bit.
    assert kept(TypicalP(0.3), HALVES + [math.log(8) - math.log(2_000_000)] * 2000) == [0, 1]


def test_typical_sorts_all_where_the_first_512_do_not_reach_p() -> None:
    assert kept(TypicalP(0.75), [0.0] * 2048) == list(range(1536))


def test_a_token_of_probability_0_does_not_disturb_the_entropy() -> None:
    assert kept(TypicalP(0.9), [0.0, -5000.0, 0.0]) == [0, 2]


# --- tail-free ---


@pytest.mark.parametrize(("z", "ids"), [(0.4, [0]), (0.6, [0]), (0.8, [0, 1]), (1.0, [0, 1, 2, 3, 4])])
def test_tail_free_cuts_where_the_second_differences_exceed_z(z: float, ids: list[int]) -> None:
    # Differences 1/4, 1/8, 1/16, 0; theirs 1/8, 1/16, 1/16: shares of 1/2, 1/4, 1/4.
    assert kept(TailFree(z), FIVE) == ids


def test_tail_free_sorts_before_it_cuts() -> None:
    assert kept(TailFree(0.8), FIVE[::-1]) == [3, 4]


def test_tail_free_leaves_two_tokens_alone() -> None:
    assert kept(TailFree(0.01), [5.0, 0.0]) == [0, 1]


# --- split ---


def test_split_p_cuts_at_the_largest_gap_between_probabilities() -> None:
    assert kept(SplitP(), HALVES) == [0]  # gaps 1/4, 1/8, 0
    assert kept(SplitP(2), HALVES) == [0, 1]
    assert kept(SplitP(3), HALVES) == [0, 1, 2]  # one gap is left, of 0
    assert kept(SplitP(4), HALVES) == [0, 1, 2, 3]


def test_split_l_cuts_at_the_largest_gap_between_logits() -> None:
    assert kept(SplitL(), [0.0, 8.0, 4.0, 6.0]) == [1, 2, 3]  # gaps 2, 2, 4
    assert kept(SplitP(), [0.0, 8.0, 4.0, 6.0]) == [1]


def test_of_equal_gaps_the_first_one_counts() -> None:
    assert kept(SplitL(1, 2), [8.0, 6.0, 4.0, 0.0]) == [0]
    assert kept(SplitL(2, 2), [8.0, 6.0, 4.0, 0.0]) == [0, 1]


def test_a_gap_past_max_keep_is_not_seen() -> None:
    assert kept(SplitL(1, 2), [9.0, 8.0, 6.0, -50.0]) == [0, 1]  # gaps 1, 2, and 56 behind the third
    assert kept(SplitL(1, 3), [9.0, 8.0, 6.0, -50.0]) == [0, 1, 2]


# --- mirostat ---


@pytest.mark.parametrize(("mu", "ids"), [(-1000.0, [0]), (1.0, [0]), (2.0, [0, 1]), (3.0, [0, 1, 2, 3])])
def test_mirostat_1_keeps_as_many_as_zipfs_law_says(mu: float, ids: list[int]) -> None:
    # t = ln 2, ln 3/2, ln 4/3 and b = ln 2, ln 2, 0 give s = 0.7615/0.7276 = 1.0466, and k = 1.46, 2.84, 5.50.
    assert kept(MirostatV1(), HALVES, mu) == ids


@pytest.mark.parametrize(("mu", "ids"), [(0.0, [0]), (1.0, [0, 1])])
def test_mirostat_1_has_a_formula_for_an_exponent_of_exactly_1(mu: float, ids: list[int]) -> None:
    # Probabilities 2/3 and 1/3: t = b = ln 2, and k = 2^mu / ln 2 = 1.44, 2.89.
    assert kept(MirostatV1(), [math.log(2), 0.0], mu) == ids


def test_mirostat_1_estimates_from_the_first_max_keep_alone() -> None:
    # Two tokens of 1/2 and 1/4: s = 1 + 1.6e-16 or 1; four candidates, so k = (2^2 / ln 4)^(1/s) = 2.89.
    assert kept(MirostatV1(2), HALVES, 2.0) == [0, 1]
    assert kept(MirostatV1(2), HALVES, 0.4) == [0]  # 1.32 / 1.39 = 0.95


@pytest.mark.parametrize("mu", [5000.0, 1e308])
def test_mirostat_1_keeps_all_where_its_number_overflows(mu: float) -> None:
    assert kept(MirostatV1(), HALVES, mu) == [0, 1, 2, 3]


def test_mirostat_1_looks_no_further_than_the_first_probability_of_0() -> None:
    # 2/3, 1/3, 0: s = 1 from the first two; three candidates, so k = 2^mu / ln 3 = 1.82 and 2.09.
    assert kept(MirostatV1(), [math.log(2), 0.0, -5000.0], 1.0) == [0]
    assert kept(MirostatV1(), [math.log(2), 0.0, -5000.0], 1.2) == [0, 1]
    assert kept(MirostatV1(), [0.0, -5000.0, -6000.0], 1.0) == [0, 1, 2]  # there is no ratio at all


@pytest.mark.parametrize(("mu", "ids"), [(-1.0, [0]), (1.5, [0]), (2.5, [0, 1]), (3.5, [0, 1, 2, 3])])
def test_mirostat_2_keeps_surprisals_up_to_mu(mu: float, ids: list[int]) -> None:
    # 1, 2, 3 and 3 bits.
    assert kept(MirostatV2(), HALVES, mu) == ids
    assert kept(MirostatV2(3), HALVES, mu) == ids[:3]


@pytest.mark.parametrize("mu", [None, math.nan, math.inf])
@pytest.mark.parametrize("stage", WITH_MU, ids=lambda stage: type(stage).__name__)
def test_mirostat_without_a_finite_mu_is_refused(stage: Stage, mu: float | None) -> None:
    with pytest.raises(ValueError, match="mu is"):
        pick([stage], HALVES, mu=mu)


# --- logit bias ---


def test_a_bias_is_added_at_its_place_in_the_order() -> None:
    bias = LogitBias((1,), (9.0,))
    assert pick([bias, TopK(1)], [5.0, 0.0]) == Picked(1, 0.0)
    assert pick([TopK(1), bias], [5.0, 0.0]) == Picked(0, 0.0)


def test_a_bias_changes_probabilities() -> None:
    # 1/4 becomes 1/2 of 5/4.
    assert pick([LogitBias((1, 77), (math.log(2), 50.0))], HALVES, 0.5).surprisal == pytest.approx(math.log2(2.5))


def test_a_bias_that_overflows_upwards_is_the_largest_number_there_is() -> None:
    up = LogitBias((1,), (HUGE,))
    assert pick([up, up], [5.0, 0.0]) == Picked(1, 0.0)


def test_a_bias_that_overflows_downwards_drops_its_token() -> None:
    down = LogitBias((0, 1), (-HUGE, -HUGE))
    assert pick([down, down], [5.0, 4.0, -1000.0]) == Picked(2, 0.0)
    with pytest.raises(NothingLeft, match="bias"):
        pick([down, down], [5.0, 4.0])


# --- before greedy ---


def test_a_bias_before_greedy_decides_what_is_highest() -> None:
    bias = LogitBias((1,), (9.0,))
    assert pick([bias, Greedy()], [5.0, 0.0]) == Picked(1, 0.0)
    assert pick([TopK(1), bias, Greedy()], [5.0, 0.0]) == Picked(0, 0.0)
    assert pick([Temperature(0.5), bias, Temperature(0.0)], [5.0, 0.0]) == Picked(0, 0.0)  # -1 under 0


def test_typical_before_greedy_may_drop_the_most_probable() -> None:
    assert pick([TypicalP(0.2), Greedy()], HALVES) == Picked(1, 0.0)


def test_stages_that_keep_the_most_probable_are_left_out_before_greedy() -> None:
    idle: list[Stage] = [Temperature(2.0), TopK(3), TopP(0.5), MinP(0.1), TailFree(0.5), SplitP(), SplitL()]
    assert Chain.of([*idle, MirostatV1(), MirostatV2(), Greedy()]) == Chain.of([Greedy()])
    bias = LogitBias((1,), (9.0,))
    assert Chain.of([TopK(3), bias, MinP(0.1), Greedy()]) == Chain((TopK(3), bias), greedy=True)


# --- ranges ---


@pytest.mark.parametrize(
    "make",
    [
        lambda: TypicalP(0.0),
        lambda: TypicalP(1.1),
        lambda: TypicalP(math.nan),
        lambda: TailFree(0.0),
        lambda: TailFree(1.1),
        lambda: SplitP(0),
        lambda: SplitP(3, 2),
        lambda: SplitL(0),
        lambda: SplitL(51),
        lambda: MirostatV1(1),
        lambda: MirostatV2(0),
        lambda: LogitBias((), ()),
        lambda: LogitBias((1,), (1.0, 2.0)),
        lambda: LogitBias((1, 1), (1.0, 2.0)),
        lambda: LogitBias((1,), (math.inf,)),
    ],
)
def test_a_stage_out_of_range_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="expected"):
        make()
