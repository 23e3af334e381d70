"""The runner's chain on rows of 131,072 logits: penalties, top-k, top-p, min-p, temperature and the pick.

Logits, masks and penalties come from a fixed seed: logits with the spread that models' rows have, a dense mask that
forbids 400 ids, a sparse one that allows 500, and penalties for 300 tokens, half of them among the 500 highest.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from constraintd_runner.sampling import Adjustments, Chain, MinP, Temperature, TopK, TopP
from numpy.typing import NDArray

WIDTH = 131_072
_FORBIDDEN = 400
_ALLOWED = 500
_PENALISED = 300
_ROWS = 8
"""Rows that take turns, so that no result hangs on one row's luck."""


def measure_chain(repeats: int) -> dict[str, float]:
    """Medians over `repeats` picks each, in milliseconds: `chain_dense_ms` and `chain_sparse_ms`."""
    generator = np.random.default_rng(20261130)
    rows = [(generator.standard_normal(WIDTH) * 3.0).astype(np.float32) for _ in range(_ROWS)]
    dense = _packed(np.setdiff1d(np.arange(WIDTH), generator.choice(WIDTH, _FORBIDDEN, replace=False)))
    allowed = np.sort(generator.choice(WIDTH, _ALLOWED, replace=False))
    chain = Chain.of([TopK(40), TopP(0.95), MinP(0.05), Temperature(0.8)])
    return {
        "chain_dense_ms": _median_ms(
            chain, rows, dense, [_penalties(generator, np.argsort(row)[-500:]) for row in rows], repeats
        ),
        "chain_sparse_ms": _median_ms(
            chain, rows, _packed(allowed), [_penalties(generator, allowed) for _ in rows], repeats
        ),
    }


def _median_ms(
    chain: Chain, rows: list[NDArray[np.float32]], mask: NDArray[np.uint32], penalties: list[Adjustments], repeats: int
) -> float:
    took: list[float] = []
    for number in range(repeats + _ROWS):
        row, adjustments = rows[number % _ROWS], penalties[number % _ROWS]
        began = time.perf_counter()
        chain.sample(row, mask, 0.5, adjustments=adjustments)
        took.append(time.perf_counter() - began)
    return statistics.median(took[_ROWS:]) * 1e3


def _penalties(generator: np.random.Generator, likely: NDArray[np.int64]) -> Adjustments:
    """Half for likely tokens, half for any."""
    ids = generator.choice(likely, _PENALISED // 2, replace=False)
    others = np.setdiff1d(generator.choice(WIDTH, _PENALISED, replace=False), ids)
    ids = np.sort(np.concatenate((ids, others[: _PENALISED - len(ids)]))).astype(np.uint32)
    return Adjustments(ids, np.full(_PENALISED, 1.1), np.full(_PENALISED, -0.3))


def _packed(ids: NDArray[np.int64]) -> NDArray[np.uint32]:
    bits = np.zeros(WIDTH, dtype=np.bool_)
    bits[ids] = True
    return np.packbits(bits, bitorder="little").view("<u4")
