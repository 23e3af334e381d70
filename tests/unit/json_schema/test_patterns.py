"""ECMA-262 patterns, respelled for the engine or refused with their column."""

from __future__ import annotations

import json

import pytest

from constraintd.grammar.json_schema.ecma import UnsupportedPattern, engine_pattern
from constraintd.grammar.json_schema.linear_search import LinearSearch

_SEARCH = LinearSearch()


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a", ["a", "xax", "\na"], ["", "b"]),
        ("^a|b$", ["ax", "xb"], ["xax"]),
        ("^\\d+$", ["12"], ["\u0661"]),
        ("^\\w$", ["a", "_"], ["é"]),
        ("^\\s$", [" ", "\u00a0", "\ufeff", "\u2028"], ["a", "\u200b"]),
        ("^\\S$", ["a"], ["\ufeff"]),
        ("^[\\s\\d]$", [" ", "1"], ["a"]),
        ("^[^\\D]$", ["1"], ["a"]),
        ("^.$", ["a", "\U0001f600"], ["\n", "\r", "\u2029"]),
        ("^[^]$", ["\n", "a", "\x7f"], [""]),
        ("^a.*?b$", ["ab", "axb"], ["a"]),
        ("^\\/[a-z&&[^x]$", ["/&", "/x", "/["], ["x"]),
        ("^(?<year>\\d{4})$", ["2024"], ["24"]),
        ("^\\u0041\\x42\\u{43}$", ["ABC"], ["abc"]),
        ("^\\ud83d\\ude00$", ["\U0001f600"], ["x"]),
        ("^{a}$", ["{a}"], ["a"]),
        ("^[0-9-_]+$", ["1-_"], [":", "^"]),
        ("^[\\w-.]+$", ["a-."], [","]),
        ("^[+--]$", [",", "-"], ["."]),
        ("^[\\b\\-\\]]+$", ["\b-]"], ["b"]),
        ("^\\p{Lu}$", ["É"], ["é"]),
        ("^\\cA\\t$", ["\x01\t"], ["A"]),
    ],
)
def test_means_what_ecma_262_says(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [_SEARCH(pattern, text) for text in matching] == [True] * len(matching)
    assert [_SEARCH(pattern, text) for text in other] == [False] * len(other)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ('^[^"]$', ["\\", "a", "\n"], ['"']),
        ("^[^\\\\]$", ['"', "a", "\n"], ["\\"]),
        ('^[^"\\\\]*$', ["a\tb"], ['"', "\\", 'a"']),
        ('^[^\\s"]+$', ["a\\"], ['a"', " "]),
        ("^[\\x00-!]$", ["\n", " "], ['"', "\\", "a"]),
        ("^[\\x00-Z]$", ['"', "A"], ["\\", "a"]),
        ("^[\\s\\S]$", ['"', "\\", "\x00"], [""]),
        ('^[^\\p{Lu}"]$', ["a", "\\"], ['"', "A"]),
    ],
)
def test_a_quote_or_backslash_that_a_class_leaves_out_is_no_match(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    assert [_SEARCH(pattern, text) for text in matching] == [True] * len(matching)
    assert [_SEARCH(pattern, text) for text in other] == [False] * len(other)


@pytest.mark.parametrize(
    ("pattern", "column"),
    [
        ("a(?=b)", 2),
        ("(?<!a)b", 1),
        ("a*+", 3),
        ("(?i)a", 1),
        ("[[:alpha:]]", 11),
        ("(a)\\1", 4),
        ("\\bword", 1),
        ("\\Aa", 1),
        ("**", 1),
        ("a{,3}", 2),
        ("[z-a]", 3),
        ("a{3,1}", 2),
        ("(", 1),
        ("a)", 2),
        ("[a", 1),
        ("\\ud800", 1),
    ],
)
def test_what_would_be_read_otherwise_is_refused_with_its_column(pattern: str, column: int) -> None:
    with pytest.raises(UnsupportedPattern) as caught:
        engine_pattern(pattern)
    assert caught.value.column == column, json.dumps(pattern)
