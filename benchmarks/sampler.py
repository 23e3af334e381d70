"""The sampler's two sides: the daemon's n-gram penalty at each token, and the runner's chain at each pick.

The penalty runs with its defaults over a full window of 2,048 tokens. The tokens come from a fixed seed: words by
Zipf's law, and between them phrases that come back until newer ones take their place, more often than in any good text:
this is what the penalty is for. `hot_ngrams` says how many n-grams the last pick found above max_count, `tabled_ngrams`
how many it looked at.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Iterator, Sequence

from benchmarks.form import Progress, Result
from benchmarks.sampler_chain import measure_chain
from constraintd.engine.region import Region
from constraintd.sampler.config import NGramPenalty, PenaltyMode, SamplerConfig
from constraintd.sampler.penalties import Penalties
from constraintd.vocabulary.vocabulary import build_vocabulary

NAME = "sampler"
SUMMARY = "the n-gram penalty of one token in the daemon, and the chain of one pick in the runner"

_WIDTH = 131_072
_WINDOW = 2_048
_WORDS = 6_000
_PHRASES = 5  # alive at a time
_SEED = 20261130


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much to run."""
    parser.add_argument("--tokens", type=int, default=4_000, help="tokens measured, behind a full window [%(default)s]")
    parser.add_argument("--picks", type=int, default=300, help="picks of each chain [%(default)s]")


def run(progress: Progress, *, tokens: int = 4_000, picks: int = 300) -> Result:
    """Medians: `advance_us` of an accepted token and its adjustments, `chain_dense_ms`, `chain_sparse_ms` of a pick.

    `record_us` is the accepted token alone, as a fold takes it; `broad_us` is `advance_us` in the other mode.
    """
    text = repetitive_tokens(_WINDOW + tokens)
    progress("surgical penalty", 0, 3)
    penalties = _behind_a_window(PenaltyMode.SURGICAL, text)
    record_us, advance_us = _measure(penalties, text[_WINDOW:])
    tabled, hot = _looked_at(penalties)
    fork_us = _fork_us(penalties)
    progress("broad penalty", 1, 3)
    _, broad_us = _measure(_behind_a_window(PenaltyMode.BROAD, text), text[_WINDOW:][: tokens // 4])
    progress("chains", 2, 3)
    chains = measure_chain(picks)
    progress("done", 3, 3)
    return Result(
        {
            "advance_us": statistics.median(advance_us),
            **chains,
            "record_us": statistics.median(record_us),
            "broad_us": statistics.median(broad_us),
            "fork_us": statistics.median(fork_us),
            "tabled_ngrams": float(tabled),
            "hot_ngrams": float(hot),
        },
        {"advance_us": advance_us, "record_us": record_us, "broad_us": broad_us, "fork_us": fork_us},
    )


def repetitive_tokens(count: int) -> list[int]:
    """Token ids as a text has them that repeats itself."""
    return [token for token, _ in zip(_endless(random.Random(_SEED)), range(count), strict=False)]


def _endless(rng: random.Random) -> Iterator[int]:
    # Spread over the vocabulary; a step that shares no factor with it gives each rank an id of its own.
    ids = [rank * 40_503 % _WIDTH for rank in range(1, _WORDS + 1)]
    weights = [1 / (rank + 2.7) for rank in range(_WORDS)]
    phrases: list[list[int]] = []
    while True:
        fresh = rng.choices(ids, weights, k=rng.randint(1, 4))
        yield from fresh
        if rng.random() < 0.1:
            phrases = [*phrases[1 - _PHRASES :], rng.choices(ids, weights, k=rng.randint(8, 16))]
        for _ in range(rng.randint(1, 3) if phrases else 0):
            yield from rng.choice(phrases)


def _behind_a_window(mode: PenaltyMode, text: Sequence[int]) -> Penalties:
    vocabulary = build_vocabulary([b"%d" % token for token in range(_WIDTH)], {}, eog_ids=[0])
    penalties = Penalties.start(SamplerConfig(ngram_penalty=NGramPenalty(mode=mode, window=_WINDOW)), vocabulary)
    penalties.prompt(text[:_WINDOW])
    return penalties


def _measure(penalties: Penalties, text: Sequence[int]) -> tuple[list[float], list[float]]:
    """Microseconds of `advance` alone, and of both."""
    record_us: list[float] = []
    advance_us: list[float] = []
    gc.freeze()  # as the daemon does once a vocabulary is in: the collector has no reason to walk it again
    for token in text:
        began = time.perf_counter()
        penalties.advance(token, Region.PROSE)
        recorded = time.perf_counter()
        penalties.adjustments(Region.PROSE, _all_stay)
        ended = time.perf_counter()
        record_us.append((recorded - began) * 1e6)
        advance_us.append((ended - began) * 1e6)
    gc.unfreeze()
    return record_us, advance_us


def _all_stay(tokens: Sequence[int]) -> Sequence[bool]:
    return [True] * len(tokens)


def _looked_at(penalties: Penalties) -> tuple[int, int]:
    """N-grams that came more than once, and those of them whose effective count is above 1."""
    entries = penalties.ngram_stats.entries.values()
    return sum(entry.count > 1 for entry in entries), sum(entry.effective > 1.0 for entry in entries)


def _fork_us(penalties: Penalties) -> list[float]:
    took: list[float] = []
    for _ in range(100):
        began = time.perf_counter()
        penalties.fork()
        took.append((time.perf_counter() - began) * 1e6)
    return took
