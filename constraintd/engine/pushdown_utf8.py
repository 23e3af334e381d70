"""Sets of characters as byte automata: UTF-8 (RFC 3629) spelled out, equal parts shared.

A node is what may still come of one character. Equal nodes are one node, so all full continuations of all classes of a
grammar share three, and two states that wait for the same rest of a character are the same state.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

DONE: Final = -1
"""Stands for a node where the character is complete."""

Edge = tuple[int, int, int]
"""First byte, last byte, node behind it."""

_LENGTHS: Final = (  # first code point, last one, lead byte, continuation bytes
    (0x80, 0x7FF, 0xC0, 1),
    (0x800, 0xFFFF, 0xE0, 2),
    (0x10000, 0x10FFFF, 0xF0, 3),
)
_BATCH: Final = 256


class ByteNodes:
    """The nodes of one grammar's character sets, numbered in the order of their making."""

    def __init__(self) -> None:
        self.edges: list[tuple[Edge, ...]] = []
        self._index: dict[tuple[Edge, ...], int] = {}
        self._sets: dict[tuple[tuple[int, int], ...], int] = {}

    def of_characters(self, ranges: tuple[tuple[int, int], ...]) -> int:
        """The node that waits for one character out of `ranges` (ascending, disjoint, without surrogates)."""
        known = self._sets.get(ranges)
        if known is None:
            known = self._sets[ranges] = self._build(ranges)
        return known

    def classes(self) -> NDArray[np.uint8]:
        """The class of each byte, [256] uint8: bytes of one class lead to the same node from every node.

        Class 0 is that of byte 0; classes are numbered by their first byte.
        """
        classes = np.zeros(256, dtype=np.int64)
        for begin in range(0, len(self.edges), _BATCH):
            batch = self.edges[begin : begin + _BATCH]
            table = np.full((len(batch) + 1, 256), -2, dtype=np.int64)
            table[-1] = classes
            for row, edges in zip(table, batch, strict=False):
                for first, last, node in edges:
                    row[first : last + 1] = node
            _, first_bytes, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
            rank = np.empty(len(first_bytes), dtype=np.int64)
            rank[np.argsort(first_bytes)] = np.arange(len(first_bytes))
            classes = rank[inverse.reshape(-1)]
        return classes.astype(np.uint8)

    def _build(self, ranges: tuple[tuple[int, int], ...]) -> int:
        edges = [(first, min(last, 0x7F), DONE) for first, last in ranges if first <= 0x7F]
        for low, high, lead, more in _LENGTHS:
            part = [(max(first, low), min(last, high)) for first, last in ranges if first <= high and last >= low]
            edges += [(lead + first, lead + last, node) for first, last, node in self._digits(part, more)]
        return self._node(edges)

    def _digits(self, ranges: list[tuple[int, int]], more: int) -> list[Edge]:
        """The leading base-64 digits of these numbers, each with the node for its `more` digits to come."""
        unit = 64**more
        parts: dict[int, list[tuple[int, int]]] = {}
        edges: list[Edge] = []
        for first, last in ranges:
            low, high = first // unit, last // unit
            for digit in sorted({low, high}):
                parts.setdefault(digit, []).append((max(first - digit * unit, 0), min(last - digit * unit, unit - 1)))
            if high - low > 1:
                edges.append((low + 1, high - 1, self._full(more)))
        edges += [(digit, digit, self._suffix(rest, more)) for digit, rest in parts.items()]
        return sorted(edges)

    def _suffix(self, ranges: list[tuple[int, int]], more: int) -> int:
        if more == 0:
            return DONE
        return self._node([(0x80 + a, 0x80 + b, node) for a, b, node in self._digits(ranges, more - 1)])

    def _full(self, more: int) -> int:
        return DONE if more == 0 else self._node([(0x80, 0xBF, self._full(more - 1))])

    def _node(self, edges: list[Edge]) -> int:
        joined: list[Edge] = []
        for first, last, node in edges:
            if joined and joined[-1][1] + 1 == first and joined[-1][2] == node:
                joined[-1] = (joined[-1][0], last, node)
            else:
                joined.append((first, last, node))
        key = tuple(joined)
        known = self._index.get(key)
        if known is None:
            known = self._index[key] = len(self.edges)
            self.edges.append(key)
        return known
