"""The window penalty: repetition, frequency and presence over the last tokens."""

from __future__ import annotations

from collections.abc import Sequence

from constraintd.engine.region import Region
from constraintd.sampler.config import NGramPenalty, SamplerConfig, WindowPenalty
from constraintd.sampler.penalties import Penalties
from constraintd.vocabulary.vocabulary import build_vocabulary

VOCABULARY = build_vocabulary([bytes([97 + i]) for i in range(10)], {}, eog_ids=[0], logits_width=9)


def after(prompt: Sequence[int], tokens: Sequence[int], **options: object) -> Penalties:
    config = SamplerConfig(window_penalty=WindowPenalty(**options))  # type: ignore[arg-type]
    penalties = Penalties.start(config, VOCABULARY)
    penalties.prompt(prompt)
    for token in tokens:
        penalties.advance(token, Region.PROSE)
    return penalties


def found(penalties: Penalties, region: Region = Region.PROSE) -> dict[int, tuple[float, float]]:
    """Token -> (scale, offset)."""
    adjustments = penalties.adjustments(region, lambda tokens: [True] * len(tokens))
    if adjustments is None:
        return {}
    pairs = zip(adjustments.scales.tolist(), adjustments.offsets.tolist(), strict=True)
    return dict(zip(adjustments.ids.tolist(), pairs, strict=True))


def test_repetition_scales_once_however_often_a_token_occurs() -> None:
    assert found(after([], [3, 3, 5], repetition=1.5)) == {3: (1.5, 0.0), 5: (1.5, 0.0)}


def test_frequency_is_subtracted_for_each_occurrence_and_presence_once() -> None:
    assert found(after([], [3, 3, 5], frequency=0.5, presence=0.25)) == {3: (1.0, -1.25), 5: (1.0, -0.75)}


def test_by_default_repetition_counts_the_prompt_and_frequency_does_not() -> None:
    penalties = after([4, 3], [3], repetition=2.0, frequency=0.5, presence=0.25)
    assert found(penalties) == {3: (2.0, -0.75), 4: (2.0, 0.0)}


def test_the_other_way_round_by_option() -> None:
    penalties = after(
        [4, 3],
        [3],
        repetition=2.0,
        frequency=0.5,
        presence=0.25,
        repetition_counts_prompt=False,
        frequency_counts_prompt=True,
    )
    assert found(penalties) == {3: (2.0, -1.25), 4: (1.0, -0.75)}


def test_what_leaves_the_window_is_forgotten() -> None:
    assert found(after([], [3, 3, 5, 6], frequency=1.0, window=3)) == {3: (1.0, -1.0), 5: (1.0, -1.0), 6: (1.0, -1.0)}
    assert found(after([], [3, 3, 5, 6], frequency=1.0, window=2)) == {5: (1.0, -1.0), 6: (1.0, -1.0)}


def test_prompt_tokens_stand_in_the_window_even_where_they_do_not_count() -> None:
    penalties = after([], [3], frequency=1.0, window=2, repetition_counts_prompt=False)
    penalties.prompt([4])
    assert found(penalties) == {3: (1.0, -1.0)}
    penalties.prompt([4])
    assert found(penalties) == {}


def test_a_window_of_one_sees_the_last_token() -> None:
    assert found(after([1], [2, 3], frequency=1.0, window=1)) == {3: (1.0, -1.0)}


def test_the_region_makes_no_difference() -> None:
    penalties = after([], [3], frequency=1.0)
    assert [found(penalties, region) for region in Region] == [{3: (1.0, -1.0)}] * 3


def test_ids_past_the_logits_width_are_left_out() -> None:
    assert found(after([9, 8], [], repetition=2.0)) == {8: (2.0, 0.0)}


def test_a_window_of_thousands_is_counted_right_after_many_evictions() -> None:
    penalties = after([], [i % 7 + 1 for i in range(20_000)], frequency=1.0, window=5000)
    # 20,000 = 7 * 2857 + 1, and 5,000 = 7 * 714 + 2: tokens 1 and 7 stand there once more than the others.
    assert found(penalties) == {token: (1.0, -715.0 if token in (1, 7) else -714.0) for token in range(1, 8)}


def test_offsets_stay_finite_whatever_the_frequency() -> None:
    assert found(after([], [3, 3], frequency=1e308)) == {3: (1.0, -1e15)}


def test_both_penalties_multiply_their_scales_and_add_their_offsets() -> None:
    config = SamplerConfig(
        window_penalty=WindowPenalty(repetition=1.5, presence=0.25),
        ngram_penalty=NGramPenalty(max_size=1, repeat=2.0, frequency=0.5, presence=0.25, decay=0.5),
    )
    penalties = Penalties.start(config, VOCABULARY)
    for token in (3, 5, 5):
        penalties.advance(token, Region.PROSE)
    assert found(penalties) == {3: (1.5, -0.25), 5: (3.0, -1.25)}


def test_another_window_keeps_the_tokens_that_are_known() -> None:
    wide = SamplerConfig(window_penalty=WindowPenalty(frequency=1.0))
    narrow = SamplerConfig(window_penalty=WindowPenalty(frequency=1.0, window=2))
    penalties = after([], [3, 4, 5], frequency=1.0).reconfigured(narrow, VOCABULARY)
    assert found(penalties) == {4: (1.0, -1.0), 5: (1.0, -1.0)}
    assert found(penalties.reconfigured(wide, VOCABULARY)) == {4: (1.0, -1.0), 5: (1.0, -1.0)}
