"""The canonical encoding: the same value gives the same bytes, in every process and on every version of Python.

    unsigned   LEB128, shortest form           float     IEEE 754 binary64, little-endian
    signed     zigzag, then as unsigned        flag      one byte, 0 or 1
    data       length (unsigned), then bytes   numbers   count (unsigned), then each as unsigned

Nothing says what it is: reader and writer go through the same fields in the same order. A reader takes nothing but the
canonical form, and never trusts a length.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from constraintd.errors import InvalidEnvelope

_FLOAT = struct.Struct("<d")
_MAX_SHIFT = 63
_Float: TypeAlias = float  # the classes below have a method of that name


class Writer:
    """Collects values."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def unsigned(self, value: int) -> None:
        """A number in [0, 2**64)."""
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        self._parts.append(bytes(out))

    def signed(self, value: int) -> None:
        """A number in [-2**63, 2**63)."""
        self.unsigned(value << 1 if value >= 0 else ~value << 1 | 1)

    def float(self, value: _Float) -> None:
        """A double, bit by bit."""
        self._parts.append(_FLOAT.pack(value))

    def flag(self, value: bool) -> None:
        """A bool."""
        self._parts.append(b"\1" if value else b"\0")

    def data(self, value: bytes) -> None:
        """Bytes."""
        self.unsigned(len(value))
        self._parts.append(bytes(value))

    def text(self, value: str) -> None:
        """Text, as UTF-8."""
        self.data(value.encode())

    def numbers(self, values: Sequence[int]) -> None:
        """Numbers in [0, 2**64)."""
        self.unsigned(len(values))
        for value in values:
            self.unsigned(value)

    def floats(self, values: Sequence[_Float]) -> None:
        """Doubles, bit by bit."""
        self.unsigned(len(values))
        self._parts.append(struct.pack(f"<{len(values)}d", *values))

    def getvalue(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)


class Reader:
    """Gives back what a Writer was given, in the same order. Every method raises InvalidEnvelope."""

    __slots__ = ("_at", "_data", "_name")

    def __init__(self, data: bytes, name: str) -> None:
        """`name` says in errors what is read."""
        self._data = data
        self._at = 0
        self._name = name

    def unsigned(self, *, below: int = 1 << 64) -> int:
        """A number in [0, below)."""
        begin = self._at
        data = self._data
        if begin < len(data) and (byte := data[begin]) <= 0x7F and byte < below:  # most are so short
            self._at = begin + 1
            return byte
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _MAX_SHIFT:
                raise self.error("a number is too long", begin)
        if (byte == 0 and shift) or value >= below:
            raise self.error(f"{value} is out of range or not in its shortest form", begin)
        return value

    def signed(self) -> int:
        """A number in [-2**63, 2**63)."""
        value = self.unsigned()
        return value >> 1 if value & 1 == 0 else ~(value >> 1)

    def float(self) -> _Float:
        """A double."""
        value: _Float = _FLOAT.unpack(self._take(8))[0]
        return value

    def flag(self) -> bool:
        """A bool."""
        begin = self._at
        value = self._take(1)[0]
        if value > 1:
            raise self.error(f"{value} is neither 0 nor 1", begin)
        return bool(value)

    def data(self) -> bytes:
        """Bytes."""
        return self._take(self.unsigned())

    def text(self) -> str:
        """Text."""
        begin = self._at
        try:
            return self.data().decode()
        except UnicodeDecodeError:
            raise self.error("a text is not UTF-8", begin) from None

    def count(self) -> int:
        """The length of a list that follows, whose elements take at least one byte each."""
        begin = self._at
        value = self.unsigned()
        if value > len(self._data) - self._at:
            raise self.error(f"a list of {value} elements can't fit", begin)
        return value

    def numbers(self, *, below: int = 1 << 64) -> tuple[int, ...]:
        """Numbers in [0, below)."""
        data, found = self._data, []
        size = len(data)
        for _ in range(self.count()):
            at = self._at
            # One or two bytes, or all the checks: this is 5 times faster for prompts and logs.
            if at + 1 < size and (low := data[at]) <= 0x7F and low < below:
                self._at = at + 1
                found.append(low)
            elif at + 1 < size and 0 < data[at + 1] <= 0x7F < low and (low & 0x7F | data[at + 1] << 7) < below:
                self._at = at + 2
                found.append(low & 0x7F | data[at + 1] << 7)
            else:
                found.append(self.unsigned(below=below))
        return tuple(found)

    def floats(self) -> tuple[_Float, ...]:
        """Doubles."""
        count = self.unsigned(below=len(self._data))
        return struct.unpack(f"<{count}d", self._take(8 * count))

    def end(self) -> None:
        """Nothing may be left."""
        if self._at != len(self._data):
            raise self.error(f"{len(self._data) - self._at} bytes are left over", self._at)

    def error(self, problem: str, at: int | None = None) -> InvalidEnvelope:
        """The error to raise for what was read at byte `at` (default: last)."""
        where = self._at if at is None else at
        return InvalidEnvelope(f"{self._name}: {problem}", location=f"{self._name}+{where}")

    def _take(self, size: int) -> bytes:
        begin = self._at
        if size > len(self._data) - begin:
            raise self.error("cut off", begin)
        self._at += size
        return self._data[begin : self._at]
