"""Which characters Python's `re` takes for each other under IGNORECASE.

The engine's own `(?i)` folds by Unicode's simple case folding, Python by lower-casing, with a few lower-case letters
equal because their upper case is; so sets are closed here, by Python's rule, and the engine never sees the flag.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from constraintd.grammar.regex_charset import Range

_LAST_CASED: Final = 0x1FFFF
"""No character of a later plane has case; a test compares the whole of Unicode with `re`."""
_DOTTED_CAPITAL_I: Final = "\u0130"


def with_other_case(ranges: Iterable[Range], *, ascii_only: bool) -> list[Range]:
    """`ranges` and every character that differs from one of theirs by case alone.

    `ascii_only` (Python's ASCII flag) pairs a-z with A-Z and nothing else. Source: CPython `re/_compiler.py`
    (`_optimize_charset`) and `re/_casefix.py`.
    """
    closed = list(ranges)
    others, cased = _other_case(ascii_only)
    for low, high in tuple(closed):
        for code in cased[bisect_left(cased, low) : bisect_right(cased, high)]:
            closed += [(other, other) for other in others[code]]
    return closed


@cache
def _other_case(ascii_only: bool) -> tuple[Mapping[int, tuple[int, ...]], Sequence[int]]:
    # Built at the first pattern that ignores case: 60 ms, where one without the flag needs none of it.
    groups: dict[str, list[int]] = defaultdict(list)
    for code in range(0x80 if ascii_only else _LAST_CASED + 1):
        char = chr(code)
        # str.lower gives this one two characters; `re` lowers it to one.
        lower = "i" if char == _DOTTED_CAPITAL_I else char.lower()
        groups[lower.upper()].append(code)
    others = {code: tuple(group) for group in groups.values() if len(group) > 1 for code in group}
    return others, sorted(others)
