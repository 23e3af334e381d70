"""The keywords of objects in core form."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from constraintd.grammar.json_schema.arrays import IN_PLACE
from constraintd.grammar.json_schema.core import Core, all_of, any_of
from constraintd.grammar.json_schema.document import Dialect, join
from constraintd.grammar.json_schema.negation import not_these
from constraintd.grammar.json_schema.refusals import count, malformed
from constraintd.grammar.json_schema.report import Verdict
from constraintd.grammar.json_schema.scalars import pattern

if TYPE_CHECKING:
    from constraintd.grammar.json_schema.translate import Translator

_NOT_OBJECT: Final[Core] = {"type": ["null", "boolean", "number", "string", "array"]}
# How many optional names a property count may be spread over: each set of them becomes a branch.
_MAX_OPTIONAL: Final = 6
# Each dependent name is a choice that the engine multiplies with all others.
_MAX_DEPENDENTS: Final = 10
_MAX_FOLLOWED: Final = 64


def objects(pointer: str, schema: dict[str, Any], to: Translator) -> list[Core]:
    """All object keywords but unevaluatedProperties: one core, and a core each for what needs a disjunction."""
    found: dict[str, Any] = {}
    _members(pointer, schema, found, to)
    more: list[Core] = []
    if "propertyNames" in schema and to.knows(pointer, "propertyNames", Dialect.DRAFT6):
        more += _names(pointer, schema, found, to)
    for key in ("dependentRequired", "dependentSchemas", "dependencies"):
        if key in schema:
            more += _dependents(pointer, key, schema[key], to)
    more += _counts(pointer, schema, found, to)
    return [found, *more] if found else more


def _members(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> None:
    if "properties" in schema:
        named = _schemas(pointer, "properties", schema, to)
        found["properties"] = named
        narrowed = len(named) > 1
        detail = "names come in the schema's order" if narrowed else ""
        to.report.say(pointer, "properties", Verdict.NARROWED if narrowed else Verdict.ENFORCED, detail)
    if "patternProperties" in schema:
        _patterns(pointer, schema, found, to)
    if "additionalProperties" in schema:
        extra = to.schema(join(pointer, "additionalProperties"), schema["additionalProperties"])
        if "patternProperties" in schema and len(found.get("patternProperties", {})) < len(schema["patternProperties"]):
            # A pattern was left out: what it would have allowed must not be forbidden now.
            to.report.lose(pointer, "additionalProperties", "a pattern beside it is left out")
        else:
            found["additionalProperties"] = extra
            to.report.say(pointer, "additionalProperties", Verdict.ENFORCED)
    if "required" in schema:
        names = schema["required"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            malformed(pointer, "required", "a list of property names", names)
        found["required"] = list(dict.fromkeys(names))
        to.report.say(pointer, "required", Verdict.ENFORCED)


def _schemas(pointer: str, key: str, schema: dict[str, Any], to: Translator) -> dict[str, Core]:
    if not isinstance(schema[key], dict):
        malformed(pointer, key, "an object of schemas", schema[key])
    return {name: to.schema(join(pointer, key, name), inner) for name, inner in schema[key].items()}


def _patterns(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> None:
    by_pattern = _schemas(pointer, "patternProperties", schema, to)
    kept: dict[str, Core] = {}
    for text, core in by_pattern.items():
        losses = to.report.losses
        spelled = pattern(join(pointer, "patternProperties"), text, text, to.report)
        if to.report.losses == losses and spelled is not None:
            kept[spelled] = core if spelled not in kept else all_of([kept[spelled], core])
    found["patternProperties"] = kept
    to.report.say(pointer, "patternProperties", Verdict.ENFORCED)


def _names(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> list[Core]:
    core = to.schema(join(pointer, "propertyNames"), schema["propertyNames"])
    parts = _named(core, found, to)
    if parts is None:
        to.report.lose(
            pointer,
            "propertyNames",
            "the engine can't combine this with the other property keywords",
            "use properties or patternProperties with additionalProperties false",
            wider="any name is allowed",
        )
        return []
    to.report.say(pointer, "propertyNames", Verdict.ENFORCED)
    return parts


def _named(core: Core, found: dict[str, Any], to: Translator) -> list[Core] | None:
    if core is True:
        return []
    if isinstance(core, dict) and set(core) == {"$ref"}:
        target = to.lookup(core["$ref"])
        return None if target is None else _named(target, found, to)
    if core is False or "string" not in core.get("type", ["string"]):
        return [{"additionalProperties": False}] if not found.get("required") else [_NOT_OBJECT]
    keys = set(core) - {"type"}
    if keys == {"enum"}:
        names = {name: True for name in core["enum"] if isinstance(name, str)}
        return [{"properties": names, "additionalProperties": False}]
    if not keys:
        return []
    if found.get("patternProperties"):
        return None
    if keys == {"pattern"}:
        spelled = core["pattern"]
    elif keys <= {"minLength", "maxLength"}:
        spelled = f"^(?s:.){{{core.get('minLength', 0)},{core.get('maxLength', '')}}}$"
    else:
        return None
    return [{"patternProperties": {spelled: True}, "additionalProperties": False}]


def _dependents(pointer: str, key: str, given: Any, to: Translator) -> list[Core]:
    if not isinstance(given, dict):
        malformed(pointer, key, "an object", given)
    if key != "dependencies" and not to.knows(pointer, key, Dialect.DRAFT2019):
        return []
    if len(given) > _MAX_DEPENDENTS:
        to.report.lose(
            pointer, key, f"the engine can't hold the combinations of more than {_MAX_DEPENDENTS} names", "use anyOf"
        )
        return []
    parts: list[Core] = []
    for name, needed in given.items():
        absent: Core = {"properties": {name: False}}
        if isinstance(needed, list) and key != "dependentSchemas":
            if not all(isinstance(other, str) for other in needed):
                malformed(join(pointer, key), name, "a list of property names", needed)
            if needed:
                parts.append(any_of([absent, {"required": list(dict.fromkeys([name, *needed]))}]))
        elif isinstance(needed, dict | bool) and key != "dependentRequired":
            core = to.schema(join(pointer, key, name), needed)
            if core is not True:
                parts.append(any_of([absent, all_of([{"required": [name]}, core])]))
        else:
            malformed(join(pointer, key), name, "a list of property names or a schema", needed)
    to.report.say(pointer, key, Verdict.ENFORCED)
    return parts


def _counts(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> list[Core]:
    limits: dict[str, int] = {}
    for key in ("minProperties", "maxProperties"):
        if key in schema:
            limits[key] = count(pointer, key, schema[key])
    if not limits:
        return []
    parts = _counted(limits, found)
    for key in limits:
        if parts is None:
            to.report.lose(
                pointer,
                key,
                f"the engine counts properties only where at most {_MAX_OPTIONAL} named ones are optional",
                "list what is required instead",
            )
        else:
            to.report.say(pointer, key, Verdict.ENFORCED)
    return parts or []


def _counted(limits: dict[str, int], found: dict[str, Any]) -> list[Core] | None:
    required: list[str] = found.get("required", [])
    named: dict[str, Core] = found.get("properties", {})
    least, most = limits.get("minProperties", 0), limits.get("maxProperties")
    closed = found.get("additionalProperties") is False and not found.get("patternProperties")
    least = 0 if least <= len(required) else least
    if closed and most is not None and most >= len(named):
        most = None
    if least == 0 and most is None:
        return []
    kept: dict[str, Any] = ({"minProperties": least} if least else {}) | (
        {} if most is None else {"maxProperties": most}
    )
    optional = [name for name in named if name not in required]
    if not optional:
        found.update(kept)
        return []
    if len(optional) > _MAX_OPTIONAL or found.get("patternProperties"):
        return None
    others = not_these([*named, *required])
    branches: list[Core] = [_NOT_OBJECT]
    for size in range(len(optional) + 1):
        for chosen in combinations(optional, size):
            present = [name for name in [*named, *required] if name in required or name in chosen]
            branches.append(_shape(list(dict.fromkeys(present)), named, found, others, kept))
    return [any_of(branches)]


def _shape(
    present: list[str], named: dict[str, Core], found: dict[str, Any], others: str, limits: dict[str, Any]
) -> Core:
    """Objects with exactly these of the named properties, and any others within the limits."""
    extra: Core = found.get("additionalProperties", True)
    core: dict[str, Any] = {
        "type": ["object"],
        "properties": {name: named.get(name, extra) for name in present},
        "required": present,
        "additionalProperties": False,
    }
    if extra is False:
        if limits.get("minProperties", 0) > len(present) or limits.get("maxProperties", len(present)) < len(present):
            return False
        return core
    core["patternProperties"] = {others: extra}
    return core | limits


def unevaluated_properties(pointer: str, schema: dict[str, Any], to: Translator) -> Core | None:
    """`unevaluatedProperties` where it is known beforehand which names are evaluated; None otherwise."""
    core = to.schema(join(pointer, "unevaluatedProperties"), schema["unevaluatedProperties"])
    if core is True:
        return True
    names: dict[str, Core] = {}
    patterns: dict[str, Core] = {}
    state = _evaluated(pointer, schema, names, patterns, to, set())
    if state is None:
        return None
    if state:
        return True
    found: dict[str, Any] = {"properties": names, "additionalProperties": core}
    return found | ({"patternProperties": patterns} if patterns else {})


def _evaluated(
    pointer: str,
    schema: Any,
    names: dict[str, Core],
    patterns: dict[str, Core],
    to: Translator,
    seen: set[str],
) -> bool | None:
    """Collects what a schema evaluates whenever it holds. True: every property; None: it depends on the instance."""
    outermost = not seen
    if isinstance(schema, bool) or pointer in seen:
        return False
    seen.add(pointer)
    if len(seen) > _MAX_FOLLOWED or any(key in schema for key in IN_PLACE - {"$ref", "allOf", "not"}):
        return None
    if "additionalProperties" in schema or ("unevaluatedProperties" in schema and not outermost):
        return True
    names.update(dict.fromkeys(schema.get("properties", {}), True))
    for text in schema.get("patternProperties", {}):
        spelled = pattern(join(pointer, "patternProperties"), text, text, to.report)
        if spelled is None:
            return None
        patterns[spelled] = True
    inner = [(join(pointer, "allOf", index), part) for index, part in enumerate(schema.get("allOf", ()))]
    if "$ref" in schema:
        target = to.document.resolve(pointer, schema["$ref"])
        if target is None:
            return None
        inner.append((target, to.document.find(target)))
    everything: bool | None = False
    for place, part in inner:
        state = _evaluated(place, part, names, patterns, to, seen)
        if state is None:
            return None
        everything = everything or state
    return everything
