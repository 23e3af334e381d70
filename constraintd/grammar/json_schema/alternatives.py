"""A core as a list of flat ones: a value satisfies it exactly when it satisfies one of them.

Flat means: no $ref, allOf or anyOf on top, so that what it says of objects stands in one place. The parts inside, such
as the schemas of its properties, are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from constraintd.grammar.json_schema.core import OF_OBJECTS, Core, all_of, identity

# Alternatives of one core; more would each be a rule that the parser follows side by side with the others.
_MAX_ALTERNATIVES: Final = 24
_MAX_DEPTH: Final = 12
_JOINS: Final = ("$ref", "allOf", "anyOf")


def alternatives(core: Core, definitions: Mapping[str, Core], depth: int = _MAX_DEPTH) -> list[dict[str, Any]] | None:
    """The flat cores; None if there are too many, or if two conjuncts can't be written as one."""
    if isinstance(core, bool):
        return [{}] if core else []
    if depth == 0:
        return None
    found: list[dict[str, Any]] = [{key: value for key, value in core.items() if key not in _JOINS}]
    groups: list[list[Core]] = [[part] for part in core.get("allOf", ())]
    if "$ref" in core:
        groups.append([definitions.get(core["$ref"], False)])
    if "anyOf" in core:
        groups.append(core["anyOf"])
    for group in groups:
        either: list[dict[str, Any]] = []
        for part in group:
            inner = alternatives(part, definitions, depth - 1)
            if inner is None:
                return None
            either += inner
        if len(found) * len(either) > _MAX_ALTERNATIVES:
            return None
        joined: list[dict[str, Any]] = []
        for flat in (conjunction(one, other) for one in found for other in either):
            if flat is None:
                return None
            if flat.get("enum") != []:
                joined.append(flat)
        found = joined
    return found


def conjunction(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    """Both flat cores as one; {"enum": []} if no type is left, None if there is none."""
    if not one or not other:
        return one or other
    merged = {key: value for key, value in one.items() if key not in OF_OBJECTS}
    for key, value in other.items():
        if key in OF_OBJECTS:
            continue
        if key == "type" and "type" in merged:
            merged["type"] = _common(merged["type"], value)
        elif key in merged and identity(merged[key]) != identity(value):
            return None
        else:
            merged[key] = value
    if _arrays_differ(one, other):
        return None
    objects = _objects(one, other)
    if objects is None:
        return None
    return {"enum": []} if merged.get("type") == [] else merged | objects


def _common(one: list[str], other: list[str]) -> list[str]:
    found = [name for name in one if name in other]
    if "integer" not in found and any("integer" in a and "number" in b for a, b in ((one, other), (other, one))):
        found.append("integer")
    return found


def _arrays_differ(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether `items` of the one would come to stand after `prefixItems` of the other."""
    return ("prefixItems" in one) != ("prefixItems" in other) and "items" in {**one, **other}


def _objects(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any] | None:
    mine: dict[str, Any] = {key: one[key] for key in OF_OBJECTS if key in one}
    theirs: dict[str, Any] = {key: other[key] for key in OF_OBJECTS if key in other}
    if not mine or not theirs:
        return mine or theirs
    if any(key in mine or key in theirs for key in ("patternProperties", "minProperties", "maxProperties")):
        return None
    found: dict[str, Any] = {}
    names = dict.fromkeys([*mine.get("properties", ()), *theirs.get("properties", ())])
    if names:
        found["properties"] = {name: both(value_at(mine, name), value_at(theirs, name)) for name in names}
    if "additionalProperties" in mine or "additionalProperties" in theirs:
        found["additionalProperties"] = both(value_at(mine, None), value_at(theirs, None))
    if "required" in mine or "required" in theirs:
        found["required"] = list(dict.fromkeys([*mine.get("required", ()), *theirs.get("required", ())]))
    return found


def value_at(core: Mapping[str, Any], name: str | None) -> Core:
    """What the flat core asks of the property's value; with None, of an unnamed one's. It has no patternProperties."""
    properties: Mapping[str, Core] = core.get("properties", {})
    rest: Core = core.get("additionalProperties", True)
    return rest if name is None else properties.get(name, rest)


def both(one: Core, other: Core) -> Core:
    """The conjunction, each conjunct once: so that the merging of a schema with itself comes to an end."""
    parts: dict[str, Core] = {}
    for core in (one, other):
        listed = core["allOf"] if isinstance(core, dict) and set(core) == {"allOf"} else [core]
        for part in listed:
            parts.setdefault(identity(part), part)
    return all_of(list(parts.values()))
