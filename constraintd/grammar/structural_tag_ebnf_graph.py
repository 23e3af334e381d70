"""A parsed EBNF grammar in a structural tag's automaton.

A grammar whose rules refer to themselves only at their ends is regular, and becomes edges that join with what stands
around it. Any other becomes Lark rules whose terminals are single characters: no character begins another, so the lexer
has nothing to be greedy about, and the language is the grammar's.
"""

from __future__ import annotations

import json
from typing import Final

from constraintd.grammar.structural_tag_ebnf import Choice, Class, Name, Part, Repeat, Series, Text
from constraintd.grammar.structural_tag_format import refuse
from constraintd.grammar.structural_tag_graph import EVERY_CHARACTER, NON_ASCII, Graph, Opaque, TooLarge
from constraintd.grammar.structural_tag_terminal import (
    EMPTY,
    Terminal,
    choice,
    concatenation,
    literal,
    pattern,
    repeated,
)

_MAX_CHARACTERS: Final = 1_000_000


def add_ebnf(graph: Graph, rules: dict[str, Part], start: int, end: int, pointer: str) -> None:
    """Adds what `root` generates, from start to end. Raises InvalidGrammar for what grows too large."""
    try:
        _Regular(graph, rules).add(start, end)
        return
    except TooLarge:
        refuse(pointer, "the grammar is too large when its rules are put into one another")
    except _NotRegularError:
        pass
    prefix = f"g{graph.node()}"
    lines = tuple(f"{_rule(prefix, name)}: {_lark(part, prefix)}" for name, part in rules.items())
    alphabet: frozenset[int] = frozenset().union(*map(_alphabet, rules.values()))
    graph.add(start, Opaque(_rule(prefix, "root"), pointer, alphabet, alphabet, by_character=True, rules=lines), end)
    if "root" in _nullable_rules(rules):
        graph.add(start, EMPTY, end)


class _NotRegularError(Exception):
    """A rule refers to itself elsewhere than at its end."""


class _Regular:
    """Adds the edges of a regular grammar; on an error no edge was added."""

    def __init__(self, graph: Graph, rules: dict[str, Part]) -> None:
        self._graph = graph
        self._rules = rules
        reached = {name: _reached(rules, name) for name in rules}
        looping = {name for name in rules if name in reached[name]}
        self._recursive_names = looping | {name for name in rules if reached[name] & looping}
        self._terminals: dict[str, Terminal] = {}
        self._entries: dict[tuple[str, int], int] = {}
        self._open: list[str] = []
        self._edges: list[tuple[int, Terminal, int]] = []
        self._budget = _MAX_CHARACTERS

    def add(self, start: int, end: int) -> None:
        """From start to end. Raises _NotRegularError, TooLarge."""
        self._part(Name("root"), start, end)
        self._graph.edges.extend(self._edges)

    def _part(self, part: Part, start: int, end: int) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise TooLarge
        if not self._recursive(part):
            self._edges.append((start, self._terminal(part), end))
            return
        match part:
            case Name(name):
                entry = self._entries.get((name, end))
                if entry is None:
                    if name in self._open:
                        raise _NotRegularError
                    entry = self._entries[name, end] = self._graph.node()
                    self._open.append(name)
                    self._part(self._rules[name], entry, end)
                    self._open.pop()
                self._edges.append((start, EMPTY, entry))
            case Choice(options):
                for option in options:
                    self._part(option, start, end)
            case Series(parts):
                at = start
                for item in parts[:-1]:
                    after = self._graph.node()
                    self._part(item, at, after)
                    at = after
                self._part(parts[-1], at, end)
            case Repeat(inner, 0, 1):
                self._part(inner, start, end)
                self._edges.append((start, EMPTY, end))
            case _:
                raise _NotRegularError

    def _recursive(self, part: Part) -> bool:
        return not self._recursive_names.isdisjoint(_names(part))

    def _terminal(self, part: Part) -> Terminal:
        match part:
            case Text(value):
                made = literal(value)
            case Class():
                made = pattern(_class(part), nullable=False)
            case Name(name):
                if name not in self._terminals:
                    self._terminals[name] = self._terminal(self._rules[name])
                made = self._terminals[name]
            case Series(parts):
                made = concatenation([self._terminal(item) for item in parts])
            case Choice(options):
                made = choice([self._terminal(option) for option in options])
            case Repeat(inner, least, most):
                made = repeated(self._terminal(inner), least, most)
        self._budget -= len(made.text)
        if self._budget < 0:
            raise TooLarge
        return made


def _names(part: Part) -> set[str]:
    match part:
        case Name(name):
            return {name}
        case Series(parts) | Choice(parts):
            return set().union(*map(_names, parts))
        case Repeat(inner):
            return _names(inner)
        case _:
            return set()


def _reached(rules: dict[str, Part], name: str) -> set[str]:
    found: set[str] = set()
    queue = [name]
    for at in queue:
        for other in _names(rules[at]):
            if other not in found:
                found.add(other)
                queue.append(other)
    return found


def _nullable_rules(rules: dict[str, Part]) -> set[str]:
    nullable: set[str] = set()

    def empty(part: Part) -> bool:
        match part:
            case Text(value):
                return not value
            case Class():
                return False
            case Name(name):
                return name in nullable
            case Series(parts):
                return all(map(empty, parts))
            case Choice(options):
                return any(map(empty, options))
            case Repeat(inner, least, _):
                return least == 0 or empty(inner)

    while True:
        more = {name for name, part in rules.items() if empty(part)}
        if more == nullable:
            return nullable
        nullable = more


def _alphabet(part: Part) -> frozenset[int]:
    match part:
        case Text(value):
            return frozenset(min(ord(character), NON_ASCII) for character in value)
        case Class(ranges, negated):
            inside = frozenset(
                code for low, high in ranges for code in range(min(low, NON_ASCII), min(high, NON_ASCII) + 1)
            )
            return (EVERY_CHARACTER - inside) | {NON_ASCII} if negated else inside
        case Series(parts) | Choice(parts):
            return frozenset().union(*map(_alphabet, parts))
        case Repeat(inner):
            return _alphabet(inner)
        case Name():
            return frozenset()


def _class(part: Class) -> str:
    ranges = "".join(f"\\u{{{low:x}}}-\\u{{{high:x}}}" for low, high in part.ranges)
    if not part.ranges:
        return "(?s:.)"
    return f"[{'^' if part.negated else ''}{ranges}]"


def _rule(prefix: str, name: str) -> str:
    # Names of rules may hold characters that Lark's may not: spelled in hexadecimal, they can't meet one another.
    return f"{prefix}_{name.encode().hex()}"


def _lark(part: Part, prefix: str) -> str:
    match part:
        case Text(value):
            return " ".join(json.dumps(character, ensure_ascii=False) for character in value) or '""'
        case Class():
            return f"/{_class(part)}/"
        case Name(name):
            return _rule(prefix, name)
        case Series(parts):
            return " ".join(f"({_lark(item, prefix)})" for item in parts) or '""'
        case Choice(options):
            return " | ".join(_lark(option, prefix) for option in options)
        case Repeat(inner, least, most):
            return f"({_lark(inner, prefix)}){{{least},{'' if most is None else most}}}"
