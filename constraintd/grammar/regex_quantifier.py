"""Quantifiers of both dialects: `*`, `+`, `?`, `{n}`, `{n,}`, `{n,m}`, each with `?` after it, which is dropped."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from constraintd.grammar.regex_builder import TreeBuilder
from constraintd.grammar.regex_cursor import Cursor

QUANTIFIERS: Final = frozenset("*+?{")

_SIMPLE: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNTS: Final = re.compile(r"\{(?!\})([0-9]*)(,([0-9]*))?\}")

FlagsT = TypeVar("FlagsT")


def read_quantifier(cursor: Cursor, builder: TreeBuilder[FlagsT], *, count_may_lack_least: bool) -> bool:
    """Read the quantifier here and repeat the builder's last item; False if a `{` begins none and is a character.

    `count_may_lack_least`: Python reads `{,m}` as `{0,m}`; ECMA-262 has no such quantifier. A lazy quantifier matches
    fully what a greedy one does. Raises InvalidGrammar for possessive and doubled ones, and as
    `TreeBuilder.repeat` does.
    """
    index = cursor.index
    if cursor.peek() == "{":
        found = cursor.match(_COUNTS)
        if found is None:
            return False
        if not found[1] and not count_may_lack_least:
            cursor.fail(
                "{,m}, which ECMA-262 has not and other dialects read as a count from 0",
                "write {0,m}, or \\{ for the character",
                at=index,
            )
        least = builder.checked_count(found[1] or "0", index)
        if found[2] is None:
            most: int | None = least
        else:
            most = builder.checked_count(found[3], index) if found[3] else None
        if most is not None and most < least:
            cursor.fail("a count whose least is over its most", "write {least,most}", at=index)
    else:
        least, most = _SIMPLE[cursor.next()]
    builder.repeat(index, least, most)
    if cursor.peek() == "+":
        cursor.fail(
            "a possessive quantifier (or a quantifier after a quantifier)",
            "leave the + out: the engine tries every way to match; put what comes before in (?:...) to repeat it",
        )
    cursor.skip("?")
    return True
