"""The languages of structural tags, over every short text, against regexes written by hand."""

import itertools
import re

import pytest

from tests.unit.structural_tag.walk import accepts, tag

X = {"type": "const_string", "value": "x"}
ANY = {"type": "any_text"}


@pytest.mark.parametrize(
    ("format_", "letters", "language"),
    [
        pytest.param({**ANY, "excludes": ["aba"]}, "abc", r"(?:(?!aba).)*", id="excluded text that overlaps itself"),
        pytest.param(
            {"type": "tag", "begin": "b", "content": ANY, "end": "aa"},
            "ab",
            r"b(?:(?!aa).)*aa",
            id="free text goes up to the first end, although that end overlaps itself",
        ),
        pytest.param(
            {"type": "tag", "begin": "", "content": ANY, "end": ["ab", "c"]},
            "abc",
            r"(?:(?!ab|c).)*(?:ab|c)",
            id="free text goes up to the first of several ends",
        ),
        pytest.param(
            {"type": "tag", "begin": "", "content": {**ANY, "excludes": ["a"]}, "end": "ab"},
            "abc",
            r"[bc]*ab",
            id="an end may begin with an excluded text",
        ),
        pytest.param(
            {"type": "triggered_tags", "triggers": ["ab"], "tags": [{"begin": "aba", "content": X, "end": "a"}]},
            "abx",
            r"(?:(?:(?!ab).)*abaxa)*(?:(?!ab).)*",
            id="a trigger in free text begins a tag and nothing else",
        ),
        pytest.param(
            {
                "type": "triggered_tags",
                "triggers": ["a"],
                "tags": [{"begin": "ab", "content": X, "end": "a"}],
                "excludes": ["bb"],
                "stop_after_first": True,
            },
            "abx",
            r"(?:(?!bb)[bx])*(?:(?<!bb)abxa)?",
            id="stop_after_first, and excludes that hold for the text alone",
        ),
        pytest.param(
            {
                "type": "triggered_tags",
                "triggers": ["a"],
                "tags": [{"begin": "ab", "content": X, "end": "b"}],
                "at_least_one": True,
            },
            "abx",
            r"abxb(?:[bx]*abxb)*[bx]*",
            id="at_least_one begins with a tag",
        ),
        pytest.param(
            {
                "type": "tag",
                "begin": "x",
                "content": {
                    "type": "triggered_tags",
                    "triggers": ["a"],
                    "tags": [{"begin": "ab", "content": ANY, "end": "b"}],
                },
                "end": "bx",
            },
            "abx",
            r"x(?:(?:(?!bx)[bx])*(?<!bx)ab[ax]*b)*(?:(?!bx)[bx])*bx",
            id="an outer end closes free text, not an inner tag",
        ),
        pytest.param(
            {
                "type": "tags_with_separator",
                "tags": [{"begin": "a", "content": X, "end": ""}, {"begin": "a", "content": X, "end": "b"}],
                "separator": "b",
            },
            "abx",
            r"(?:axb?(?:baxb?)*)?",
            id="a separator that is an end too",
        ),
        pytest.param(
            {
                "type": "sequence",
                "elements": [{**ANY, "excludes": ["ab"]}, {"type": "regex", "pattern": "a*b|c"}],
            },
            "abc",
            r"(?:(?!ab).)*?(?:(?<![a])a?b|aa+b|c|b)",
            id="free text with excludes and then a regex",
        ),
        pytest.param(
            {
                "type": "sequence",
                "elements": [
                    {"type": "regex", "pattern": "a+"},
                    {"type": "grammar", "grammar": 'root ::= "a" root | "b"'},
                    {"type": "const_string", "value": "bb"},
                ],
            },
            "ab",
            r"a+bbb",
            id="a regular grammar joins with what stands around it",
        ),
    ],
)
def test_every_short_text_is_decided_as_the_regex_says(format_, letters, language):
    grammar = tag(format_)
    texts = ("".join(text) for length in range(8) for text in itertools.product(letters, repeat=length))
    wrong = [text for text in texts if accepts(grammar, text) != bool(re.fullmatch(language, text))]
    assert wrong == []


def test_a_number_ends_where_what_follows_begins_although_it_could_go_on():
    grammar = tag(
        {
            "type": "tag",
            "begin": "n",
            "content": {"type": "json_schema", "json_schema": {"type": "number"}},
            "end": "E1",
        }
    )
    for text in ("n5E1", "n5E1E1", "n-0.5E1", "n5e+2E1"):
        assert accepts(grammar, text), text
    for text in ("n5", "n5E", "nE1", "n05E1"):
        assert not accepts(grammar, text), text


def test_a_recursive_grammar_is_itself():
    grammar = tag(
        {
            "type": "tag",
            "begin": "<",
            "content": {"type": "grammar", "grammar": 'root ::= "(" root ")" | [a-c]* '},
            "end": ">",
        }
    )
    for text in ("<>", "<abc>", "<((a))>", "<()>"):
        assert accepts(grammar, text), text
    for text in ("<(>", "<(a)b>", "<d>", "<)(>"):
        assert not accepts(grammar, text), text


def test_free_text_is_utf_8_and_ends_on_whole_characters():
    grammar = tag({"type": "any_text", "excludes": ["x"]})
    assert accepts(grammar, "é漢😊")
    assert not accepts(grammar, [0xC3])
    assert not accepts(grammar, [0xFF])


def test_the_older_form_is_triggered_tags():
    from constraintd.grammar.structural_tag import structural_tag_lark
    from tests.unit.structural_tag.walk import lark

    grammar = lark(
        structural_tag_lark(
            '{"structures": [{"begin": "<f=a>", "schema": {"type": "object"}, "end": "</f>"}], "triggers": ["<f="]}'
        )
    )
    for text in ("", "plain <f", 'x<f=a>{"k": 1}</f>y<f=a>{}</f>'):
        assert accepts(grammar, text), text
    for text in ("<f=b>{}</f>", "<f=a>[]</f>", "<f=a>{}", "<f="):
        assert not accepts(grammar, text), text


def test_max_whitespace_cnt_bounds_white_space_in_that_json_alone():
    json_part = {"type": "json_schema", "json_schema": {"type": "object"}}
    grammar = tag({"type": "sequence", "elements": [{**json_part, "max_whitespace_cnt": 0}, X, json_part]})
    assert accepts(grammar, '{"a":1}x{"a":   1}')
    assert not accepts(grammar, '{"a": 1}x{}')


def test_any_order_takes_every_order_and_still_needs_what_is_required():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}},
        "required": ["a", "b"],
    }
    closed = tag({"type": "json_schema", "any_order": True, "json_schema": {**schema, "additionalProperties": False}})
    for text in ('{"a":1,"b":""}', '{ "b": "x" , "c": null, "a": 12 }', '{"c":null,"b":"","a":0,"c":null}'):
        assert accepts(closed, text), text
    for text in ("{}", '{"a":1}', '{"b":"","c":null}', '{"a":1,"b":"","d":1}', '{"a":"","b":""}', '{"a":1,"b":"",}'):
        assert not accepts(closed, text), text
    open_ = tag({"type": "json_schema", "any_order": True, "json_schema": schema})
    assert accepts(open_, '{"z":[1],"b":"","aa":{},"a":1}')
    assert not accepts(open_, '{"z":1,"b":"","a":"1"}')
    assert not accepts(open_, '{"b":"","a":1,"\\u0061":"x"}')
