"""The penalties against a slow reference: plain Python that looks at the whole history again at every position."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from constraintd.encoding import Reader, Writer
from constraintd.engine.region import Region
from constraintd.sampler.adjustments import Adjustments
from constraintd.sampler.config import IgnoredNGrams, NGramPenalty, PenaltyMode, SamplerConfig, WindowPenalty
from constraintd.sampler.penalties import Penalties
from constraintd.vocabulary.vocabulary import build_vocabulary

CASES = 1000
IDS, WIDTH = 9, 8  # the tokenizer knows one id more than the model has logits: prompts may hold it
VOCABULARY = build_vocabulary([bytes([97 + i]) for i in range(IDS)], {}, eog_ids=[7], logits_width=WIDTH)

Expected = dict[int, tuple[float, float]]
"""Token -> scale, offset; tokens that both leave as they are don't stand in it."""


@dataclass
class SlowStatistics:
    """A history, and what every pass recorded: (position, n-grams). Nothing is ever evicted, only not looked at."""

    penalty: NGramPenalty
    history: list[int] = field(default_factory=list)
    passes: list[tuple[int, list[tuple[int, ...]]]] = field(default_factory=list)
    step: int = 0

    def record(self) -> None:
        ngrams = [
            tuple(self.history[-size:])
            for size in range(self.penalty.min_size, self.penalty.max_size + 1)
            if size <= len(self.history)
        ]
        self.passes.append((self.step, [ngram for ngram in ngrams if ngram not in self.penalty.ignored.ngrams]))
        self.step += 1

    def effective(self) -> dict[tuple[int, ...], float]:
        now = self.step - 1
        sums: dict[tuple[int, ...], float] = {}
        for position, ngrams in self.passes:
            if position > now - self.penalty.window:
                for ngram in ngrams:
                    sums[ngram] = sums.get(ngram, 0.0) + self.penalty.decay ** (now - position)
        return sums

    def expected(self) -> Expected:
        penalty = self.penalty
        found: Expected = {}
        for ngram, effective in self.effective().items():
            hot = effective > penalty.max_count
            if penalty.mode is PenaltyMode.BROAD:
                candidates = [token for token in ngram if punishable(token, penalty)]
                target = candidates[-1] if candidates else None
            else:
                k = max(k for k in range(len(ngram)) if k == 0 or tuple(self.history[-k:]) == ngram[:k])
                target = ngram[k] if hot and punishable(ngram[k], penalty) else None
            if target is not None:
                scale, offset = found.get(target, (1.0, 0.0))
                scale *= penalty.repeat ** len(ngram) if hot else 1.0
                found[target] = (scale, offset - effective * penalty.frequency - penalty.presence)
        return {token: (min(max(scale, 1e-15), 1e15), offset) for token, (scale, offset) in found.items()}

    def reconfigured(self, penalty: NGramPenalty) -> SlowStatistics:
        oldest = self.step - min(self.penalty.window, penalty.window)
        passes = [
            (
                position,
                [
                    ngram
                    for ngram in ngrams
                    if penalty.min_size <= len(ngram) <= penalty.max_size and ngram not in penalty.ignored.ngrams
                ],
            )
            for position, ngrams in self.passes
            if position >= oldest
        ]
        known = min(self.penalty.max_size, penalty.max_size)
        return SlowStatistics(penalty, self.history[-known:], passes, self.step)


def punishable(token: int, penalty: NGramPenalty) -> bool:
    return token < WIDTH and (token,) not in penalty.ignored.ngrams


def slow_window(penalty: WindowPenalty, history: list[tuple[int, bool]]) -> Expected:
    """`history`: (token, whether it is a prompt's)."""
    window = history if penalty.window is None else history[-penalty.window :]
    found: Expected = {}
    for token in range(WIDTH):
        own = window.count((token, False))
        prompt = window.count((token, True))
        repeats = own + (prompt if penalty.repetition_counts_prompt else 0) > 0
        count = own + (prompt if penalty.frequency_counts_prompt else 0)
        offset = -(count * penalty.frequency + (penalty.presence if count else 0.0))
        found[token] = (penalty.repetition if repeats else 1.0, offset)
    return found


