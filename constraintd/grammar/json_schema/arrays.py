"""The keywords of arrays in core form."""

from __future__ import annotations

from itertools import combinations, permutations
from math import perm
from typing import TYPE_CHECKING, Any, Final

from constraintd.grammar.json_schema.core import Budget, Core, all_of, any_of, identity
from constraintd.grammar.json_schema.disjointness import disjoint
from constraintd.grammar.json_schema.document import Dialect, join
from constraintd.grammar.json_schema.refusals import count, malformed
from constraintd.grammar.json_schema.report import Verdict

if TYPE_CHECKING:
    from constraintd.grammar.json_schema.translate import Translator

# How many arrays a uniqueItems may be written out as, and how many places a contains may be tried at.
_MAX_WRITTEN_OUT: Final = 400
_MAX_PLACES: Final = 16


def arrays(pointer: str, schema: dict[str, Any], to: Translator) -> list[Core]:
    """All array keywords but unevaluatedItems: one core, and a core each for what needs a disjunction."""
    found: dict[str, Any] = {}
    for key in ("minItems", "maxItems"):
        if key in schema:
            found[key] = count(pointer, key, schema[key])
            to.report.say(pointer, key, Verdict.ENFORCED)
    _items(pointer, schema, found, to)
    more: list[Core] = []
    if "contains" in schema:
        more += _contains(pointer, schema, found, to)
    for key in ("minContains", "maxContains"):
        if key in schema and "contains" not in schema:
            to.report.say(pointer, key, Verdict.ANNOTATION, "it means something beside contains only")
    if "uniqueItems" in schema:
        more += _unique(pointer, schema, found, to)
    return [found, *more] if found else more


