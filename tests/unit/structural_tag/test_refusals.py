"""What is refused, where, and by which name."""

import json

import pytest

from constraintd.errors import InvalidGrammar
from constraintd.grammar.json_schema.report import Policy, SchemaOptions
from constraintd.grammar.structural_tag import structural_tag_lark

X = {"type": "const_string", "value": "x"}
ANY = {"type": "any_text"}
JSON = {"type": "json_schema", "json_schema": {"type": "object"}}
NUMBER = {"type": "json_schema", "json_schema": {"type": "number", "minimum": 1}}


def tag(content, end="e", begin="b"):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def triggered(triggers, begin, **more):
    return {"type": "triggered_tags", "triggers": triggers, "tags": [tag(X, begin=begin)], **more}


@pytest.mark.parametrize(
    ("format_", "location", "message"),
    [
        ({"type": "repeat", "content": X}, "/format/type", '"repeat" is not taken here'),
        ({"type": "token", "token": 3}, "/format/type", '"token" is not taken'),
        ({"value": "x"}, "/format", '"type" is missing'),
        ({"type": 1}, "/format/type", "is a string"),
        ({"type": "const_string"}, "/format", '"value" is missing'),
        ({**X, "a/b~": 1}, "/format/a~1b~0", "not a member"),
        ({**ANY, "max_tokens": 3}, "/format/max_tokens", "not a member"),
        ({**ANY, "excludes": [""]}, "/format/excludes/0", "empty text"),
        ({**ANY, "excludes": "x"}, "/format/excludes", "list of strings"),
        ({"type": "sequence", "elements": []}, "/format/elements", "at least one"),
        ({"type": "sequence", "elements": [X, 1]}, "/format/elements/1", "a format is a JSON object"),
        ({"type": "sequence", "elements": [ANY, X]}, "/format/elements/0", "without excludes"),
        ({"type": "sequence", "elements": [triggered(["b"], "b"), X]}, "/format/elements/0", "without excludes"),
        ({**JSON, "json_schema": "x"}, "/format/json_schema", "an object or a boolean"),
        ({**JSON, "json_schema": False}, "/format/json_schema", "no finite JSON value satisfies"),
        ({**JSON, "json_schema": {"x-guidance": {}}}, "/format/json_schema/x-guidance", "engine options"),
        ({**JSON, "style": "qwen_xml"}, "/format/style", '"qwen_xml" is not taken'),
        (
            {**JSON, "any_order": True, "json_schema": {"type": "object", "minProperties": 1}},
            "/format/json_schema",
            "take out ['minProperties']",
        ),
        (
            {**JSON, "any_order": True, "json_schema": {"type": "object", "properties": {"a": {"$ref": "#"}}}},
            "/format/json_schema/properties/a",
            "references",
        ),
        ({**JSON, "max_whitespace_cnt": -1}, "/format/max_whitespace_cnt", "whole number"),
        (tag(X, end=[]), "/format/end", "empty list"),
        (tag(ANY, end=""), "/format/end", "never closes free text"),
        (tag({"type": "sequence", "elements": [X, ANY]}, end=["", "y"]), "/format/end", "never closes free text"),
        ({**tag(X), "begin": {"type": "token"}}, "/format/begin", "token format"),
        (triggered(["A", "AB"], "ABC"), "/format/tags/0/begin", "exactly one"),
        (triggered(["Z"], "ABC"), "/format/tags/0/begin", "none of the triggers"),
        (tag(triggered(["e"], "ex"), end="</e>"), "/format/content", "could never be reached"),
        ({"type": "regex", "pattern": "("}, "/format/pattern", "a group that is never closed"),
        ({"type": "grammar", "grammar": 'root ::= "a'}, "/format", "line 1 column 10"),
        (
            {"type": "sequence", "elements": [NUMBER, {"type": "const_string", "value": "1"}]},
            "/format/elements/0/json_schema",
            "where this ends",
        ),
        (
            {"type": "sequence", "elements": [{**ANY, "excludes": ["x"]}, JSON]},
            "/format/elements/1/json_schema",
            "where this begins",
        ),
        (
            {"type": "or", "elements": [JSON, {**ANY, "excludes": ["x"]}]},
            "/format/elements/0/json_schema",
            "begins like another",
        ),
    ],
)
def test_a_format_is_refused_at_its_json_pointer(format_, location, message):
    with pytest.raises(InvalidGrammar, match="structural_tag") as refused:
        structural_tag_lark(json.dumps({"type": "structural_tag", "format": format_}))
    assert refused.value.metadata["location"] == location
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("[1]", "/"),
        ('{"type": "other", "format": {}}', "/type"),
        ('{"type": "structural_tag"}', "/"),
        ('{"format": {"type": "any_text"}, "more": 1}', "/more"),
        ('{"structures": [], "triggers": ["a"]}', "/structures"),
        ('{"structures": [{"begin": "a", "schema": {}, "end": "b"}]}', "/"),
        ('{"structures": [{"begin": "a", "schema": {}, "end": "b", "x": 1}], "triggers": ["a"]}', "/structures/0/x"),
        ('{"structures": [{"begin": "b", "schema": {}, "end": "b"}], "triggers": ["a"]}', "/structures/0/begin"),
        ('{"format": {"type": "const_string", "value": "\\ud800"}}', "/format/value"),
    ],
)
def test_a_document_is_refused_at_its_json_pointer(text, location):
    with pytest.raises(InvalidGrammar) as refused:
        structural_tag_lark(text)
    assert refused.value.metadata["location"] == location


def test_formats_nested_too_deeply_are_refused():
    format_ = X
    for _ in range(80):
        format_ = {"type": "or", "elements": [format_]}
    with pytest.raises(InvalidGrammar, match="deeper than 64"):
        structural_tag_lark(json.dumps({"format": format_}))


def test_members_that_are_null_are_members_left_out():
    assert structural_tag_lark('{"format": {"type": "any_text", "excludes": null, "max_tokens": null}}')


def test_a_schema_and_a_regex_are_refused_as_they_would_be_alone():
    unordered = {"type": "array", "items": {}, "uniqueItems": True}
    elements = [{"type": "regex", "pattern": "b(?=c)"}, {**JSON, "json_schema": {"properties": {"a": unordered}}}]
    for element, location, message in (
        (elements[0], "/format/pattern", "a lookahead (?= at 1:2"),
        (elements[1], "/format/json_schema/properties/a/uniqueItems", "can't be enforced: /properties/a/uniqueItems"),
    ):
        with pytest.raises(InvalidGrammar) as refused:
            structural_tag_lark(json.dumps({"format": element}))
        assert refused.value.metadata["location"] == location
        assert f"grammar.structural_tag: {location.partition('/properties')[0]}: {message}" in refused.value.message


def test_what_a_policy_lets_pass_in_a_schema_it_lets_pass_in_a_tag():
    unique = {**JSON, "json_schema": {"type": "array", "items": {}, "uniqueItems": True}}
    assert structural_tag_lark(json.dumps({"format": unique}), options=SchemaOptions(policy=Policy.APPROXIMATE))
