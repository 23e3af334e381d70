"""A naive recogniser of GBNF, to compare the engine with: trees, tuples as stacks, one character after another."""

from __future__ import annotations

from dataclasses import dataclass, field

from constraintd.grammar.gbnf_rules import Characters, Element, Literal, Reference, Rules
from constraintd.vocabulary.vocabulary import Vocabulary


class TooWide(Exception):
    """The reference would take too long here."""


@dataclass(eq=False)
class Part:
    """A part of a grammar: text, class, any, ref, seq, alt, repeat, token. Compared by identity."""

    kind: str
    parts: list[Part] = field(default_factory=list)
    text: str = ""
    ranges: list[tuple[str, str]] = field(default_factory=list)
    negated: bool = False
    least: int = 1
    most: int | None = 1
    token: int = 0

    def has(self, point: int) -> bool:
        """Whether a class takes this code point."""
        inside = any(ord(low) <= point <= ord(high) for low, high in self.ranges)
        return inside != self.negated and not 0xD800 <= point <= 0xDFFF


Stack = tuple[object, ...]
Place = tuple[frozenset[Stack], bytes]
"""Stacks of what is to come, the next part last, and the bytes of an unfinished character."""


class BruteForce:
    """The naive recogniser: sets of stacks, one character after another."""

    def __init__(self, bodies: list[Part], vocabulary: Vocabulary) -> None:
        self.bodies = bodies
        self.vocabulary = vocabulary
        self._steps: dict[tuple[Place, int], Place | None] = {}

    def start(self) -> Place:
        return self.expand({(self.bodies[0],)}), b""

    def expand(self, stacks: set[Stack]) -> frozenset[Stack]:
        """Every stack until something to consume, or nothing, is on top."""
        done: set[Stack] = set()
        seen: set[Stack] = set()
        todo = list(stacks)
        while todo:
            stack = todo.pop()
            if stack in seen:
                continue
            seen.add(stack)
            if len(seen) > 3_000:
                raise TooWide
            if not stack:
                done.add(stack)
                continue
            rest, top = stack[:-1], stack[-1]
            if isinstance(top, tuple):
                part, least, most = top
                if least == 0:
                    todo.append(rest)
                if most is None or most > 0:
                    after = (part, max(least - 1, 0), None if most is None else most - 1)
                    todo.append((*rest, after, part))
            elif isinstance(top, str):
                done.add(stack)
            else:
                assert isinstance(top, Part)
                following = self._one(top, rest)
                todo += following
                if not following:
                    done.add(stack)
        return frozenset(done)

    def _one(self, top: Part, rest: Stack) -> list[Stack]:
        if top.kind == "alt":
            return [(*rest, each) for each in top.parts]
        if top.kind == "seq":
            return [(*rest, *reversed(top.parts))]
        if top.kind == "repeat":
            return [(*rest, (top.parts[0], top.least, top.most))]
        if top.kind == "ref":
            return [(*rest, self.bodies[top.least])]
        if top.kind == "text":
            return [(*rest, *reversed(top.text))]
        return []

    def step(self, place: Place, byte: int) -> Place | None:
        """The place behind one byte, or None; remembered, since tokens share their beginnings."""
        key = (place, byte)
        if key not in self._steps:
            self._steps[key] = self._step(place, byte)
        return self._steps[key]

    def _step(self, place: Place, byte: int) -> Place | None:
        stacks, begun = place
        data = begun + bytes([byte])
        points = completions(data)
        if points is None:
            return None
        whole = points[0] == points[1] and chr(points[0]).encode() == data if not surrogate(points) else False
        if whole:
            behind = {stack[:-1] for stack in stacks if stack and takes(stack[-1], points[0])}
            return (self.expand(behind), b"") if behind else None
        alive = frozenset(stack for stack in stacks if stack and may_take(stack[-1], *points))
        return (alive, data) if alive else None

    def after(self, place: Place, token: int) -> Place | None:
        """The place behind one token, or None if it is illegal."""
        data = self.vocabulary.bytes_of(token)
        here: Place | None = None
        if data and data[0] != 0 and token not in self.vocabulary.eog_ids:
            here = place
            for byte in data:
                here = self.step(here, byte)
                if here is None:
                    break
        stacks, begun = place
        exists = bool(data) or token in self.vocabulary.special
        if begun or not exists or data.startswith(b"\0") or token in self.vocabulary.eog_ids:
            return here
        behind = {
            stack[:-1]
            for stack in stacks
            if stack
            and isinstance(stack[-1], Part)
            and stack[-1].kind == "token"
            and (stack[-1].token == token) != stack[-1].negated
        }
        if not behind:
            return here
        joined = self.expand(behind)
        # Bytes of a cut character and a whole token never lead to one place: the reference would need two.
        if here is not None and here[1]:
            raise TooWide
        return (joined | here[0], b"") if here is not None else (joined, b"")

    def legal(self, place: Place) -> set[int]:
        found = {token for token in range(len(self.vocabulary.token_bytes)) if self.after(place, token) is not None}
        complete = not place[1] and () in place[0]
        return found | (set(self.vocabulary.eog_ids) if complete else set())


