"""Structural tags: text in which JSON, regexes and grammars stand between fixed markers, as one Lark grammar.

Read in four steps: `structural_tag_format` (JSON to formats), `structural_tag_build` (formats to an automaton over
regular languages and opaque parts), `structural_tag_lark` (automaton to Lark), each with its reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from llguidance._lib import regex_to_lark

from constraintd.grammar.json_schema.prepare import BOUNDED_WHITESPACE
from constraintd.grammar.structural_tag_build import Builder, Contents
from constraintd.grammar.structural_tag_format import Format, Json, JsonSchema, Regex, parse_structural_tag, refuse
from constraintd.grammar.structural_tag_graph import Graph, Opaque
from constraintd.grammar.structural_tag_lark import lark_of
from constraintd.grammar.structural_tag_overlap import CantRead, Overlaps
from constraintd.grammar.structural_tag_terminal import Terminal, pattern

SchemaJson = Callable[[str, Json], str]
"""Makes a schema at a JSON pointer ready for `%json`. Raises InvalidGrammar."""
RegexSource = Callable[[str, str], str]
"""Makes a regex at a JSON pointer ready to stand between slashes in Lark. Raises InvalidGrammar."""
SpecialToken = Callable[[str], int | None]
"""The id of the special token that is spelled so, or None."""

# The same as everywhere else in this server: some white space, never without end.
_JSON_OPTIONS: Final = {
    "whitespace_pattern": BOUNDED_WHITESPACE,
    "json_allow_general_unicode_escapes": True,
}
_INTEGER: Final = r"-?(?:0|[1-9][0-9]*)"
_NUMBERS: Final = {"integer": _INTEGER, "number": rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"}
_ANNOTATIONS: Final = {"title", "description", "examples", "default", "$comment", "$schema"}
_BEGINNINGS: Final = {
    "object": "{",
    "array": "[",
    "string": '"',
    "boolean": "tf",
    "null": "n",
    "number": "-0123456789",
    "integer": "-0123456789",
}
_NUMBER_GOES_ON: Final = frozenset(map(ord, "0123456789.eE+-"))


def structural_tag_lark(
    text: str,
    *,
    schema_json: SchemaJson | None = None,
    regex_source: RegexSource | None = None,
    special_token: SpecialToken | None = None,
) -> str:
    """The Lark grammar (start rule `start`) of a structural tag's JSON text, for llguidance with `no_forcing`.

    schema_json and regex_source prepare contents; the defaults are this server's plain ones. special_token maps a text
    to the special token that is spelled so; without it markers are text.

    Raises InvalidGrammar, its location a JSON pointer, for what is malformed, not taken here, or ambiguous.
    """
    return format_lark(
        parse_structural_tag(text), schema_json=schema_json, regex_source=regex_source, special_token=special_token
    )


def format_lark(
    format_: Format,
    *,
    schema_json: SchemaJson | None = None,
    regex_source: RegexSource | None = None,
    special_token: SpecialToken | None = None,
) -> str:
    """The same for a format that is a value already."""
    overlaps = Overlaps()
    graph = Graph()
    start, final = graph.node(), graph.node()
    schema_json = schema_json or plain_schema_json
    regex_source = regex_source or plain_regex_source

    def json_part(part: JsonSchema) -> Terminal | Opaque:
        return _json_part(part, schema_json)

    def regex_part(part: Regex) -> Terminal:
        source = regex_source(part.pointer, part.pattern)
        try:
            return pattern(source, nullable=overlaps.beginnings(pattern(source, nullable=False)).empty)
        except CantRead as error:
            refuse(f"{part.pointer}/pattern", str(error))

    Builder(graph, Contents(json_part, regex_part, special_token)).add(format_, start, final)
    try:
        return lark_of(graph, start, final, overlaps)
    except CantRead as error:
        refuse("", f"{error}; use fewer or shorter triggers, excludes and regexes")


def plain_schema_json(pointer: str, schema: Json) -> str:
    """The schema with this server's options for the engine. Raises InvalidGrammar."""
    if schema is False:
        refuse(pointer, "the schema is false, which nothing satisfies")
    members = {} if schema is True else schema
    if not isinstance(members, dict):
        refuse(pointer, "a JSON Schema is an object or a boolean")
    if "x-guidance" in members:
        refuse(f"{pointer}/x-guidance", "holds engine options and is no part of JSON Schema; take it out")
    return json.dumps({"x-guidance": _JSON_OPTIONS, **members}, ensure_ascii=False, separators=(",", ":"))


def plain_regex_source(pointer: str, regex: str) -> str:
    """The regex in Lark's spelling, without the anchors at its ends, which change nothing. Raises InvalidGrammar."""
    try:
        source = regex_to_lark(regex, use_ascii="")
    except ValueError as error:
        refuse(f"{pointer}/pattern", str(error))
    assert isinstance(source, str)
    return f"(?:{source})"


def _json_part(part: JsonSchema, schema_json: SchemaJson) -> Terminal | Opaque:
    schema = part.schema
    prepared = schema_json(part.pointer, schema)
    if (
        isinstance(schema, dict)
        and schema.keys() - _ANNOTATIONS == {"type"}
        and schema["type"] in ("integer", "number")
    ):
        # A plain number is regular, and where it ends depends on what follows: so it joins with that.
        return pattern(_NUMBERS[str(schema["type"])], nullable=False)
    if part.max_whitespace is not None:
        document = json.loads(prepared)
        options = document.get("x-guidance") or {}
        if part.max_whitespace:
            options["whitespace_pattern"] = rf"[ \n\t\r]{{1,{part.max_whitespace}}}"
        else:
            options.pop("whitespace_pattern", None)
            options["whitespace_flexible"] = False
        prepared = json.dumps({**document, "x-guidance": options}, ensure_ascii=False, separators=(",", ":"))
    first = frozenset(map(ord, _first_characters(schema)))
    extends = _NUMBER_GOES_ON if first & _NUMBER_GOES_ON else frozenset()
    return Opaque(f"%json {prepared}", part.pointer, first, extends)


def _first_characters(schema: Json) -> str:
    """What its instances can begin with; all that JSON can, where the schema doesn't say it at its top."""
    if isinstance(schema, dict):
        if "const" in schema:
            return json.dumps(schema["const"])[0]
        values, types = schema.get("enum"), schema.get("type")
        if isinstance(values, list):
            return "".join(json.dumps(value)[0] for value in values)
        types = types if isinstance(types, list) else [types]
        if all(isinstance(type_, str) and type_ in _BEGINNINGS for type_ in types):
            return "".join(_BEGINNINGS[str(type_)] for type_ in types)
    return "".join(_BEGINNINGS.values())
