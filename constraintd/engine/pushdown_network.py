"""GBNF rules as a network: nodes, byte edges, token edges and calls. Groups, options and loops cost no call.

A node is a position in an alternative. Alternatives that begin with the same characters share their nodes, so a choice
of ten thousand words waits in at most 256 places at once. What a position can do without consuming anything within its
rule is worked out here, once (`Expansion`); calls and ends are left to the automaton, which knows the stack.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from constraintd.engine.pushdown_utf8 import ByteNodes
from constraintd.errors import LimitExceeded
from constraintd.grammar.gbnf_rules import (
    Alternative,
    Characters,
    Element,
    Literal,
    Reference,
    Rule,
    Rules,
    Term,
    TokenElement,
)

TAIL: Final = -1
"""Return node of a call behind which nothing of the rule is left: no stack cell is needed for it."""

_INLINE_HEIGHT: Final = 40
"""Groups nested deeper than this become calls, so that building needs no deep recursion."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something to consume, and the node behind it. Exactly one of `byte_node` and `token` is not negative."""

    byte_node: int
    token: int
    target: int


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a node can do next: consume an item, call a rule (its start node, return node or TAIL), end its rule."""

    items: tuple[int, ...]
    calls: tuple[tuple[int, int], ...]
    ends: bool


@dataclass(slots=True)
class _Node:
    empty: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)


class Network:
    """The network of one grammar. Immutable once built, and built alike in every process: its numbers may be stored."""

    def __init__(self, rules: Rules, *, max_positions: int) -> None:
        """Raises LimitExceeded for a grammar of more than `max_positions` nodes."""
        self.byte_nodes = ByteNodes()
        self.items: list[Item] = []
        self.tokens: list[TokenElement] = []
        self._rules = rules.rules
        self._max_positions = max_positions
        self._nodes: list[_Node] = []
        self._item_index: dict[Item, int] = {}
        self._token_index: dict[tuple[int | None, str | None, bool], int] = {}
        self._shared: dict[tuple[int, int], int] = {}
        self._expansions: dict[int, Expansion] = {}
        self._inlined = _inlined_groups(rules.rules)
        self._starts: dict[int, int] = {}
        self._ends: set[int] = set()
        self._waiting: list[int] = []
        self.start = self._start_of(rules.root)
        while self._waiting:
            index = self._waiting.pop()
            end = self._new_node()
            self._ends.add(end)
            self._alternatives(self._rules[index].alternatives, self._starts[index], end)
        self._shared.clear()
        self._item_index.clear()

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    def expansion(self, node: int) -> Expansion:
        """What `node` can do next. Memoised; a race computes it twice, alike."""
        known = self._expansions.get(node)
        if known is None:
            known = self._expansions[node] = self._expand(node)
        return known

    def _expand(self, begin: int) -> Expansion:
        seen = {begin: None}
        todo = [begin]
        items: dict[int, None] = {}
        calls: dict[tuple[int, int], None] = {}
        ends = False
        while todo:
            index = todo.pop()
            node = self._nodes[index]
            ends = ends or index in self._ends
            items.update(dict.fromkeys(node.items))
            for start, after in node.calls:
                calls[start, TAIL if self._only_ends(after) else after] = None
            for target in node.empty:
                if target not in seen:
                    seen[target] = None
                    todo.append(target)
        return Expansion(tuple(items), tuple(calls), ends)

    def _only_ends(self, node: int) -> bool:
        if node in self._ends:
            return True
        seen = {node}
        todo = [node]
        while todo:
            index = todo.pop()
            here = self._nodes[index]
            if here.items or here.calls:
                return False
            for target in here.empty:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return True

    def _start_of(self, rule: int) -> int:
        if rule not in self._starts:
            self._starts[rule] = self._new_node()
            self._waiting.append(rule)
        return self._starts[rule]

    def _new_node(self) -> int:
        if len(self._nodes) >= self._max_positions:
            raise LimitExceeded(
                f"grammar.gbnf: the grammar has more than {self._max_positions} positions; make its repetitions or "
                "choices smaller",
                limit=self._max_positions,
            )
        self._nodes.append(_Node())
        return len(self._nodes) - 1

    def _alternatives(self, alternatives: tuple[Alternative, ...], start: int, end: int) -> None:
        for alternative in alternatives:
            here = start
            for number, term in enumerate(alternative):
                behind = end if number == len(alternative) - 1 else None
                here = self._term(term, here, behind)
            if not alternative:
                self._nodes[start].empty.append(end)

    def _term(self, term: Term, here: int, end: int | None) -> int:
        """Puts a term behind `here`, up to `end` or, where that is None, to a node that it gives back."""
        if term.once:
            return self._element(term.element, here, end)
        element = term.element
        last = self._new_node() if end is None else end
        if self._is_long(element, max(term.least, term.most or 0)):
            element = self._as_call(element)
        for _ in range(term.least - 1):
            here = self._element(element, here, self._new_node())
        if term.most is None:
            # The loop's head is a node of its own: edges back to it must not come into anything else's beginning.
            head = self._new_node()
            if term.least > 0:
                body = self._new_node()
                self._nodes[here].empty.append(body)
                self._element(element, body, head)
                self._nodes[head].empty += [body, last]
            else:
                self._nodes[here].empty.append(head)
                self._element(element, head, head)
                self._nodes[head].empty.append(last)
            return last
        if term.least > 0:
            following = last if term.most == term.least else self._new_node()
            here = self._element(element, here, following)
        for left in range(term.most - term.least, 0, -1):
            self._nodes[here].empty.append(last)
            here = self._element(element, here, last if left == 1 else self._new_node())
        if term.most == 0:
            self._nodes[here].empty.append(last)
        return last

    def _element(self, element: Element, here: int, end: int | None) -> int:
        if isinstance(element, Literal):
            return self._literal(element.text, here, end)
        if isinstance(element, Characters):
            return self._bytes(self.byte_nodes.of_characters(element.ranges), here, end)
        behind = self._new_node() if end is None else end
        if isinstance(element, TokenElement):
            key = (element.token_id, element.spelling, element.negated)
            if key not in self._token_index:
                self._token_index[key] = len(self.tokens)
                self.tokens.append(element)
            self._nodes[here].items.append(self._item(-1, self._token_index[key], behind))
        elif self._inlined[element.rule]:
            self._alternatives(self._rules[element.rule].alternatives, here, behind)
        else:
            self._nodes[here].calls.append((self._start_of(element.rule), behind))
        return behind

    def _literal(self, text: str, here: int, end: int | None) -> int:
        if not text:
            if end is None:
                return here
            self._nodes[here].empty.append(end)
            return end
        for number, character in enumerate(text):
            behind = end if number == len(text) - 1 else None
            code = ord(character)
            here = self._bytes(self.byte_nodes.of_characters(((code, code),)), here, behind)
        return here

    def _bytes(self, byte_node: int, here: int, end: int | None) -> int:
        if end is None:
            # Only nodes made here are shared: nothing else leads to them, so what follows may join.
            behind = self._shared.get((here, byte_node))
            if behind is not None:
                return behind
            behind = self._shared[here, byte_node] = self._new_node()
        else:
            behind = end
        self._nodes[here].items.append(self._item(byte_node, -1, behind))
        return behind

    def _item(self, byte_node: int, token: int, target: int) -> int:
        item = Item(byte_node, token, target)
        known = self._item_index.get(item)
        if known is None:
            known = self._item_index[item] = len(self.items)
            self.items.append(item)
        return known

    def _is_long(self, element: Element, copies: int) -> bool:
        """Whether copying the element beats calling it: copies of groups multiply when nested, calls add."""
        return copies > 1 and isinstance(element, Reference) and self._inlined[element.rule]

    def _as_call(self, element: Element) -> Element:
        assert isinstance(element, Reference)
        self._inlined[element.rule] = False
        return element


def _inlined_groups(rules: tuple[Rule, ...]) -> list[bool]:
    """For every rule, whether its body is put where it is referred to: groups, up to a height of groups in groups."""
    inlined = [not rule.named for rule in rules]
    heights = [-1] * len(rules)
    for begin in range(len(rules)):
        todo = [begin] if inlined[begin] else []
        while todo:
            index = todo[-1]
            inner = [
                term.element.rule
                for alternative in rules[index].alternatives
                for term in alternative
                if isinstance(term.element, Reference) and not rules[term.element.rule].named
            ]
            unknown = [group for group in inner if heights[group] < 0]
            if unknown:
                todo += unknown
                continue
            todo.pop()
            heights[index] = max((1 + heights[group] for group in inner if inlined[group]), default=0)
            inlined[index] = heights[index] < _INLINE_HEIGHT
    return inlined
