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
