"""What the report says, and what is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constraintd.errors import InvalidGrammar, LimitExceeded
from constraintd.grammar.json_schema import Policy, SchemaOptions, Verdict, Whitespace, prepare_schema
from tests.unit.json_schema.byte_walk import Prepared

_APPROXIMATE = SchemaOptions(policy=Policy.APPROXIMATE)


def _refusal(schema: Any) -> InvalidGrammar:
    with pytest.raises(InvalidGrammar) as caught:
        prepare_schema(json.dumps(schema), SchemaOptions())
    return caught.value


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, "/properties/a/uniqueItems"),
        ({"not": {"pattern": "a"}}, "/not"),
        ({"not": {"type": "integer"}}, "/not"),
        ({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]}, "/oneOf"),
        ({"contains": {"const": 1}}, "/contains"),
        ({"$ref": "http://example.com/elsewhere.json"}, "/$ref"),
        ({"pattern": "^(?=a)"}, "/pattern"),
        ({"pattern": "[[:alpha:]]"}, "/pattern"),
        ({"patternProperties": {"(a)\\1": {}}}, "/patternProperties/(a)\\1"),
        ({"const": 2**53 + 1}, "/const"),
        ({"multipleOf": 0.57}, "/multipleOf"),
        ({"minimum": 2**63}, "/minimum"),
        ({"unevaluatedProperties": False, "anyOf": [{"properties": {"a": {}}}, {}]}, "/unevaluatedProperties"),
    ],
)
def test_strict_names_the_keyword_that_is_refused(schema: Any, pointer: str) -> None:
    error = _refusal(schema)
    assert error.metadata["location"] == pointer
    assert pointer in error.message


def test_strict_names_every_refused_keyword_at_once() -> None:
    error = _refusal({"properties": {"a": {"uniqueItems": True}, "b": {"not": {"pattern": "x"}}}})
    assert "/properties/a/uniqueItems" in error.message
    assert "/properties/b/not" in error.message


def test_approximate_leaves_the_keyword_out_and_says_so() -> None:
    prepared = Prepared({"type": "array", "uniqueItems": True}, _APPROXIMATE)
    assert prepared.takes("[1,1]")
    assert prepared.verdict("/uniqueItems") is Verdict.APPROXIMATED
    assert prepared.detail("/uniqueItems").startswith("wider: items may repeat")


def test_approximate_never_negates_what_it_left_out() -> None:
    prepared = Prepared(
        {"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "array", "uniqueItems": True}}}, _APPROXIMATE
    )
    assert prepared.takes("[1,1]")
    assert prepared.verdict("/not") is Verdict.APPROXIMATED


def test_approximate_one_of_is_any_of() -> None:
    prepared = Prepared({"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]}, _APPROXIMATE)
    assert prepared.takes("15")
    assert prepared.takes("3")
    assert not prepared.takes("7")


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "string", "minLength": 2, "maxLength": 1},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "string", "enum": [1, 2]},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"not": {}},
    ],
)
def test_a_schema_without_a_finite_instance_is_refused(schema: Any) -> None:
    assert "no finite JSON value" in _refusal(schema).message


def test_recursion_that_can_end_is_fine() -> None:
    prepared = Prepared(
        {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}
    )
    assert prepared.takes('{"next":{"next":null}}')


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "objekt"}, "/type"),
        ({"type": 5}, "/type"),
        ({"properties": []}, "/properties"),
        ({"required": True}, "/required"),
        ({"items": 3}, "/items"),
        ({"anyOf": []}, "/anyOf"),
        ({"minLength": -1}, "/minLength"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"pattern": "("}, "/pattern"),
        ({"x-guidance": {}}, "/x-guidance"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{}]}, "/items"),
        ([], ""),
        ("object", ""),
    ],
)
def test_what_is_no_schema_is_refused_where_it_is_wrong(schema: Any, pointer: str) -> None:
    assert _refusal(schema).metadata["location"] == pointer


def test_unknown_keywords_and_formats_are_annotations() -> None:
    prepared = Prepared({"type": "string", "title": "t", "x-order": 3, "format": "semver"})
    assert prepared.takes('"anything"')
    assert [prepared.verdict(f"/{key}") for key in ("title", "x-order", "format")] == [Verdict.ANNOTATION] * 3


def test_known_formats_are_asserted_unless_asked_otherwise() -> None:
    assert not Prepared({"format": "ipv4"}).takes('"300.1.1.1"')
    relaxed = Prepared({"format": "ipv4"}, SchemaOptions(formats_are_annotations=True))
    assert relaxed.takes('"300.1.1.1"')
    assert relaxed.verdict("/format") is Verdict.ANNOTATION


def test_what_is_only_spelled_in_one_way_is_reported_as_narrowed() -> None:
    prepared = Prepared({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}})
    assert prepared.verdict("/properties") is Verdict.NARROWED
    assert prepared.verdict("/properties/a/type") is Verdict.NARROWED
    assert prepared.verdict("/type") is Verdict.ENFORCED
    assert not prepared.takes('{"b":1,"a":1}')
    assert not prepared.takes('{"a":1.0}')


def test_white_space_is_bounded_absent_or_natural() -> None:
    schema = {"type": "array", "items": {"type": "object"}}
    bounded, compact, natural = (Prepared(schema, SchemaOptions(whitespace=kind)) for kind in Whitespace)
    assert bounded.takes('[ {"a" :\n 1}]')
    assert not bounded.takes("[" + " " * 65 + "]")
    assert compact.takes('[{"a":1},{}]')
    assert not compact.takes("[ ]")
    assert natural.takes('[{"a": 1}, {}]')
    assert not natural.takes('[{"a":1}]')


@pytest.mark.parametrize(
    "text",
    [
        '{"not":' * 5_000 + "{}" + "}" * 5_000,
        "[" * 100_000,
        '{"minimum":' + "9" * 5_000 + "}",
        json.dumps({"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(20_000)}}),
        json.dumps({"properties": {str(i): {} for i in range(50_001)}}),
        json.dumps({"$ref": "#/" + "a/" * 10_000}),
    ],
    ids=["deep", "brackets", "digits", "chain", "wide", "pointer"],
)
def test_hostile_schemas_end_in_a_typed_error(text: str) -> None:
    with pytest.raises((InvalidGrammar, LimitExceeded)):
        prepare_schema(text, SchemaOptions())


def test_a_chain_of_doubling_references_stays_small() -> None:
    doubled = {str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(60)}
    prepared = prepare_schema(json.dumps({"$ref": "#/$defs/0", "$defs": doubled | {"60": {}}}), SchemaOptions())
    assert len(prepared.engine_json) < 10_000


def test_thousands_of_one_of_consts_are_told_apart() -> None:
    prepared = prepare_schema(json.dumps({"oneOf": [{"const": i} for i in range(3_000)]}), SchemaOptions())
    assert next(entry.verdict for entry in prepared.report if entry.keyword == "oneOf") is Verdict.ENFORCED
