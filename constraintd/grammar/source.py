"""A grammar's source, its canonical form and its id.

The canonical form is what the grammar means, byte for byte: JSON keeps member order (it is the order of the properties)
and its numbers' spelling, and loses only insignificant white space. Duplicate keys are refused, since parsers differ on
which one counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from constraintd.errors import InvalidField, InvalidGrammar, TooLarge
from constraintd.grammar.json_schema.report import SchemaOptions


class GrammarKind(Enum):
    """The kinds of grammar, by the name of their field in the protocol."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    LARK = "lark"
    CHOICE = "choice"
    GBNF = "gbnf"
    STRUCTURAL_TAG = "structural_tag"
    TOOLS = "tools"


_JSON_TEXT = (GrammarKind.JSON_SCHEMA, GrammarKind.STRUCTURAL_TAG)
_WITH_JSON = (*_JSON_TEXT, GrammarKind.JSON_OBJECT, GrammarKind.TOOLS)
DEFAULT_OPTIONS = SchemaOptions()


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in canonical form; `grammar_id` names it.

    `texts` holds the one source text; a choice's texts; a GBNF's text and root; or the tools, the choice and the wire
    format of tool calls. `options` count only for kinds with JSON in them, and are the defaults for all others.
    """

    kind: GrammarKind
    texts: tuple[str, ...]
    grammar_id: str
    options: SchemaOptions = DEFAULT_OPTIONS


# A JSON string, or a run of white space between tokens. Possessive: 9 ms for a string of 1 MB, not 156.
_STRING_OR_SPACE = re.compile(r'("(?:[^"\\]++|\\.)*+")|[ \t\r\n]+')


def parse_grammar(
    kind: GrammarKind, texts: Sequence[bytes], *, max_bytes: int, options: SchemaOptions = DEFAULT_OPTIONS
) -> Grammar:
    """The canonical grammar of these UTF-8 texts; see Grammar.texts for how many each kind has.

    Raises TooLarge, InvalidField (no text, not UTF-8) and InvalidGrammar (not JSON, duplicate key, too deep).
    """
    field = f"grammar.{kind.value}"
    size = sum(map(len, texts))
    if size > max_bytes:
        raise TooLarge(field, limit=max_bytes, actual=size)
    decoded = [_decode(field, text) for text in texts]
    if kind is GrammarKind.CHOICE:
        if not decoded:
            raise InvalidField(field, "a choice needs at least one text")
        decoded = list(dict.fromkeys(decoded))
    elif kind is not GrammarKind.JSON_OBJECT and not decoded[0].strip():
        raise InvalidGrammar(f"{field}: the text is empty; give a grammar", field=field, location="1:1")
    if kind in _JSON_TEXT:
        decoded = [canonical_json(decoded[0])]
    digest = hashlib.sha256(kind.value.encode())
    if kind not in _WITH_JSON:
        options = DEFAULT_OPTIONS
    if options != DEFAULT_OPTIONS:
        # Only other options than the defaults are part of the name, so that names outlive options that come later.
        chosen = (
            options.policy.value,
            options.whitespace.value,
            str(options.formats_are_annotations),
            options.property_order.value,
        )
        digest.update("\0".join(chosen).encode())
    for text in decoded:
        raw = text.encode()
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return Grammar(kind, tuple(decoded), digest.hexdigest(), options)


def canonical_json(text: str) -> str:
    """The JSON text without insignificant white space, otherwise as it stands.

    Raises InvalidGrammar with line:column for what is not RFC 8259 JSON, or JSON pointer-like key for a duplicate.
    """
    try:
        json.loads(text, object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidGrammar(
            f"not JSON: {error.msg} at line {error.lineno} column {error.colno}",
            location=f"{error.lineno}:{error.colno}",
        ) from None
    except RecursionError:
        raise InvalidGrammar("the JSON is nested too deeply; flatten it or use $defs") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidGrammar(f"not usable JSON: {error}") from None
    return _STRING_OR_SPACE.sub(lambda match: match[1] or "", text)


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidGrammar(f"the key {key!r} stands twice in one object; keep one of them", location=key)
            seen.add(key)
    return members


def _refuse_constant(name: str) -> object:
    raise InvalidGrammar(f"{name} is not JSON (RFC 8259); write a number or null", location=name)


def _decode(field: str, text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidField(field, f"not UTF-8 at byte {error.start}; encode the text as UTF-8") from None
