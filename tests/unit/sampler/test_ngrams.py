"""The n-gram penalty, rule by rule. Each number is worked out by hand from the semantics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from constraintd.engine.region import Region
from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.config import IgnoredNGrams, NGramPenalty, PenaltyMode, SamplerConfig
from constraintd.sampler.ngrams import NGramCount, NGramStats
from constraintd.sampler.penalties import Penalties
from constraintd.vocabulary.vocabulary import build_vocabulary

PROSE, PERMISSIVE, STRUCTURAL = Region.PROSE, Region.PERMISSIVE, Region.STRUCTURAL
VOCABULARY = build_vocabulary([bytes([97 + i]) for i in range(10)], {}, eog_ids=[0], logits_width=9)
NOTHING_IGNORED = IgnoredNGrams(sets=())
# Halves and quarters, so that every expected value is exact.
EXACT = {"repeat": 2.0, "frequency": 0.5, "presence": 0.25, "decay": 0.5, "window": 8, "ignored": NOTHING_IGNORED}


def with_penalty(**options: object) -> SamplerConfig:
    return SamplerConfig(ngram_penalty=NGramPenalty(**{**EXACT, **options}))  # type: ignore[arg-type]


def after(tokens: Sequence[int], **options: object) -> Penalties:
    penalties = Penalties.start(with_penalty(**options), VOCABULARY)
    for token in tokens:
        penalties.advance(token, PROSE)
    return penalties


def all_stay(tokens: Sequence[int]) -> list[bool]:
    return [True] * len(tokens)


def by_token(adjustments: Adjustments | None) -> dict[int, tuple[float, float]]:
    """Token -> (scale, offset)."""
    assert adjustments is not None
    pairs = zip(adjustments.scales.tolist(), adjustments.offsets.tolist(), strict=True)
    return dict(zip(adjustments.ids.tolist(), pairs, strict=True))


class TestSurgical:
    def test_a_token_that_came_once_is_left_alone(self) -> None:
        assert after([5, 6], max_size=1).adjustments(PROSE, all_stay) is None

    def test_a_token_that_came_again_is_punished_by_its_effective_count(self) -> None:
        # Effective 1 + 1/2; offset -(1.5 * 0.5 + 0.25).
        assert by_token(after([5, 5], max_size=1).adjustments(PROSE, all_stay)) == {5: (2.0, -1.0)}

    def test_the_count_must_exceed_max_count(self) -> None:
        assert after([5, 5], max_size=1, max_count=1.5).adjustments(PROSE, all_stay) is None
        assert by_token(after([5, 5], max_size=1, max_count=1.25).adjustments(PROSE, all_stay)) == {5: (2.0, -1.0)}

    def test_the_scale_is_repeat_to_the_power_of_the_length_and_the_target_goes_on_from_the_tail(self) -> None:
        # (3, 4) at positions 1 and 4, seen from 4: 1 + 1/8 > 1. The tail ends in 4, so it would begin again: 3.
        found = after([3, 4, 1, 3, 4], min_size=2, max_size=2)
        assert by_token(found.adjustments(PROSE, all_stay)) == {3: (4.0, -(1.125 * 0.5 + 0.25))}

    def test_the_longest_prefix_that_ends_the_history_decides(self) -> None:
        # Only (3, 4, 5) came twice. Its prefix (3, 4) ends the history: the target is 5.
        found = after([3, 4, 5, 1, 3, 4, 5, 3, 4], min_size=3, max_size=3, decay=1.0, window=16)
        assert by_token(found.adjustments(PROSE, all_stay)) == {5: (8.0, -1.25)}

    def test_without_a_prefix_there_the_target_is_the_first_token(self) -> None:
        # Only (3, 4) came twice. The tail ends in 6, so it would begin with 3.
        found = after([3, 4, 1, 3, 4, 6], min_size=2, max_size=2, decay=1.0)
        assert by_token(found.adjustments(PROSE, all_stay)) == {3: (4.0, -1.25)}

    def test_several_ngrams_on_one_target_multiply_scales_and_add_offsets(self) -> None:
        # Now 4. (1, 2) at 1, 3: 0.625, prefix 1 ends the history, target 2. (2, 1) at 2, 4: 1.25, begins: target 2.
        found = after([1, 2, 1, 2, 1], min_size=2, max_size=2, max_count=0.5)
        assert by_token(found.adjustments(PROSE, all_stay)) == {2: (16.0, -0.5625 - 0.875)}

    def test_an_ngram_that_reaches_into_itself_is_found_by_its_longest_prefix(self) -> None:
        # (4, 4, 4) at 2, 3; its prefix (4, 4) ends the history.
        assert by_token(after([4, 4, 4, 4], min_size=3, max_size=3).adjustments(PROSE, all_stay)) == {4: (8.0, -1.0)}

    def test_prefixes_over_three_tokens_are_compared_to_the_end(self) -> None:
        # Only (1, 2, 3, 4, 5) and (1, 2, 3, 6, 7) came twice. One goes on from the tail, the other would begin.
        tokens = [1, 2, 3, 4, 5, 8, 1, 2, 3, 4, 5, 0, 1, 2, 3, 6, 7, 4, 1, 2, 3, 6, 7, 6, 1, 2, 3]
        penalties = after(tokens, min_size=5, max_size=5, decay=1.0, window=64)
        other = penalties.fork()
        penalties.advance(6, PROSE)
        other.advance(4, PROSE)
        assert by_token(penalties.adjustments(PROSE, all_stay)) == {1: (32.0, -1.25), 7: (32.0, -1.25)}
        assert by_token(other.adjustments(PROSE, all_stay)) == {1: (32.0, -1.25), 5: (32.0, -1.25)}

    def test_an_ignored_target_is_skipped_and_never_shifted(self) -> None:
        # (3, 4)'s target is 4, which is ignored alone; the n-gram itself is not.
        options = {"min_size": 2, "max_size": 2, "max_count": 0.25}
        tokens = [3, 4, 3, 4, 3]
        assert set(by_token(after(tokens, **options).adjustments(PROSE, all_stay))) == {4}
        ignored = IgnoredNGrams(ngrams=((4,),), sets=())
        assert after(tokens, ignored=ignored, **options).adjustments(PROSE, all_stay) is None

    def test_a_max_count_under_one_punishes_what_came_once(self) -> None:
        assert by_token(after([5], max_size=1, max_count=0.5).adjustments(PROSE, all_stay)) == {5: (2.0, -0.75)}

    def test_ids_past_the_logits_width_are_no_targets(self) -> None:
        penalties = after([], max_size=1)
        penalties.prompt([9, 9, 8, 8])
        assert by_token(penalties.adjustments(PROSE, all_stay)) == {8: (2.0, -1.0)}


class TestBroad:
    def test_every_ngram_subtracts_and_only_hot_ones_scale(self) -> None:
        # 5 at 0 and 2: 1.25, hot. 6 at 1: 0.5, not hot.
        found = after([5, 6, 5], mode=PenaltyMode.BROAD, max_size=1)
        assert by_token(found.adjustments(PROSE, all_stay)) == {5: (2.0, -0.875), 6: (1.0, -0.5)}

    def test_the_target_is_the_last_token_whatever_the_tail(self) -> None:
        # (1, 2) at 1: 1/2; (2, 3) at 2: 1.
        found = after([1, 2, 3], mode=PenaltyMode.BROAD, min_size=2, max_size=2)
        assert by_token(found.adjustments(PROSE, all_stay)) == {2: (1.0, -0.5), 3: (1.0, -0.75)}

    def test_an_ignored_last_token_shifts_the_target(self) -> None:
        # 3 is ignored alone: (2, 3) punishes 2, (1, 2) does as well.
        ignored = IgnoredNGrams(ngrams=((3,),), sets=())
        found = after([1, 2, 3], mode=PenaltyMode.BROAD, min_size=2, max_size=2, ignored=ignored)
        assert by_token(found.adjustments(PROSE, all_stay)) == {2: (1.0, -1.25)}

    def test_an_ngram_of_ignored_tokens_punishes_nobody(self) -> None:
        ignored = IgnoredNGrams(ngrams=((3,), (4,)), sets=())
        found = after([3, 4], mode=PenaltyMode.BROAD, min_size=2, max_size=2, ignored=ignored)
        assert found.step == 2
        assert found.adjustments(PROSE, all_stay) is None


class TestStatistics:
    def test_a_pass_records_each_trailing_ngram_at_the_step(self) -> None:
        assert after([1, 2, 1], max_size=2).ngram_stats == NGramStats(
            step=3,
            entries={
                (1,): NGramCount((0, 2), 1.25),
                (2,): NGramCount((1,), 0.5),
                (1, 2): NGramCount((1,), 0.5),
                (2, 1): NGramCount((2,), 1.0),
            },
        )

    def test_entries_stand_in_the_order_of_their_oldest_recordings(self) -> None:
        stats = after([1, 2, 1], max_size=2).ngram_stats
        assert list(stats.entries) == [(1,), (2,), (1, 2), (2, 1)]
        assert stats.total == 5

    def test_what_was_recorded_window_passes_ago_is_gone(self) -> None:
        entries = after([1, 2, 1, 3], max_size=1, window=3).ngram_stats.entries
        assert entries == {(2,): NGramCount((1,), 0.25), (1,): NGramCount((2,), 0.5), (3,): NGramCount((3,), 1.0)}

    def test_a_window_of_one_holds_the_last_pass(self) -> None:
        penalties = after([5, 5, 5], max_size=1, window=1, max_count=0.5)
        assert penalties.ngram_stats.entries == {(5,): NGramCount((2,), 1.0)}
        assert by_token(penalties.adjustments(PROSE, all_stay)) == {5: (2.0, -0.75)}

    def test_without_decay_the_effective_count_is_the_count(self) -> None:
        assert after([5, 6, 5, 5], max_size=1, decay=1.0).ngram_stats.entries[(5,)] == NGramCount((0, 2, 3), 3.0)

    def test_an_ignored_ngram_is_not_recorded_but_longer_ones_are(self) -> None:
        ignored = IgnoredNGrams(ngrams=((1,), (1, 2)), sets=())
        assert list(after([1, 2, 1], max_size=2, ignored=ignored).ngram_stats.entries) == [(2,), (2, 1)]

    def test_a_prompt_is_recorded_and_moves_the_step(self) -> None:
        penalties = after([], max_size=2)
        penalties.prompt([5, 6])
        penalties.advance(5, PROSE)
        assert penalties.step == 3
        assert penalties.ngram_stats.entries[(6, 5)].positions == (2,)
        assert penalties.ngram_stats.entries[(5,)].positions == (0, 2)

    def test_a_prompt_that_does_not_count_leaves_no_trace(self) -> None:
        penalties = after([5], max_size=2, counts_prompt=False)
        penalties.prompt([6, 6, 6])
        penalties.advance(5, PROSE)
        assert penalties.ngram_stats == after([5, 5], max_size=2).ngram_stats

    def test_of_a_prompt_longer_than_the_window_the_end_counts_and_the_step_moves_over_all(self) -> None:
        penalties = after([3], max_size=2, window=2)
        penalties.prompt([4, 5, 6, 7])
        assert penalties.ngram_stats == NGramStats(
            step=5,
            entries={
                (6,): NGramCount((3,), 0.5),
                (5, 6): NGramCount((3,), 0.5),
                (7,): NGramCount((4,), 1.0),
                (6, 7): NGramCount((4,), 1.0),
            },
        )

    def test_a_repeat_of_hundreds_of_ngrams_keeps_scales_finite(self) -> None:
        found = by_token(after([5] * 400, max_size=7, window=65536, repeat=1e30).adjustments(PROSE, all_stay))
        assert found[5][0] == 1e15


class TestRegions:
    def test_the_region_behind_a_token_decides_which_statistics_take_the_pass(self) -> None:
        penalties = after([], max_size=1)
        for token, region in [(1, PROSE), (2, PERMISSIVE), (3, STRUCTURAL), (4, PERMISSIVE)]:
            penalties.advance(token, region)
        assert penalties.ngram_stats == NGramStats(1, {(1,): NGramCount((0,), 1.0)})
        assert penalties.constrained_ngram_stats == NGramStats(
            2, {(2,): NGramCount((0,), 0.5), (4,): NGramCount((1,), 1.0)}
        )
        assert (penalties.step, penalties.constrained_step) == (1, 2)

    def test_tokens_without_a_pass_still_belong_to_both_histories(self) -> None:
        penalties = after([], min_size=3, max_size=3)
        for token, region in [(1, PROSE), (2, STRUCTURAL), (3, PROSE), (4, PERMISSIVE)]:
            penalties.advance(token, region)
        assert list(penalties.ngram_stats.entries) == [(1, 2, 3)]
        assert list(penalties.constrained_ngram_stats.entries) == [(2, 3, 4)]

    def test_prompts_are_no_part_of_the_constrained_history(self) -> None:
        penalties = after([], min_size=2, max_size=2)
        penalties.prompt([8, 8])
        penalties.advance(1, PERMISSIVE)
        penalties.advance(2, PERMISSIVE)
        assert list(penalties.constrained_ngram_stats.entries) == [(1, 2)]

    def test_each_region_is_punished_by_its_own_statistics(self) -> None:
        penalties = after([1, 1], max_size=1)
        penalties.advance(2, PERMISSIVE)
        penalties.advance(2, PERMISSIVE)
        assert by_token(penalties.adjustments(PROSE, all_stay)) == {1: (2.0, -1.0)}
        assert by_token(penalties.adjustments(PERMISSIVE, all_stay)) == {2: (2.0, -1.0)}
        assert penalties.adjustments(STRUCTURAL, all_stay) is None

    def test_in_a_permissive_region_only_tokens_that_stay_there_are_punished(self) -> None:
        penalties = after([], max_size=1, decay=1.0)
        for token in (3, 2, 3, 2):
            penalties.advance(token, PERMISSIVE)
        asked: list[list[int]] = []

        def only_three_stays(tokens: Sequence[int]) -> list[bool]:
            asked.append(list(tokens))
            return [token == 3 for token in tokens]

        assert by_token(penalties.adjustments(PERMISSIVE, only_three_stays)) == {3: (2.0, -1.25)}
        assert asked == [[2, 3]]
        assert penalties.adjustments(PERMISSIVE, lambda tokens: [False] * len(tokens)) is None

    def test_a_new_turn_drops_the_constrained_statistics_and_keeps_those_of_prose(self) -> None:
        penalties = after([1], max_size=2)
        penalties.advance(2, PERMISSIVE)
        penalties.new_turn()
        assert penalties.constrained_ngram_stats == NGramStats()
        penalties.advance(3, PERMISSIVE)
        assert list(penalties.constrained_ngram_stats.entries) == [(3,)]  # not (2, 3): that was another turn
        assert penalties.step == 1


def test_regions_matter_only_to_an_ngram_penalty() -> None:
    assert after([]).needs_region
    assert not Penalties.start(SamplerConfig(), VOCABULARY).needs_region


def test_without_a_penalty_nothing_is_held() -> None:
    penalties = Penalties.start(SamplerConfig(), VOCABULARY)
    penalties.prompt([1, 1])
    penalties.advance(1, PROSE)
    assert penalties.adjustments(PROSE, all_stay) is None
    assert (penalties.ngram_stats, penalties.step, penalties.constrained_step) == (NGramStats(), 0, 0)


@pytest.mark.parametrize("decay", [1e-9, 0.5, 0.99])
def test_weights_neither_overflow_nor_vanish_over_many_windows(decay: float) -> None:
    stats = after([1, 2, 3, 1] * 2000, max_size=1, decay=decay, window=8).ngram_stats
    # 1 stands at ages 0, 3, 4 and 7 of the last eight.
    assert stats.entries[(1,)].effective == pytest.approx(1 + decay**3 + decay**4 + decay**7, rel=1e-12)
