"""Does one JSON value satisfy a core? Yes, no, or not known (patterns, too deep)."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from constraintd.grammar.json_schema.core import Budget, Core, Resolve, identity, type_of, values_of


def satisfies(value: Any, core: Core, resolve: Resolve, budget: Budget, depth: int = 40) -> bool | None:
    """True or False where certain, else None."""
    if isinstance(core, bool):
        return core
    if not budget.spend() or depth == 0:
        return None
    return _every(_keyword(key, value, core, resolve, budget, depth - 1) for key in core)


def _every(answers: Iterable[bool | None]) -> bool | None:
    result: bool | None = True
    for answer in answers:
        if answer is False:
            return False
        if answer is None:
            result = None
    return result


def _some(answers: Iterable[bool | None]) -> bool | None:
    result: bool | None = False
    for answer in answers:
        if answer is True:
            return True
        if answer is None:
            result = None
    return result


def _keyword(key: str, value: Any, core: dict[str, Any], resolve: Resolve, budget: Budget, depth: int) -> bool | None:
    given = core[key]
    match key:
        case "type":
            return _has_type(value, given)
        case "enum":
            return identity(value) in values_of(given).identities
        case "allOf":
            return _every(satisfies(value, part, resolve, budget, depth) for part in given)
        case "anyOf":
            return _some(satisfies(value, part, resolve, budget, depth) for part in given)
        case "$ref":
            target = resolve(given)
            return None if target is None else satisfies(value, target, resolve, budget, depth)
    match type_of(value):
        case "number":
            return _number(key, value, given)
        case "string":
            return _string(key, value, given)
        case "array":
            return _array(key, value, core, resolve, budget, depth)
        case "object":
            return _object(key, value, core, resolve, budget, depth)
        case _:
            return True


def _has_type(value: Any, named: list[str]) -> bool:
    kind = type_of(value)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return kind in named or (kind == "number" and "integer" in named and whole)


def _number(key: str, value: int | float, given: int | float) -> bool:
    match key:
        case "minimum":
            return value >= given
        case "maximum":
            return value <= given
        case "exclusiveMinimum":
            return value > given
        case "exclusiveMaximum":
            return value < given
        case "multipleOf":
            exact = Decimal(repr(value))
            # Far larger quotients don't fit Decimal's precision; such values come from no sane enum.
            return exact.adjusted() - Decimal(repr(given)).adjusted() > 20 or exact % Decimal(repr(given)) == 0
        case _:
            return True


def _string(key: str, value: str, given: Any) -> bool | None:
    match key:
        case "minLength":
            return len(value) >= given  # type: ignore[no-any-return]
        case "maxLength":
            return len(value) <= given  # type: ignore[no-any-return]
        case "pattern":
            return None
        case _:
            return True


def _array(
    key: str, value: list[Any], core: dict[str, Any], resolve: Resolve, budget: Budget, depth: int
) -> bool | None:
    given = core[key]
    match key:
        case "minItems":
            return len(value) >= given  # type: ignore[no-any-return]
        case "maxItems":
            return len(value) <= given  # type: ignore[no-any-return]
        case "prefixItems":
            pairs = zip(value, given, strict=False)
            return _every(satisfies(item, schema, resolve, budget, depth) for item, schema in pairs)
        case "items":
            rest = value[len(core.get("prefixItems", ())) :]
            return _every(satisfies(item, given, resolve, budget, depth) for item in rest)
        case _:
            return True


def _object(
    key: str, value: dict[str, Any], core: dict[str, Any], resolve: Resolve, budget: Budget, depth: int
) -> bool | None:
    given = core[key]
    match key:
        case "required":
            return all(name in value for name in given)
        case "minProperties":
            return len(value) >= given  # type: ignore[no-any-return]
        case "maxProperties":
            return len(value) <= given  # type: ignore[no-any-return]
        case "properties":
            shared = [name for name in given if name in value]
            return _every(satisfies(value[name], given[name], resolve, budget, depth) for name in shared)
        case "patternProperties":
            return None if value else True
        case "additionalProperties":
            others = [name for name in value if name not in core.get("properties", {})]
            if others and core.get("patternProperties"):
                return None
            return _every(satisfies(value[name], given, resolve, budget, depth) for name in others)
        case _:
            return True
