"""Regular languages as llguidance terminals: an algebra of Lark text.

llguidance's lexer is greedy and never goes back, so two terminals in a row are not the concatenation of their
languages. Inside one terminal there is no such trap: there, concatenation, choice, `&` and `~` are exact. So whatever
is regular is put together here and handed over as one terminal (`structural_tag_lark` decides where one ends).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Terminal:
    """A regular language over Unicode text."""

    text: str
    """A Lark terminal expression that stands anywhere in another: a literal, a regex or something in parentheses."""
    nullable: bool
    """True if the empty text belongs to it."""
    value: str | None = None
    """The one text of a literal, otherwise None."""


def literal(value: str) -> Terminal:
    """Exactly this text."""
    return Terminal(json.dumps(value, ensure_ascii=False), not value, value)


def pattern(regex: str, *, nullable: bool) -> Terminal:
    """What a regex in llguidance's syntax matches; slashes in it are escaped already."""
    return Terminal(f"/{regex}/", nullable)


EMPTY: Final = literal("")
ANYTHING: Final = pattern("(?s:.*)", nullable=True)
SOMETHING: Final = pattern("(?s:.+)", nullable=False)
_CHARACTER: Final = pattern("(?s:.)", nullable=False)


def concatenation(parts: Iterable[Terminal]) -> Terminal:
    """The parts one after the other; neighbouring literals become one."""
    kept: list[Terminal] = []
    for part in parts:
        if part.value == "":
            continue
        if kept and part.value is not None and kept[-1].value is not None:
            kept[-1] = literal(kept[-1].value + part.value)
        else:
            kept.append(part)
    if not kept:
        return EMPTY
    if len(kept) == 1:
        return kept[0]
    return Terminal("(" + " ".join(part.text for part in kept) + ")", all(part.nullable for part in kept))


def choice(options: Sequence[Terminal]) -> Terminal:
    """Any one of at least one option."""
    distinct = list(dict.fromkeys(options))
    if len(distinct) == 1:
        return distinct[0]
    return Terminal("(" + " | ".join(option.text for option in distinct) + ")", any(o.nullable for o in distinct))


def repetition(part: Terminal) -> Terminal:
    """Any number of times, zero included."""
    return EMPTY if part.value == "" else Terminal(f"({part.text})*", True)


def repeated(part: Terminal, least: int, most: int | None) -> Terminal:
    """At least and at most so many times; None for no upper bound."""
    times = f"{{{least},{'' if most is None else most}}}"
    return Terminal(f"({part.text}){times}", part.nullable or least == 0)


def non_empty(part: Terminal) -> Terminal:
    """The same language without the empty text."""
    return Terminal(f"({part.text} & {SOMETHING.text})", False) if part.nullable else part


def both(left: Terminal, right: Terminal) -> Terminal:
    """What belongs to both."""
    return Terminal(f"({left.text} & {right.text})", left.nullable and right.nullable)


def without(texts: Sequence[str]) -> Terminal:
    """Every text that none of these (non-empty) texts occurs in."""
    return _without([literal(text) for text in texts])


def up_to(end: str, *, closers: Sequence[str], excludes: Sequence[str]) -> Terminal:
    """Free text and then `end`, with none of `closers` complete before; the free text holds none of `excludes`.

    If `end` is one of the closers, no text of this language begins another of it: a lexer knows where it is over.
    """
    early = [concatenation([literal(text), _CHARACTER]) if end.endswith(text) else literal(text) for text in closers]
    return both(concatenation([without(excludes), literal(end)]), _without(early))


def _without(found: Sequence[Terminal]) -> Terminal:
    # The engine's complement is over bytes: without the intersection it would hold what is no UTF-8, and never die.
    if not found:
        return ANYTHING
    return Terminal(f"({ANYTHING.text} & ~{concatenation([ANYTHING, choice(found), ANYTHING]).text})", True)
