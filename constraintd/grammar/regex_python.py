"""Reading a regular expression as Python's `re` does (text patterns; CPython 3.11 `re/_parser.py`)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from constraintd.grammar.regex_builder import DEFAULT_MAX_REPEAT, TreeBuilder
from constraintd.grammar.regex_case import with_other_case
from constraintd.grammar.regex_charset import CharSet, Range, char_set, is_surrogate
from constraintd.grammar.regex_class import read_members
from constraintd.grammar.regex_cursor import Cursor
from constraintd.grammar.regex_python_escape import read_escape
from constraintd.grammar.regex_python_group import PythonFlags, read_group
from constraintd.grammar.regex_quantifier import QUANTIFIERS, read_quantifier
from constraintd.grammar.regex_tree import Anchor, Chars, Node

# Runs of characters that mean themselves, where neither VERBOSE nor IGNORECASE holds.
_PLAIN: Final = re.compile(r"[^\\.^$*+?{\[|()\ud800-\udfff]+")
_WHITE_SPACE: Final = frozenset(" \t\n\r\v\f")
_ANY: Final = Chars(CharSet((), negated=True))
_ANY_IN_LINE: Final = Chars(char_set([(10, 10)], negated=True))


def parse_python(pattern: str, *, max_repeat: int = DEFAULT_MAX_REPEAT) -> Node:
    """The pattern's tree. Raises InvalidGrammar as `check_python_pattern` says."""
    cursor = Cursor(pattern)
    builder = TreeBuilder(cursor, PythonFlags(), max_repeat=max_repeat)
    names: set[str] = set()
    while cursor.peek():
        _read_item(cursor, builder, names)
    return builder.finish()


def _read_item(cursor: Cursor, builder: TreeBuilder[PythonFlags], names: set[str]) -> None:
    flags = builder.flags
    if not flags.verbose and not flags.ignore_case:
        plain = cursor.match(_PLAIN)
        if plain is not None:
            builder.add_text(plain[0])
            return
    index, char = cursor.index, cursor.peek()
    if flags.verbose and (char in _WHITE_SPACE or char == "#"):
        end = cursor.pattern.find("\n", index) if char == "#" else index
        cursor.index = len(cursor.pattern) if end < 0 else end + 1
    elif char in QUANTIFIERS and read_quantifier(cursor, builder, count_may_lack_least=True):
        pass
    elif char == "\\":
        escape = read_escape(cursor, in_class=False, ascii_only=flags.ascii_only)
        if isinstance(escape, str):
            _add_literal(cursor, builder, escape, index)
        elif isinstance(escape, Anchor):
            builder.add_anchor(escape)
        else:
            builder.add(Chars(escape))
    elif char == "[":
        _add_class(cursor, builder)
    elif char == "(":
        read_group(cursor, builder, names)
    else:
        cursor.next()
        match char:
            case ".":
                builder.add(_ANY if flags.dot_all else _ANY_IN_LINE)
            case "^" | "$":
                builder.add_anchor(Anchor(char == "^", char, index))
            case "|":
                builder.next_branch()
            case ")":
                builder.close_group(index)
            case _:
                _add_literal(cursor, builder, char, index)


def _add_literal(cursor: Cursor, builder: TreeBuilder[PythonFlags], char: str, index: int) -> None:
    code = ord(char)
    if is_surrogate(code):
        cursor.fail("half of a surrogate pair, which no text has", "write the whole character as \\UHHHHHHHH", at=index)
    if builder.flags.ignore_case:
        builder.add(Chars(_either_case(code, ascii_only=builder.flags.ascii_only)))
    else:
        builder.add_text(char)


@lru_cache(maxsize=1024)
def _either_case(code: int, *, ascii_only: bool) -> CharSet:
    return char_set(with_other_case([(code, code)], ascii_only=ascii_only))


def _add_class(cursor: Cursor, builder: TreeBuilder[PythonFlags]) -> None:
    index, flags = cursor.index, builder.flags

    def escape() -> str | CharSet:
        read = read_escape(cursor, in_class=True, ascii_only=flags.ascii_only)
        assert not isinstance(read, Anchor)  # in_class
        return read

    members = read_members(cursor, escape, bracket_may_come_first=True, range_of_set_is_union=False)
    ranges: list[Range] = members.ranges
    if flags.ignore_case:
        # The classes among the members need no closing: none of them tells upper case from lower.
        ranges = with_other_case(ranges, ascii_only=flags.ascii_only)
    closed = char_set(ranges, [item.engine_text() for item in members.sets], negated=members.negated)
    if closed.is_empty():
        cursor.fail("a class of nothing but halves of surrogate pairs", "write \\UHHHHHHHH", at=index)
    # Closing a wide range takes as long as a hundred small classes.
    builder.add(Chars(closed), parts=1 + len(ranges) // 4)
