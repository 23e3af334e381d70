"""Structural tags: text in which JSON, regexes and grammars stand between fixed markers, as one Lark grammar.

Read in four steps: `structural_tag_format` (JSON to formats), `structural_tag_build` (formats to an automaton over
regular languages and opaque parts), `structural_tag_lark` (automaton to Lark), each with its reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from constraintd.errors import InvalidGrammar
from constraintd.grammar.json_schema.report import SchemaOptions
from constraintd.grammar.structural_tag_build import Builder, Contents
from constraintd.grammar.structural_tag_format import Format, Json, JsonSchema, Regex, parse_structural_tag, refuse
from constraintd.grammar.structural_tag_graph import Graph, Opaque
from constraintd.grammar.structural_tag_lark import lark_of
from constraintd.grammar.structural_tag_overlap import CantRead, Overlaps
from constraintd.grammar.structural_tag_terminal import Terminal, pattern
from constraintd.grammar.tag_contents import placed, regex_for_engine, schema_for_engine

SpecialToken = Callable[[str], int | None]
"""The id of the special token that is spelled so, or None."""

DEFAULT_OPTIONS: Final = SchemaOptions()
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
    text: str, *, options: SchemaOptions = DEFAULT_OPTIONS, special_token: SpecialToken | None = None
) -> str:
    """The Lark grammar (start rule `start`) of a structural tag's JSON text, for llguidance with `no_forcing`.

    options are those of the schemas inside. special_token maps a text to the special token that is spelled so; without
    it markers are text.

    Raises InvalidGrammar, its location a JSON pointer, for what is malformed, not taken here, or ambiguous;
    LimitExceeded for a schema that is too large.
    """
    return format_lark(parse_structural_tag(text), options=options, special_token=special_token)


def format_lark(
    format_: Format, *, options: SchemaOptions = DEFAULT_OPTIONS, special_token: SpecialToken | None = None
) -> str:
    """The same for a format that is a value already."""
    overlaps = Overlaps()
    graph = Graph()
    start, final = graph.node(), graph.node()

    def json_part(part: JsonSchema) -> Terminal | Opaque:
        return _json_part(part, options)

    def regex_part(part: Regex) -> Terminal:
        place = f"{part.pointer}/pattern"
        try:
            source = regex_for_engine(part.pattern)
            return pattern(source, nullable=overlaps.beginnings(pattern(source, nullable=False)).empty)
        except InvalidGrammar as error:
            raise placed(error, place) from None
        except CantRead as error:
            refuse(place, str(error))

    Builder(graph, Contents(json_part, regex_part, special_token)).add(format_, start, final)
    try:
        return lark_of(graph, start, final, overlaps)
    except CantRead as error:
        refuse("", f"{error}; use fewer or shorter triggers, excludes and regexes")


def _json_part(part: JsonSchema, options: SchemaOptions) -> Terminal | Opaque:
    schema = part.schema
    try:
        prepared = schema_for_engine(schema, options)
    except InvalidGrammar as error:
        raise placed(error, part.pointer) from None
    if (
        isinstance(schema, dict)
        and schema.keys() - _ANNOTATIONS == {"type"}
        and schema["type"] in ("integer", "number")
    ):
        # A plain number is regular, and where it ends depends on what follows: so it joins with that.
        return pattern(_NUMBERS[str(schema["type"])], nullable=False)
    if part.max_whitespace is not None:
        document = json.loads(prepared)
        guidance = document["x-guidance"]
        if part.max_whitespace:
            guidance["whitespace_pattern"] = rf"[ \n\t\r]{{1,{part.max_whitespace}}}"
        else:
            guidance.pop("whitespace_pattern", None)
            guidance["whitespace_flexible"] = False
        prepared = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
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
