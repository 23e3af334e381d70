"""What is drawn follows the distribution that the stages leave."""

from __future__ import annotations

import numpy as np
import pytest
from constraintd_runner.sampling import Chain, LogitBias, MinP, MirostatV2, SplitP, Stage, Temperature, TopK, TopP

DRAWS = 100_000
# 20 tokens with weights 20, 19, ... 1: a twentieth token has 1/210.
LOGITS = np.log(np.arange(20, 0, -1)).astype(np.float32)
ALL = np.array([(1 << 20) - 1], dtype="<u4")
# Past these, by degrees of freedom, a right sampler goes once in a thousand times (Wilson and Hilferty 1931:
# n * (1 - 2 / 9n + 3.0902 * sqrt(2 / 9n))^3; for 19: 19 * (1 - 0.0117 + 0.3342)^3 = 43.9).
LIMITS = {19: 43.9, 9: 27.9, 4: 18.5, 1: 10.8}


@pytest.mark.parametrize(
    ("stages", "weights"),
    [
        ([], list(range(20, 0, -1))),
        ([Temperature(0.5)], [rank * rank for rank in range(20, 0, -1)]),
        ([TopK(10)], list(range(20, 10, -1))),
        ([MinP(0.78)], [20, 19, 18, 17, 16]),
        ([TopP(0.42)], [20, 19, 18, 17, 16]),  # 74 of 210 are 0.35, 90 are 0.43
        ([SplitP(2, 2)], [20, 19]),
        ([MirostatV2()], [20, 19, 18, 17, 16]),  # 16 of 210 are 3.71 bits, 15 are 3.81
        ([LogitBias((19,), (float(np.log(50.0)),))], [*range(20, 1, -1), 50]),
    ],
    ids=repr,
)
def test_a_hundred_thousand_draws_fit(stages: list[Stage], weights: list[int]) -> None:
    chain = Chain.of(stages)
    draws = np.random.default_rng(2026).random(DRAWS)
    picks = [chain.sample(LOGITS, ALL, draw, mu=3.75).token for draw in draws.tolist()]
    counts = np.bincount(picks, minlength=20)
    assert counts[len(weights) :].sum() == 0
    expected = np.array(weights) / sum(weights) * DRAWS
    chi_square = float((((counts[: len(weights)] - expected) ** 2) / expected).sum())
    assert chi_square < LIMITS[len(weights) - 1]
