"""Python's patterns: what is spelled anew, and what is refused, where and by what name."""

from __future__ import annotations

import re
import time

import pytest

from constraintd.errors import InvalidGrammar
from constraintd.grammar.regex_case import with_other_case
from constraintd.grammar.regex_meaning import check_python_pattern
from tests.unit.regex.byte_walk import matcher_of, takes


@pytest.mark.parametrize(
    ("pattern", "engine"),
    [
        ("a{,3}", "a{0,3}"),
        ("a{,}", "a*"),
        ("a{2", r"a\{2"),
        ("a{}", r"a\{\}"),
        ("a+?b*?c??d{2,3}?", "a+b*c?d{2,3}"),
        ("^abc$", "abc"),
        (r"\Aabc\Z", "abc"),
        ("(^a|b)c", "(?:a|b)c"),
        ("^(a|b$)", "(?:a|b)"),
        ("(?m)^a$", "a"),
        ("((^)(x)?)(y$)", "x?y"),
        ("(?P<year>[0-9]{4})", "[0-9]{4}"),
        ("(?i)k1", "[Kk\u212a]1"),
        ("(?ai)k", "[Kk]"),
        ("a(?i:b)c", "a[Bb]c"),
        (".", r"[^\x{A}]"),
        ("(?s).", r"[\x{0}-\x{10FFFF}]"),
        ("(?x) a b # c", "ab"),
        ("a(?#comment)+", "a+"),
        (r"(?a)\d\s\w", r"[0-9][\x{9}-\x{D} ][0-9A-Z_a-z]"),
        (r"\012\101\x41\u00e9\N{DIGIT ONE}", r"\x{A}AAé1"),
        ("[]a[-]", r"[\-\[\]a]"),
        ("[[]", r"\["),
        ("[+--]", r"[\+-\-]"),
        ("(?:)", "(?:)"),
        ("(0x)?a", "(?:0x)?a"),
        ("(?:ab){0}c", "c"),
        ("[\ud7ff-\ue000]", r"[\x{D7FF}\x{E000}]"),
    ],
)
def test_it_is_spelled_so_that_the_engine_reads_the_same(pattern, engine):
    assert check_python_pattern(pattern) == engine


@pytest.mark.parametrize(
    ("pattern", "location", "construct"),
    [
        ("a*+a", "1:3", "possessive"),
        ("a{2}+", "1:5", "possessive"),
        ("foo**", "1:5", "quantifier after a quantifier"),
        ("*a", "1:1", "nothing before it to repeat"),
        ("^*", "1:2", "quantifier after an anchor"),
        (r"\((?:[^()]|(?R))*\)", "1:12", "recursion"),
        ("[[:alpha:]]+", "1:2", "POSIX class [:alpha:]"),
        ("[^[:alpha:]]", "1:3", "POSIX class [:alpha:]"),
        ("[a-z&&[^aeiou]]", "1:5", "&& in a character class, a set intersection"),
        ("[a-z--b]", "1:5", "-- in a character class, a set difference"),
        ("[a~~b]", "1:3", "~~ in a character class, a set symmetric difference"),
        ("[a[bc]]", "1:1", "class inside another class"),
        ("[[ab]", "1:2", "class inside another class"),
        (r"(['\"]).*?\1", "1:11", r"backreference \1"),
        ("(?P<q>a)(?P=q)", "1:9", "backreference"),
        ("x(?=a)", "1:2", "lookahead (?="),
        ("x(?!a)", "1:2", "negative lookahead"),
        ("(?<=a)x", "1:1", "lookbehind"),
        ("(?<!a)x", "1:1", "negative lookbehind"),
        (r"\bfoo", "1:1", r"word boundary \b"),
        ("(?>a+)b", "1:1", "atomic group"),
        ("(<)?a(?(1)>)", "1:6", "conditional"),
        ("(^a|b$)c?", "1:6", "anchor $ before other parts"),
        ("a*^b", "1:3", "anchor ^ after other parts"),
        ("(^a)*", "1:2", "anchor ^ inside a repetition"),
        ("(?<name>a)", "1:1", "group name (?<"),
        ("a(?i)b", "1:2", "global flags inside the pattern"),
        ("(?-i)b", "1:1", "global flags that turn off"),
        ("(?L)b", "1:1", "unknown group (?L"),
        (r"\e", "1:1", r"escape \e"),
        (r"\p{L}", "1:1", r"escape \p"),
        (r"\z", "1:1", r"escape \z"),
        (r"\x4", "1:1", r"escape \x4"),
        (r"\U00110000", "1:1", r"escape \U00110000"),
        (r"\400", "1:1", "octal escape"),
        (r"\ud800", "1:1", "surrogate"),
        (r"[\ud800]", "1:1", "surrogate"),
        ("a\\", "1:2", "backslash at the end"),
        ("a{100000000}", "1:2", "counted repetition over the limit of 65536"),
        ("a{3,2}", "1:2", "least is over its most"),
        ("[z-a]", "1:2", "range whose end comes before its start"),
        (r"[\w-z]", "1:2", "range with a class"),
        ("[]", "1:1", "never closed"),
        ("ab)", "1:3", "closes no group"),
        ("abc((a)", "1:4", "never closed"),
        ("(?x)a\nb # (\n\\b", "3:1", "word boundary"),
    ],
)
def test_it_is_refused_by_name_and_place(pattern, location, construct):
    with pytest.raises(InvalidGrammar) as refusal:
        check_python_pattern(pattern)
    assert construct in refusal.value.message
    assert refusal.value.metadata["location"] == location
    assert f"at {location}; " in refusal.value.message


