"""Every kind of grammar that llguidance compiles, as one Lark text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llguidance._lib import regex_to_lark

from constraintd.errors import InvalidField, InvalidGrammar
from constraintd.grammar.json_schema.prepare import prepare_schema
from constraintd.grammar.json_schema.report import KeywordReport, SchemaOptions
from constraintd.grammar.regex_meaning import check_python_pattern
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.grammar.structural_tag import structural_tag_lark
from constraintd.grammar.tools import plan_tools
from constraintd.grammar.tools_wire import wire_of

# Last in the text: a later directive wins over the user's own, and line numbers in errors stay the user's.
_NO_FORCING: Final = '\n%llguidance {"no_forcing": true}\n'

SpecialToken = Callable[[str], int | None]
"""The id of the special token that is spelled so, or None."""


@dataclass(frozen=True, slots=True)
class LarkSource:
    """A grammar as llguidance reads it, and for a JSON Schema what is made of each keyword."""

    text: str
    report: tuple[KeywordReport, ...] = ()


def to_lark(grammar: Grammar, special_token: SpecialToken) -> LarkSource:
    """The grammar with `no_forcing`. Raises InvalidGrammar for what can't be enforced as it stands."""
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        prepared = prepare_schema(grammar.texts[0], grammar.options)
        return LarkSource(f"start: %json {prepared.engine_json}{_NO_FORCING}", prepared.report)
    return LarkSource(_source(grammar, special_token) + _NO_FORCING)


def _source(grammar: Grammar, special_token: SpecialToken) -> str:
    text = grammar.texts[0] if grammar.texts else ""
    match grammar.kind:
        case GrammarKind.LARK:
            return text
        case GrammarKind.REGEX:
            return f"start: /{_spelled(text)}/"
        case GrammarKind.CHOICE:
            # One terminal: the lexer decides among thousands at once, where rules would each add an item a row.
            return "start: CHOICE\nCHOICE: " + " | ".join(_lark_string(choice) for choice in grammar.texts)
        case GrammarKind.JSON_OBJECT:
            return "start: %json " + prepare_schema('{"type":"object"}', grammar.options).engine_json
        case GrammarKind.STRUCTURAL_TAG:
            return structural_tag_lark(
                text, schema_json=_schema(grammar.options), regex_source=_regex, special_token=special_token
            )
        case GrammarKind.TOOLS:
            return _tools(grammar, special_token)
    raise AssertionError(f"{grammar.kind} has another engine")


def _tools(grammar: Grammar, special_token: SpecialToken) -> str:
    tools, choice, wire = grammar.texts
    wire_format, parallel = wire_of(wire)
    try:
        plan = plan_tools(
            tools,
            choice,
            wire_format=wire_format,
            parallel_tool_calls=parallel,
            schema_json=_schema(grammar.options),
            special_token=special_token,
        )
    except InvalidField as error:
        raise InvalidGrammar(f"tool_calls: {error.message}", location=error.metadata["field"]) from None
    return plan.lark


def _schema(options: SchemaOptions) -> Callable[[str, object], str]:
    def prepare(pointer: str, schema: object) -> str:
        try:
            return prepare_schema(json.dumps(schema, ensure_ascii=False), options).engine_json
        except InvalidGrammar as error:
            place = pointer.rstrip("/") + error.metadata.get("location", "")
            raise InvalidGrammar(f"{pointer}: {error.message}", **{**error.metadata, "location": place}) from None

    return prepare


def _regex(pointer: str, pattern: str) -> str:
    try:
        return _spelled(pattern)
    except InvalidGrammar as error:
        place = f"{pointer}/pattern"
        raise InvalidGrammar(f"{place}: {error.message}", **{**error.metadata, "location": place}) from None


def _spelled(pattern: str) -> str:
    return regex_to_lark(check_python_pattern(pattern), use_ascii="")


def _lark_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
