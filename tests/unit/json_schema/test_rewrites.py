"""Keywords that the engine lacks or misreads, written so that it takes exactly the right texts."""

from __future__ import annotations

from typing import Any

import pytest

from constraintd.grammar.json_schema import Verdict
from tests.unit.json_schema.byte_walk import Prepared

_A_OR_B_REQUIRED = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}
_CASES: list[tuple[str, Any, list[str], list[str]]] = [
    ("oneOf of disjoint types", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, ["1", '"x"'], ["null"]),
    ("oneOf that may overlap", _A_OR_B_REQUIRED, ['{"a":1}', '{"b":1}'], ["{}", '{"a":1,"b":1}']),
    (
        "oneOf told apart by a const",
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]}
                for kind in ("cat", "dog")
            ]
        },
        ['{"kind":"cat"}', '{"kind":"dog"}'],
        ['{"kind":"cow"}', "{}"],
    ),
    ("not a type", {"not": {"type": ["string", "object"]}}, ["1", "null", "[]"], ['"x"', "{}"]),
    ("not a const string", {"type": "string", "not": {"const": "no"}}, ['"n"', '"nope"', '"yes"', '""'], ['"no"']),
    ("not an enum of numbers", {"type": "number", "not": {"enum": [1, 3]}}, ["2", "0", "1.5"], ["1", "3"]),
    ("not required", {"type": "object", "not": {"required": ["a"]}}, ["{}", '{"b":1}'], ['{"a":1}']),
    ("not not", {"not": {"not": {"minLength": 2}}}, ['"ab"', "1"], ['"a"']),
    ("not a range", {"type": "number", "not": {"minimum": 1, "maximum": 2}}, ["0", "3"], ["1", "1.5", "2"]),
    (
        "if, then, else",
        {
            "type": "object",
            "properties": {"k": {"enum": ["x", "y"]}, "n": {"type": "integer"}},
            "required": ["k"],
            "if": {"properties": {"k": {"const": "x"}}},
            "then": {"required": ["n"]},
            "else": {"properties": {"n": False}},
        },
        ['{"k":"x","n":1}', '{"k":"y"}'],
        ['{"k":"x"}', '{"k":"y","n":1}'],
    ),
    ("dependentRequired", {"dependentRequired": {"b": ["a"]}}, ["{}", '{"a":1}', '{"b":1,"a":1}', "7"], ['{"b":1}']),
    ("dependencies of draft-07", {"dependencies": {"b": {"minProperties": 2}}}, ['{"b":1,"c":2}'], ['{"b":1}']),
    ("propertyNames by pattern", {"type": "object", "propertyNames": {"pattern": "^a"}}, ['{"ab":1}'], ['{"b":1}']),
    ("propertyNames by enum", {"type": "object", "propertyNames": {"enum": ["a"]}}, ['{"a":1}'], ['{"b":1}']),
    ("propertyNames by length", {"type": "object", "propertyNames": {"maxLength": 1}}, ['{"a":1}'], ['{"ab":1}']),
    ("contains with maxItems", {"type": "array", "contains": {"const": 5}, "maxItems": 3}, ["[1,5]"], ["[]", "[1]"]),
    ("contains anything", {"type": "array", "contains": True}, ["[1]"], ["[]"]),
    ("maxContains 0", {"contains": {"type": "null"}, "minContains": 0, "maxContains": 0}, ["[]", "[1]"], ["[null]"]),
    (
        "uniqueItems of a small enum",
        {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True},
        ["[]", '["a"]', '["b","a"]'],
        ['["a","a"]', '["a","b","a"]'],
    ),
    ("uniqueItems false", {"type": "array", "uniqueItems": False}, ["[1,1]"], []),
    (
        "minProperties over optional names",
        {"type": "object", "minProperties": 2, "properties": {"a": {}, "b": {}, "c": {}}},
        ['{"a":1,"b":1}', '{"b":1,"zz":1}', '{"y":1,"zz":1}'],
        ["{}", '{"a":1}', '{"zz":1}'],
    ),
    (
        "unevaluatedProperties through allOf",
        {
            "type": "object",
            "allOf": [{"properties": {"a": {"type": "integer"}}}],
            "properties": {"b": {}},
            "unevaluatedProperties": False,
        },
        ['{"b":1,"a":1}'],
        ['{"c":1}', '{"a":"x"}'],
    ),
    ("items as a list", {"items": [{"type": "integer"}], "additionalItems": False}, ["[1]", "[]"], ['["x"]', "[1,2]"]),
    ("draft-04 bounds", {"type": "integer", "minimum": 1, "exclusiveMinimum": True}, ["2"], ["1"]),
    ("counts written 2.0", {"type": "array", "maxItems": 2.0}, ["[1,2]"], ["[1,2,3]"]),
    # llguidance 1.9.1 takes 1 for the first and 1.0 for the second.
    ("an open end below a fraction", {"type": "number", "exclusiveMinimum": 1, "maximum": 1.5}, ["1.25"], ["1", "1.0"]),
    ("an open end above a fraction", {"type": "number", "minimum": 0.5, "exclusiveMaximum": 1}, ["0.75"], ["1", "1.0"]),
    # And 9007199254740992 for this one.
    ("a bound past 2^53", {"type": "integer", "minimum": 2**53 + 1}, [str(2**53 + 2)], [str(2**53)]),
    ("February 29", {"format": "date"}, ['"2024-02-29"', '"2000-02-29"'], ['"2023-02-29"', '"1900-02-29"']),
    ("dot and the line separator", {"type": "string", "pattern": "^.$"}, ['"a"'], ['"\u2028"', '"\\n"']),
]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"), [case[1:] for case in _CASES], ids=[case[0] for case in _CASES]
)
def test_takes_the_valid_texts_and_no_other(schema: Any, valid: list[str], invalid: list[str]) -> None:
    prepared = Prepared(schema)
    assert [text for text in valid if not prepared.takes(text)] == []
    assert [text for text in invalid if prepared.takes(text)] == []


