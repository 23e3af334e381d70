"""Packed masks applied to arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_MINUS_INFINITY: Final = np.float32(-np.inf).view(np.int32)
"""The bits of float32 -inf."""


class MaskShapeError(ValueError):
    """Logits and mask don't belong together."""


def apply_mask(logits: NDArray[np.float32], mask_words: NDArray[np.uint32]) -> None:
    """Sets the logits of forbidden tokens to -inf, in place; what is -inf stays so, and nothing else changes.

    `logits`: float32 of shape (width,). `mask_words`: "<u4" of shape (ceil(width / 32),), bit i of word w
    for token 32 * w + i. Raises MaskShapeError if the shapes differ from that.
    """
    width = logits.shape[-1] if logits.ndim == 1 and logits.dtype == np.float32 else -1
    if mask_words.ndim != 1 or width < 0 or mask_words.shape[0] != (width + 31) // 32:
        raise MaskShapeError(
            f"{logits.dtype} logits of shape {logits.shape} and a mask of shape {mask_words.shape} don't match: "
            "expected float32 of shape (width,) and (ceil(width / 32),)"
        )
    # Bit arithmetic on the floats: its cost is the same for every mask, where a selection by bools is up to
    # seven times slower on mixed masks than on nearly empty ones (mispredicted branches).
    keep = np.unpackbits(_octets(mask_words), count=width, bitorder="little").astype(np.int32)  # (width,)
    np.negative(keep, out=keep)  # all bits of a legal token's logit, none of another's
    raw = logits.view(np.int32)
    raw &= keep
    np.invert(keep, out=keep)
    keep &= _MINUS_INFINITY
    raw |= keep


def allowed_ids(mask_words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Ids of the legal tokens, ascending: int64 of shape (n,). `mask_words` as in `apply_mask`."""
    filled = np.flatnonzero(mask_words)  # (words with any bit,)
    if filled.size * 4 > mask_words.size:
        return np.flatnonzero(np.unpackbits(_octets(mask_words), bitorder="little")).astype(np.int64, copy=False)
    # Half of all masks are nearly empty: only their filled words are unpacked.
    octets = _octets(mask_words[filled]).reshape(-1, 4)
    bits = np.unpackbits(octets, axis=1, bitorder="little").view(np.bool_)  # (filled, 32)
    row, bit = np.nonzero(bits)
    return (filled[row] * 32 + bit).astype(np.int64, copy=False)


def _octets(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The mask's bytes in wire order, on hosts of either byte order."""
    return np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
