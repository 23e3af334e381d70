"""A schema document: its dialect, its subschemas' base URIs, and where each reference leads.

References are resolved here, by the rules of JSON Schema Core 8 and 9 (2020-12) and of draft-07 section 8, and never by
fetching: what isn't in the document is named and refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from constraintd.errors import InvalidGrammar, LimitExceeded

# The engine's JSON parser stops at 128 levels; rewriting adds some to the user's own.
MAX_DEPTH: Final = 96
# The engine gives up at 50,000 schema parts of its own; past this the report alone would fill memory.
MAX_SUBSCHEMAS: Final = 50_000

_ONE: Final = (
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
_MANY: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")


class Dialect(IntEnum):
    """The drafts that are told apart, in the order of their age."""

    DRAFT4 = 4
    DRAFT6 = 6
    DRAFT7 = 7
    DRAFT2019 = 2019
    DRAFT2020 = 2020


_DIALECTS: Final = {
    "http://json-schema.org/draft-04/schema": Dialect.DRAFT4,
    "http://json-schema.org/draft-06/schema": Dialect.DRAFT6,
    "http://json-schema.org/draft-07/schema": Dialect.DRAFT7,
    "http://json-schema.org/schema": Dialect.DRAFT7,
    "https://json-schema.org/draft/2019-09/schema": Dialect.DRAFT2019,
    "https://json-schema.org/draft/2020-12/schema": Dialect.DRAFT2020,
}


class InexactNumber(float):
    """A number of the text that a double doesn't hold: more digits than it keeps, or out of its range."""


def load(text: str) -> Any:
    """The JSON value, numbers that no double holds marked. Raises InvalidGrammar for what is not JSON or too deep."""
    try:
        value = json.loads(text, parse_float=_number)
    except json.JSONDecodeError as error:
        place = f"{error.lineno}:{error.colno}"
        raise InvalidGrammar(f"grammar.json_schema: not JSON: {error.msg} at {place}", location=place) from None
    except RecursionError:
        raise InvalidGrammar("grammar.json_schema: nested too deeply; flatten it or use $defs") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidGrammar(f"grammar.json_schema: not usable JSON: {error}") from None
    _check_depth(value)
    return value


def _number(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")) or Decimal(repr(value)) != Decimal(text):
        return InexactNumber(value)
    return value


def _check_depth(value: Any) -> None:
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise InvalidGrammar(
        f"grammar.json_schema: nested deeper than {MAX_DEPTH} levels; move inner schemas to $defs", limit=MAX_DEPTH
    )


def join(pointer: str, *tokens: str | int) -> str:
    """The JSON pointer one or more tokens further down (RFC 6901)."""
    for token in tokens:
        escaped = str(token).replace("~", "~0").replace("/", "~1")
        pointer = f"{pointer}/{escaped}"
    return pointer


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Each direct subschema with its path from the schema, whatever the dialect."""
    for key in _ONE:
        if isinstance(schema.get(key), dict | bool):
            yield (key,), schema[key]
    for key in _MANY:
        if isinstance(schema.get(key), list):
            for index, item in enumerate(schema[key]):
                yield (key, index), item
    for key in _NAMED:
        if isinstance(schema.get(key), dict):
            for name, item in schema[key].items():
                if isinstance(item, dict | bool):
                    yield (key, name), item


class Document:
    """One schema document, walked once. Owns the tables of ids and anchors; read-only afterwards."""

    def __init__(self, root: Any) -> None:
        """Raises InvalidGrammar for a doubled id, LimitExceeded for too many subschemas."""
        self.root = root
        self.declared = False
        self.dialect = Dialect.DRAFT2020
        self._bases: dict[str, str] = {}
        self._resources: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}
        self.dynamic_anchors: dict[str, list[str]] = {}
        self._detect_dialect()
        self._walk()

    def _detect_dialect(self) -> None:
        declared = self.root.get("$schema") if isinstance(self.root, dict) else None
        if isinstance(declared, str) and declared.rstrip("#") in _DIALECTS:
            self.declared = True
            self.dialect = _DIALECTS[declared.rstrip("#")]

    def _walk(self) -> None:
        found = 0
        stack: list[tuple[str, Any, str]] = [("", self.root, "")]
        self._resources[""] = ""
        oldest = Dialect.DRAFT2020
        while stack:
            pointer, schema, base = stack.pop()
            found += 1
            if found > MAX_SUBSCHEMAS:
                raise LimitExceeded(
                    f"grammar.json_schema: more than {MAX_SUBSCHEMAS} subschemas; split the schema",
                    limit=MAX_SUBSCHEMAS,
                )
            if isinstance(schema, dict):
                base = self._identify(pointer, schema, base)
                oldest = min(oldest, _dialect_hint(schema))
                for path, child in subschemas(schema):
                    stack.append((join(pointer, *path), child, base))
            self._bases[pointer] = base
        if not self.declared:
            self.dialect = oldest

    def _identify(self, pointer: str, schema: dict[str, Any], base: str) -> str:
        key = "id" if self.dialect is Dialect.DRAFT4 else "$id"
        name = schema.get(key)
        overridden = "$ref" in schema and self.dialect <= Dialect.DRAFT7
        if isinstance(name, str) and not overridden:
            if name.startswith("#"):  # an anchor, up to draft-07
                self._anchors[base, name[1:]] = pointer
            else:
                base, fragment = urldefrag(_resolve(base, name))
                if self._resources.setdefault(base, pointer) != pointer and base:
                    raise InvalidGrammar(
                        f"grammar.json_schema: two schemas have the id {base!r}; give each its own",
                        location=join(pointer, key),
                    )
                if fragment:
                    self._anchors[base, fragment] = pointer
        for anchor in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(anchor), str):
                self._anchors.setdefault((base, schema[anchor]), pointer)
        if isinstance(schema.get("$dynamicAnchor"), str):
            self.dynamic_anchors.setdefault(schema["$dynamicAnchor"], []).append(pointer)
        return base

    def base_of(self, pointer: str) -> str:
        """The base URI at a pointer: its own, or that of the nearest subschema above."""
        while pointer not in self._bases:
            pointer = pointer.rpartition("/")[0]
        return self._bases[pointer]

    def resolve(self, pointer: str, reference: str) -> str | None:
        """The pointer that a reference from the schema at `pointer` leads to, None if it isn't in the document."""
        uri, fragment = urldefrag(_resolve(self.base_of(pointer), reference))
        fragment = unquote(fragment)
        resource = self._resources.get(uri)
        if resource is None:
            return None
        if not fragment or fragment.startswith("/"):
            target = resource + fragment
            return target if self.find(target) is not None else None
        return self._anchors.get((uri, fragment))

    def find(self, pointer: str) -> Any:
        """The schema at a pointer, None where there is none."""
        value = self.root
        for token in pointer.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and token in value:
                value = value[token]
            elif isinstance(value, list) and token.isdecimal() and int(token) < len(value):
                value = value[int(token)]
            else:
                return None
        return value if isinstance(value, dict | bool) else None


def _resolve(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    return urljoin(base, reference) if base else reference


def _dialect_hint(schema: dict[str, Any]) -> Dialect:
    """The newest dialect that these keywords belong to, for a document that doesn't say."""
    if any(isinstance(schema.get(key), bool) for key in ("exclusiveMinimum", "exclusiveMaximum")):
        return Dialect.DRAFT4
    if isinstance(schema.get("items"), list) or "additionalItems" in schema or "dependencies" in schema:
        return Dialect.DRAFT7
    return Dialect.DRAFT2020
