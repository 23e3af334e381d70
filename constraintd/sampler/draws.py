"""The draws: a pure function of seed and position, so that any runner draws what the first would have drawn."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np


class _Philox(threading.local):
    """One generator a thread. Setting its state takes 4 us, constructing one 19 us."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.fresh: Any = dict(self.bits.state)


_philox = _Philox()


def draw(seed: int, position: int) -> float:
    """The number in [0, 1) that picks the token at `position`.

    The first double of NumPy's `Philox(key=seed, counter=[0, position, 0, 0])` (Salmon et al., "Parallel random
    numbers: as easy as 1, 2, 3", SC 2011). `seed` and `position` are uint64.
    """
    counter = np.array([0, position, 0, 0], dtype=np.uint64)
    key = np.array([seed, 0], dtype=np.uint64)
    # The fresh state's buffer is empty, so the next double computes a block of its own.
    _philox.bits.state = _philox.fresh | {"state": {"counter": counter, "key": key}}
    return float(_philox.generator.random())
