"""Character classes, as both dialects write them: members and ranges between brackets."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from constraintd.grammar.regex_charset import CharSet, Range
from constraintd.grammar.regex_cursor import Cursor

_POSIX: Final = re.compile(r"\[(:\^?[A-Za-z]+:|\.[^\]]+\.|=[^\]]+=)\]")
_SET_OPERATIONS: Final = {"--": "difference", "&&": "intersection", "~~": "symmetric difference"}


@dataclass(frozen=True, slots=True)
class Members:
    """What stands in a class."""

    ranges: list[Range]
    sets: list[CharSet]
    negated: bool


def read_members(
    cursor: Cursor,
    read_escape: Callable[[], str | CharSet],
    *,
    bracket_may_come_first: bool,
    range_of_set_is_union: bool,
) -> Members:
    """The class whose `[` comes next; `read_escape` reads an escape at the cursor.

    `bracket_may_come_first`: a `]` before any member is one (Python); otherwise it ends an empty class (ECMA-262).
    `range_of_set_is_union`: `\\w-z` is three members (ECMA-262, Annex B); otherwise it is refused.

    Raises InvalidGrammar for what the dialects refuse, and for what they read by the letter and others as set
    notation: POSIX classes, a class inside another, `--`, `&&` and `~~`. CPython warns of most of these.
    """
    opened = cursor.index
    cursor.next()
    if cursor.peek() == "[" and cursor.peek(1) != "]":
        _refuse_nested(cursor)
    members = Members([], [], negated=cursor.skip("^"))
    bracket_inside = False
    while True:
        index = cursor.index
        if not cursor.peek():
            cursor.fail("a character class that is never closed", "add its ], or write \\[", at=opened)
        empty = not (members.ranges or members.sets)
        if cursor.peek() == "]" and not (empty and bracket_may_come_first):
            cursor.next()
            break
        if cursor.peek() == "[":
            _refuse_posix(cursor)
            bracket_inside = True
        if not empty:
            _refuse_set_operation(cursor)
        low = _member(cursor, read_escape)
        if cursor.peek() != "-" or cursor.peek(1) in ("]", ""):
            _add(members, low)
            continue
        cursor.next()
        if cursor.peek() == "-" and cursor.peek(1) != "]":
            cursor.index -= 1
            _refuse_set_operation(cursor)
        high = _member(cursor, read_escape)
        if isinstance(low, str) and isinstance(high, str):
            if high < low:
                cursor.fail("a range whose end comes before its start", "swap them, or write \\-", at=index)
            members.ranges.append((ord(low), ord(high)))
        elif range_of_set_is_union:
            for member in (low, "-", high):
                _add(members, member)
        else:
            cursor.fail("a range with a class such as \\w at one end", "write \\- for the character", at=index)
    if bracket_inside and cursor.peek() == "]":
        cursor.fail(
            "a class inside another class", "write \\[ and \\] for the characters, or the members of both", at=opened
        )
    return members


def _member(cursor: Cursor, read_escape: Callable[[], str | CharSet]) -> str | CharSet:
    return read_escape() if cursor.peek() == "\\" else cursor.next()


def _add(members: Members, member: str | CharSet) -> None:
    if isinstance(member, str):
        members.ranges.append((ord(member), ord(member)))
    else:
        members.sets.append(member)


def _refuse_nested(cursor: Cursor) -> None:
    _refuse_posix(cursor)
    cursor.fail("a class inside another class", "write \\[ for the character, or the members of both in one class")


def _refuse_posix(cursor: Cursor) -> None:
    found = _POSIX.match(cursor.pattern, cursor.index)
    if found is not None:
        cursor.fail(f"the POSIX class {found[0][:40]}", "write its members, such as a-zA-Z for [:alpha:]")


def _refuse_set_operation(cursor: Cursor) -> None:
    operator = cursor.peek() + cursor.peek(1)
    if operator in _SET_OPERATIONS:
        cursor.fail(
            f"{operator} in a character class, a set {_SET_OPERATIONS[operator]} in some dialects",
            f"write \\{operator[0]} for the character, or the members that are meant",
        )
