"""Penalties as a value: written and read back, forked, reconfigured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from constraintd.encoding import Reader, Writer
from constraintd.engine.region import Region
from constraintd.errors import InvalidEnvelope, InvalidField
from constraintd.sampler.config import IgnoredNGrams, NGramPenalty, PenaltyMode, SamplerConfig, WindowPenalty
from constraintd.sampler.ngrams import NGramCount, NGramStats
from constraintd.sampler.penalties import Penalties
from constraintd.vocabulary.vocabulary import build_vocabulary

PROSE, PERMISSIVE = Region.PROSE, Region.PERMISSIVE
VOCABULARY = build_vocabulary([bytes([97 + i]) for i in range(10)], {}, eog_ids=[0])
NGRAMS = NGramPenalty(max_size=2, window=8, decay=0.5, ignored=IgnoredNGrams(sets=()))
BOTH = SamplerConfig(ngram_penalty=NGRAMS, window_penalty=WindowPenalty(repetition=1.5, frequency=0.5, window=6))


def after(config: SamplerConfig, tokens: Sequence[int]) -> Penalties:
    penalties = Penalties.start(config, VOCABULARY)
    for token in tokens:
        penalties.advance(token, PROSE)
    return penalties


def written(penalties: Penalties) -> bytes:
    writer = Writer()
    penalties.write(writer)
    return writer.getvalue()


def read(data: bytes, config: SamplerConfig = BOTH) -> Penalties:
    reader = Reader(data, "penalties")
    penalties = Penalties.read(reader, config, VOCABULARY)
    reader.end()
    return penalties


def found(penalties: Penalties) -> list[list[float]]:
    adjustments = penalties.adjustments(PROSE, lambda tokens: [True] * len(tokens))
    assert adjustments is not None
    return [adjustments.ids.tolist(), adjustments.scales.tolist(), adjustments.offsets.tolist()]


class TestWriting:
    def test_what_is_read_back_is_equal_and_goes_on_bit_for_bit(self) -> None:
        first = after(BOTH, [1, 2, 1, 2, 3, 1, 2, 1, 2, 3, 4, 1])
        second = read(written(first))
        assert second.ngram_stats == first.ngram_stats
        assert written(second) == written(first)
        for token in [1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 1]:
            first.advance(token, PROSE)
            second.advance(token, PROSE)
            assert found(second) == found(first)
        assert written(second) == written(first)

    def test_empty_statistics_are_read_back_too(self) -> None:
        assert written(read(written(Penalties.start(BOTH, VOCABULARY)))) == written(Penalties.start(BOTH, VOCABULARY))

    def test_constrained_statistics_come_back(self) -> None:
        penalties = after(BOTH, [1])
        penalties.advance(2, PERMISSIVE)
        back = read(written(penalties))
        assert back.constrained_ngram_stats == NGramStats(
            1, {(2,): NGramCount((0,), 1.0), (1, 2): NGramCount((0,), 1.0)}
        )

    @pytest.mark.parametrize("mode", PenaltyMode)
    def test_a_cut_off_or_altered_envelope_is_refused_or_reads_as_another_canonical_one(
        self, mode: PenaltyMode
    ) -> None:
        config = replace(BOTH, ngram_penalty=replace(NGRAMS, mode=mode))
        data = written(after(config, [1, 2, 1, 2, 3, 1, 2, 1, 2, 3, 4, 1]))
        for cut in range(len(data)):
            with pytest.raises(InvalidEnvelope):
                read(data[:cut], config)
        for at in range(len(data)):
            for bit in range(8):
                altered = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
                try:
                    penalties = read(altered, config)
                except InvalidEnvelope:
                    continue
                assert written(penalties) == altered
                penalties.advance(1, PROSE)
                found(penalties)

    def test_another_penalty_than_the_configs_is_refused(self) -> None:
        with pytest.raises(InvalidEnvelope, match="not those of the config"):
            read(written(after(BOTH, [1])), SamplerConfig(ngram_penalty=NGRAMS))

    def test_an_ngram_that_the_config_ignores_is_refused(self) -> None:
        ignoring = replace(NGRAMS, ignored=IgnoredNGrams(ngrams=((1,),), sets=()))
        with pytest.raises(InvalidEnvelope, match="ignored"):
            read(written(after(BOTH, [1])), replace(BOTH, ngram_penalty=ignoring))

    def test_a_token_past_the_vocabulary_is_refused(self) -> None:
        smaller = build_vocabulary([bytes([97 + i]) for i in range(9)], {}, eog_ids=[0])
        with pytest.raises(InvalidEnvelope, match="out of range"):
            Penalties.read(Reader(written(after(BOTH, [9])), "penalties"), BOTH, smaller)

    def test_a_weight_that_is_not_that_of_its_recordings_is_refused(self) -> None:
        # 1.5 is the weight of (1,) at 0 and 1; its last double stands before the tail of the constrained statistics.
        config = SamplerConfig(ngram_penalty=replace(NGRAMS, max_size=1))
        data = written(after(config, [1, 1]))
        one_and_a_half = bytes.fromhex("000000000000f83f")
        assert data.count(one_and_a_half) == 1
        for wrong in ("000000000000f03f", "000000000000f87f", "0000000000000040"):  # 1.0, NaN, 2.0
            with pytest.raises(InvalidEnvelope, match="weight 0 is not that of its recordings"):
                read(data.replace(one_and_a_half, bytes.fromhex(wrong)), config)


class TestForking:
    def test_a_fork_goes_on_alone(self) -> None:
        parent = after(BOTH, [1, 2, 1, 2, 1])
        before = written(parent)
        fork = parent.fork()
        assert written(fork) == before
        fork.advance(3, PROSE)
        fork.advance(1, PERMISSIVE)
        fork.prompt([4, 4])
        fork.new_turn()
        assert written(parent) == before

    def test_a_parent_goes_on_without_its_fork(self) -> None:
        parent = after(BOTH, [1, 2, 1, 2, 1])
        fork = parent.fork()
        before = written(fork)
        for token in (3, 1, 2, 3, 1, 2, 4, 4):
            parent.advance(token, PROSE)
        assert written(fork) == before


class TestReconfiguring:
    def test_the_same_config_changes_nothing(self) -> None:
        penalties = after(BOTH, [1, 2, 1, 2, 3, 1, 2, 1, 2, 3])
        assert written(penalties.reconfigured(BOTH, VOCABULARY)) == written(penalties)

    def test_the_original_is_left_alone(self) -> None:
        penalties = after(BOTH, [1, 2, 1])
        before = written(penalties)
        penalties.reconfigured(BOTH, VOCABULARY).advance(3, PROSE)
        assert written(penalties) == before

    def test_sizes_out_of_the_new_range_are_dropped_and_new_ones_count_from_then_on(self) -> None:
        wider = SamplerConfig(ngram_penalty=replace(NGRAMS, min_size=2, max_size=3))
        penalties = after(BOTH, [1, 2, 3]).reconfigured(wider, VOCABULARY)
        assert penalties.step == 3
        assert list(penalties.ngram_stats.entries) == [(1, 2), (2, 3)]
        penalties.advance(4, PROSE)
        # Of the old history its last max_size tokens, 2 and 3, are known.
        assert list(penalties.ngram_stats.entries) == [(1, 2), (2, 3), (3, 4), (2, 3, 4)]

    def test_ngrams_that_are_ignored_now_are_dropped(self) -> None:
        ignoring = SamplerConfig(ngram_penalty=replace(NGRAMS, ignored=IgnoredNGrams(ngrams=((1,), (2, 1)), sets=())))
        penalties = after(BOTH, [1, 2, 1]).reconfigured(ignoring, VOCABULARY)
        assert list(penalties.ngram_stats.entries) == [(2,), (1, 2)]

    def test_a_new_decay_weighs_the_recordings_that_there_are(self) -> None:
        slower = SamplerConfig(ngram_penalty=replace(NGRAMS, decay=0.75))
        penalties = after(BOTH, [1, 2, 1]).reconfigured(slower, VOCABULARY)
        assert penalties.ngram_stats.entries[(1,)] == NGramCount((0, 2), 1.5625)

    def test_a_narrower_window_drops_what_is_past_it_for_good(self) -> None:
        narrow = SamplerConfig(ngram_penalty=replace(NGRAMS, window=2, max_size=1))
        penalties = after(BOTH, [1, 2, 1, 3]).reconfigured(narrow, VOCABULARY)
        two = {(1,): NGramCount((2,), 0.5), (3,): NGramCount((3,), 1.0)}
        assert penalties.ngram_stats == NGramStats(4, two)
        wide = SamplerConfig(ngram_penalty=replace(NGRAMS, max_size=1))
        assert penalties.reconfigured(wide, VOCABULARY).ngram_stats == NGramStats(4, two)

    def test_another_mode_and_max_count_act_on_the_same_recordings(self) -> None:
        options = replace(NGRAMS, mode=PenaltyMode.BROAD, max_size=1, repeat=2.0, frequency=0.5, presence=0.25)
        penalties = after(BOTH, [5, 6, 5]).reconfigured(SamplerConfig(ngram_penalty=options), VOCABULARY)
        assert found(penalties) == [[5, 6], [2.0, 1.0], [-0.875, -0.5]]

    def test_the_constrained_statistics_carry_as_well(self) -> None:
        penalties = after(BOTH, [])
        penalties.advance(1, PERMISSIVE)
        other = SamplerConfig(ngram_penalty=replace(NGRAMS, window=4))
        assert penalties.reconfigured(other, VOCABULARY).constrained_step == 1

    def test_a_penalty_that_was_absent_begins_empty(self) -> None:
        penalties = after(SamplerConfig(), [1, 1, 1]).reconfigured(BOTH, VOCABULARY)
        assert penalties.ngram_stats == NGramStats()
        penalties.advance(2, PROSE)
        assert penalties.ngram_stats == NGramStats(1, {(2,): NGramCount((0,), 1.0)})
        assert found(penalties) == [[2], [1.5], [-0.5]]

    def test_a_removed_penalty_leaves_nothing_behind(self) -> None:
        penalties = after(BOTH, [1, 1, 1]).reconfigured(SamplerConfig(), VOCABULARY)
        assert written(penalties) == written(Penalties.start(SamplerConfig(), VOCABULARY))
        assert penalties.reconfigured(BOTH, VOCABULARY).ngram_stats == NGramStats()

    def test_a_config_that_cannot_be_resolved_is_refused(self) -> None:
        refused = SamplerConfig(ngram_penalty=replace(NGRAMS, ignored=IgnoredNGrams(texts=(b"zz",), sets=())))
        with pytest.raises(InvalidField, match=r"sampler.ngram_penalty.ignored.texts\[0\]"):
            after(BOTH, [1]).reconfigured(refused, VOCABULARY)
