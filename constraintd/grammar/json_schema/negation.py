"""The core of what a core excludes, where one can be written down.

Classical negation pushed inwards: a conjunction becomes the disjunction of its negated conjuncts, each confined to the
type that it speaks of. None where some conjunct has no exact complement in core form (a pattern, `multipleOf`, "some
item is not ..."): then the caller refuses.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from constraintd.grammar.json_schema.core import (
    TYPES,
    Budget,
    Core,
    Resolve,
    all_of,
    any_of,
    of_type,
    type_of,
)
from constraintd.grammar.json_schema.ecma import literal, none_of

# Longest enum of strings, in characters, whose complement is written as one pattern.
_MAX_EXCLUDED: Final = 2_000
_DEPTH: Final = 40


def negate(core: Core, resolve: Resolve, budget: Budget, depth: int = _DEPTH) -> Core | None:
    """Exactly the values that `core` excludes, or None."""
    if isinstance(core, bool):
        return not core
    if not budget.spend() or depth == 0:
        return None
    parts: list[Core] = []
    for key, value in core.items():
        part = _negate_keyword(key, value, core, resolve, budget, depth - 1)
        if part is None:
            return None
        parts.append(part)
    return any_of(parts)


def _negate_keyword(
    key: str, value: Any, core: dict[str, Any], resolve: Resolve, budget: Budget, depth: int
) -> Core | None:
    match key:
        case "type":
            return _other_types(value)
        case "enum":
            return _outside(value)
        case "$ref":
            target = resolve(value)
            return None if target is None else negate(target, resolve, budget, depth)
        case "allOf":
            return _negate_each(value, resolve, budget, depth, conjunction=False)
        case "anyOf":
            return _negate_each(value, resolve, budget, depth, conjunction=True)
        case "required":
            return any_of([of_type("object", properties={name: False}) for name in value])
        case "properties":
            return _some_property(value, resolve, budget, depth)
        case "prefixItems":
            return _some_item(value, resolve, budget, depth)
        case "additionalProperties" if value is True:
            return False
        case "additionalProperties" if value is False and not (core.get("properties") or core.get("patternProperties")):
            return of_type("object", minProperties=1)
        case "items" if value is True:
            return False
        case "items" if value is False:
            return of_type("array", minItems=len(core.get("prefixItems", ())) + 1)
        case _:
            return _beyond_bound(key, value)


def _negate_each(parts: list[Core], resolve: Resolve, budget: Budget, depth: int, *, conjunction: bool) -> Core | None:
    negated: list[Core] = []
    for part in parts:
        other = negate(part, resolve, budget, depth)
        if other is None:
            return None
        negated.append(other)
    return all_of(negated) if conjunction else any_of(negated)


def _some_property(properties: dict[str, Core], resolve: Resolve, budget: Budget, depth: int) -> Core | None:
    parts: list[Core] = []
    for name, schema in properties.items():
        other = negate(schema, resolve, budget, depth)
        if other is None:
            return None
        if other is not False:
            parts.append(of_type("object", properties={name: other}, required=[name]))
    return any_of(parts)


def _some_item(prefix: list[Core], resolve: Resolve, budget: Budget, depth: int) -> Core | None:
    parts: list[Core] = []
    for index, schema in enumerate(prefix):
        other = negate(schema, resolve, budget, depth)
        if other is None:
            return None
        if other is not False:
            parts.append(of_type("array", prefixItems=[True] * index + [other], minItems=index + 1))
    return any_of(parts)


def _beyond_bound(key: str, value: Any) -> Core | None:
    match key:
        case "minimum":
            return of_type("number", exclusiveMaximum=value)
        case "maximum":
            return of_type("number", exclusiveMinimum=value)
        case "exclusiveMinimum":
            return of_type("number", maximum=value)
        case "exclusiveMaximum":
            return of_type("number", minimum=value)
        case "minLength" | "minItems" | "minProperties":
            kind, most = _COUNTED[key]
            return False if value == 0 else of_type(kind, **{most: value - 1})
        case "maxLength" | "maxItems" | "maxProperties":
            kind, least = _COUNTED[key]
            return of_type(kind, **{least: value + 1})
        case _:
            return None


_COUNTED: Final = {
    "minLength": ("string", "maxLength"),
    "maxLength": ("string", "minLength"),
    "minItems": ("array", "maxItems"),
    "maxItems": ("array", "minItems"),
    "minProperties": ("object", "maxProperties"),
    "maxProperties": ("object", "minProperties"),
}


def _other_types(named: list[str]) -> Core | None:
    if "integer" in named and "number" not in named:
        return None  # "a number with a fraction" has no core form
    rest = [name for name in TYPES if name not in named]
    return {"type": rest} if rest else False


def _outside(values: list[Any]) -> Core | None:
    by_type: dict[str, list[Any]] = {}
    for value in values:
        by_type.setdefault(type_of(value), []).append(value)
    parts: list[Core] = []
    untouched = [name for name in TYPES if name not in by_type]
    if untouched:
        parts.append({"type": untouched})
    for kind, members in by_type.items():
        part = _outside_of_type(kind, members)
        if part is None:
            return None
        parts.append(part)
    return any_of(parts)


def _outside_of_type(kind: str, members: list[Any]) -> Core | None:
    match kind:
        case "null":
            return False
        case "boolean":
            return {"enum": [value for value in (True, False) if value not in members]} if len(members) < 2 else False
        case "number":
            return _between(sorted(set(members)))
        case "string":
            return of_type("string", pattern=not_these(members)) if _short(members) else None
        case "array" if members == [[]]:
            return of_type("array", minItems=1)
        case "object" if members == [{}]:
            return of_type("object", minProperties=1)
        case _:
            return None


def _between(numbers: list[int | float]) -> Core | None:
    # Past 2**53 the engine's doubles would blur the open ends.
    if len(numbers) > 50 or any(abs(number) >= 2**53 for number in numbers):
        return None
    parts: list[Core] = [of_type("number", exclusiveMaximum=numbers[0])]
    for low, high in pairwise(numbers):
        parts.append(of_type("number", exclusiveMinimum=low, exclusiveMaximum=high))
    parts.append(of_type("number", exclusiveMinimum=numbers[-1]))
    return any_of(parts)


def _short(members: list[str]) -> bool:
    return sum(map(len, members)) <= _MAX_EXCLUDED and max(map(len, members)) <= 200


def not_these(texts: list[str]) -> str:
    """An anchored pattern for every string but these: at each step another character, too short, or too long."""
    return f"^(?:{_not_these(sorted(set(texts)), 0)})$"


def _not_these(texts: list[str], at: int) -> str:
    ends_here = any(len(text) == at for text in texts)
    following: dict[str, list[str]] = {}
    for text in texts:
        if len(text) > at:
            following.setdefault(text[at], []).append(text)
    branches = [literal(char) + f"(?:{_not_these(group, at + 1)})" for char, group in following.items()]
    if following:
        branches.append(f"{none_of(following)}(?s:.)*")
    else:
        branches.append("(?s:.)+")
    return "|".join(branches if ends_here else ["", *branches])
