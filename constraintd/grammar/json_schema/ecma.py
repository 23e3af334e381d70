"""ECMA-262 patterns in the spelling of the engine's regex crate, meaning kept.

JSON Schema's patterns are ECMA-262 with the `u` flag (Validation 6.3.3) and match anywhere in the string. The engine's
crate reads several constructs otherwise: `.` stops at fewer line ends, `\\s` and `\\w` know other characters,
`[[:alpha:]]` and `&&` are operators, `(?i)` is a flag, `a*+` is possessive. So every construct is respelled or refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# ECMA-262's WhiteSpace and LineTerminator.
_SPACE: Final = r"\t\n\x0b\x0c\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACE}
_CONTROLS: Final = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\x0c", "v": r"\x0b", "0": r"\x00"}
_DOT: Final = r"[^\n\r\x{2028}\x{2029}]"
_QUANTIFIER: Final = re.compile(r"\{(\d+)(,(\d*))?\}")
_OPEN_QUANTIFIER: Final = re.compile(r",\d*\}")
_PROPERTY: Final = re.compile(r"\{([A-Za-z_]+(=[A-Za-z_0-9]+)?)\}")
_NAME: Final = re.compile(r"\?<[A-Za-z_$][\w$]*>")


_NUL: Final = r"\x00"


class UnsupportedPattern(Exception):
    """`what` stands at `column` (from 1) and has no equal in the engine."""

    def __init__(self, what: str, column: int) -> None:
        super().__init__(f"{what} at column {column}")
        self.what = what
        self.column = column


def engine_pattern(pattern: str) -> str:
    """The pattern for the engine's crate. Raises UnsupportedPattern."""
    return _Reader(pattern).read()


def literal(text: str) -> str:
    """A pattern that matches exactly this text within a larger one; the same in both dialects."""
    return "".join(_literal(char) for char in text)


def _literal(char: str) -> str:
    if char.isalnum() and char.isascii():
        return char
    return rf"\x{{{ord(char):x}}}"


