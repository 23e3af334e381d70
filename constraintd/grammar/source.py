"""A grammar's source, its canonical form and its id.

The canonical form is what the grammar means, byte for byte: JSON keeps member order (it is the order of the properties)
and its numbers' spelling, and loses only insignificant white space. Duplicate keys are refused, since parsers differ on
which one counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

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
LARGE_BYTES: Final = 64 << 10
"""Work on more than this holds others up for longer than a hop to a thread and back takes."""
FEW_TEXTS: Final = 64
"""More than so many are a thread's to go through, however short."""


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


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A grammar as it came: UTF-8 texts that nobody has read yet. `texts` as in Grammar."""

    kind: GrammarKind
    texts: Sequence[bytes]
    options: SchemaOptions = DEFAULT_OPTIONS

    @property
    def field(self) -> str:
        """Where it stands in a request, for errors."""
        return f"grammar.{self.kind.value}"

    @property
    def is_json(self) -> bool:
        """Whether reading it parses JSON: one call that no other thread can interrupt, 10 ms a MB."""
        return self.kind in _JSON_TEXT

    def read(self, max_bytes: int) -> Grammar:
        """The canonical grammar.

        Raises TooLarge, InvalidField (no text, not UTF-8) and InvalidGrammar (not JSON, duplicate key, too deep).
        """
        if self.is_json:
            return self.canonical([self.read_json(max_bytes)])
        self._check_size(max_bytes)
        texts = self.texts
        if self.kind is GrammarKind.CHOICE:
            if not texts:
                raise InvalidField(self.field, "a choice needs at least one text")
            texts = list(dict.fromkeys(text for text in texts))
        grammar = self.canonical(texts)
        if self.kind not in (GrammarKind.CHOICE, GrammarKind.JSON_OBJECT):
            self._check_not_empty(grammar.texts[0])
        return grammar

    def read_json(self, max_bytes: int) -> bytes:
        """The canonical text of a source of JSON. Raises like `read`."""
        self._check_size(max_bytes)
        text = _decode(self.field, self.texts[0])
        self._check_not_empty(text)
        return canonical_json(text).encode()

    def canonical(self, texts: Sequence[bytes | memoryview]) -> Grammar:
        """The grammar, given its texts in canonical form. Raises InvalidField (not UTF-8)."""
        digest = hashlib.sha256(self.kind.value.encode())
        options = self.options if self.kind in _WITH_JSON else DEFAULT_OPTIONS
        if options != DEFAULT_OPTIONS:
            # Only other options than the defaults are part of the name, so that names outlive options that come later.
            chosen = (
                options.policy.value,
                options.whitespace.value,
                str(options.formats_are_annotations),
                options.property_order.value,
            )
            digest.update("\0".join(chosen).encode())
        for text in texts:
            digest.update(len(text).to_bytes(8, "little"))
            digest.update(text)
        return Grammar(self.kind, tuple([_decode(self.field, text) for text in texts]), digest.hexdigest(), options)

    def _check_size(self, max_bytes: int) -> None:
        size = size_of(self.texts)
        if size > max_bytes:
            raise TooLarge(self.field, limit=max_bytes, actual=size)

    def _check_not_empty(self, text: str) -> None:
        if not text.strip():
            raise InvalidGrammar(f"{self.field}: the text is empty; give a grammar", field=self.field, location="1:1")


def size_of(texts: Iterable[bytes] | Iterable[str]) -> int:
    """Bytes, or characters, in all. By Python's own steps, so that other threads come in between with many texts."""
    return sum(len(text) for text in texts)


def are_large(texts: Sequence[bytes] | Sequence[str]) -> bool:
    """Whether work on them is for a thread. Few are looked at."""
    return len(texts) > FEW_TEXTS or size_of(texts) > LARGE_BYTES


# A JSON string, or a run of white space between tokens. Possessive: 9 ms for a string of 1 MB, not 156.
_STRING_OR_SPACE = re.compile(r'("(?:[^"\\]++|\\.)*+")|[ \t\r\n]+')


def parse_grammar(
    kind: GrammarKind, texts: Sequence[bytes], *, max_bytes: int, options: SchemaOptions = DEFAULT_OPTIONS
) -> Grammar:
    """`GrammarSource.read` of these."""
    return GrammarSource(kind, texts, options).read(max_bytes)


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


def _decode(field: str, text: bytes | memoryview) -> str:
    try:
        return str(text, "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidField(field, f"not UTF-8 at byte {error.start}; encode the text as UTF-8") from None
