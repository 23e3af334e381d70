"""What a GBNF text means, as immutable values: rules, their alternatives, and the terms in those.

Groups are rules without a name of the user's (their name says where they stand), so nothing here is nested and no
reader of it needs recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""Code points that UTF-8 can't spell (RFC 3629, section 3), so no text ever holds one."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set: inclusive ranges of code points, ascending, disjoint, at least one, no surrogates."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Literal:
    """These characters in this order; none of them a surrogate. May be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A text of the rule with this index."""

    rule: int


@dataclass(frozen=True, slots=True)
class TokenElement:
    """One whole token: that of `token_id` or that spelled `spelling`, the other being None; negated, any other one."""

    token_id: int | None
    spelling: str | None
    negated: bool
    location: str
    """line:column of the element."""


Element: TypeAlias = Characters | Literal | Reference | TokenElement


@dataclass(frozen=True, slots=True)
class Term:
    """An element `least` to `most` times; `most` None is without end."""

    element: Element
    least: int = 1
    most: int | None = 1

    @property
    def once(self) -> bool:
        """Exactly one time."""
        return self.least == 1 and self.most == 1


Alternative: TypeAlias = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule or a group: any one of its alternatives."""

    name: str
    """The user's name, or `NAME(LINE:COLUMN)` for a group inside the rule NAME."""

    named: bool
    """False for a group, which only its parent refers to."""

    location: str
    """line:column of the definition."""

    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """A whole grammar: every reference is an index into `rules`."""

    rules: tuple[Rule, ...]
    root: int

    def token_elements(self) -> Iterator[TokenElement]:
        """All token elements, those of unused rules too."""
        for rule in self.rules:
            for alternative in rule.alternatives:
                for term in alternative:
                    if isinstance(term.element, TokenElement):
                        yield term.element


@dataclass(frozen=True, slots=True)
class GbnfLimits:
    """What a text may ask for; past it, an error that names the place."""

    repetition: int = 4096
    """Largest count in `{m,n}`."""

    repetition_product: int = 1_000_000
    """Largest product of the counts of repetitions nested in each other."""

    source_characters: int = 4 * 1024 * 1024
    """Longest text."""