class SlowPenalties:
    """The whole: a window penalty, an n-gram penalty, or both."""

    def __init__(self, config: SamplerConfig) -> None:
        self.config = config
        self.history: list[tuple[int, bool]] = []
        self.prose = config.ngram_penalty and SlowStatistics(config.ngram_penalty)
        self.constrained = config.ngram_penalty and SlowStatistics(config.ngram_penalty)

    def prompt(self, tokens: Sequence[int]) -> None:
        self.history += [(token, True) for token in tokens]
        if self.prose and self.prose.penalty.counts_prompt:
            for token in tokens:
                self.prose.history.append(token)
                self.prose.record()

    def advance(self, token: int, region: Region) -> None:
        self.history.append((token, False))
        if self.prose and self.constrained:
            self.prose.history.append(token)
            self.constrained.history.append(token)
            if region is not Region.STRUCTURAL:
                (self.prose if region is Region.PROSE else self.constrained).record()

    def new_turn(self) -> None:
        self.constrained = self.config.ngram_penalty and SlowStatistics(self.config.ngram_penalty)

    def reconfigured(self, config: SamplerConfig) -> None:
        old, self.config = self.config, config
        known = None if old.window_penalty is None else old.window_penalty.window
        self.history = self.history[-known:] if known else self.history if old.window_penalty else []
        self.prose = self._statistics(self.prose, config.ngram_penalty)
        self.constrained = self._statistics(self.constrained, config.ngram_penalty)

    @staticmethod
    def _statistics(old: SlowStatistics | None, penalty: NGramPenalty | None) -> SlowStatistics | None:
        if penalty is None:
            return None
        return SlowStatistics(penalty) if old is None else old.reconfigured(penalty)

    def expected(self, region: Region, staying: set[int]) -> Expected:
        found: Expected = {}
        if self.config.window_penalty:
            found = slow_window(self.config.window_penalty, self.history)
        other: Expected = {}
        if region is Region.PROSE and self.prose:
            other = self.prose.expected()
        elif region is Region.PERMISSIVE and self.constrained:
            other = {token: both for token, both in self.constrained.expected().items() if token in staying}
        for token, (scale, offset) in other.items():
            before = found.get(token, (1.0, 0.0))
            found[token] = (before[0] * scale, before[1] + offset)
        return {token: both for token, both in found.items() if both != (1.0, 0.0)}


def random_ngram_penalty(rng: random.Random, mode: PenaltyMode) -> NGramPenalty:
    min_size = rng.choice([1, 1, 1, 2, 3])
    ignored = [tuple(rng.choices(range(IDS), k=rng.choice([1, 1, 2, 3]))) for _ in range(rng.randint(0, 4))]
    return NGramPenalty(
        mode=mode,
        min_size=min_size,
        max_size=rng.randint(min_size, 7),
        repeat=rng.choice([1.05, 1.3, 0.9, 1.0]),
        frequency=rng.choice([0.0, 0.025, 0.5, -0.25]),
        presence=rng.choice([0.0, 0.0625, 1.0]),
        window=rng.choice([1, 2, 5, 16, 40]),
        decay=rng.choice([1.0, 0.99, 0.9, 0.5]),
        max_count=rng.choice([0.0, 0.3, 0.7, 1.0, 1.0, 1.37, 2.0]),
        counts_prompt=rng.random() < 0.7,
        ignored=IgnoredNGrams(ngrams=tuple(ignored), sets=()),
    )


def random_config(rng: random.Random, mode: PenaltyMode) -> SamplerConfig:
    window = WindowPenalty(
        repetition=rng.choice([1.0, 1.2, 0.8]),
        frequency=rng.choice([0.0, 0.5, -0.5]),
        presence=rng.choice([0.0, 0.3]),
        window=rng.choice([None, 1, 3, 20]),
        repetition_counts_prompt=rng.random() < 0.5,
        frequency_counts_prompt=rng.random() < 0.5,
    )
    return SamplerConfig(
        window_penalty=window if rng.random() < 0.3 else None,
        ngram_penalty=random_ngram_penalty(rng, mode) if rng.random() < 0.95 else None,
    )