def test_items_and_additional_properties_never_look_into_a_neighbouring_schema() -> None:
    # JSON-Schema-Test-Suite, additionalProperties.json and items.json.
    prepared = Prepared({"allOf": [{"properties": {"foo": {}}}], "additionalProperties": {"type": "boolean"}})
    assert not prepared.takes('{"foo":1,"bar":true}')
    prepared = Prepared({"allOf": [{"prefixItems": [{"minimum": 3}]}], "items": {"minimum": 5}})
    assert not prepared.takes("[3,5]")
    assert prepared.takes("[5,5]")


def test_a_nested_all_of_keeps_all_its_parts() -> None:
    prepared = Prepared(
        {
            "allOf": [{"properties": {"foo": True}, "unevaluatedProperties": False}],
            "anyOf": [{"properties": {"bar": {}}}],
        }
    )
    assert prepared.takes('{"foo":1}')
    assert not prepared.takes('{"foo":1,"bar":1}')


def test_draft_07_ignores_what_stands_beside_ref() -> None:
    prepared = Prepared(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"list": {"type": "array"}},
            "properties": {"foo": {"$ref": "#/definitions/list", "maxItems": 1}},
        }
    )
    assert prepared.takes('{"foo":[1,2]}')
    assert prepared.verdict("/properties/foo/maxItems") is Verdict.ANNOTATION


def test_references_follow_ids_and_anchors() -> None:
    prepared = Prepared(
        {
            "$id": "http://example.com/root.json",
            "type": "object",
            "properties": {"a": {"$ref": "item.json"}, "b": {"$ref": "item.json#n"}},
            "$defs": {"x": {"$id": "item.json", "type": "string", "$defs": {"y": {"$anchor": "n", "type": "null"}}}},
        }
    )
    assert prepared.takes('{"a":"x","b":null}')
    assert not prepared.takes('{"a":null}')


def test_an_optional_property_without_finite_value_is_never_begun() -> None:
    prepared = Prepared(
        {
            "type": "object",
            "properties": {"loop": {"$ref": "#/$defs/loop"}, "b": {"type": "integer"}},
            "$defs": {"loop": {"type": "array", "items": {"$ref": "#/$defs/loop"}, "minItems": 1}},
        }
    )
    assert prepared.takes('{"b":1}')
    assert not prepared.takes('{"loop":[[')
