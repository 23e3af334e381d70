"""Rounds weight matrices to the block formats of ONNX Runtime's MatMulNBits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import ConversionError

BLOCK = 32
"""Weights that share one scale. The same as in the GGUF types read here, so that block borders agree."""

_SCALE_FACTORS = {
    # With 8 bits more scales bring nothing: 96.2 instead of 96.1% top-1 agreement, the rest is the activations'.
    8: [1.0],
    4: [0.8, 0.84, 0.88, 0.92, 0.96, 1.0, 1.04],
}
"""Scales to try, as multiples of the one that just spans the block's range."""


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """One matrix [rows, columns] as `(packed - zero_point) * scale`, blocks running along the columns."""

    bits: int
    rows: int
    columns: int
    packed: NDArray[np.uint8]
    """[rows, columns/32, 32*bits/8]; with 4 bits the lower half of a byte is the earlier weight."""
    scales: NDArray[np.float32]
    """[rows, columns/32]"""
    zero_points: NDArray[np.uint8] | None
    """None: 2**(bits-1) everywhere. Else [rows, columns/32], or with 4 bits two a byte, rows padded."""


def quantize_symmetric(weights: NDArray[np.float32]) -> BlockWeights:
    """8 bits around 128. Exact for what was stored as Q8_0: same blocks, same 255 steps.

    `weights` is float32 [rows, columns]; ConversionError if columns is not a multiple of 32.
    """
    blocks = _blocks(weights)  # [rows, columns/32, 32]
    scales = np.abs(blocks).max(axis=2) / np.float32(127)  # [rows, columns/32]
    steps = np.rint(blocks * _inverse(scales)[..., None])
    packed = (steps + 128).astype(np.uint8)
    return BlockWeights(8, weights.shape[0], weights.shape[1], packed, scales, None)


def quantize_asymmetric(weights: NDArray[np.float32], bits: int) -> BlockWeights:
    """8 or 4 bits with a zero point a block; of several scales the one with the least squared error."""
    blocks = _blocks(weights)  # [rows, columns/32, 32]
    top = 2**bits - 1
    low = np.minimum(blocks.min(axis=2), 0)  # zero must lie in the range, for its point to be a step
    high = np.maximum(blocks.max(axis=2), 0)
    best_error = np.full(low.shape, np.inf, np.float32)
    best_steps: NDArray[np.uint8] = np.zeros(blocks.shape, np.uint8)
    best_scales = np.zeros(low.shape, np.float32)
    best_zeros = np.zeros(low.shape, np.uint8)
    for factor in _SCALE_FACTORS[bits]:
        scales = (high - low) * np.float32(factor / top)
        inverse = _inverse(scales)
        zeros = np.clip(np.rint(-low * inverse), 0, top)
        steps = np.clip(np.rint(blocks * inverse[..., None]) + zeros[..., None], 0, top)
        error = np.square((steps - zeros[..., None]) * scales[..., None] - blocks).sum(axis=2)
        better = error < best_error
        best_error[better] = error[better]
        best_steps[better] = steps[better].astype(np.uint8)
        best_scales[better] = scales[better]
        best_zeros[better] = zeros[better].astype(np.uint8)
    if bits == 4:
        best_steps, best_zeros = _pairs(best_steps), _pairs(best_zeros)
    return BlockWeights(bits, weights.shape[0], weights.shape[1], best_steps, best_scales, best_zeros)


def _blocks(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = weights.shape
    if columns % BLOCK:
        raise ConversionError(f"a matrix with {columns} columns cannot be cut into blocks of {BLOCK}")
    return weights.reshape(rows, columns // BLOCK, BLOCK)


def _inverse(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)


def _pairs(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[..., n] of 4-bit values -> [..., ceil(n/2)], the earlier one in the lower half of a byte."""
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1] % 2)])
    packed: NDArray[np.uint8] = np.bitwise_or(padded[..., 0::2], padded[..., 1::2] << 4)
    return packed
