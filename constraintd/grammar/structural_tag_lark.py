"""An automaton as one Lark grammar that llguidance reads exactly.

llguidance's lexer runs all terminals that the parser allows at once, reads on while any of them can, and never goes
back. So terminals are cut only where that is harmless: where nothing that may follow a finished terminal could also go
on inside one. Of the places that the builder offers, those that fail this test are folded away again, which makes
longer terminals of the same language; only a border with JSON or a recursive grammar can't be, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from constraintd.grammar.structural_tag_format import refuse
from constraintd.grammar.structural_tag_graph import Graph, Opaque, Reduced, TooLarge, reduce
from constraintd.grammar.structural_tag_overlap import Overlaps
from constraintd.grammar.structural_tag_terminal import Terminal, non_empty

# Text of all terminals together; far above what hundreds of tools need, and it keeps elimination under a second.
_MAX_CHARACTERS: Final = 4_000_000


def lark_of(graph: Graph, start: int, final: int, overlaps: Overlaps) -> str:
    """The Lark text of all texts that lead from start to final; its start rule is `start`.

    Raises InvalidGrammar where a border would be ambiguous to the lexer, or where the terminals grow too large.
    """
    fixed = {start, final}
    for begin, label, end in graph.edges:
        if isinstance(label, Opaque):
            fixed |= {begin, end}
    cuts = set(graph.cuts) - fixed
    while True:
        try:
            reduced = reduce(graph, fixed | cuts, max_characters=_MAX_CHARACTERS)
        except TooLarge:
            refuse("", "its regular parts are too large when taken together; use fewer or shorter ones")
        borders = _Borders(reduced, start, final, overlaps)
        bad = next((node for node in borders.ambiguous() if node in cuts), None)
        if bad is None:
            borders.refuse_ambiguous()
            return _emit(borders, start, final)
        cuts.remove(bad)


class _Borders:
    """What may stand where in a reduced automaton. Reads only; lives for one check."""

    def __init__(self, reduced: Reduced, start: int, final: int, overlaps: Overlaps) -> None:
        self.reduced = reduced
        self._overlaps = overlaps
        self.useful = _reachable(reduced, start) & _leading_to(reduced, final)
        self._places: dict[int, _Place] = {}

    def place(self, node: int) -> _Place:
        """What the lexer may meet at this node, nodes that an empty text leads to included."""
        place = self._places.get(node)
        if place is None:
            place = self._places[node] = self._look(node)
        return place

    def _look(self, node: int) -> _Place:
        there = [node]
        for at in there:
            for end, terminal in self.reduced.terminals.get(at, {}).items():
                if terminal.nullable and end in self.useful and end not in there:
                    there.append(end)
        terminals = [
            (non_empty(terminal), end)
            for at in there
            for end, terminal in self.reduced.terminals.get(at, {}).items()
            if terminal.value != "" and end in self.useful
        ]
        opaques = [
            (opaque, end) for at in there for opaque, end in self.reduced.opaques.get(at, []) if end in self.useful
        ]
        lexed: frozenset[int] = frozenset().union(*(self._overlaps.beginnings(t).first for t, _ in terminals))
        parsed: frozenset[int] = frozenset().union(*(opaque.first for opaque, _ in opaques))
        return _Place(terminals, opaques, lexed, parsed)

    def ambiguous(self) -> list[int]:
        """Ends of terminals after which the lexer might read on instead of ending them there."""
        bad = []
        for node in sorted(self.useful):
            place = self.place(node)
            rivals = [terminal for terminal, _ in place.terminals]
            for terminal, end in place.terminals:
                after = self.place(end)
                if self._overlaps.follows_into(terminal, after.lexed | after.parsed, rivals):
                    bad.append(end)
        return bad

    def refuse_ambiguous(self) -> None:
        """Raises InvalidGrammar for what `ambiguous` still finds, and for the borders of opaque parts."""
        for node in self.ambiguous():
            pointer = next((opaque.pointer for opaque, _ in self.place(node).opaques), "")
            refuse(pointer, "where this begins can't be told from the text before it; put a fixed text in between")
        for node in sorted(self.useful):
            place = self.place(node)
            for opaque, end in place.opaques:
                after = self.place(end)
                if opaque.extends & (after.lexed | after.parsed):
                    refuse(opaque.pointer, "where this ends can't be told from what follows; put a fixed text after it")
                mixed = [
                    o for o, _ in place.opaques if o.by_character != opaque.by_character and o.first & opaque.first
                ]
                if mixed or opaque.first & place.lexed:
                    refuse(
                        opaque.pointer, "begins like another alternative; let the alternatives begin with fixed texts"
                    )


@dataclass(frozen=True, slots=True)
class _Place:
    terminals: list[tuple[Terminal, int]]
    opaques: list[tuple[Opaque, int]]
    lexed: frozenset[int]
    """First characters of the terminals."""
    parsed: frozenset[int]
    """First characters of the opaque parts."""


def _reachable(reduced: Reduced, start: int) -> set[int]:
    found, queue = {start}, [start]
    for node in queue:
        ends = [*reduced.terminals.get(node, {}), *(end for _, end in reduced.opaques.get(node, []))]
        for end in ends:
            if end not in found:
                found.add(end)
                queue.append(end)
    return found


def _leading_to(reduced: Reduced, final: int) -> set[int]:
    into: dict[int, list[int]] = {}
    for start, edges in reduced.terminals.items():
        for end in edges:
            into.setdefault(end, []).append(start)
    for start, opaques in reduced.opaques.items():
        for _, end in opaques:
            into.setdefault(end, []).append(start)
    found, queue = {final}, [final]
    for node in queue:
        for start in into.get(node, []):
            if start not in found:
                found.add(start)
                queue.append(start)
    return found


def _emit(borders: _Borders, start: int, final: int) -> str:
    reduced, useful = borders.reduced, borders.useful
    if start not in useful:
        refuse("", "no text satisfies it")
    terminals: dict[str, str] = {}
    rules: dict[str, str] = {}
    further: dict[str, None] = {}
    lines = [f"start: n{start}"]
    for node in sorted(useful):
        options = ['""'] if node == final else []
        for end, terminal in reduced.terminals.get(node, {}).items():
            if end not in useful:
                continue
            if terminal.value != "":
                name = terminals.setdefault(non_empty(terminal).text, f"T{len(terminals)}")
                options.append(f"{name} n{end}")
            if terminal.nullable:
                options.append(f"n{end}")
        for opaque, end in reduced.opaques.get(node, []):
            if end in useful:
                options.append(f"{rules.setdefault(opaque.body, f'o{len(rules)}')} n{end}")
                further.update(dict.fromkeys(opaque.rules))
        lines.append(f"n{node}: " + " | ".join(options))
    lines += [f"{name}: {body}" for body, name in rules.items()]
    lines += further
    lines += [f"{name}: {text}" for text, name in terminals.items()]
    return "\n".join(lines) + "\n"