def completions(data: bytes) -> tuple[int, int] | None:
    """The least and greatest code point whose UTF-8 begins with `data`, by RFC 3629; None if there is none."""
    lead = data[0]
    if lead < 0x80:
        length, value, least = 1, lead, 0
    elif 0xC0 <= lead < 0xE0:
        length, value, least = 2, lead & 0x1F, 0x80
    elif 0xE0 <= lead < 0xF0:
        length, value, least = 3, lead & 0x0F, 0x800
    elif 0xF0 <= lead < 0xF8:
        length, value, least = 4, lead & 0x07, 0x10000
    else:
        return None
    for byte in data[1:]:
        if not 0x80 <= byte < 0xC0:
            return None
        value = value << 6 | byte & 0x3F
    missing = 6 * (length - len(data))
    low, high = max(value << missing, least), min((value + 1 << missing) - 1, 0x10FFFF)
    return (low, high) if low <= high else None


def surrogate(points: tuple[int, int]) -> bool:
    return 0xD800 <= points[0] and points[1] <= 0xDFFF


def takes(top: object, point: int) -> bool:
    if isinstance(top, str):
        return ord(top) == point
    assert isinstance(top, Part)
    return top.kind in ("class", "any") and top.has(point)


def may_take(top: object, low: int, high: int) -> bool:
    """Whether any code point of the range is taken: the edges of everything that matters are tried."""
    if isinstance(top, str):
        return low <= ord(top) <= high
    assert isinstance(top, Part)
    if top.kind not in ("class", "any"):
        return False
    edges = {low, high, 0xD7FF, 0xE000}
    for first, last in top.ranges:
        edges |= {ord(first) - 1, ord(first), ord(last), ord(last) + 1}
    return any(low <= point <= high and top.has(point) for point in edges)


def trees_of(rules: Rules) -> list[Part]:
    """Rules as trees, the root first; without token elements."""
    order = [rules.root, *[index for index in range(len(rules.rules)) if index != rules.root]]
    number = {index: position for position, index in enumerate(order)}

    def element(each: Element) -> Part:
        if isinstance(each, Literal):
            return Part("text", text=each.text) if each.text else Part("seq")
        if isinstance(each, Characters):
            return Part("class", ranges=[(chr(low), chr(high)) for low, high in each.ranges])
        assert isinstance(each, Reference)
        return Part("ref", least=number[each.rule])

    return [
        Part(
            "alt",
            [
                Part("seq", [Part("repeat", [element(t.element)], least=t.least, most=t.most) for t in alternative])
                for alternative in rules.rules[index].alternatives
            ],
        )
        for index in order
    ]
