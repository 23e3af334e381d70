"""A pattern's tree in the engine's syntax, as a full match, with its anchors resolved.

The engine matches whole texts and has no anchors, so `^` and `$` must turn out to be true or be refused. At the
outer edge of a full match they are true and vanish. An anchor that stands elsewhere would restrict what its neighbours
match, and is refused.
"""

from __future__ import annotations

from enum import Enum

from constraintd.grammar.regex_charset import literal_text
from constraintd.grammar.regex_cursor import pattern_error
from constraintd.grammar.regex_tree import EMPTY, Anchor, Chars, Choice, Node, Repeat, Sequence, Text


class Edge(Enum):
    """What lies on one side of a node."""

    INSIDE = "other parts of the pattern"
    OUTER = "the text's own edge: an anchor is true"


def engine_text(tree: Node, edge: Edge, *, pattern: str) -> str:
    """The engine's pattern whose full match is `tree` between two such edges.

    OUTER gives a full match of the tree. `pattern` is what errors count columns in.
    Raises InvalidGrammar for an anchor that is not at an edge. Recursion is bounded by the builder's MAX_DEPTH.
    """
    return _text(tree, edge, edge, pattern) or "(?:)"


def _text(node: Node, left: Edge, right: Edge, pattern: str) -> str:
    if node.start is None and node.end is None:
        return _plain(node)
    match node:
        case Sequence(items=items):
            return _sequence(items, left, right, pattern)
        case Choice(branches=branches):
            return _choice([_text(branch, left, right, pattern) for branch in branches])
        case Repeat(item=item, most=most):
            if most != 1:
                _refuse(node.start or node.end, "inside a repetition", pattern)
            # Here and only here is the least 0: once is the item itself.
            return _choice([_text(item, left, right, pattern), _text(EMPTY, left, right, pattern)])
        case _:
            return _sequence((node,), left, right, pattern)


def _sequence(items: tuple[Node, ...], left: Edge, right: Edge, pattern: str) -> str:
    content = [index for index, item in enumerate(items) if not isinstance(item, Anchor)]
    first = content[0] if content else len(items)
    last = content[-1] if content else -1
    for index, item in enumerate(items):
        if not isinstance(item, Anchor):
            continue
        if item.at_start:
            if index > first or left is Edge.INSIDE:
                _refuse(item, "after other parts of the pattern", pattern)
        elif index < last or right is Edge.INSIDE:
            _refuse(item, "before other parts of the pattern", pattern)
    anchors = [item for item in items if isinstance(item, Anchor)]
    if any(anchor.at_start for anchor in anchors):
        left = Edge.OUTER
    if any(not anchor.at_start for anchor in anchors):
        right = Edge.OUTER
    if not content:
        return _text(EMPTY, left, right, pattern)
    return "".join(
        _text(
            items[index],
            left if index == first else Edge.INSIDE,
            right if index == last else Edge.INSIDE,
            pattern,
        )
        for index in content
    )


def _plain(node: Node) -> str:
    match node:
        case Text(text=text):
            return literal_text(text)
        case Chars(chars=chars):
            return chars.engine_text()
        case Sequence(items=items):
            return "".join(map(_plain, items))
        case Choice(branches=branches):
            return _choice([_plain(branch) for branch in branches])
        case Repeat(item=item, least=least, most=most):
            text = _plain(item)
            single = isinstance(item, Chars) or (isinstance(item, Text) and len(item.text) == 1)
            return (text if single else f"(?:{text})") + _quantifier(least, most)
        case Anchor():
            raise AssertionError("a node with an anchor inside is never plain")


def _choice(branches: list[str]) -> str:
    return f"(?:{'|'.join(branches)})"


def _quantifier(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _, None:
            return f"{{{least},}}"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


def _refuse(anchor: Anchor | None, where: str, pattern: str) -> None:
    assert anchor is not None
    raise pattern_error(
        pattern,
        anchor.index,
        f"the anchor {anchor.spelling} {where}",
        "anchors may only stand at the pattern's outer edges; write out what it allows there",
    )
