"""Rows of logits, masks and draws to try: random ones of several shapes, and edges with a name.

Logits are float32 values (so a runner reads exactly what the reference read), written as Python floats.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TypeAlias

Shape: TypeAlias = Callable[[Random, int], list[float]]

DRAWS = (0.0, 0.25, 0.5, 0.75, 1 - 2.0**-53)
"""The ends of the draw's range, and places where running sums of equal weights lie."""


def float32(value: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def short(value: float) -> float:
    """The nearest multiple of 1/1024: exact in float32, and short in a file."""
    return round(value * 1024) / 1024


def mask_of(ids: Iterable[int], width: int) -> list[int]:
    """The mask words of those ids."""
    words = [0] * math.ceil(width / 32)
    for token in ids:
        words[token // 32] |= 1 << token % 32
    return words


def gaussian(rng: Random, width: int) -> list[float]:
    """A bell of a random breadth."""
    breadth = rng.choice([0.1, 1.0, 3.0, 10.0])
    return [rng.gauss(rng.choice([0.0, -3.0]), breadth) for _ in range(width)]


def tied(rng: Random, width: int) -> list[float]:
    """Few values, so many ties."""
    return [rng.randrange(-4, 5) * 0.5 for _ in range(width)]


def equal(rng: Random, width: int) -> list[float]:
    """One value."""
    return [rng.choice([-2.5, 0.0, 7.0])] * width


def peaked(rng: Random, width: int) -> list[float]:
    """One token has nearly all of the probability."""
    row = [rng.gauss(0.0, 1.0) for _ in range(width)]
    row[rng.randrange(width)] += 25.0
    return row


def falling(rng: Random, width: int) -> list[float]:
    """Zipf's law in a random order, with an exponent between 0.5 and 2."""
    exponent = rng.uniform(0.5, 2.0)
    row = [-exponent * math.log(rank + 1) for rank in range(width)]
    rng.shuffle(row)
    return row


def holed(rng: Random, width: int) -> list[float]:
    """The model itself forbids some."""
    row = gaussian(rng, width)
    for token in rng.sample(range(width), width // 3):
        row[token] = -math.inf
    return row


SHAPES: tuple[Shape, ...] = (gaussian, gaussian, tied, equal, peaked, falling, holed)


def random_row(rng: Random, width: int, rounded: Callable[[float], float] = float32) -> list[float]:
    """A row of a random shape."""
    row = rng.choice(SHAPES)(rng, width)
    return [value if math.isinf(value) else rounded(value) for value in row]


def random_mask(rng: Random, width: int, logits: list[float]) -> list[int]:
    """A mask of a random density that leaves at least one finite logit."""
    density = rng.choice([1.0, 0.7, 0.2])
    ids = {token for token in range(width) if rng.random() < density}
    ids.add(rng.choice([token for token in range(width) if logits[token] > -math.inf]))
    return mask_of(ids, width)


def random_draw(rng: Random) -> float:
    """A number in [0, 1), often one at an edge."""
    return rng.choice(DRAWS) if rng.random() < 0.2 else rng.random()


def _edges() -> dict[str, tuple[list[float], list[int]]]:
    everything: Mapping[str, list[float]] = {
        "logits apart, probabilities not": [0.0, float32(2e-30), float32(1e-30)],
        "four equal": [1.5] * 4,
        "eight equal, below 0": [-3.0] * 8,
        "thirty-three equal": [0.0] * 33,
        "one token wide": [2.0],
        "two tokens": [0.0, 1.0],
        "two equal tokens": [1.0, 1.0],
        "three tokens, falling": [3.0, 1.0, 0.0],
        "steps of one": [0.0, 3.0, 1.0, 2.0, 4.0],
        "pairs of ties": [1.0, 3.0, 2.0, 1.0, 3.0, 2.0],
        "ties at the top": [0.0, 5.0, 1.0, 5.0, 5.0, 2.0],
        "-inf among them": [-math.inf, 1.0, -math.inf, 0.5, 2.0],
        "only one finite": [-math.inf, -7.0, -math.inf],
        "one certain, the rest without weight": [-2000.0, 0.0, -2000.0, -1500.0],
        "around 0": [-0.5, 0.0, 0.5, -0.25, 0.25],
    }
    edges = {name: (row, mask_of(range(len(row)), len(row))) for name, row in everything.items()}
    edges["one legal token"] = ([4.0, 1.0, 2.0, 3.0], mask_of([1], 4))
    edges["the mask takes the highest"] = ([9.0, 1.0, 2.0, 8.5, 3.0], mask_of([1, 2, 4], 5))
    edges["legal ids in the second word"] = ([float(i % 7) for i in range(40)], mask_of([1, 31, 32, 33, 39], 40))
    return edges


EDGES = _edges()
"""(logits, mask) by what they are."""
