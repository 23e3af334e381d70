"""Structural tags as values: the two JSON forms that XGrammar and vLLM users send, read into one tree.

Source: XGrammar's structural tag formats. The older form (`structures`, `triggers`) is the newer form's triggered_tags.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final, NoReturn

from constraintd.errors import InvalidGrammar
from constraintd.grammar.source import canonical_json

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_DEPTH: Final = 64
"""Formats inside formats; deeper ones are refused."""


@dataclass(frozen=True, slots=True)
class ConstString:
    """Exactly this text."""

    pointer: str
    value: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON by a schema."""

    pointer: str
    schema: Json
    max_whitespace: int | None
    """Most white space between two parts of the JSON, in characters; None for the server's own bound."""
    any_order: bool = False
    """The members of the object come in any order, not in the schema's."""


@dataclass(frozen=True, slots=True)
class Regex:
    """What a regular expression matches as a whole."""

    pointer: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Ebnf:
    """What a grammar in XGrammar's EBNF generates from `root`."""

    pointer: str
    text: str


@dataclass(frozen=True, slots=True)
class AnyText:
    """Text without any of `excludes`, up to the first end of the tag that it stands in."""

    pointer: str
    excludes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Its elements in order."""

    pointer: str
    elements: tuple[Format, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of its elements."""

    pointer: str
    elements: tuple[Format, ...]


@dataclass(frozen=True, slots=True)
class Tag:
    """A begin, content, and one of the ends."""

    pointer: str
    begin: str
    content: Format
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TriggeredTags:
    """Free text in which each trigger begins one of the tags."""

    pointer: str
    triggers: tuple[str, ...]
    tags: tuple[Tag, ...]
    excludes: tuple[str, ...]
    at_least_one: bool
    """A tag comes first, with no text before it."""
    stop_after_first: bool
    """Nothing follows the first tag."""


@dataclass(frozen=True, slots=True)
class TagsWithSeparator:
    """Tags with a separator between each two."""

    pointer: str
    tags: tuple[Format, ...]
    separator: Format
    at_least_one: bool
    stop_after_first: bool


Format = ConstString | JsonSchema | Regex | Ebnf | AnyText | Sequence | Or | Tag | TriggeredTags | TagsWithSeparator


def parse_structural_tag(text: str) -> Format:
    """The format of a structural tag's JSON text.

    Raises InvalidGrammar with a JSON pointer for what is missing, unknown, of another type, or not taken here.
    """
    document = json.loads(canonical_json(text), parse_float=_finite)
    tag = _Members(document, "", "structural_tag")
    if tag.has("type") and tag.text("type") != "structural_tag":
        refuse("/type", 'is "structural_tag", or left out')
    if tag.has("structures"):
        parsed: Format = _older_form(tag)
    else:
        parsed = _format(tag.needed("format"), "/format", 0)
    tag.close()
    return parsed


def refuse(pointer: str, message: str) -> NoReturn:
    """Raises InvalidGrammar about the place in the source that a JSON pointer names."""
    raise InvalidGrammar(f"grammar.structural_tag: {pointer or '/'}: {message}", location=pointer or "/")


def _older_form(tag: _Members) -> TriggeredTags:
    tags = []
    for i, item in enumerate(tag.items("structures")):
        structure = _Members(item, f"/structures/{i}", "a structure")
        schema = _schema(structure, "schema", None)
        tags.append(Tag(structure.pointer, structure.text("begin"), schema, (structure.text("end"),)))
        structure.close()
    return TriggeredTags("/structures", _triggers(tag), tuple(tags), (), at_least_one=False, stop_after_first=False)


def _format(value: Json, pointer: str, depth: int, *, type_: str | None = None) -> Format:
    if depth > MAX_DEPTH:
        refuse(pointer, f"is nested deeper than {MAX_DEPTH} formats; flatten it")
    members = _Members(value, pointer, "a format")
    if type_ is None or members.has("type"):
        named = members.text("type")
        if type_ is not None and named != type_:
            refuse(f"{pointer}/type", f'is "{type_}" here, or left out')
        type_ = named
    parsed: Format
    match type_:
        case "const_string":
            parsed = ConstString(pointer, members.text("value"))
        case "json_schema":
            parsed = _json_schema(members)
        case "regex":
            parsed = Regex(pointer, members.text("pattern"))
        case "grammar":
            parsed = Ebnf(pointer, members.text("grammar"))
        case "any_text":
            parsed = AnyText(pointer, members.texts("excludes"))
        case "sequence":
            parsed = Sequence(pointer, _formats(members, depth))
        case "or":
            parsed = Or(pointer, _formats(members, depth))
        case "tag":
            begin = members.needed("begin")
            if isinstance(begin, dict):
                refuse(f"{pointer}/begin", "begins by a token format, which this server doesn't take; give its text")
            ends = members.needed("end")
            end_texts = members.texts("end") if isinstance(ends, list) else (members.text("end"),)
            if not end_texts:
                refuse(f"{pointer}/end", "is an empty list; name at least one end")
            content = _format(members.needed("content"), f"{pointer}/content", depth + 1)
            parsed = Tag(pointer, members.text("begin"), content, tuple(dict.fromkeys(end_texts)))
        case "triggered_tags":
            parsed = TriggeredTags(
                pointer,
                _triggers(members),
                _tags(members, depth),
                members.texts("excludes"),
                members.flag("at_least_one"),
                members.flag("stop_after_first"),
            )
        case "tags_with_separator":
            separator = ConstString(f"{pointer}/separator", members.text("separator"))
            flags = members.flag("at_least_one"), members.flag("stop_after_first")
            parsed = TagsWithSeparator(pointer, _tags(members, depth), separator, *flags)
        case _:
            refuse(
                f"{pointer}/type",
                f'the format type "{type_}" is not taken here; the types are const_string, json_schema, regex, '
                "grammar, any_text, sequence, or, tag, triggered_tags and tags_with_separator",
            )
    members.close()
    return parsed


