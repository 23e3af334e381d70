"""What follows a `(` in Python: groups, flags, comments, and the extensions that no regular language has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from constraintd.grammar.regex_builder import TreeBuilder
from constraintd.grammar.regex_cursor import Cursor

_FLAGS: Final = re.compile(r"([A-Za-z]*)(-([A-Za-z]*))?([:)])")
_KNOWN_FLAGS: Final = frozenset("aimsux")
_UNTIL_ANGLE: Final = re.compile(r"([^>]*)>")
_REGULAR: Final = "the engine matches regular languages only; "
# By what follows `(?`, the longest first.
_REFUSED: Final = {
    "<=": ("a lookbehind (?<=", _REGULAR + "write the text before it into the pattern"),
    "<!": ("a negative lookbehind (?<!", _REGULAR + "write out what may come before"),
    "<": ("a group name (?<", "Python spells it (?P<name>...)"),
    "=": ("a lookahead (?=", _REGULAR + "write the text after it into the pattern"),
    "!": ("a negative lookahead (?!", _REGULAR + "write out what may follow"),
    ">": ("an atomic group (?>", _REGULAR + "write (?:...) if trying every way to match is as good"),
    "(": ("a conditional (?(", _REGULAR + "write both cases as alternatives"),
    "P=": ("a backreference (?P=", _REGULAR + "write the group's alternatives out"),
    "P>": ("a recursion (?P>", _REGULAR + "write a Lark grammar for nested text"),
    "R": ("a recursion (?R", _REGULAR + "write a Lark grammar for nested text"),
    "&": ("a recursion (?&", _REGULAR + "write a Lark grammar for nested text"),
    "|": ("a branch reset (?|", "write (?:...)"),
    "~": ("an absent operator (?~", _REGULAR + "write out what is meant"),
}


@dataclass(frozen=True, slots=True)
class PythonFlags:
    """The flags that change what is matched. MULTILINE doesn't: anchors are taken at the outer edges alone."""

    ignore_case: bool = False
    dot_all: bool = False
    verbose: bool = False
    kind: str = ""
    """`a` (ASCII) or `u` where the pattern says so."""

    @property
    def ascii_only(self) -> bool:
        """Whether classes and case are those of ASCII."""
        return self.kind == "a"


def read_group(cursor: Cursor, builder: TreeBuilder[PythonFlags], names: set[str]) -> None:
    """Read from the `(` to where the group's content begins; a comment or global flags whole.

    `names` are the group names so far. Raises InvalidGrammar for look-around, atomic and conditional groups,
    backreferences and recursion by name, and for what Python refuses.
    """
    index = cursor.index
    cursor.next()
    flags = builder.flags
    if not cursor.skip("?") or cursor.skip(":"):
        builder.open_group(index, flags)
    elif cursor.skip("P<"):
        _read_name(cursor, names, index)
        builder.open_group(index, flags)
    elif cursor.skip("#"):
        end = cursor.pattern.find(")", cursor.index)
        if end < 0:
            cursor.fail("a comment (?# that is never closed", "add its )", at=index)
        cursor.index = end + 1
    else:
        for spelling, (construct, remedy) in _REFUSED.items():
            if cursor.skip(spelling):
                cursor.fail(construct, remedy, at=index)
        _read_flags(cursor, builder, index)


def _read_name(cursor: Cursor, names: set[str], index: int) -> None:
    name = cursor.match(_UNTIL_ANGLE)
    if name is None or not name[1].isidentifier():
        cursor.fail("a group name that is no identifier", "write (?P<name>...)", at=index)
    if name[1] in names:
        cursor.fail(f"a second group named {name[1][:40]}", "name it otherwise, or write (?:...)", at=index)
    names.add(name[1])


def _read_flags(cursor: Cursor, builder: TreeBuilder[PythonFlags], index: int) -> None:
    found = cursor.match(_FLAGS)
    if found is None:
        _refuse_extension(cursor, index)
    on, off = set(found[1]), set(found[3] or "")
    if not on <= _KNOWN_FLAGS or not off <= _KNOWN_FLAGS or not (on or off):
        _refuse_extension(cursor, index)
    if found[4] == ")":
        if found[2] is not None:
            cursor.fail("global flags that turn off", "write (?-i:...) around a part", at=index)
        if not builder.at_beginning():
            cursor.fail("global flags inside the pattern", "move them to its start, or write (?i:...)", at=index)
    if {"a", "u"} <= on or off & {"a", "u"} or on & off or (found[2] is not None and not off):
        cursor.fail("flags that contradict each other", "write each flag once, a or u only to turn it on", at=index)
    changed = _changed(builder.flags, on, off)
    if found[4] == ":":
        builder.open_group(index, changed)
        return
    if builder.flags.kind not in ("", changed.kind):
        cursor.fail("the flags a and u, which contradict each other", "write one of them", at=index)
    builder.flags = changed


def _refuse_extension(cursor: Cursor, index: int) -> NoReturn:
    cursor.fail(
        f"the unknown group {cursor.pattern[index : index + 3]}",
        "write (?:...) to group, or one of the flags a i m s u x",
        at=index,
    )


def _changed(flags: PythonFlags, on: set[str], off: set[str]) -> PythonFlags:
    return PythonFlags(
        ignore_case=_turned("i", flags.ignore_case, on, off),
        dot_all=_turned("s", flags.dot_all, on, off),
        verbose=_turned("x", flags.verbose, on, off),
        kind="a" if "a" in on else "u" if "u" in on else flags.kind,
    )


def _turned(letter: str, now: bool, on: set[str], off: set[str]) -> bool:
    return letter in on or (now and letter not in off)
