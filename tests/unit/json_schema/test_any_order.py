"""Objects in any order of their names, through prepare_lark."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from constraintd.grammar.json_schema import SchemaOptions, Verdict, Whitespace
from tests.unit.json_schema.byte_walk import Prepared

_PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tall": {"type": "boolean"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def _free(schema: Any, options: SchemaOptions | None = None) -> Prepared:
    return Prepared(schema, options, any_order=True)


def test_every_order_of_the_names_is_taken() -> None:
    person = _free(_PERSON)
    for members in permutations(['"name":"Jo"', '"age":3', '"tall":true']):
        assert person.takes("{" + ",".join(members) + "}")


def test_the_schemas_order_alone_is_what_prepare_schema_gives() -> None:
    assert not Prepared(_PERSON).takes('{"age":3,"name":"Jo"}')


def test_what_is_optional_may_be_left_out_anywhere() -> None:
    person = _free(_PERSON)
    assert person.takes('{"age":3,"name":"Jo"}')
    assert not person.takes('{"age":3}')
    assert not person.takes("{}")


def test_no_name_comes_twice() -> None:
    assert not _free(_PERSON).takes('{"age":3,"name":"Jo","age":3}')
    assert not _free({"properties": {"a": {}}}).takes('{"b":1,"a":1,"c":2,"a":1}')


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("a", [r'"\u0061"']),
        ('x"y', [r'"x\"y"', r'"x\u0022y"']),
        ("x\\y", [r'"x\\y"', r'"x\u005cy"']),
        ("x\ny", [r'"x\ny"', r'"x\u000ay"', r'"x\u000Ay"']),
        ("x\x7fy", [r'"x\u007fy"', r'"x\u007Fy"']),
        ("x/é😀", [r'"x\/é😀"', '"x/é😀"']),
    ],
)
def test_a_name_of_the_schema_is_no_other_name_however_it_is_escaped(name: str, spellings: list[str]) -> None:
    schema = _free({"type": "object", "properties": {name: {"type": "string"}}})
    for spelling in spellings:
        assert not schema.takes(f"{{{spelling}:1}}")
    assert schema.takes(r'{"x\"":1,"x\\":2,"x\n":3,"x":4}')


def test_a_comma_is_not_offered_where_no_name_is_left() -> None:
    assert not _free(_PERSON).takes_prefix('{"name":"Jo","age":3,"tall":true,')
    assert _free(_PERSON).takes_prefix('{"name":"Jo","age":3,')


def test_other_names_stand_anywhere_between() -> None:
    open_ = _free({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["b"]})
    assert open_.takes('{"x":"y","b":1,"z":[{}],"q":null,"a":2}')
    assert not open_.takes('{"x":1,"b":1,"a":"no integer"}')
    assert not open_.takes('{"x":1,"a":2}')


def test_other_names_keep_to_additional_properties() -> None:
    counts = _free({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}})
    assert counts.takes('{"x":1,"a":"s","y":2}')
    assert not counts.takes('{"x":"s"}')


def test_order_is_free_inside_arrays_references_and_branches() -> None:
    schema = {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        "minItems": 2,
        "maxItems": 3,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                "required": ["id"],
                "additionalProperties": False,
            }
        },
    }
    nodes = _free(schema)
    assert nodes.takes('[{"next":{"next":{"id":3},"id":2},"id":1},null]')
    assert not nodes.takes("[null]")
    assert not nodes.takes("[null,null,null,null]")


def test_a_tuple_ends_where_its_length_allows() -> None:
    pair = {"prefixItems": [{"type": "object", "properties": {"a": {}, "b": {}}}, {"type": "integer"}]}
    closed = _free({"type": "array", **pair, "items": False, "minItems": 1})
    assert closed.takes('[{"b":1,"a":2},3]')
    assert closed.takes("[{}]")
    assert not closed.takes("[]")
    assert not closed.takes("[{},3,4]")
    longer = _free({"type": "array", **pair, "items": {"type": "null"}, "maxItems": 4})
    assert longer.takes("[{},3,null,null]")
    assert not longer.takes("[{},3,null,null,null]")


def test_conjunctions_of_objects_are_merged_into_one_order() -> None:
    merged = _free(
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}, "a": {"minimum": 2}}},
            ]
        }
    )
    assert merged.takes('{"b":"x","a":2}')
    assert not merged.takes('{"b":"x","a":1}')
    assert not merged.takes('{"b":1,"a":2}')


def test_the_types_beside_an_object_stay() -> None:
    loose = _free({"properties": {"a": {}, "b": {}}, "minLength": 2})
    assert loose.takes('{"b":1,"a":1}')
    assert loose.takes('"ab"')
    assert not loose.takes('"a"')
    assert loose.takes("[1]")


def test_a_branch_without_a_value_does_not_refuse_the_schema() -> None:
    schema = {"anyOf": [{"allOf": [{"properties": {"a": False}}, {"required": ["a"]}]}, {"required": ["b"]}]}
    assert _free({"type": "object", **schema}).takes('{"c":1,"b":2}')


@pytest.mark.parametrize(
    ("whitespace", "taken", "refused"),
    [
        (Whitespace.COMPACT, '{"age":3,"name":"Jo"}', '{"age":3, "name":"Jo"}'),
        (Whitespace.NATURAL, '{"age": 3, "name": "Jo"}', '{"age":3,"name":"Jo"}'),
        (Whitespace.BOUNDED, '{\n  "age" : 3,\r\n  "name":"Jo"\n}', '{\n\n\n\n"age":3,"name":"Jo"}'),
    ],
)
def test_white_space_is_that_of_the_engine(whitespace: Whitespace, taken: str, refused: str) -> None:
    person = _free(_PERSON, SchemaOptions(whitespace=whitespace))
    assert person.takes(taken)
    assert not person.takes(refused)


def test_more_names_than_the_engine_has_bits_for_keep_the_schemas_order() -> None:
    wide = _free({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(61)}})
    assert wide.takes('{"p0":1,"p60":2}')
    assert not wide.takes('{"p60":2,"p0":1}')
    assert wide.verdict("/properties") is Verdict.NARROWED


def test_the_report_says_when_no_order_is_left_out() -> None:
    assert _free(_PERSON).verdict("/properties") is Verdict.ENFORCED
    assert Prepared(_PERSON).verdict("/properties") is Verdict.NARROWED


def test_a_schema_without_names_is_left_to_the_engine() -> None:
    assert _free({"type": "array", "items": {"type": "integer"}}).lark.startswith("start: %json ")


def test_a_long_chain_of_references_is_followed_without_pythons_stack() -> None:
    chain = {str(i): {"type": "array", "items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(380)}
    schema = {"$ref": "#/$defs/0", "$defs": {**chain, "380": {"properties": {"a": {}, "b": {}}}}}
    assert _free(schema).takes("[" * 380 + '{"b":1,"a":1}' + "]" * 380)


def test_a_chain_that_the_engines_stack_may_not_hold_keeps_the_schemas_order() -> None:
    chain = {str(i): {"properties": {"n": {"$ref": f"#/$defs/{i + 1}"}, "m": {}}} for i in range(300)}
    schema = {"$ref": "#/$defs/0", "$defs": {**chain, "300": {"type": "null"}}}
    chained = _free(schema)
    assert chained.lark.startswith("start: %json ")
    assert chained.takes('{"n":{"m":2},"m":1}')
