"""The tokens that daemon and runner pick together are distributed as the reference says: Pearson's chi-square test.

Each test compares 100,000 picks with the target distribution. Seeds are fixed, so the statistic is the same number in
every run; it lies below the critical value of p = 0.001, as it does for 999 of 1,000 fair samplers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from constraintd_runner import sampling

from constraintd.sampler.draws import draw
from tests.vectors.cases.rows import float32, mask_of
from tests.vectors.reference.chain import sample
from tests.vectors.reference.row import Adjustments, probabilities

PICKS = 100_000
WIDTH = 64

CRITICAL = {11: 31.264, 15: 37.697, 19: 43.820}
"""What chi-square exceeds with probability 0.001, by degrees of freedom (tables of the distribution)."""

LOGITS = [float32(Random("logits").gauss(0.0, 1.5)) for _ in range(WIDTH)]
FEW = mask_of(range(3, WIDTH, 4), WIDTH)
"""16 legal tokens."""
MOST = mask_of((token for token in range(WIDTH) if token % 5), WIDTH)
"""51 legal tokens."""
PENALTIES = Adjustments(ids=(1, 2, 3, 7, 11), scales=(1.2, 1.0, 1.3, 0.8, 1.0), offsets=(-0.5, -1.0, 0.0, 0.25, 1.5))


def target(mask: list[int], stages: list[Any], mu: float | None) -> dict[int, float]:
    """The probability of each token that the reference keeps."""
    return probabilities(sample(LOGITS, mask, stages, 0.5, mu, PENALTIES).row)


def picks(mask: list[int], stages: Sequence[sampling.Stage], mu: float | None, draws: Iterable[float]) -> Counter[int]:
    """How often the runner picks each token."""
    chain = sampling.Chain.of(stages)
    row, words = np.array(LOGITS, dtype=np.float32), np.array(mask, dtype="<u4")
    changes = sampling.Adjustments(
        np.array(PENALTIES.ids, dtype=np.uint32), np.array(PENALTIES.scales), np.array(PENALTIES.offsets)
    )
    return Counter(chain.sample(row, words, number, adjustments=changes, mu=mu).token for number in draws)


def chi_square(counts: Counter[int], probability: dict[int, float]) -> float:
    """Pearson's statistic; every token is expected often enough (5 times) for the test to hold."""
    assert counts.keys() <= probability.keys()
    expected = {token: PICKS * share for token, share in probability.items()}
    assert min(expected.values()) >= 5
    return sum((counts[token] - often) ** 2 / often for token, often in expected.items())


def test_picks_without_stages_follow_the_softmax() -> None:
    probability = target(FEW, [], None)
    counts = picks(FEW, [], None, (draw(1, position) for position in range(PICKS)))
    assert len(probability) == 16
    assert chi_square(counts, probability) < CRITICAL[15]


def test_picks_of_a_usual_chain_follow_the_reference() -> None:
    stages = [
        {"temperature": {"temperature": 0.8}},
        {"top_k": {"k": 30}},
        {"min_p": {"p": 0.02}},
        {"top_k": {"k": 20}},
    ]
    probability = target(MOST, stages, None)
    chain: list[sampling.Stage] = [sampling.Temperature(0.8), sampling.TopK(30), sampling.MinP(0.02), sampling.TopK(20)]
    counts = picks(MOST, chain, None, (draw(2, position) for position in range(PICKS)))
    assert len(probability) == 20
    assert chi_square(counts, probability) < CRITICAL[19]


def test_picks_of_a_mirostat_chain_follow_the_reference() -> None:
    stages = [{"temperature": {"temperature": 1.3}}, {"mirostat_v2": {"max_keep": 12}}]
    probability = target(MOST, stages, 6.0)
    chain: list[sampling.Stage] = [sampling.Temperature(1.3), sampling.MirostatV2(max_keep=12)]
    counts = picks(MOST, chain, 6.0, (draw(3, position) for position in range(PICKS)))
    assert len(probability) == 12
    assert chi_square(counts, probability) < CRITICAL[11]


def test_the_first_picks_of_many_seeds_follow_the_softmax_too() -> None:
    counts = picks(FEW, [], None, (draw(seed, 0) for seed in range(PICKS)))
    assert chi_square(counts, target(FEW, [], None)) < CRITICAL[15]


def test_the_statistic_tells_a_wrong_sampler() -> None:
    # The same picks against a distribution in which one token is 5% more probable.
    probability = target(FEW, [], None)
    counts = picks(FEW, [], None, (draw(1, position) for position in range(PICKS)))
    likeliest = max(probability, key=lambda token: probability[token])
    probability[likeliest] *= 1.05
    assert chi_square(counts, probability) > CRITICAL[15]


@pytest.mark.parametrize(("freedom", "critical"), CRITICAL.items())
def test_the_critical_values_are_those_of_the_distribution(freedom: int, critical: float) -> None:
    # The upper tail for an odd number of degrees of freedom, by its finite sum (Abramowitz & Stegun, 26.4.4).
    root = critical**0.5
    term, series = root, root
    for odd in range(3, freedom - 1, 2):
        term *= critical / odd
        series += term
    density = float(np.exp(-critical / 2) / np.sqrt(2 * np.pi))
    normal_tail = float(np.trapezoid(np.exp(-(np.linspace(root, root + 12, 200_001) ** 2) / 2), dx=12 / 200_000))
    normal_tail /= float(np.sqrt(2 * np.pi))
    assert 2 * normal_tail + 2 * density * series == pytest.approx(0.001, rel=1e-3)