def test_the_limit_of_counts_is_the_callers():
    assert check_python_pattern("a{10}", max_repeat=10) == "a{10}"
    with pytest.raises(InvalidGrammar, match="limit of 10"):
        check_python_pattern("a{,11}", max_repeat=10)


def test_word_characters_are_pythons_and_not_the_engines():
    matcher = matcher_of(check_python_pattern(r"\w"))
    assert takes(matcher, "²")
    assert not takes(matcher, "\u0301")


def test_spaces_are_pythons_and_not_the_engines():
    assert takes(matcher_of(check_python_pattern(r"\s")), "\x1c")


def test_case_is_ignored_over_all_of_unicode_as_re_does():
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    cased = [char for char in characters if char.lower() != char or char.upper() != char or char.title() != char]
    joined = "".join(cased)
    assert max(cased) <= "\U0001ffff"
    # Every seventh, to keep it short; every one was compared once.
    for char in cased[::7]:
        closed = {chr(code) for code, _ in with_other_case([(ord(char), ord(char))], ascii_only=False)}
        assert closed == {char, *re.findall(re.escape(char), joined, re.IGNORECASE)}


def test_the_deepest_pattern_that_is_taken_is_one_that_the_engine_takes():
    pattern = "(b|" * 50 + "a" + ")*c" * 50
    assert takes(matcher_of(check_python_pattern(pattern)), "a" + "c" * 50)
    with pytest.raises(InvalidGrammar, match="more than 50 groups inside each other at 1:51"):
        check_python_pattern("(" * 51 + ")" * 51)


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 100_000 + ")" * 100_000,
        "[a]" * 300_000,
        "|" * 1_000_000,
        "(?i)" + "é" * 1_000_000,
        "{1," * 300_000,
        "a{" + "1" * 1_000_000 + "}",
        "(?i)" + "[a-\uffff]" * 60_000,
        "[" * 1_000_000,
    ],
    ids=["parentheses", "classes", "branches", "case", "braces", "digits", "wide ranges", "brackets"],
)
def test_a_hostile_pattern_is_refused_in_time(pattern):
    began = time.monotonic()
    with pytest.raises(InvalidGrammar):
        check_python_pattern(pattern)
    assert time.monotonic() - began < 20


def test_a_megabyte_of_text_is_a_pattern_like_any_other():
    assert check_python_pattern("a" * 1_000_000) == "a" * 1_000_000
