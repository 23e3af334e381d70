"""Records of steps as nearly all are, of one token behind one forward pass or none known: read alone, or many at once.

Field by field such a record takes 9 us, which is more than a matcher takes to move over its token. Here it takes 1 us
alone, and 0.1 us among many.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

OTHER, WITHOUT_PASSES, WITH_ONE_PASS = range(3)
"""Kinds of records: what must be read field by field; one token, no passes; one token, one pass of one token."""

_FLOAT = struct.Struct("<d")
_ACCEPTED, _ONE = 2, 1
_LARGE = 1e30  # below what a float32 holds; NaN is not below it
_LONGEST = 16  # bytes, at least, of such a record: kind, count, at most 3 of the token, 8 of the surprisal, 2 of passes


@dataclass(frozen=True, slots=True, eq=False)
class StepRecords:
    """What was read of `n` records. Where `kinds` is OTHER, the other two mean nothing."""

    kinds: NDArray[np.uint8]  # [n]
    tokens: NDArray[np.uint32]  # [n]
    surprisals: NDArray[np.float32]  # [n] bits

    def end_of_run(self, begin: int) -> int:
        """Where the run of records of the same kind ends that begins at `begin`."""
        others = np.flatnonzero(self.kinds[begin:] != self.kinds[begin])
        return begin + int(others[0]) if len(others) else len(self.kinds)


def read_step(record: bytes) -> tuple[int, float, bool] | None:
    """Token, surprisal, and whether there was one pass of one token; None for whatever is not exactly in that form."""
    size = len(record)
    if not 12 <= size <= 15 or record[0] != _ACCEPTED or record[1] != _ONE:
        return None
    token, end = record[2], 3
    if token > 0x7F:
        last, token, end = record[3], token & 0x7F | (record[3] & 0x7F) << 7, 4
        if last > 0x7F:
            last, token, end = record[4], token | record[4] << 14, 5
        if not 0 < last <= 0x7F:
            return None
    one_pass = size == end + 10
    if not (one_pass and record[-2] == record[-1] == _ONE) and not (size == end + 9 and record[-1] == 0):
        return None
    surprisal: float = _FLOAT.unpack_from(record, end)[0]
    return (token, surprisal, one_pass) if 0 <= surprisal < _LARGE else None


def read_steps(records: Sequence[bytes]) -> StepRecords:
    """Reads those that are steps of one token; whatever is not exactly in that form is OTHER. Raises nothing."""
    data = np.frombuffer(b"".join((*records, bytes(_LONGEST))), np.uint8)
    lengths = np.fromiter(map(len, records), np.int64, len(records))  # [n]
    begins = lengths.cumsum() - lengths  # [n]
    low, middle, high = (data[begins + place].astype(np.uint32) for place in (2, 3, 4))  # [n] of a LEB128 number
    longer, longest = low > 0x7F, (low > 0x7F) & (middle > 0x7F)
    tokens = (low & 0x7F) | (middle & 0x7F) * longer << 7 | (high & 0x7F) * longest << 14
    sizes = 1 + longer.astype(np.int64) + longest  # [n] bytes of the token
    last = np.where(longest, high, np.where(longer, middle, 1))
    surprisals_at = begins + 2 + sizes
    eight = data[surprisals_at[:, None] + np.arange(8)]  # [n, 8]
    with np.errstate(over="ignore", invalid="ignore"):
        surprisals = eight.view("<f8")[:, 0].astype(np.float32)
    good = (data[begins] == _ACCEPTED) & (data[begins + 1] == _ONE)
    good &= (last > 0) & (last <= 0x7F) & np.isfinite(surprisals) & (surprisals >= 0)
    passes = data[surprisals_at + 8]
    without = good & (passes == 0) & (lengths == sizes + 11)
    with_one = good & (passes == 1) & (data[surprisals_at + 9] == 1) & (lengths == sizes + 12)
    kinds = (without * WITHOUT_PASSES + with_one * WITH_ONE_PASS).astype(np.uint8)
    return StepRecords(kinds, tokens.astype(np.uint32), surprisals)
