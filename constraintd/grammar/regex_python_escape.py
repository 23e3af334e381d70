"""Python's escapes, in and out of character classes, and what `\\d`, `\\s` and `\\w` cover."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NoReturn, TypeAlias

from constraintd.grammar.regex_charset import MAX_CODE_POINT, CharSet, Range, char_set
from constraintd.grammar.regex_cursor import Cursor
from constraintd.grammar.regex_tree import Anchor

Escape: TypeAlias = str | Anchor | CharSet
"""A character (a surrogate too), an anchor, or a class."""

_SIMPLE: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_HEX_LENGTH: Final = {"x": 2, "u": 4, "U": 8}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{2}")
_OCTAL_IN_CLASS: Final = re.compile(r"[0-7]{1,3}")
_NAME: Final = re.compile(r"\{([^}]+)\}")
_REGULAR: Final = "the engine matches regular languages only; "

# The engine's Unicode tables are newer than the interpreter's, so that it would take characters that `re` here
# doesn't know; where the interpreter's are the newer ones, nothing needs to be cut off.
# The cut costs the engine 0.5 ms a class; a list of ranges in its place costs 3 ms and more.
_ENGINE_UNICODE: Final = (16, 0)
_UNICODE: Final = tuple(map(int, unicodedata.unidata_version.split(".")[:2]))
_KNOWN: Final = f"&&\\p{{Age={_UNICODE[0]}.{_UNICODE[1]}}}" if _UNICODE < _ENGINE_UNICODE else ""

_SPACE: Final[tuple[Range, ...]] = (
    (0x09, 0x0D),
    (0x1C, 0x20),
    (0x85, 0x85),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
)
_DIGIT_ASCII: Final[tuple[Range, ...]] = ((0x30, 0x39),)
_SPACE_ASCII: Final[tuple[Range, ...]] = ((0x09, 0x0D), (0x20, 0x20))
_WORD_ASCII: Final[tuple[Range, ...]] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))

# By (letter, ASCII flag). str.isalnum is true of letters and numbers alone: the engine's own \w also takes marks,
# connectors and joiners.
_CLASSES: Final[dict[tuple[str, bool], CharSet]] = {
    ("d", True): char_set(_DIGIT_ASCII),
    ("s", True): char_set(_SPACE_ASCII),
    ("w", True): char_set(_WORD_ASCII),
    ("D", True): char_set(_DIGIT_ASCII, negated=True),
    ("S", True): char_set(_SPACE_ASCII, negated=True),
    ("W", True): char_set(_WORD_ASCII, negated=True),
    ("d", False): char_set((), [f"[\\p{{Nd}}{_KNOWN}]"]),
    ("s", False): char_set(_SPACE),
    ("w", False): char_set((), [f"[\\p{{L}}\\p{{N}}_{_KNOWN}]"]),
    ("D", False): char_set((), [f"[^\\p{{Nd}}{_KNOWN}]"]),
    ("S", False): char_set(_SPACE, negated=True),
    ("W", False): char_set((), [f"[^\\p{{L}}\\p{{N}}_{_KNOWN}]"]),
}


def read_escape(cursor: Cursor, *, in_class: bool, ascii_only: bool) -> Escape:
    """The escape whose backslash comes next; in a class it is never an anchor.

    Raises InvalidGrammar for an escape that Python doesn't have, a backreference and a word boundary.
    """
    index = cursor.index
    cursor.next()
    octal = cursor.match(_OCTAL_IN_CLASS if in_class else _OCTAL)
    if octal is not None:
        return _octal(cursor, octal[0], index)
    char = cursor.next()
    if char in _SIMPLE:
        return _SIMPLE[char]
    classes = _CLASSES.get((char, ascii_only))
    if classes is not None:
        return classes
    if char in _HEX_LENGTH:
        return _hexadecimal(cursor, char, index)
    match char:
        case "N":
            return _named(cursor, index)
        case "b" if in_class:
            return "\b"
        case "A" | "Z" if not in_class:
            return Anchor(char == "A", f"\\{char}", index)
        case "b" | "B" if not in_class:
            cursor.fail(f"a word boundary \\{char}", _REGULAR + "write out what may stand there", at=index)
        case "":
            cursor.fail("a backslash at the end", "write \\\\ for the character", at=index)
    if char.isascii() and char.isalpha():
        _unknown(cursor, char, index)
    if char.isascii() and char.isdigit():
        if in_class:
            _unknown(cursor, char, index)
        cursor.fail(f"a backreference \\{char}", _REGULAR + "write the group's alternatives out", at=index)
    return char


def _octal(cursor: Cursor, digits: str, index: int) -> str:
    value = int(digits, 8)
    if value > 0o377:
        cursor.fail(f"the octal escape \\{digits} over \\377", "write \\uHHHH", at=index)
    return chr(value)


def _hexadecimal(cursor: Cursor, letter: str, index: int) -> str:
    length = _HEX_LENGTH[letter]
    digits = cursor.take(length, _HEX_DIGITS)
    if len(digits) < length or int(digits, 16) > MAX_CODE_POINT:
        cursor.fail(
            f"the escape \\{letter}{digits}, which is incomplete or no character",
            f"write \\{letter} and {length} hexadecimal digits of a code point",
            at=index,
        )
    return chr(int(digits, 16))


def _named(cursor: Cursor, index: int) -> str:
    name = cursor.match(_NAME)
    try:
        char = "" if name is None else unicodedata.lookup(name[1])
    except KeyError:
        char = ""
    if len(char) != 1:  # a few names stand for sequences
        cursor.fail("an escape \\N that names no character", "write \\N{EM DASH} or the like", at=index)
    return char


def _unknown(cursor: Cursor, char: str, index: int) -> NoReturn:
    remedies = {
        "z": "write \\Z, or nothing: the whole text is matched",
        "p": "Python's re has no properties; write the characters or \\w, \\d, \\s",
        "P": "Python's re has no properties; write the characters or \\W, \\D, \\S",
        "e": "write \\x1b for the escape character",
        "c": "write the control character as \\xHH",
        "h": "write [ \\t] for horizontal space",
    }
    remedy = remedies.get(char, "write the character without its backslash if that is meant")
    cursor.fail(f"the escape \\{char}, which Python's re has not", remedy, at=index)
