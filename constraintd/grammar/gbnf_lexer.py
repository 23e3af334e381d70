"""The characters of a GBNF text: position, line and column, spaces and comments, names, literals, classes, counts.

The language is that of llama.cpp's grammar parser, with the decisions of this project where that one is silent or
loose: what it reads as empty by accident is an error here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NoReturn

from constraintd.errors import InvalidGrammar
from constraintd.grammar.gbnf_rules import MAX_CODE_POINT, SURROGATES, Characters, Literal, TokenElement

_SPACE = re.compile(r"(?:[ \t]+|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r'[^"\\\ud800-\udfff]*')
_DIGITS = re.compile(r"[0-9]+")
_TOKEN = re.compile(r"<(?:\[([0-9]+)\]|[^<>\r\n]*)>")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = re.compile(r"[0-9a-fA-F]*")
_MAX_DIGITS = 12


class Lexer:
    """A place in one text. Every read moves it on; every error is InvalidGrammar with `location` line:column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._lines = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def place(self, offset: int | None = None) -> str:
        """line:column of an offset (the present one by default), both counted from 1, columns in characters."""
        offset = self.at if offset is None else offset
        line = bisect_right(self._lines, offset)
        return f"{line}:{offset - self._lines[line - 1] + 1}"

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        """Raises InvalidGrammar: `message`, and where."""
        place = self.place(offset)
        line, _, column = place.partition(":")
        raise InvalidGrammar(f"grammar.gbnf: {message} at line {line} column {column}", location=place)

    def expected(self, what: str) -> NoReturn:
        """Raises InvalidGrammar: `what` was expected, and what stands there."""
        self.fail(f"expected {what}, found {self.found()}")

    def found(self) -> str:
        """What stands here, for a message."""
        character = self.peek()
        if not character:
            return "the end of the text"
        return "the end of the line" if character in "\r\n" else repr(character)

    def peek(self) -> str:
        """The next character, or the empty string at the end."""
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> bool:
        """Goes past `expected` if it stands here."""
        if not self.text.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def space(self, *, lines: bool) -> None:
        """Goes past blanks and comments, and past line ends too if `lines`."""
        match = (_SPACE_AND_LINES if lines else _SPACE).match(self.text, self.at)
        assert match is not None  # both match the empty string
        self.at = match.end()

    def name(self) -> str | None:
        """A rule's name, or None where there is none."""
        match = _NAME.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[0]

    def literal(self) -> Literal:
        """A literal, from its opening quote to behind its closing one."""
        opened = self.at
        self.at += 1
        parts: list[str] = []
        while True:
            match = _PLAIN.match(self.text, self.at)
            assert match is not None
            parts.append(match[0])
            self.at = match.end()
            if self.take('"'):
                return Literal("".join(parts))
            if not self.peek():
                self.fail("the literal that begins here has no closing '\"'", opened)
            began = self.at
            character = self._character()
            if SURROGATES[0] <= ord(character) <= SURROGATES[1]:
                self.fail(f"U+{ord(character):04X} is a surrogate, which no text holds: found", began)
            parts.append(character)

    def characters(self) -> Characters:
        """A class, from its `[` to behind its `]`."""
        opened = self.at
        self.at += 1
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.take("]"):
            if not self.peek():
                self.fail("the class that begins here has no closing ']'", opened)
            began = self.at
            low = high = ord(self._character())
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = ord(self._character())
                if high < low:
                    self.fail(f"the range {self.text[began : self.at]} is upside down: found", began)
            ranges.append((low, high))
        if not ranges:
            hint = "write . for any character" if negated else 'write "" for the empty text'
            self.fail(f"the class {'[^]' if negated else '[]'} has no characters ({hint}): found", opened)
        allowed = _allowed(ranges, negated=negated)
        if not allowed:
            self.fail("this class matches no character: found", opened)
        return Characters(allowed)

    def token_element(self) -> TokenElement:
        """`<[id]>`, `<text>`, or either behind a `!`."""
        began = self.at
        negated = self.take("!")
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            if self.peek() != "<":
                self.expected("a token such as <[7]> or <think> after '!'")
            self.fail("the token that begins here has no closing '>' on its line, or holds a second '<'")
        if match[1] is not None and len(match[1]) > _MAX_DIGITS:
            self.fail("that is no token id: the number is too long")
        self.at = match.end()
        if match[1] is not None:
            return TokenElement(int(match[1]), None, negated, self.place(began))
        if match[0] == "<>":
            self.fail("<> names no token: found", began)
        return TokenElement(None, match[0], negated, self.place(began))

    def count(self, limit: int) -> int | None:
        """A repetition count up to `limit`, or None where no digit stands."""
        match = _DIGITS.match(self.text, self.at)
        if match is None:
            return None
        if len(match[0]) > _MAX_DIGITS or int(match[0]) > limit:
            shown = match[0] if len(match[0]) <= _MAX_DIGITS else match[0][:_MAX_DIGITS] + "..."
            self.fail(f"a repetition of {shown} is over the limit of {limit}: found")
        self.at = match.end()
        return int(match[0])

    def _character(self) -> str:
        character = self.text[self.at]
        self.at += 1
        if character != "\\":
            return character
        began = self.at - 1
        kind = self.peek()
        self.at += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        if kind not in _HEX_DIGITS or not kind:
            named = f"\\{kind}" if kind and kind not in "\r\n" else "a lone backslash"
            self.fail(
                f'{named} is no escape (known: \\xHH \\uHHHH \\UHHHHHHHH \\t \\r \\n \\\\ \\" \\[ \\] \\-): found',
                began,
            )
        width = _HEX_DIGITS[kind]
        match = _HEX.match(self.text, self.at, self.at + width)
        assert match is not None
        if len(match[0]) < width:
            self.fail(f"\\{kind} needs {width} hexadecimal digits, {len(match[0])} stand", began)
        self.at = match.end()
        value = int(match[0], 16)
        if value > MAX_CODE_POINT:
            self.fail(f"U+{value:X} is past the last character U+10FFFF: found", began)
        return chr(value)


def _allowed(ranges: list[tuple[int, int]], *, negated: bool) -> tuple[tuple[int, int], ...]:
    """The ranges merged, turned around if negated, without surrogates."""
    merged = merge_ranges(ranges)
    if negated:
        merged = _outside(merged)
    low, high = SURROGATES
    kept: list[tuple[int, int]] = []
    for first, last in merged:
        if first < low:
            kept.append((first, min(last, low - 1)))
        if last > high:
            kept.append((max(first, high + 1), last))
    return tuple(kept)


def merge_ranges(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Inclusive ranges, ascending, touching ones joined."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _outside(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    gaps: list[tuple[int, int]] = []
    after = 0
    for first, last in ranges:
        if first > after:
            gaps.append((after, first - 1))
        after = last + 1
    if after <= MAX_CODE_POINT:
        gaps.append((after, MAX_CODE_POINT))
    return gaps


ANY_CHARACTER = Characters(_allowed([(0, MAX_CODE_POINT)], negated=False))
"""What `.` matches: any character, newline too."""
