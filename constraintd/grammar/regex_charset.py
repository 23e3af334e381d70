"""Sets of characters, and how the engine's class syntax spells them.

The engine's classes nest, and read `&&`, `--` and `~~` as set operations; Python's and ECMA-262's do neither. So no
class of a pattern is handed on as it stands: it is read into a `CharSet` and spelled anew, every character in it that
could mean something escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

Range = tuple[int, int]
"""First and last code point, both included."""

MAX_CODE_POINT: Final = 0x10FFFF
SURROGATES: Final[Range] = (0xD800, 0xDFFF)

_EVERYTHING: Final = r"[\x{0}-\x{10FFFF}]"
_NOTHING: Final = r"[^\x{0}-\x{10FFFF}]"
# The engine's parser takes a backslash before any of these, in and out of classes. `/` is not among them: whoever puts
# the pattern between slashes escapes it.
_ESCAPED: Final = frozenset("\\.+*?()|[]{}^$#&-~")


@dataclass(frozen=True, slots=True)
class CharSet:
    """One character out of `ranges` and `classes`, or, if `negated`, any other one."""

    ranges: tuple[Range, ...]
    """Ascending, apart from each other, without surrogates."""

    classes: tuple[str, ...] = ()
    """Further members, each as the engine's class syntax has it: `\\p{Nd}`, `[^\\p{L}_]`."""

    negated: bool = False

    def is_empty(self) -> bool:
        """Whether nothing is in it, as far as `classes` show; a negated set is never taken for empty."""
        return not (self.ranges or self.classes or self.negated)

    def engine_text(self) -> str:
        """The set in the engine's syntax: a literal, an escape or a class in brackets."""
        if not self.ranges and not self.classes:
            return _EVERYTHING if self.negated else _NOTHING
        if not self.negated:
            if not self.classes and self.ranges[0][0] == self.ranges[-1][1]:
                return literal_text(chr(self.ranges[0][0]))
            if not self.ranges and len(self.classes) == 1:
                return self.classes[0]
        inside = [_range_text(*pair) for pair in self.ranges]
        return f"[{'^' if self.negated else ''}{''.join(inside)}{''.join(self.classes)}]"


def char_set(ranges: Iterable[Range], classes: Iterable[str] = (), *, negated: bool = False) -> CharSet:
    """The CharSet of these members: ranges in any order, overlapping or not; surrogates fall out: no text has them."""
    merged: list[Range] = []
    for low, high in sorted(_without_surrogates(ranges)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return CharSet(tuple(merged), tuple(dict.fromkeys(classes)), negated)


def is_surrogate(code_point: int) -> bool:
    """Whether this is half of a UTF-16 pair, which no UTF-8 text can hold alone."""
    return SURROGATES[0] <= code_point <= SURROGATES[1]


def literal_text(text: str) -> str:
    """`text` in the engine's syntax, matching itself."""
    if text.isascii() and text.isalnum():
        return text
    return "".join(map(_char_text, text))


def _without_surrogates(ranges: Iterable[Range]) -> Iterable[Range]:
    first, last = SURROGATES
    for low, high in ranges:
        if high < first or low > last:
            yield (low, high)
            continue
        if low < first:
            yield (low, first - 1)
        if high > last:
            yield (last + 1, high)


def _range_text(low: int, high: int) -> str:
    if low == high:
        return _char_text(chr(low))
    return f"{_char_text(chr(low))}-{_char_text(chr(high))}"


def _char_text(char: str) -> str:
    if char in _ESCAPED:
        return "\\" + char
    # Non-printable characters would break the line that the pattern stands in, or hide in an error message.
    return char if char.isprintable() else f"\\x{{{ord(char):X}}}"
