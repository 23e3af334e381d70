"""JSON Schemas that were made to hurt."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fault.hostile import Hostile, nested, schema, text_of


def deep_schemas() -> Iterator[Hostile]:
    """Nesting by every keyword that nests."""
    wraps = {
        "objects": ('{"type":"object","properties":{"a":', '},"required":["a"]}'),
        "optional objects": ('{"type":"object","properties":{"a":', "}}"),
        "arrays": ('{"type":"array","items":', "}"),
        "anyOf": ('{"anyOf":[{"type":"null"},', "]}"),
        "allOf": ('{"allOf":[', "]}"),
        "oneOf": ('{"oneOf":[{"type":"integer"},', "]}"),
        "not": ('{"not":', "}"),
        "if": ('{"if":{"type":"object"},"then":', "}"),
        "additionalProperties": ('{"type":"object","additionalProperties":', "}"),
        "prefixItems": ('{"type":"array","prefixItems":[true,', "]}"),
        "unknown keywords": ('{"x":', "}"),
    }
    for what, (before, after) in wraps.items():
        for depth in (30, 450, 20_000):
            yield Hostile(f"{what} {depth} deep", "json_schema", (nested(depth, before, '{"type":"string"}', after),))
    yield Hostile("a million brackets", "json_schema", (b"[" * 1_000_000,))
    yield Hostile("a million open objects", "json_schema", (b'{"a":' * 1_000_000,))
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    yield schema("const 300 deep", {"const": deep})
    yield schema("enum of 300 deep", {"enum": [deep, [deep]]})


def wide_schemas() -> Iterator[Hostile]:
    """Many of everything: properties, enums, bounds, products."""
    for count in (100, 1000, 5000, 20_000):
        properties = {f"property_{i}": {"type": ["string", "integer"]} for i in range(count)}
        yield schema(f"{count} optional properties", {"type": "object", "properties": properties})
        document = {"type": "object", "properties": properties, "required": list(properties)}
        yield schema(f"{count} required properties", document)
    for count in (1000, 20_000):
        yield schema(f"{count} anyOf objects", {"anyOf": [{"required": [f"k{i}"]} for i in range(count)]})
        yield schema(f"{count} oneOf ranges", {"oneOf": [{"minimum": i, "maximum": i + 2} for i in range(count)]})
        patterns = {f"^k{i}.*$": {"type": "integer"} for i in range(count)}
        yield schema(f"{count} patternProperties", {"type": "object", "patternProperties": patterns})
    yield schema("a 10 MB enum of texts", {"enum": [f"{i:0>36}" for i in range(260_000)]})
    yield schema("a 1 MB enum of common beginnings", {"enum": ["a" * i for i in range(1400)]})
    yield schema("a 10 MB const", {"const": "a" * 10_000_000})
    yield schema("a 1 MB const", {"const": "ab" * 500_000})
    for count in (5, 12, 20, 40):
        halves = [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(count)]
        yield schema(f"allOf of {count} choices", {"type": "object", "allOf": halves})
        types = [{"anyOf": [{"type": ["string", "null"]}, {"type": ["string", "array"]}]} for _ in range(count)]
        yield schema(f"allOf of {count} unions", {"allOf": types})
    for bound in (2000, 2**31, 10**40):
        yield schema(f"minItems {bound}", {"type": "array", "items": {"type": "integer"}, "minItems": bound})
        yield schema(f"maxItems {bound}", {"type": "array", "items": {"type": "object"}, "maxItems": bound})
        yield schema(f"minLength {bound}", {"type": "string", "minLength": bound})
        yield schema(f"maxLength {bound}", {"type": "string", "maxLength": bound})
        yield schema(f"minProperties {bound}", {"type": "object", "minProperties": bound})
    inner: object = {"type": "boolean"}
    for _ in range(4):
        inner = {"type": "array", "items": inner, "minItems": 0, "maxItems": 2000}
    yield schema("arrays of 2000 to the fourth", inner)
    yield schema("minItems over maxItems", {"type": "array", "minItems": 5, "maxItems": 3})
    numbers = {"1e308": 1e308, "-1e308": -1e308, "5e-324": 5e-324, "1e300": 1e300}
    for name, number in numbers.items():
        yield schema(f"minimum {name}", {"type": "number", "minimum": number})
        yield schema(f"multipleOf {name}", {"type": "number", "multipleOf": abs(number)})
    yield text_of("json_schema", "a number of 4,000 digits", '{"maximum":' + "9" * 4000 + "}")
    yield text_of("json_schema", "a number of 100,000 digits", '{"maximum":' + "9" * 100_000 + "}")
    yield text_of("json_schema", "an exponent of ten digits", '{"minimum":1e9999999999}')
    yield schema("multipleOf many", {"type": "integer", "allOf": [{"multipleOf": p} for p in (9973, 9967, 9949)]})


def references() -> Iterator[Hostile]:
    """`$ref` in rings, in chains, doubling, and to nowhere."""
    loop = {"$ref": "#"}
    yield schema("$ref to itself", loop)
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield schema(f"$ref to itself in {keyword}", {keyword: [loop]})
        yield schema(f"$ref to itself twice in {keyword}", {keyword: [loop, loop]})
    yield schema("$ref to itself in not", {"not": loop})
    yield schema("$ref to itself in if", {"if": loop, "then": loop, "else": loop})
    yield schema("an object that requires itself", {"properties": {"a": loop}, "required": ["a"], "type": "object"})
    yield schema("an array of at least one of itself", {"type": "array", "items": loop, "minItems": 1})
    yield schema("a tree", {"type": "object", "properties": {"l": loop, "r": loop}})
    for count in (10, 1000, 10_000):
        ring = {f"d{i}": {"$ref": f"#/$defs/d{(i + 1) % count}"} for i in range(count)}
        yield schema(f"a ring of {count} references", {"$defs": ring, "$ref": "#/$defs/d0"})
        chain = ring | {f"d{count - 1}": {"type": "null"}}
        yield schema(f"a chain of {count} references", {"$defs": chain, "$ref": "#/$defs/d0"})
    for count in (10, 25, 60):
        doubling = {
            f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * 2, "minItems": 2}
            for i in range(count)
        }
        yield schema(
            f"references that double {count} times",
            {"$defs": doubling | {f"d{count}": {"type": "null"}}, "$ref": "#/$defs/d0"},
        )
        merging = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(count)}
        yield schema(
            f"allOf references that double {count} times",
            {"$defs": merging | {f"d{count}": {"type": "null"}}, "$ref": "#/$defs/d0"},
        )
    for target in ("#/$defs/none", "#/a/b/c", "http://example.com/schema", "file:///etc/passwd", "#%zz", "", "#/~9"):
        yield schema(f"$ref to {target!r}", {"$ref": target})
    yield schema("$dynamicRef", {"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}})


def bad_schemas() -> Iterator[Hostile]:
    """What is no JSON, no schema or no text."""
    raw = {
        "invalid UTF-8": b'{"const":"\xff\xfe"}',
        "half a surrogate": b'{"const":"\\ud800"}',
        "a key that is half a surrogate": b'{"properties":{"\\udfff":{}}}',
        "a byte order mark": b'\xef\xbb\xbf{"type":"object"}',
        "a NUL": b'{"const":"\x00"}',
        "an escaped NUL": b'{"const":"\\u0000"}',
        "UTF-16": '{"type":"object"}'.encode("utf-16"),
        "NaN": b'{"minimum":NaN}',
        "duplicate keys": b'{"type":"string","type":"object"}',
        "half a document": b'{"type":"obj',
        "nothing": b"",
        "white space": b" " * 1_000_000,
        "a number": b"17",
        "false": b"false",
        "types of types": b'{"type":{"type":"object"}}',
        "enum of nothing": b'{"enum":[]}',
        "properties that are a list": b'{"properties":[]}',
        "a pattern that is a number": b'{"pattern":5}',
    }
    for name, text in raw.items():
        yield Hostile(f"schema: {name}", "json_schema", (text,))
    for pattern in ("(a+)+$", "(.*a){20}", "^(?=a)b", "(a)\\1", "[", "(" * 500, "\\p{L}{500}", "(a{0,200}){0,200}"):
        name = pattern if len(pattern) < 40 else "500 parentheses"
        yield schema(f"pattern {name}", {"type": "string", "pattern": pattern})
    yield schema("an unknown format", {"type": "string", "format": "../../etc/passwd"})
    yield schema("engine options", {"x-guidance": {"whitespace_pattern": "(a+)+"}, "type": "object"})
