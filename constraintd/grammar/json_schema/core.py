"""The core form: the few schema shapes that the engine reads exactly, and questions about them.

A core is True, False or a dict with some of: type, enum, minimum, maximum, exclusiveMinimum, exclusiveMaximum,
multipleOf, minLength, maxLength, pattern (engine spelling), prefixItems, items, minItems, maxItems, properties,
patternProperties, additionalProperties, required, minProperties, maxProperties, allOf, anyOf, $ref. A `$ref` is the
JSON pointer of its target in the user's document. Every key is a conjunct. Cores are never changed once built, so parts
may be shared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

Core: TypeAlias = bool | dict[str, Any]
# What a $ref stands for; None while that is still being built.
Resolve: TypeAlias = Callable[[str], Core | None]

TYPES: Final = ("null", "boolean", "number", "string", "array", "object")
NUMERIC: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
OF_ARRAYS: Final = ("prefixItems", "items", "minItems", "maxItems")
OF_OBJECTS: Final = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
)


class Budget:
    """Steps left for one question whose answer may be 'don't know'. Spent by the functions it is passed to."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> bool:
        """Takes steps; False once they are used up."""
        self.left -= steps
        return self.left >= 0


def type_of(value: Any) -> str:
    """The JSON type of a value; integers are numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def identity(value: Any) -> str:
    """A text that is equal for two values exactly when JSON Schema calls them equal."""
    if isinstance(value, str):
        return f'"{value}'
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return json.dumps(_normal(value), sort_keys=True, ensure_ascii=False)


class Values(list[Any]):
    """The values of an `enum`, with their identities kept: proofs compare the same few lists again and again."""

    @cached_property
    def identities(self) -> frozenset[str]:
        """One text a value; see identity."""
        return frozenset(map(identity, self))

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that occur."""
        return frozenset(map(type_of, self))


def values_of(listed: list[Any]) -> Values:
    """The list as Values."""
    return listed if isinstance(listed, Values) else Values(listed)


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    return value


def types_of(core: Mapping[str, Any]) -> frozenset[str]:
    """The types that the core's own `type` and `enum` let through; an integer counts as a number."""
    named = core.get("type")
    found = frozenset(TYPES) if named is None else frozenset("number" if n == "integer" else n for n in named)
    if "enum" in core:
        found &= values_of(core["enum"]).types
    return found


def integers_only(core: Mapping[str, Any]) -> bool:
    """Whether `type` leaves only integers of all numbers."""
    named = core.get("type")
    return named is not None and "integer" in named and "number" not in named


def of_type(name: str, **keywords: Any) -> Core:
    """A core for one type."""
    return {"type": [name], **keywords}


def all_of(parts: list[Core]) -> Core:
    """The conjunction."""
    kept = [part for part in parts if part is not True]
    if any(part is False for part in kept):
        return False
    if not kept:
        return True
    return kept[0] if len(kept) == 1 else {"allOf": kept}


def any_of(parts: list[Core]) -> Core:
    """The disjunction."""
    kept = [part for part in parts if part is not False]
    if any(part is True for part in kept):
        return True
    if not kept:
        return False
    return kept[0] if len(kept) == 1 else {"anyOf": kept}
