"""Logits rows, and what is legal in them as rows of the same length."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from constraintd.mask.packed import Words

Row: TypeAlias = NDArray[np.floating[Any]]  # [logits_width], float32 or float64

LegalRow: TypeAlias = NDArray[np.bool_]  # [logits_width]

Allowed: TypeAlias = NDArray[np.bool_] | NDArray[np.integer[Any]] | Sequence[int] | Sequence[bool] | Set[int]
"""A mask (index = id; ids past its end are forbidden) or the allowed ids, in any order."""


def check_row(logits: Row) -> None:
    """Raises ValueError for anything but one row of floats."""
    if not isinstance(logits, np.ndarray) or logits.ndim != 1 or not np.issubdtype(logits.dtype, np.floating):
        what = f"{logits.dtype}{list(logits.shape)}" if isinstance(logits, np.ndarray) else type(logits).__name__
        raise ValueError(f"logits are {what}; expected one row of float32 or float64, [logits_width]")


def legal_row(allowed: Allowed, width: int) -> LegalRow:
    """[width] bool: which ids `allowed` names. Ids outside of the row name nothing.

    Raises TypeError for what is neither a mask nor ids, such as None: "everything" must be said by a mask of it.
    """
    legal = np.zeros(width, dtype=np.bool_)
    if isinstance(allowed, Set):
        values: NDArray[Any] = np.fromiter(allowed, dtype=np.int64, count=len(allowed))
    else:
        values = np.asarray(allowed)
    if values.ndim == 1 and values.dtype == np.bool_:
        known = values[:width]
        legal[: len(known)] = known
    elif values.ndim == 1 and (np.issubdtype(values.dtype, np.integer) or values.size == 0):
        ids = values.astype(np.int64)
        legal[ids[(ids >= 0) & (ids < width)]] = True  # a negative id would count from the end
    else:
        raise TypeError(f"a constraint gave {type(allowed).__name__} {allowed!r:.80}; expected a mask of bools, or ids")
    return legal


def unpacked(words: Words, width: int) -> LegalRow:
    """[width] bool: the bits of a packed mask."""
    return np.unpackbits(words.view(np.uint8), count=width, bitorder="little").view(np.bool_)
