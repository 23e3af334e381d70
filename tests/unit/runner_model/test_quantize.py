"""Rounding to blocks: the layout that MatMulNBits reads, and the error bounds."""

from __future__ import annotations

import numpy as np
import pytest
from constraintd_runner.model.errors import ConversionError
from constraintd_runner.model.quantize import quantize_asymmetric, quantize_symmetric


def test_symmetric_rounding_is_exact_on_its_own_grid() -> None:
    weights = np.array([[-127, 127, 0, 5] * 8 + [254, -2, 0, 4] * 8], np.float32)
    blocks = quantize_symmetric(weights)
    assert blocks.packed.shape == (1, 2, 32)
    assert blocks.packed[0, 0, :4].tolist() == [1, 255, 128, 133]
    assert blocks.packed[0, 1, :4].tolist() == [255, 127, 128, 130]
    assert blocks.scales.tolist() == [[1.0, 2.0]]
    assert blocks.zero_points is None


def test_four_bits_are_packed_two_a_byte_earlier_one_low() -> None:
    weights = np.array([[0, 15, 1, 14] * 8], np.float32)
    blocks = quantize_asymmetric(weights, 4)
    assert blocks.packed.shape == (1, 1, 16)
    assert blocks.packed[0, 0, :2].tolist() == [0xF0, 0xE1]
    assert blocks.zero_points is not None
    assert blocks.zero_points.tolist() == [[0]]
    assert blocks.scales.tolist() == [[1.0]]


def test_four_bit_zero_points_are_packed_along_a_row() -> None:
    row = np.concatenate([np.linspace(-s, 15 - s, 16).repeat(2) for s in (3, 8, 12)]).astype(np.float32)
    blocks = quantize_asymmetric(row[None], 4)
    assert blocks.zero_points is not None
    assert blocks.zero_points.tolist() == [[0x83, 0x0C]]


@pytest.mark.parametrize("bits", [4, 8])
def test_no_weight_moves_by_more_than_a_step(bits: int) -> None:
    weights = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    blocks = quantize_asymmetric(weights, bits)
    packed = blocks.packed
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(8, 2, 32)
    zeros = blocks.zero_points
    assert zeros is not None
    if bits == 4:
        zeros = np.stack([zeros & 15, zeros >> 4], axis=-1).reshape(8, 2)
    restored = (packed.astype(np.float32) - zeros[..., None]) * blocks.scales[..., None]
    span = np.ptp(weights.reshape(8, 2, 32), axis=-1)  # [8, 2]
    step = span / (2**bits - 1)
    assert np.all(np.abs(restored - weights.reshape(8, 2, 32)) <= 2 * step[..., None])


def test_a_block_of_zeros_stays_zero() -> None:
    for blocks in (
        quantize_symmetric(np.zeros((1, 32), np.float32)),
        quantize_asymmetric(np.zeros((1, 32), np.float32), 8),
    ):
        assert np.isfinite(blocks.scales).all()
        zero = 128 if blocks.zero_points is None else int(blocks.zero_points[0, 0])
        assert set(blocks.packed.reshape(-1).tolist()) == {zero}


def test_a_matrix_that_blocks_do_not_fill_is_refused() -> None:
    with pytest.raises(ConversionError, match="40 columns cannot be cut into blocks of 32"):
        quantize_symmetric(np.zeros((2, 40), np.float32))
