"""From a structural tag's formats to its automaton.

A format means what XGrammar's own tests show. Where they leave it open, this holds:

- Free text goes up to the first place where an end of its tag, or a trigger, is complete. Its `excludes` hold for the
  text alone, so an end may begin with an excluded text.
- A trigger found in free text begins a tag; there is no other way on.
- Text never matches a special token. Where the vocabulary is known, a marker (a begin, end, separator, trigger or
  const_string) is spelled as its tokenizer would: special tokens by id, the rest as text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from constraintd.grammar.structural_tag_any_order import add_any_order
from constraintd.grammar.structural_tag_ebnf import parse_ebnf
from constraintd.grammar.structural_tag_ebnf_graph import add_ebnf
from constraintd.grammar.structural_tag_format import (
    AnyText,
    ConstString,
    Ebnf,
    Format,
    JsonSchema,
    Or,
    Regex,
    Sequence,
    Tag,
    TagsWithSeparator,
    TriggeredTags,
    refuse,
)
from constraintd.grammar.structural_tag_graph import Graph, Opaque
from constraintd.grammar.structural_tag_terminal import EMPTY, Terminal, literal, up_to, without

Spelling = tuple[str | int, ...]
"""A marker's pieces: text, or the id of a special token."""

_LONGEST_SPECIAL: Final = 64
"""Special tokens of more characters are not looked for inside a marker."""


@dataclass(frozen=True, slots=True)
class Contents:
    """How contents that have a language of their own become parts of the automaton."""

    json: Callable[[JsonSchema], Terminal | Opaque]
    regex: Callable[[Regex], Terminal]
    special_token: Callable[[str], int | None] | None