def _items(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> None:
    tuple_form = isinstance(schema.get("items"), list)
    if tuple_form and to.dialect >= Dialect.DRAFT2020:
        malformed(pointer, "items", "a schema in this dialect (a list is prefixItems now)", schema["items"])
    if tuple_form and "prefixItems" in schema:
        malformed(pointer, "items", "a schema, beside prefixItems", schema["items"])
    first = "items" if tuple_form else "prefixItems"
    if first in schema and (tuple_form or to.knows(pointer, "prefixItems", Dialect.DRAFT2020)):
        if not isinstance(schema[first], list):
            malformed(pointer, first, "a list of schemas", schema[first])
        found["prefixItems"] = [to.schema(join(pointer, first, i), item) for i, item in enumerate(schema[first])]
        to.report.say(pointer, first, Verdict.ENFORCED)
    rest = "additionalItems" if tuple_form else "items"
    if rest in schema:
        found["items"] = to.schema(join(pointer, rest), schema[rest])
        to.report.say(pointer, rest, Verdict.ENFORCED)
    if "additionalItems" in schema and not tuple_form:
        to.report.say(pointer, "additionalItems", Verdict.ANNOTATION, "it means something beside a list of items only")


def _contains(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> list[Core]:
    if not to.knows(pointer, "contains", Dialect.DRAFT6):
        return []
    counted = to.declared_dialect is None or to.dialect >= Dialect.DRAFT2019
    least = count(pointer, "minContains", schema["minContains"]) if counted and "minContains" in schema else 1
    most = count(pointer, "maxContains", schema["maxContains"]) if counted and "maxContains" in schema else None
    item = to.schema(join(pointer, "contains"), schema["contains"])
    parts = _contained(item, least, most, found, to)
    if parts is None:
        for key in ("contains", "minContains", "maxContains"):
            if key in schema:
                to.report.lose(
                    pointer,
                    key,
                    "the engine can't count which items match",
                    f"name the item's place with prefixItems, or give maxItems of {_MAX_PLACES} or less",
                )
        return []
    for key in ("contains", "minContains", "maxContains"):
        if key in schema:
            to.report.say(pointer, key, Verdict.ENFORCED if counted or key == "contains" else Verdict.ANNOTATION)
    return parts


def _contained(item: Core, least: int, most: int | None, found: dict[str, Any], to: Translator) -> list[Core] | None:
    """Cores for "at least `least` and at most `most` items match"; None if there are none."""
    if item is True:
        return [{"minItems": least} | ({} if most is None else {"maxItems": most})]
    if item is False:
        return [] if least == 0 else [{"maxItems": 0, "minItems": 1}]
    longest = found.get("maxItems")
    if most is None and least == 0:
        return []
    if longest is not None and least > longest:
        return [{"maxItems": 0, "minItems": 1}]
    other = None if most is None else to.negated(item)
    if most == 0:
        return None if other is None else [{"items": other}, *([{"maxItems": 0, "minItems": 1}] if least else [])]
    if longest is None or longest > _MAX_PLACES:
        return None
    if most is None:
        if least > 1 and longest > 8:
            return None
        places = combinations(range(longest), least)
        return [any_of([_at_places(set(chosen), item, True) for chosen in places] + [_NOT_ARRAY])]
    if other is None or longest > 6:
        return None
    exact: list[Core] = []
    for size in range(least, min(most, longest) + 1):
        for chosen in combinations(range(longest), size):
            prefix = [item if place in chosen else other for place in range(longest)]
            exact.append({"prefixItems": prefix, "minItems": max(chosen, default=-1) + 1})
    return [any_of([*exact, _NOT_ARRAY])]


_NOT_ARRAY: Final[Core] = {"type": ["null", "boolean", "number", "string", "object"]}


def _at_places(chosen: set[int], item: Core, other: Core) -> Core:
    last = max(chosen)
    return {"prefixItems": [item if place in chosen else other for place in range(last + 1)], "minItems": last + 1}


def _unique(pointer: str, schema: dict[str, Any], found: dict[str, Any], to: Translator) -> list[Core]:
    wanted = schema["uniqueItems"]
    if not isinstance(wanted, bool):
        malformed(pointer, "uniqueItems", "true or false", wanted)
    parts = _all_different(found, to) if wanted else []
    if parts is None:
        to.report.lose(
            pointer,
            "uniqueItems",
            "the engine can't compare items",
            "give items an enum of a few values, or maxItems 1, or check afterwards",
            wider="items may repeat",
        )
        return []
    to.report.say(pointer, "uniqueItems", Verdict.ENFORCED)
    return parts


def _all_different(found: dict[str, Any], to: Translator) -> list[Core] | None:
    prefix: list[Core] = found.get("prefixItems", [])
    rest: Core = found.get("items", True)
    longest = found.get("maxItems", len(prefix) if rest is False else None)
    if rest is False and longest is not None:
        longest = min(longest, len(prefix))
    if longest is not None and longest <= 1:
        return []
    budget = Budget(20_000)
    if (
        longest is not None
        and longest <= len(prefix)
        and all(disjoint(one, other, to.lookup, budget) for one, other in combinations(prefix[:longest], 2))
    ):
        return []
    members = _members(rest, to)
    if prefix or members is None:
        return None
    longest = len(members) if longest is None else min(longest, len(members))
    if sum(perm(len(members), size) for size in range(longest + 1)) > _MAX_WRITTEN_OUT:
        return None
    written = [list(chosen) for size in range(longest + 1) for chosen in permutations(members, size)]
    return [any_of([{"enum": written}, _NOT_ARRAY])]


def _members(core: Core, to: Translator, depth: int = 8) -> list[Any] | None:
    """The values of a small enumeration, None if it isn't one."""
    if isinstance(core, bool) or depth == 0:
        return None
    if set(core) == {"$ref"}:
        target = to.lookup(core["$ref"])
        return None if target is None else _members(target, to, depth - 1)
    if core == {"type": ["boolean"]}:
        return [True, False]
    if core == {"type": ["null"]}:
        return [None]
    if set(core) == {"enum"} and len(core["enum"]) <= 20:
        return list({identity(value): value for value in core["enum"]}.values())
    return None


def unevaluated_items(pointer: str, schema: dict[str, Any], own: Core, to: Translator) -> Core | None:
    """`unevaluatedItems` where only keywords beside it in the same schema can evaluate items; None otherwise."""
    item = to.schema(join(pointer, "unevaluatedItems"), schema["unevaluatedItems"])
    if item is True or ("items" in schema and not isinstance(schema["items"], list)) or "additionalItems" in schema:
        return True
    if any(key in schema for key in IN_PLACE) or "contains" in schema:
        return None
    prefix = own.get("prefixItems", []) if isinstance(own, dict) else []
    return all_of([{"prefixItems": [True] * len(prefix), "items": item} if prefix else {"items": item}])


# The keywords that apply subschemas to the same instance.
IN_PLACE: Final = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("dependentSchemas", "dependencies"),
    )
)
