"""Every kind of grammar that llguidance compiles, as one Lark text."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from constraintd.errors import InvalidField, InvalidGrammar
from constraintd.grammar.json_schema.prepare import prepare_lark, prepare_schema
from constraintd.grammar.json_schema.report import KeywordReport, Verdict
from constraintd.grammar.source import Grammar, GrammarKind
from constraintd.grammar.structural_tag import structural_tag_lark
from constraintd.grammar.tag_contents import regex_for_engine
from constraintd.grammar.tools import plan_tools
from constraintd.grammar.tools_wire import wire_of

# Last in the text: a later directive wins over the user's own, and line numbers in errors stay the user's.
_NO_FORCING: Final = '\n%llguidance {"no_forcing": true}\n'

_LENGTH: Final = struct.Struct("<I")

SpecialToken = Callable[[str], int | None]
"""The id of the special token that is spelled so, or None."""


@dataclass(frozen=True, slots=True)
class LarkSource:
    """A grammar as llguidance reads it, and for a JSON Schema what is made of each keyword."""

    text: str
    report: tuple[KeywordReport, ...] = ()

    def to_bytes(self) -> bytes:
        """For another process of this daemon."""
        text = self.text.encode(errors="surrogatepass")  # half a character is for the engine to refuse
        # A line an entry: whoever reads it back is never long in one call that no other thread can interrupt.
        lines = [json.dumps([entry.pointer, entry.keyword, entry.verdict.value, entry.detail]) for entry in self.report]
        return _LENGTH.pack(len(text)) + text + "\n".join(lines).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> LarkSource:
        """What `to_bytes` wrote. Raises ValueError for anything else."""
        if len(data) < _LENGTH.size or len(data) < (end := _LENGTH.size + _LENGTH.unpack_from(data)[0]):
            raise ValueError(f"a Lark source of {len(data)} bytes is cut off")
        view = memoryview(data)
        lines = bytes(view[end:]).splitlines()
        return cls(str(view[_LENGTH.size : end], "utf-8", "surrogatepass"), tuple(_entry(line) for line in lines))


def _entry(line: bytes) -> KeywordReport:
    match json.loads(line):
        case [str(pointer), str(keyword), str(verdict), str(detail)]:
            return KeywordReport(pointer, keyword, Verdict(verdict), detail)
    raise ValueError("an entry of a report has another shape")


def to_lark(grammar: Grammar, special_token: SpecialToken) -> LarkSource:
    """The grammar with `no_forcing`. Raises InvalidGrammar for what can't be enforced as it stands."""
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        prepared = prepare_lark(grammar.texts[0], grammar.options)
        return LarkSource(prepared.text + _NO_FORCING, prepared.report)
    return LarkSource(_source(grammar, special_token) + _NO_FORCING)


def _source(grammar: Grammar, special_token: SpecialToken) -> str:
    text = grammar.texts[0] if grammar.texts else ""
    match grammar.kind:
        case GrammarKind.LARK:
            return text
        case GrammarKind.REGEX:
            return f"start: /{regex_for_engine(text)}/"
        case GrammarKind.CHOICE:
            # One terminal: the lexer decides among thousands at once, where rules would each add an item a row.
            return "start: CHOICE\nCHOICE: " + " | ".join(_lark_string(choice) for choice in grammar.texts)
        case GrammarKind.JSON_OBJECT:
            return "start: %json " + prepare_schema('{"type":"object"}', grammar.options).engine_json
        case GrammarKind.STRUCTURAL_TAG:
            return structural_tag_lark(text, options=grammar.options, special_token=special_token)
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
            options=grammar.options,
            special_token=special_token,
        )
    except InvalidField as error:
        raise InvalidGrammar(f"tool_calls: {error.message}", location=error.metadata["field"]) from None
    return plan.lark


def _lark_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
