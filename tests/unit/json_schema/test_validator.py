"""The independent validator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from constraintd.errors import LimitExceeded
from constraintd.grammar.json_schema import SchemaOptions, SchemaValidator, Violation
from constraintd.grammar.json_schema.linear_search import LinearSearch

_SEARCH = LinearSearch()


def _check(schema: Any, output: bytes, options: SchemaOptions | None = None) -> Violation | None:
    return SchemaValidator(json.dumps(schema), options or SchemaOptions(), _SEARCH).check(output)


def test_a_valid_output_has_no_violation() -> None:
    assert _check({"type": "object", "required": ["a"]}, b'{"a":1}') is None


def test_a_violation_names_its_place_in_the_output() -> None:
    violation = _check({"properties": {"a": {"items": {"type": "integer"}}}}, b'{"a":[1,"x"]}')
    assert violation == Violation("/a/1", "'x' is not of type 'integer'")


@pytest.mark.parametrize("output", [b"{", b"", b"NaN", b"\xff", b'{"a":1,"a":2}', b'{"a":1} x'])
def test_what_is_not_one_json_text_is_a_violation(output: bytes) -> None:
    assert _check(True, output) is not None


def test_numbers_are_compared_exactly() -> None:
    # As doubles 4.35 / 0.01 is 434.99999999999994.
    assert _check({"multipleOf": 0.01}, b"4.35") is None
    assert _check({"minimum": 2**53 + 1}, str(2**53).encode()) is not None
    assert _check({"type": "integer"}, b"1.0") is None


def test_formats_are_asserted_as_the_engine_does() -> None:
    assert _check({"format": "date"}, b'"2023-02-29"') is not None
    assert _check({"format": "date"}, b'"2024-02-29"') is None
    assert _check({"format": "time"}, b'"12:00:00Z"') is None
    assert _check({"format": "semver"}, b'"x"') is None
    assert _check({"format": "date"}, b'"x"', SchemaOptions(formats_are_annotations=True)) is None


def test_patterns_run_in_linear_time() -> None:
    assert _check({"pattern": "^(a+)+$"}, json.dumps("a" * 2_000 + "b").encode()) is not None
    assert _check({"pattern": "^(a+)+$"}, json.dumps("a" * 2_000).encode()) is None


def test_pattern_properties_and_the_rest_are_told_apart() -> None:
    schema = {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False}
    assert _check(schema, b'{"ab":1}') is None
    assert _check(schema, b'{"ab":"x"}') is not None
    assert _check(schema, b'{"b":1}') is not None


def test_output_too_deep_to_check_is_a_typed_limit() -> None:
    schema = {"type": "array", "items": {"$ref": "#"}}
    with pytest.raises(LimitExceeded):
        _check(schema, b"[" * 100_000 + b"]" * 100_000)


def test_a_number_whose_exponent_no_decimal_holds_is_infinite_or_zero() -> None:
    huge = b"1e99999999999999999999"
    assert _check({"maximum": 5}, huge) is not None
    assert _check({"minimum": 0}, b"-" + huge) is not None
    assert _check({"minimum": 0}, b"1e-99999999999999999999") is None
    validator = SchemaValidator('{"maximum": 1e99999999999999999999}', SchemaOptions(), _SEARCH)
    assert validator.check(b"7") is None


def _twice(part: Any) -> dict[str, Any]:
    """A schema of 40 definitions, each of which names the next one twice: 2^40 ways through."""
    doubled = {str(i): part(f"#/$defs/{i + 1}") for i in range(40)}
    return {"$ref": "#/$defs/0", "$defs": {**doubled, "40": {"type": "string"}}}


@pytest.mark.parametrize(
    "part",
    [
        lambda ref: {"anyOf": [{"$ref": ref}, {"$ref": ref}]},
        lambda ref: {"oneOf": [{"not": {"$ref": ref}}, {"$ref": ref}]},
    ],
)
def test_a_schema_that_doubles_the_work_at_every_level_is_a_typed_limit(part: Any) -> None:
    with pytest.raises(LimitExceeded, match="too much work"):
        _check(_twice(part), b"{}")


def test_looking_for_evaluated_properties_is_work_too() -> None:
    def part(ref: str) -> dict[str, Any]:
        return {"dependentSchemas": {"a": {"$ref": ref}, "b": {"$ref": ref}}}

    schema = {"unevaluatedProperties": False, **_twice(part)}
    with pytest.raises(LimitExceeded, match="too much work"):
        _check(schema, b'{"a":1,"b":2}')


def test_the_next_output_starts_with_its_own_work() -> None:
    validator = SchemaValidator(
        json.dumps(_twice(lambda ref: {"anyOf": [{"$ref": ref}, {"$ref": ref}]})), SchemaOptions(), _SEARCH
    )
    with pytest.raises(LimitExceeded):
        validator.check(b"{}")
    assert validator.check(b'"x"') is None


def test_many_items_are_compared_without_a_limit_on_their_number() -> None:
    items = [[i] if i % 2 else {"i": i} for i in range(10_000)]
    assert _check({"uniqueItems": True}, json.dumps(items).encode()) is None
    assert _check({"uniqueItems": True}, json.dumps([*items, {"i": 0}]).encode()) is not None


def test_equal_items_are_those_that_json_schema_calls_equal() -> None:
    assert _check({"uniqueItems": True}, b'[1, true, "1", [1], {"": "1E0"}, null, 0, false]') is None
    assert _check({"uniqueItems": True}, b"[1.50, 0.1, 1.5]") is not None
    assert _check({"uniqueItems": True}, b"[1.0, 1]") is not None
    assert _check({"uniqueItems": True}, b'[{"a":1,"b":2},{"b":2,"a":1}]') is not None
    long = "0.1000000000000000000000000000000000000000"
    assert _check({"uniqueItems": True}, f"[{long}1,{long}2]".encode()) is None


def test_a_large_output_of_a_plain_schema_is_within_the_limit() -> None:
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}}
    assert _check(schema, json.dumps([1] * 50_000, separators=(",", ":")).encode()) is None