class _Reader:
    """One pass over one pattern. Owns its place in the text."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.out: list[str] = []

    def read(self) -> str:
        depth = 0
        quantifiable = False
        while self.at < len(self.text):
            char = self.text[self.at]
            start = self.at
            self.at += 1
            if char == "(":
                self._group()
                depth += 1
                quantifiable = False
            elif char == ")":
                depth -= 1
                if depth < 0:
                    raise UnsupportedPattern("an unmatched )", start + 1)
                self.out.append(")")
                quantifiable = True
            elif char in "*+?" or (char == "{" and _QUANTIFIER.match(self.text, start)):
                if not quantifiable:
                    raise UnsupportedPattern(f"a quantifier {char} with nothing to repeat", start + 1)
                self._quantifier(start)
                quantifiable = False
            elif char in "|^$":
                self.out.append(char)
                quantifiable = False
            else:
                self.out.append(self._atom(char))
                quantifiable = True
        if depth:
            raise UnsupportedPattern("an unclosed (", len(self.text))
        return "".join(self.out)

    def _group(self) -> None:
        rest = self.text[self.at : self.at + 3]
        if not rest.startswith("?"):
            self.out.append("(?:")
        elif rest.startswith("?:"):
            self.at += 2
            self.out.append("(?:")
        elif name := _NAME.match(self.text, self.at):
            self.at = name.end()
            self.out.append("(?:")
        elif rest.startswith(("?=", "?!", "?<=", "?<!")):
            raise UnsupportedPattern("look-around", self.at)
        else:
            raise UnsupportedPattern(f"the group ({rest}", self.at)

    def _quantifier(self, start: int) -> None:
        if self.text[start] == "{":
            match = _QUANTIFIER.match(self.text, start)
            assert match is not None
            if match[3] and int(match[3]) < int(match[1]):
                raise UnsupportedPattern("a repetition whose maximum is below its minimum", start + 1)
            self.at = match.end()
        self.out.append(self.text[start : self.at])
        if self.text[self.at : self.at + 1] == "?":  # lazy: the same strings
            self.at += 1

    def _atom(self, char: str) -> str:
        if char == ".":
            return _DOT
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape(in_class=False)
        # A lone brace is a character to every reader; {,3} is one to some and a repetition to others.
        if char == "]" or (char == "{" and _OPEN_QUANTIFIER.match(self.text, self.at)):
            raise UnsupportedPattern(f"an unescaped {char}", self.at)
        return _literal(char)

    def _class(self) -> str:
        opened = self.at
        negated = self.text[self.at : self.at + 1] == "^"
        self.at += negated
        parts: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise UnsupportedPattern("an unclosed [", opened)
            char = self.text[self.at]
            self.at += 1
            if char == "]":
                break
            # After a class or a whole range a - is itself: to ECMA-262 without `u` and to Python alike.
            single = bool(parts) and _code(parts[-1]) is not None
            if char == "-" and single and self.text[self.at : self.at + 1] not in ("]", ""):
                self._range(parts)
                continue
            parts.append(self._escape(in_class=True) if char == "\\" else _literal(char))
        if not parts:
            if negated:
                return "(?s:.)"
            raise UnsupportedPattern("the empty class []", opened)
        return _class_of(parts, negated=negated)

    def _range(self, parts: list[str]) -> None:
        column = self.at
        char = self.text[self.at]
        self.at += 1
        end = self._escape(in_class=True) if char == "\\" else _literal(char)
        low, high = _code(parts[-1]), _code(end)
        if low is None or high is None or low > high:
            raise UnsupportedPattern("a range between things that aren't characters in order", column)
        parts[-1] = f"{parts[-1]}-{end}"

    def _escape(self, *, in_class: bool) -> str:
        column = self.at
        if self.at >= len(self.text):
            raise UnsupportedPattern(r"a \ at the end", column)
        char = self.text[self.at]
        self.at += 1
        if char in "dws":
            return _CLASSES[char] if in_class else f"[{_CLASSES[char]}]"
        if char in "DWS":
            return f"[^{_CLASSES[char.lower()]}]"
        if char in "pP":
            match = _PROPERTY.match(self.text, self.at)
            if match is None:
                raise UnsupportedPattern(rf"\{char} without a property in braces", column)
            self.at = match.end()
            return rf"\{char}{{{match[1]}}}"
        if char == "0" and self.text[self.at : self.at + 1].isdecimal():
            raise UnsupportedPattern("an octal escape", column)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "b" and in_class:
            return r"\x08"
        if char == "c" and re.match(r"[A-Za-z]", self.text[self.at : self.at + 1]):
            self.at += 1
            return rf"\x{ord(self.text[self.at - 1]) % 32:02x}"
        if char in "xu":
            return _literal(chr(self._code_point(char, column)))
        if char.isalnum() or char == "_":
            what = "a back-reference" if char.isdecimal() or char == "k" else rf"the escape \{char}"
            raise UnsupportedPattern(what, column)
        return _literal(char)

    def _code_point(self, kind: str, column: int) -> int:
        spelled = re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{4})" if kind == "u" else r"()([0-9A-Fa-f]{2})")
        match = spelled.match(self.text, self.at)
        if match is None:
            raise UnsupportedPattern(rf"\{kind} without its hexadecimal digits", column)
        self.at = match.end()
        code = int(match[1] or match[2], 16)
        if 0xD800 <= code < 0xDC00:
            low = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})").match(self.text, self.at)
            if low is not None:
                self.at = low.end()
                return 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise UnsupportedPattern("a code point that no text can hold", column)
        return code


def none_of(chars: Iterable[str]) -> str:
    """The class of every character but these."""
    return _class_of([_literal(char) for char in chars], negated=True)


def _class_of(parts: list[str], *, negated: bool) -> str:
    """The class, without NUL where the engine would read it wrongly.

    In a JSON string the engine takes a class with all control characters, or all but the line feed, for one that lets
    every escape through, and so the quote and the backslash with them (derivre 0.3.13). Without NUL it looks closer.
    """
    escapes = '"', "\\"
    if negated:
        wrong = any(_covers(part, char) is not False for part in parts for char in escapes)
        return f"[^{''.join(parts)}{_NUL if wrong else ''}]"
    every_control = any(_covers(part, "\x00") and _covers(part, "\x1f") for part in parts)
    if every_control and not all(any(_covers(part, char) for part in parts) for char in escapes):
        parts = [re.sub(r"^\\x\{?0+\}?-", lambda _: r"\x01-", part) for part in parts if _code(part) != 0]
    return f"[{''.join(parts)}]"


def _covers(part: str, char: str) -> bool | None:
    """Whether a part of a class has the character; None where its spelling doesn't tell."""
    if part in _CLASSES.values():
        return False
    low, dash, high = part.partition("-")
    first, last = _code(low), _code(high if dash else low)
    return None if first is None or last is None else first <= ord(char) <= last


def _code(spelled: str) -> int | None:
    """The code point of one spelled character, None for a class or a range."""
    if len(spelled) == 1:
        return ord(spelled)
    match = re.fullmatch(r"\\x\{?([0-9a-f]+)\}?", spelled)
    if match:
        return int(match[1], 16)
    return {r"\t": 9, r"\n": 10, r"\r": 13}.get(spelled)