def as_dict(adjustments: Adjustments | None) -> Expected:
    if adjustments is None:
        return {}
    ids = adjustments.ids.tolist()
    assert ids == sorted(set(ids))
    assert len(ids) >= 1
    pairs = zip(ids, zip(adjustments.scales.tolist(), adjustments.offsets.tolist(), strict=True), strict=True)
    return {token: both for token, both in pairs if both != (1.0, 0.0)}


def written(penalties: Penalties) -> bytes:
    writer = Writer()
    penalties.write(writer)
    return writer.getvalue()


def read_back(data: bytes, config: SamplerConfig) -> Penalties:
    reader = Reader(data, "penalties")
    penalties = Penalties.read(reader, config, VOCABULARY)
    reader.end()
    return penalties


def assert_agrees(found: Expected, expected: Expected) -> None:
    assert set(found) == set(expected)
    for token, (scale, offset) in expected.items():
        assert math.isclose(found[token][0], scale, rel_tol=1e-9)
        assert math.isclose(found[token][1], offset, rel_tol=1e-9, abs_tol=1e-9)


def play(seed: int, mode: PenaltyMode) -> None:
    """One random session; a second Penalties is written, read back, forked and reconfigured along with the first."""
    rng = random.Random(seed)
    config = random_config(rng, mode)
    fast, twin, slow = Penalties.start(config, VOCABULARY), Penalties.start(config, VOCABULARY), SlowPenalties(config)
    alphabet = range(rng.randint(2, WIDTH))
    for _ in range(rng.randint(5, 60)):
        event = rng.random()
        if event < 0.04:
            tokens = rng.choices(range(IDS), k=rng.choice([0, 1, 3, 10, 60]))
            for penalties in (fast, twin, slow):
                penalties.prompt(tokens)
        elif event < 0.06:
            for penalties in (fast, twin, slow):
                penalties.new_turn()
        elif event < 0.08:
            config = random_config(rng, mode)
            fast, twin = fast.reconfigured(config, VOCABULARY), twin.reconfigured(config, VOCABULARY)
            slow.reconfigured(config)
        elif event < 0.12:
            twin = read_back(written(twin), config)
        elif event < 0.14:
            fork = twin.fork()
            twin.advance(0, Region.PROSE)
            twin.advance(0, Region.PERMISSIVE)
            twin = fork
        else:
            token = rng.choice(alphabet)
            region = rng.choices(list(Region), [5, 3, 1])[0]
            for penalties in (fast, twin, slow):
                penalties.advance(token, region)
        staying = set(rng.sample(range(WIDTH), 4))
        asked = rng.choice(list(Region))
        ours = as_dict(fast.adjustments(asked, lambda ids, staying=staying: [token in staying for token in ids]))
        assert_agrees(ours, slow.expected(asked, staying))
        again = twin.adjustments(asked, lambda ids, staying=staying: [token in staying for token in ids])
        assert as_dict(again) == ours
    assert written(fast) == written(twin)
    assert fast.ngram_stats == twin.ngram_stats
    assert fast.constrained_ngram_stats == twin.constrained_ngram_stats


@pytest.mark.parametrize("mode", PenaltyMode)
def test_penalties_agree_with_the_slow_reference_and_a_copy_that_was_read_back_goes_on_bit_for_bit(
    mode: PenaltyMode,
) -> None:
    for seed in range(CASES):
        try:
            play(seed, mode)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_over_many_full_windows_the_default_penalty_agrees_with_the_slow_reference() -> None:
    rng = random.Random(5)
    penalty = NGramPenalty(ignored=IgnoredNGrams(sets=()))
    fast = Penalties.start(SamplerConfig(ngram_penalty=penalty), VOCABULARY)
    slow = SlowStatistics(penalty)
    phrases = [rng.choices(range(WIDTH), k=12) for _ in range(20)]
    for _ in range(600):
        for token in rng.choice(phrases):
            fast.advance(token, Region.PROSE)
            slow.history.append(token)
            slow.record()
        if slow.step % 1200 == 0:
            found = as_dict(fast.adjustments(Region.PROSE, lambda tokens: [True] * len(tokens)))
            assert_agrees(found, slow.expected())
            assert len(slow.effective()) > 500
