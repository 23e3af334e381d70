"""Building a pattern's tree from left to right with a stack of open groups: no recursion, whatever the pattern."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

from constraintd.grammar.regex_cursor import Cursor
from constraintd.grammar.regex_tree import Anchor, Node, Text, choice, repeat, sequence

MAX_DEPTH: Final = 50
"""Groups inside groups. The engine's parser takes 250 levels, and a group may cost four of them: repetition,
group, alternation, sequence."""

MAX_PARTS: Final = 100_000
"""Items and branches of one pattern, runs of plain characters counting once: about two seconds' work. An alternation
of all words of a large dictionary fits."""

DEFAULT_MAX_REPEAT: Final = 65_536
"""Largest count in `{n,m}` that is taken if the caller says nothing."""

FlagsT = TypeVar("FlagsT")


class _Last(Enum):
    """What a quantifier would meet."""

    NOTHING = "a quantifier with nothing before it to repeat"
    ANCHOR = "a quantifier after an anchor"
    REPEAT = "a quantifier after a quantifier"
    ITEM = "an item"
    TEXT = "text, of which it repeats the last character"


@dataclass(slots=True)
class _Group(Generic[FlagsT]):
    index: int
    flags: FlagsT
    branches: list[Node] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    last: _Last = _Last.NOTHING


class TreeBuilder(Generic[FlagsT]):
    """Owns the open groups of one pattern, each with the flags that hold inside it."""

    def __init__(self, cursor: Cursor, flags: FlagsT, *, max_repeat: int) -> None:
        self._cursor = cursor
        self._max_repeat = max_repeat
        self._open: list[_Group[FlagsT]] = [_Group(0, flags)]
        self._parts = 0

    @property
    def flags(self) -> FlagsT:
        """The flags of the innermost open group."""
        return self._open[-1].flags

    @flags.setter
    def flags(self, flags: FlagsT) -> None:
        self._open[-1].flags = flags

    def at_beginning(self) -> bool:
        """Whether nothing of the pattern has been read yet that could match."""
        return len(self._open) == 1 and not self._open[0].items and not self._open[0].branches

    def add(self, node: Node, *, parts: int = 1) -> None:
        """The next item of the innermost group. Raises InvalidGrammar past MAX_PARTS, of which this is `parts`."""
        self._count(parts)
        group = self._open[-1]
        group.items.append(node)
        group.last = _Last.ITEM

    def add_text(self, text: str) -> None:
        """Literal characters as the next items, one each: a quantifier repeats the last."""
        self.add(Text(text))
        self._open[-1].last = _Last.TEXT

    def add_anchor(self, anchor: Anchor) -> None:
        """An anchor as the next item; it can't be repeated."""
        self.add(anchor)
        self._open[-1].last = _Last.ANCHOR

    def open_group(self, index: int, flags: FlagsT) -> None:
        """A group whose parenthesis stands at `index`. Raises InvalidGrammar past MAX_DEPTH."""
        if len(self._open) > MAX_DEPTH:
            self._cursor.fail(f"more than {MAX_DEPTH} groups inside each other", "flatten the pattern", at=index)
        self._open.append(_Group(index, flags))

    def next_branch(self) -> None:
        """The innermost group's `|`. Raises InvalidGrammar past MAX_PARTS."""
        self._count(1)
        group = self._open[-1]
        group.branches.append(sequence(group.items))
        group.items = []
        group.last = _Last.NOTHING

    def close_group(self, index: int) -> None:
        """The `)` at `index`. Raises InvalidGrammar if no group is open."""
        if len(self._open) == 1:
            self._cursor.fail("a ) that closes no group", "write \\) for the character", at=index)
        group = self._open.pop()
        self.add(_tree(group))

    def repeat(self, index: int, least: int, most: int | None) -> None:
        """Repeats the last item, for the quantifier at `index`.

        Raises InvalidGrammar: nothing to repeat, an anchor, a second quantifier, a count over the limit.
        """
        group = self._open[-1]
        if group.last not in (_Last.ITEM, _Last.TEXT):
            remedy = "put what it repeats in (?:...), or a backslash before it for the character"
            self._cursor.fail(group.last.value, remedy, at=index)
        items = group.items
        last = items.pop()
        if group.last is _Last.TEXT and isinstance(last, Text) and len(last.text) > 1:
            items.append(Text(last.text[:-1]))
            last = Text(last.text[-1])
        items.append(repeat(last, least, most))
        group.last = _Last.REPEAT

    def checked_count(self, digits: str, index: int) -> int:
        """The number of a `{n,m}` that begins at `index`. Raises InvalidGrammar over the limit."""
        # Digits are counted first: Python refuses to convert thousands of them.
        number = int(digits) if len(digits.lstrip("0")) <= 10 else self._max_repeat + 1
        if number > self._max_repeat:
            self._cursor.fail(
                f"a counted repetition over the limit of {self._max_repeat}",
                "write a smaller count, or no upper one",
                at=index,
            )
        return number

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            self._cursor.fail(f"more than {MAX_PARTS} parts", "split the pattern, or list its texts as a choice")

    def finish(self) -> Node:
        """The whole tree. Raises InvalidGrammar for a group that is still open."""
        if len(self._open) > 1:
            self._cursor.fail("a group that is never closed", "add its )", at=self._open[-1].index)
        return _tree(self._open[0])


def _tree(group: _Group[FlagsT]) -> Node:
    return choice([*group.branches, sequence(group.items)])
