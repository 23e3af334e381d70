"""A JSON object whose members come in any order (`any_order` of XGrammar's json_schema format).

The engine writes properties in schema order, so an object in any order is spelled out here: its nodes are the sets of
required properties seen so far. That is for plain, flat objects; what would need more is refused by name. A property
may stand twice, as in XGrammar; each value satisfies its schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from constraintd.grammar.structural_tag_format import Json, JsonSchema, refuse
from constraintd.grammar.structural_tag_graph import Graph, Opaque
from constraintd.grammar.structural_tag_terminal import (
    SOMETHING,
    Terminal,
    both,
    choice,
    concatenation,
    literal,
    pattern,
)

MAX_REQUIRED: Final = 6
"""Required properties; the nodes double with each."""
_MAX_PROPERTIES: Final = 64
_TAKEN: Final = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$schema",
    "$comment",
}
# A key in its one plain spelling: with \u escapes, another text could be the same key as a property's.
_KEY: Final = r'"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*"'

Value = Callable[[JsonSchema], Terminal | Opaque]


def add_any_order(graph: Graph, part: JsonSchema, value: Value, start: int, end: int) -> None:
    """Adds the object, from start to end. Raises InvalidGrammar for a schema that this can't write exactly."""
    properties, required, further = _flat_object(part)
    space = pattern(rf"[ \n\t\r]{{0,{64 if part.max_whitespace is None else part.max_whitespace}}}", nullable=True)
    colon, comma = (concatenation([space, literal(mark), space]) for mark in ":,")
    members = [
        (concatenation([literal(_spelled(name)), colon]), part_of(part, f"properties/{_escaped(name)}", schema), name)
        for name, schema in properties.items()
    ]
    if further is not False:
        key = pattern(_KEY, nullable=False)
        if properties:
            named = choice([literal(_spelled(name)) for name in properties])
            key = both(key, Terminal(f"({SOMETHING.text} & ~{named.text})", False))
        members.append((concatenation([key, colon]), part_of(part, "additionalProperties", further), ""))
    everything = (1 << len(required)) - 1
    before = [graph.node(cut=True) for _ in range(everything + 1)]
    after = [graph.node(cut=True) for _ in range(everything + 1)]
    graph.add(start, concatenation([literal("{"), space]), before[0])
    if not required:
        graph.add(start, concatenation([literal("{"), space, literal("}")]), end)
    graph.add(after[everything], concatenation([space, literal("}")]), end)
    for seen in range(everything + 1):
        graph.add(after[seen], comma, before[seen])
        for label, schema, name in members:
            inside = graph.node()
            graph.add(before[seen], label, inside)
            now = seen | (1 << required.index(name) if name in required else 0)
            graph.add(inside, value(schema), after[now])


def part_of(part: JsonSchema, path: str, schema: Json) -> JsonSchema:
    """The schema at a path below another, under the same bound of white space."""
    return JsonSchema(f"{part.pointer}/{path}", schema, part.max_whitespace)


def _flat_object(part: JsonSchema) -> tuple[dict[str, Json], list[str], Json]:
    schema = part.schema
    if not isinstance(schema, dict) or schema.get("type") != "object":
        refuse(part.pointer, 'any_order is for a schema of type "object"')
    other = sorted(schema.keys() - _TAKEN)
    if other:
        refuse(
            part.pointer, f"any_order goes with type, properties, required and additionalProperties; take out {other}"
        )
    properties, names = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(names, list):
        refuse(part.pointer, "properties is an object and required a list")
    required = list(dict.fromkeys(map(str, names)))
    for name in required:
        if name not in properties:
            refuse(f"{part.pointer}/required", f"{name!r} is none of the properties, which any_order needs")
    if len(required) > MAX_REQUIRED or len(properties) > _MAX_PROPERTIES:
        refuse(part.pointer, f"any_order takes up to {MAX_REQUIRED} required and {_MAX_PROPERTIES} properties")
    further = schema.get("additionalProperties", True)
    for place, inner in [
        *((f"properties/{_escaped(n)}", s) for n, s in properties.items()),
        ("additionalProperties", further),
    ]:
        if not _order_free(inner):
            refuse(f"{part.pointer}/{place}", "any_order takes no objects of several properties, or references, inside")
    return properties, required, further


def _order_free(schema: Json) -> bool:
    """True if no order of properties can matter in it."""
    if isinstance(schema, list):
        return all(map(_order_free, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if "$ref" in schema or "$dynamicRef" in schema or (isinstance(properties, dict) and len(properties) > 1):
        return False
    return all(map(_order_free, schema.values()))


def _spelled(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
