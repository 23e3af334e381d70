"""A regular expression as a tree: what both dialects are read into, without anything that a full match ignores.

Groups, their names and the greed of quantifiers are gone: they choose among matches, never whether there is one.
Every node knows the first anchor of each kind inside it.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TypeAlias

from constraintd.grammar.regex_charset import CharSet


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text, matching itself."""

    text: str

    @property
    def start(self) -> None:
        """No anchor."""

    @property
    def end(self) -> None:
        """No anchor."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: CharSet

    @property
    def start(self) -> None:
        """No anchor."""

    @property
    def end(self) -> None:
        """No anchor."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The start of the text, or its end."""

    at_start: bool
    spelling: str
    index: int
    """Where it stands in the pattern, from 0."""

    @property
    def start(self) -> Anchor | None:
        """Itself, if it is a start."""
        return self if self.at_start else None

    @property
    def end(self) -> Anchor | None:
        """Itself, if it is an end."""
        return None if self.at_start else self


@dataclass(frozen=True, slots=True)
class Sequence:
    """All items in order; no item is a Sequence. Without items: the empty text."""

    items: tuple[Node, ...]
    start: Anchor | None
    end: Anchor | None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of two or more branches."""

    branches: tuple[Node, ...]
    start: Anchor | None
    end: Anchor | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times the item; `most` None is without end."""

    item: Node
    least: int
    most: int | None
    start: Anchor | None
    end: Anchor | None


Node: TypeAlias = Text | Chars | Anchor | Sequence | Choice | Repeat

EMPTY = Sequence((), None, None)


def sequence(items: Items[Node]) -> Node:
    """The items in order, sequences among them opened."""
    flat: list[Node] = []
    for item in items:
        flat += item.items if isinstance(item, Sequence) else (item,)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat), *_anchors(flat))


def choice(branches: Items[Node]) -> Node:
    """One of the branches; a single one stands for itself."""
    return branches[0] if len(branches) == 1 else Choice(tuple(branches), *_anchors(branches))


def repeat(item: Node, least: int, most: int | None) -> Node:
    """The item so many times; once is the item itself, never is the empty text."""
    if (least, most) == (1, 1):
        return item
    return EMPTY if most == 0 or item == EMPTY else Repeat(item, least, most, item.start, item.end)


def _anchors(nodes: Items[Node]) -> tuple[Anchor | None, Anchor | None]:
    start = next((node.start for node in nodes if node.start is not None), None)
    return start, next((node.end for node in nodes if node.end is not None), None)
