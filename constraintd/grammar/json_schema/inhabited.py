"""Which cores have a finite instance: a least fixpoint over the schema graph.

A schema is taken to have none until one is found, so a `$ref` that leads only to itself, or an object that requires
itself, never gets one. The answer errs towards "has one": patterns and multipleOf are believed, and conjuncts are
looked at one by one. So what is refused for want of an instance surely has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from constraintd.grammar.json_schema.core import TYPES, Budget, Core, type_of, types_of
from constraintd.grammar.json_schema.disjointness import property_at
from constraintd.grammar.json_schema.evaluation import satisfies

_ALL = frozenset(TYPES)


def inhabited_definitions(definitions: Mapping[str, Core]) -> frozenset[str]:
    """The names of the definitions that may have a finite instance."""
    found: set[str] = set()
    # Whose answer may change when a definition is found: so that a chain of n definitions takes n steps, not n * n.
    users: dict[str, list[str]] = {}
    for name, core in definitions.items():
        for target in references(core):
            users.setdefault(target, []).append(name)
    waiting = deque(definitions)
    while waiting:
        name = waiting.popleft()
        if name not in found and kinds(definitions[name], found):
            found.add(name)
            waiting.extend(user for user in users.get(name, ()) if user not in found)
    return frozenset(found)


def references(core: Core) -> set[str]:
    """Every $ref anywhere inside."""
    found: set[str] = set()
    seen: set[int] = set()
    stack: list[Any] = [core]
    while stack:
        part = stack.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        if "$ref" in part:
            found.add(part["$ref"])
        for key in ("allOf", "anyOf", "prefixItems"):
            stack.extend(part.get(key, ()))
        for key in ("properties", "patternProperties"):
            stack.extend(part.get(key, {}).values())
        stack.extend(part[key] for key in ("items", "additionalProperties") if key in part)
    return found


def kinds(
    core: Core, known: frozenset[str] | set[str], asked: dict[int, frozenset[str]] | None = None
) -> frozenset[str]:
    """The types of which it may have a finite instance, if exactly the `known` definitions have one.

    `asked` keeps the answers for shared parts; it holds for one set of known definitions and for cores kept alive.
    """
    if isinstance(core, bool):
        return _ALL if core else frozenset()
    asked = {} if asked is None else asked
    if id(core) not in asked:
        asked[id(core)] = _kinds(core, known, asked)
    return asked[id(core)]


def _kinds(core: dict[str, Any], known: frozenset[str] | set[str], asked: dict[int, frozenset[str]]) -> frozenset[str]:
    found = types_of(core)
    if "$ref" in core and core["$ref"] not in known:
        return frozenset()
    for part in core.get("allOf", ()):
        found &= kinds(part, known, asked)
    if found and "anyOf" in core:
        found &= frozenset().union(*(kinds(part, known, asked) for part in core["anyOf"]))
    if "enum" in core and found:
        found &= _kinds_of_enum(core)
    return frozenset(kind for kind in found if _possible(kind, core, known, asked))


def _kinds_of_enum(core: dict[str, Any]) -> frozenset[str]:
    rest = {key: value for key, value in core.items() if key != "enum"}
    if not rest:
        return _ALL
    return frozenset(
        type_of(value) for value in core["enum"] if satisfies(value, rest, lambda _: None, Budget(1_000)) is not False
    )


def _possible(
    kind: str, core: dict[str, Any], known: frozenset[str] | set[str], asked: dict[int, frozenset[str]]
) -> bool:
    infinite = float("inf")
    match kind:
        case "number":
            low, high = core.get("minimum", -infinite), core.get("maximum", infinite)
            above, below = core.get("exclusiveMinimum", -infinite), core.get("exclusiveMaximum", infinite)
            return bool(low <= high and above < high and low < below and above < below) or "enum" in core
        case "string":
            return bool(core.get("minLength", 0) <= core.get("maxLength", infinite))
        case "array":
            return _array_possible(core, known, asked)
        case "object":
            return _object_possible(core, known, asked)
        case _:
            return True


def _array_possible(core: dict[str, Any], known: frozenset[str] | set[str], asked: dict[int, frozenset[str]]) -> bool:
    least = core.get("minItems", 0)
    if least > core.get("maxItems", float("inf")):
        return False
    prefix = core.get("prefixItems", [])
    return all(kinds(item, known, asked) for item in prefix[:least]) and (
        least <= len(prefix) or bool(kinds(core.get("items", True), known, asked))
    )


def _object_possible(core: dict[str, Any], known: frozenset[str] | set[str], asked: dict[int, frozenset[str]]) -> bool:
    required = core.get("required", ())
    if max(len(required), core.get("minProperties", 0)) > core.get("maxProperties", float("inf")):
        return False
    if not all(kinds(property_at(core, name), known, asked) for name in required):
        return False
    least = core.get("minProperties", 0)
    if (
        least <= len(required)
        or core.get("patternProperties")
        or kinds(core.get("additionalProperties", True), known, asked)
    ):
        return True
    return bool(least <= sum(bool(kinds(schema, known, asked)) for schema in core.get("properties", {}).values()))


def pruned(
    core: Core, known: frozenset[str], cache: dict[int, Core], asked: dict[int, frozenset[str]] | None = None
) -> Core:
    """The core with everything that has no finite instance replaced by False, so that no walk is led into it."""
    if isinstance(core, bool):
        return core
    if id(core) in cache:
        return cache[id(core)]
    asked = {} if asked is None else asked
    if not kinds(core, known, asked):
        cache[id(core)] = False
        return False
    result: dict[str, Any] = {}
    for key, value in core.items():
        if key in ("allOf", "prefixItems"):
            result[key] = [pruned(part, known, cache, asked) for part in value]
        elif key == "anyOf":
            result[key] = [part for part in (pruned(part, known, cache, asked) for part in value) if part is not False]
        elif key in ("properties", "patternProperties"):
            result[key] = {name: pruned(schema, known, cache, asked) for name, schema in value.items()}
        elif key in ("items", "additionalProperties"):
            result[key] = pruned(value, known, cache, asked)
        else:
            result[key] = value
    cache[id(core)] = result
    return result