def _formats(members: _Members, depth: int) -> tuple[Format, ...]:
    return tuple(
        _format(item, f"{members.pointer}/elements/{i}", depth + 1) for i, item in enumerate(members.items("elements"))
    )


def _tags(members: _Members, depth: int) -> tuple[Tag, ...]:
    tags = []
    for i, item in enumerate(members.items("tags")):
        tag = _format(item, f"{members.pointer}/tags/{i}", depth + 1, type_="tag")
        assert isinstance(tag, Tag)
        tags.append(tag)
    return tuple(tags)


def _triggers(members: _Members) -> tuple[str, ...]:
    members.items("triggers")
    return tuple(dict.fromkeys(members.texts("triggers")))


def _json_schema(members: _Members) -> JsonSchema:
    if members.has("style") and members.text("style") != "json":
        refuse(f"{members.pointer}/style", f'the style "{members.text("style")}" is not taken here; "json" is')
    space = members.optional("max_whitespace_cnt")
    if space is not None and (not isinstance(space, int) or isinstance(space, bool) or not 0 <= space <= 4096):
        refuse(f"{members.pointer}/max_whitespace_cnt", "is a whole number from 0 to 4096")
    return _schema(members, "json_schema", space, any_order=members.flag("any_order"))


def _schema(members: _Members, name: str, space: int | None, *, any_order: bool = False) -> JsonSchema:
    schema = members.needed(name)
    pointer = f"{members.pointer}/{name}"
    if not isinstance(schema, (dict, bool)):
        refuse(pointer, "a JSON Schema is an object or a boolean")
    return JsonSchema(pointer, schema, space, any_order)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise InvalidGrammar(f"grammar.structural_tag: the number {number[:40]} is out of range")
    return value


class _Members:
    """The members of one JSON object; knows which were asked for, so that `close` can name one that nobody knows."""

    def __init__(self, value: Json, pointer: str, what: str) -> None:
        if not isinstance(value, dict):
            refuse(pointer, f"{what} is a JSON object")
        self.pointer = pointer
        self._members = value
        self._known: set[str] = set()

    def has(self, name: str) -> bool:
        """True if it is there and not null: a null member is one left out."""
        self._known.add(name)
        return self._members.get(name) is not None

    def optional(self, name: str) -> Json:
        """The member, or None."""
        self._known.add(name)
        return self._members.get(name)

    def needed(self, name: str) -> Json:
        """The member, which has to be there."""
        if not self.has(name):
            refuse(self.pointer, f'the member "{name}" is missing')
        return self._members[name]

    def text(self, name: str) -> str:
        """A string that has to be there."""
        return _text(self.needed(name), f"{self.pointer}/{name}")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty if left out. Only ends may be empty texts."""
        if not self.has(name):
            return ()
        value = self._members[name]
        if not isinstance(value, list):
            refuse(f"{self.pointer}/{name}", "is a list of strings")
        texts = tuple(_text(item, f"{self.pointer}/{name}/{i}") for i, item in enumerate(value))
        if name != "end" and "" in texts:
            refuse(f"{self.pointer}/{name}/{texts.index('')}", "is an empty text, which stands everywhere")
        return texts

    def items(self, name: str) -> list[Json]:
        """A list of at least one, which has to be there."""
        value = self.needed(name)
        if not isinstance(value, list) or not value:
            refuse(f"{self.pointer}/{name}", "is a list of at least one")
        return value

    def flag(self, name: str) -> bool:
        """A boolean; false if left out."""
        value = self._members[name] if self.has(name) else False
        if not isinstance(value, bool):
            refuse(f"{self.pointer}/{name}", "is true or false")
        return value

    def close(self) -> None:
        """Refuses a member that was never asked for."""
        for name, value in self._members.items():
            if name not in self._known and value is not None:
                pointer = f"{self.pointer}/{name.replace('~', '~0').replace('/', '~1')}"
                refuse(pointer, "is not a member that this server knows here; take it out")


def _text(value: Json, pointer: str) -> str:
    if not isinstance(value, str):
        refuse(pointer, "is a string")
    if any("\ud800" <= character <= "\udfff" for character in value):
        refuse(pointer, "holds half of a surrogate pair, which no text does")
    return value
