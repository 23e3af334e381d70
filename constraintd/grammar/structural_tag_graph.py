"""A structural tag as a finite automaton whose edges are regular languages or things that only a parser can read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from constraintd.grammar.structural_tag_terminal import EMPTY, Terminal, choice, concatenation, repetition

NON_ASCII: Final = 128
"""Stands for every character past ASCII in a set of characters."""
EVERY_CHARACTER: Final = frozenset(range(NON_ASCII + 1))


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that is no regular language: JSON by schema, a recursive grammar, or one special token."""

    body: str
    """The right side of a Lark rule."""
    pointer: str
    """Where it stands in the source, as a JSON pointer."""
    first: frozenset[int]
    """Characters that can begin it, by ASCII code, NON_ASCII for all others; none for a special token."""
    extends: frozenset[int] = frozenset()
    """Characters that can make a complete one longer, such as the digits after a number."""
    by_character: bool = False
    """True if its terminals are single characters, so that its lexer can't run beside one with longer terminals."""
    rules: tuple[str, ...] = ()
    """Further lines of the grammar that the body refers to."""


@dataclass(slots=True)
class Graph:
    """Nodes are numbers; an edge leads from a node to a node over a Terminal or an Opaque. Built once, then read."""

    edges: list[tuple[int, Terminal | Opaque, int]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    """Nodes where a terminal may end, if the lexer can tell that it does: they keep the terminals few and small."""
    nodes: int = 0

    def node(self, *, cut: bool = False) -> int:
        """A new node."""
        self.nodes += 1
        if cut:
            self.cuts.append(self.nodes - 1)
        return self.nodes - 1

    def add(self, start: int, label: Terminal | Opaque, end: int) -> None:
        """A new edge."""
        self.edges.append((start, label, end))


@dataclass(frozen=True, slots=True)
class Reduced:
    """The automaton after everything but the kept nodes was folded into its edges' languages."""

    terminals: dict[int, dict[int, Terminal]]
    """By start and end."""
    opaques: dict[int, list[tuple[Opaque, int]]]
    """By start."""


class TooLarge(Exception):
    """The languages grew past the size budget. Never leaves this package's structural tag modules."""


def reduce(graph: Graph, keep: Iterable[int], *, max_characters: int) -> Reduced:
    """Eliminates every other node (Kleene's construction). Ends of opaque edges have to be among the kept.

    Raises TooLarge once the terminals' text is longer than max_characters.
    """
    kept = set(keep)
    out: dict[int, dict[int, Terminal]] = {node: {} for node in range(graph.nodes)}
    into: dict[int, set[int]] = {node: set() for node in range(graph.nodes)}
    opaques: dict[int, list[tuple[Opaque, int]]] = {}
    budget = max_characters

    def join(start: int, label: Terminal, end: int) -> None:
        nonlocal budget
        there = out[start].get(end)
        budget -= len(label.text)
        if budget < 0:
            raise TooLarge
        out[start][end] = label if there is None else choice([there, label])
        into[end].add(start)

    for start, label, end in graph.edges:
        if isinstance(label, Opaque):
            opaques.setdefault(start, []).append((label, end))
        else:
            join(start, label, end)
    for node in sorted(set(range(graph.nodes)) - kept, key=lambda n: len(into[n]) * len(out[n])):
        loop = out[node].pop(node, None)
        again = EMPTY if loop is None else repetition(loop)
        into[node].discard(node)
        for start in into[node]:
            before = out[start].pop(node)
            for end, after in out[node].items():
                join(start, concatenation([before, again, after]), end)
        for end in out.pop(node):
            into[end].discard(node)
    return Reduced({node: edges for node, edges in out.items() if node in kept}, opaques)
