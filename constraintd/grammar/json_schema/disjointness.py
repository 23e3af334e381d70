"""Can any value satisfy two cores at once? Only a proof that none can counts; anything else is 'maybe'.

`oneOf` equals `anyOf` exactly where its branches are pairwise disjoint.
"""

from __future__ import annotations

from typing import Any

from constraintd.grammar.json_schema.core import TYPES, Budget, Core, Resolve, types_of, values_of
from constraintd.grammar.json_schema.evaluation import satisfies

_ALL = frozenset(TYPES)


def disjoint(one: Core, other: Core, resolve: Resolve, budget: Budget) -> bool:
    """Whether provably no value satisfies both."""
    return all(_disjoint_at(kind, one, other, resolve, budget, 24) for kind in TYPES)


def possible_types(core: Core, resolve: Resolve, budget: Budget, depth: int = 24) -> frozenset[str]:
    """A superset of the types of its instances."""
    if isinstance(core, bool):
        return _ALL if core else frozenset()
    if not budget.spend() or depth == 0:
        return _ALL
    found = types_of(core)
    for part in core.get("allOf", ()):
        found &= possible_types(part, resolve, budget, depth - 1)
    if "anyOf" in core:
        options = [possible_types(part, resolve, budget, depth - 1) for part in core["anyOf"]]
        found &= frozenset().union(*options)
    if "$ref" in core:
        target = resolve(core["$ref"])
        found &= _ALL if target is None else possible_types(target, resolve, budget, depth - 1)
    return found


def _disjoint_at(kind: str, one: Core, other: Core, resolve: Resolve, budget: Budget, depth: int) -> bool:
    """The same, for values of one type."""
    if one is False or other is False:
        return True
    if not budget.spend() or depth == 0:
        return False
    for core in (one, other):
        if isinstance(core, dict) and kind not in types_of(core):
            return True
    return (
        _by_parts(kind, one, other, resolve, budget, depth - 1)
        or _by_parts(kind, other, one, resolve, budget, depth - 1)
        or (
            isinstance(one, dict) and isinstance(other, dict) and _plainly(kind, one, other, resolve, budget, depth - 1)
        )
    )


def _by_parts(kind: str, one: Core, other: Core, resolve: Resolve, budget: Budget, depth: int) -> bool:
    """By what `one` is made of: its enum, any conjunct, every option, or what it refers to."""
    if isinstance(one, bool):
        return False
    if "enum" in one and _values_apart(one, other, resolve, budget):
        return True
    if any(_disjoint_at(kind, part, other, resolve, budget, depth) for part in one.get("allOf", ())):
        return True
    if "anyOf" in one and all(_disjoint_at(kind, part, other, resolve, budget, depth) for part in one["anyOf"]):
        return True
    if "$ref" in one:
        target = resolve(one["$ref"])
        return target is not None and _disjoint_at(kind, target, other, resolve, budget, depth)
    return False


def _values_apart(one: dict[str, Any], other: Core, resolve: Resolve, budget: Budget) -> bool:
    listed = values_of(one["enum"])
    if isinstance(other, dict) and "enum" in other:
        return budget.spend(1 + len(listed) // 100) and listed.identities.isdisjoint(
            values_of(other["enum"]).identities
        )
    return budget.spend(len(listed)) and all(_excluded(value, one, other, resolve, budget) for value in listed)


def _excluded(value: Any, one: dict[str, Any], other: Core, resolve: Resolve, budget: Budget) -> bool:
    return (
        satisfies(value, other, resolve, budget) is False
        or satisfies(value, {k: v for k, v in one.items() if k != "enum"}, resolve, budget) is False
    )


def _plainly(
    kind: str, one: dict[str, Any], other: dict[str, Any], resolve: Resolve, budget: Budget, depth: int
) -> bool:
    match kind:
        case "number":
            return _ranges_apart(one, other) or _ranges_apart(other, one)
        case "string":
            return _counts_apart(one, other, "minLength", "maxLength")
        case "array":
            return _counts_apart(one, other, "minItems", "maxItems") or _item_apart(one, other, resolve, budget, depth)
        case "object":
            return _counts_apart(one, other, "minProperties", "maxProperties") or _property_apart(
                one, other, resolve, budget, depth
            )
        case _:
            return False


def _ranges_apart(low: dict[str, Any], high: dict[str, Any]) -> bool:
    for upper, open_above in (("maximum", False), ("exclusiveMaximum", True)):
        for lower, open_below in (("minimum", False), ("exclusiveMinimum", True)):
            if upper in low and lower in high:
                touching = open_above or open_below
                if low[upper] < high[lower] or (touching and low[upper] == high[lower]):
                    return True
    return False


def _counts_apart(one: dict[str, Any], other: dict[str, Any], least: str, most: str) -> bool:
    infinite = float("inf")
    return bool(one.get(least, 0) > other.get(most, infinite) or other.get(least, 0) > one.get(most, infinite))


def _item_apart(one: dict[str, Any], other: dict[str, Any], resolve: Resolve, budget: Budget, depth: int) -> bool:
    certain = min(max(one.get("minItems", 0), other.get("minItems", 0)), 64)
    return any(
        _all_apart(_item_at(one, index), _item_at(other, index), resolve, budget, depth) for index in range(certain)
    )


def _item_at(core: dict[str, Any], index: int) -> Core:
    prefix: list[Core] = core.get("prefixItems", [])
    return prefix[index] if index < len(prefix) else core.get("items", True)


def _property_apart(one: dict[str, Any], other: dict[str, Any], resolve: Resolve, budget: Budget, depth: int) -> bool:
    certain = [*one.get("required", ()), *other.get("required", ())]
    return any(_all_apart(property_at(one, name), property_at(other, name), resolve, budget, depth) for name in certain)


def property_at(core: dict[str, Any], name: str) -> Core:
    """A superset of what the core allows under a name."""
    properties: dict[str, Core] = core.get("properties", {})
    if name in properties:
        return properties[name]
    # Which patterns match the name is not asked here.
    return True if core.get("patternProperties") else core.get("additionalProperties", True)


def _all_apart(one: Core, other: Core, resolve: Resolve, budget: Budget, depth: int) -> bool:
    return all(_disjoint_at(kind, one, other, resolve, budget, depth) for kind in TYPES)