class Builder:
    """Adds formats to one graph. `ends` are what closes the tag that a format is the last part of."""

    def __init__(self, graph: Graph, contents: Contents) -> None:
        self._graph = graph
        self._contents = contents

    def add(self, format_: Format, start: int, end: int, ends: tuple[str, ...] = ()) -> None:
        """Adds a format and, if there are any, one of the ends. Raises InvalidGrammar with a JSON pointer."""
        match format_:
            case AnyText(_, excludes):
                self._free_text(start, end, (), excludes, ends)
            case TriggeredTags():
                self._triggered(format_, start, end, ends)
            case Sequence(_, elements):
                for element in elements[:-1]:
                    if _is_open(element):
                        refuse(element.pointer, "is free text without excludes, so what follows could never be told")
                    after = self._graph.node(cut=True)
                    self.add(element, start, after)
                    start = after
                self.add(elements[-1], start, end, ends)
            case Or(_, elements):
                for element in elements:
                    self.add(element, start, end, ends)
            case _ if ends:
                after = self._graph.node()
                self.add(format_, start, after)
                for text in ends:
                    self._marker(after, text, end)
            case Tag():
                inside = self._graph.node()
                self._marker(start, format_.begin, inside)
                self._closed(format_, inside, end)
            case TagsWithSeparator():
                self._separated(format_, start, end)
            case ConstString(_, value):
                self._marker(start, value, end)
            case JsonSchema(any_order=True):
                add_any_order(self._graph, format_, self._contents.json, start, end)
            case JsonSchema():
                self._graph.add(start, self._contents.json(format_), end)
            case Regex():
                self._graph.add(start, self._contents.regex(format_), end)
            case Ebnf(pointer, text):
                add_ebnf(self._graph, parse_ebnf(text, pointer), start, end, pointer)

    def _closed(self, tag: Tag, start: int, end: int) -> None:
        if "" in tag.ends and _is_open(tag.content):
            refuse(f"{tag.pointer}/end", "an empty end never closes free text; name the text that does")
        self.add(tag.content, start, end, tag.ends)

    def _separated(self, format_: TagsWithSeparator, start: int, end: int) -> None:
        before, after = self._graph.node(cut=True), self._graph.node(cut=True)
        self._graph.add(start, EMPTY, before)
        for tag in format_.tags:
            self.add(tag, before, after)
        self._graph.add(after, EMPTY, end)
        if not format_.at_least_one:
            self._graph.add(start, EMPTY, end)
        if not format_.stop_after_first:
            self.add(format_.separator, after, before)

    def _triggered(self, format_: TriggeredTags, start: int, end: int, ends: tuple[str, ...]) -> None:
        after = self._graph.node(cut=True)
        openings = self._openings(format_)
        if format_.at_least_one:
            first = self._graph.node()
            self._graph.add(start, EMPTY, first)
            for tag in format_.tags:
                self.add(tag, first, after)
        if format_.stop_after_first:
            for text in ends or ("",):
                self._marker(after, text, end)
        if format_.at_least_one and format_.stop_after_first:
            return
        free = self._graph.node(cut=True)
        self._graph.add(after if format_.at_least_one else start, EMPTY, free)
        if not format_.at_least_one and not format_.stop_after_first:
            self._graph.add(after, EMPTY, free)
        opened = self._free_text(free, end, tuple(openings), format_.excludes, ends, pointer=format_.pointer)
        for trigger, node in opened.items():
            for tag, rest in openings[trigger]:
                inside = self._graph.node()
                self._pieces(node, rest, inside)
                self._closed(tag, inside, after)

    def _openings(self, format_: TriggeredTags) -> dict[Spelling, list[tuple[Tag, Spelling]]]:
        """What begins tags in free text, and how each of its tags goes on."""
        openings: dict[Spelling, list[tuple[Tag, Spelling]]] = {}
        spelled = {trigger: self._spell(trigger) for trigger in format_.triggers}
        for trigger in spelled.values():
            openings[trigger] = []
        for tag in format_.tags:
            matching = [trigger for trigger in format_.triggers if tag.begin.startswith(trigger)]
            if len(matching) != 1:
                which = f"begins with the triggers {matching}" if matching else "begins with none of the triggers"
                refuse(f"{tag.pointer}/begin", f"{tag.begin!r} {which}; a tag begins with exactly one")
            trigger, rest = spelled[matching[0]], self._spell(tag.begin[len(matching[0]) :])
            whole = self._spell(tag.begin)
            if _join(trigger + rest) != whole:
                # The trigger ends inside a special token, which free text can't hold: the token is what begins the tag.
                cut = next(i for i, piece in enumerate(whole) if isinstance(piece, int)) + 1
                trigger, rest = whole[:cut], whole[cut:]
            openings.setdefault(trigger, []).append((tag, rest))
        return openings

    def _free_text(
        self,
        start: int,
        end: int,
        triggers: tuple[Spelling, ...],
        excludes: tuple[str, ...],
        ends: tuple[str, ...],
        pointer: str = "",
    ) -> dict[Spelling, int]:
        """Adds free text up to a trigger, or to an end, or to where everything ends; the nodes after the triggers."""
        spelled = [self._spell(text) for text in ends]
        texts = [text for closer in [*triggers, *spelled] if (text := _only_text(closer))]
        for trigger, closing in ((_only_text(t), _only_text(c)) for t in triggers for c in spelled):
            if trigger and closing and trigger in closing:
                refuse(pointer, f"the end {closing!r} holds the trigger {trigger!r}, so it could never be reached")
        opened = {trigger: self._graph.node(cut=True) for trigger in triggers}
        for closer, after in [*opened.items(), *((closing, end) for closing in spelled or [()])]:
            text = _only_text(closer)
            if text:
                self._graph.add(start, up_to(text, closers=texts, excludes=excludes), after)
                continue
            # Up to a special token, or to the end of everything: the text itself never says where.
            lead = closer[0] if closer and isinstance(closer[0], str) else ""
            before = self._graph.node()
            label = up_to(lead, closers=texts, excludes=excludes) if lead else without([*excludes, *texts])
            self._graph.add(start, label, before)
            self._pieces(before, closer[1:] if lead else closer, after)
        return opened

    def _marker(self, start: int, text: str, end: int) -> None:
        self._pieces(start, self._spell(text), end)

    def _pieces(self, start: int, pieces: Spelling, end: int) -> None:
        for piece in pieces[:-1]:
            after = self._graph.node()
            self._piece(start, piece, after)
            start = after
        if pieces:
            self._piece(start, pieces[-1], end)
        else:
            self._graph.add(start, EMPTY, end)

    def _piece(self, start: int, piece: str | int, end: int) -> None:
        label = literal(piece) if isinstance(piece, str) else Opaque(f"<[{piece}]>", "", frozenset())
        self._graph.add(start, label, end)

    def _spell(self, text: str) -> Spelling:
        special = self._contents.special_token
        if special is None:
            return (text,) if text else ()
        whole = special(text)
        if whole is not None:
            return (whole,)
        pieces: list[str | int] = []
        at = 0
        while at < len(text):
            for length in range(min(_LONGEST_SPECIAL, len(text) - at), 0, -1):
                token = special(text[at : at + length])
                if token is not None:
                    pieces.append(token)
                    at += length
                    break
            else:
                pieces.append(text[at])
                at += 1
        return _join(tuple(pieces))


def _join(pieces: Spelling) -> Spelling:
    """Neighbouring texts made one."""
    joined: list[str | int] = []
    for piece in pieces:
        if joined and isinstance(piece, str) and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return tuple(joined)


def _only_text(spelling: Spelling) -> str:
    """The text of a marker without special tokens; empty for any other."""
    return "".join(map(str, spelling)) if all(isinstance(piece, str) for piece in spelling) else ""


def _is_open(format_: Format) -> bool:
    """True if it can end in free text that nothing closes."""
    match format_:
        case AnyText(_, excludes):
            return not excludes
        case TriggeredTags():
            return not format_.excludes and not (format_.at_least_one and format_.stop_after_first)
        case Sequence(_, elements):
            return _is_open(elements[-1])
        case Or(_, elements):
            return any(map(_is_open, elements))
        case _:
            return False
