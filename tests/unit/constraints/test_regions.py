"""Regions: which places are prose, permissive or structural, and which tokens stay inside of a permissive one."""

import random

import numpy as np
import pytest

from constraintd.constraint import Constraint, PartKind, PartSpec
from constraintd.engine.llguidance_ import LlguidanceMatcher
from constraintd.engine.permissive import ForkWalk, staying
from constraintd.engine.region import Region
from constraintd.engine.token_rules import FixedMask
from tests.unit.constraints.byte_words import (
    CALL,
    EOG,
    TOKEN,
    VOCABULARY,
    WORDS,
    gbnf,
    json_object,
    json_schema,
    lark,
    lazy,
    pattern,
    regex,
    word,
)

JSON = {"llguidance": json_object, "gbnf": gbnf}


def part(source, kind=PartKind.GRAMMAR):
    return PartSpec("part", kind, b"part", source.start, source.at)


def after(text, *parts):
    constraint = Constraint.start(parts, VOCABULARY)
    for byte in text.encode():
        constraint.consume(byte)
    return constraint


def legal(matcher):
    return set(np.flatnonzero(matcher.legal_bytes()).tolist())


PRINTABLE = set(range(0x20, 0x7F))
LEADING = set(range(0xC2, 0xF5))  # of UTF-8


@pytest.mark.parametrize("engine", JSON)
def test_legal_bytes_are_those_that_some_text_goes_on_with(engine):
    matcher = JSON[engine]().start()
    matcher.consume_bytes(b'{"a')
    assert legal(matcher) - {0x7F} == PRINTABLE | LEADING  # DEL passes in one of them only
    matcher.consume_bytes(b'":')
    matcher.consume_bytes(b" -")
    assert legal(matcher) == set(b"0123456789")


def test_legal_bytes_are_the_same_before_and_behind_a_mask_and_on_a_fork():
    words = np.zeros(10, np.uint32)
    matcher = json_object().start()
    for byte in '{"é": [1, "x\\n"]}'.encode():
        asked_first = matcher.fork()
        expected = legal(asked_first)
        matcher.fill_mask(words)
        assert legal(matcher) == legal(matcher.fork()) == expected
        assert byte in expected
        matcher.consume(byte)
    assert legal(matcher) == set()


def test_a_token_that_is_named_by_its_id_is_no_byte():
    for text, token in [("start: <|call|> /a+/", CALL), (f"start: <[{CALL}]> /a+/", CALL), ("start: <[98]> /a+/", 98)]:
        matcher = lark(text).start()
        assert legal(matcher) == set()
        matcher.consume(token)
        assert legal(matcher) == {ord("a")}


def test_every_byte_is_legal_while_a_lazy_grammar_sleeps_and_none_once_it_was_refused():
    asleep = lazy(regex("x"), pattern("call")).start()
    assert legal(asleep) == set(range(256))
    for byte in b"call":
        asleep.consume(byte)
    assert legal(asleep) == set()


@pytest.mark.parametrize("engine", JSON)
@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("", Region.STRUCTURAL),
        ("{", Region.STRUCTURAL),
        ('{"', Region.PERMISSIVE),
        ('{"a": "', Region.PERMISSIVE),
        ('{"a": "foo', Region.PERMISSIVE),
        ('{"a": "foo\\', Region.STRUCTURAL),
        ('{"a": "foo"', Region.STRUCTURAL),
        ('{"a": "foo"}', Region.PROSE),
    ],
)
def test_inside_of_a_string_json_is_permissive(engine, text, region):
    assert after(text, part(JSON[engine]())).region() is region


def test_without_grammars_all_is_prose():
    rule = FixedMask.allowed([97], VOCABULARY)
    assert after("").region() is Region.PROSE
    assert after("a", PartSpec("rule", PartKind.RULE, b"", rule.fork, rule.at)).region() is Region.PROSE


def test_a_lazy_grammar_counts_from_its_waking_on():
    source = lazy(regex('<tool>\\{"[^"]*"\\}'), word("<tool>"))
    assert after("<too", part(source, PartKind.LAZY)).region() is Region.PROSE
    assert after("<tool>", part(source, PartKind.LAZY)).region() is Region.STRUCTURAL
    assert after('<tool>{"', part(source, PartKind.LAZY)).region() is Region.PERMISSIVE
    assert after('<tool>{"a"}', part(source, PartKind.LAZY)).region() is Region.PROSE


def test_a_grammar_behind_a_reasoning_does_not_count_before_its_end():
    source = lazy(json_object(), word("</think>", exclusive=True), eog_legal=False)
    assert after('{"a', part(source)).region() is Region.PROSE
    assert after("</think>{", part(source)).region() is Region.STRUCTURAL
    assert after('</think>{"', part(source)).region() is Region.PERMISSIVE


def test_a_refused_lazy_grammar_is_structure_that_nothing_goes_on_in():
    source = lazy(regex("x"), pattern("call"))
    assert after("call", part(source, PartKind.LAZY)).region() is Region.STRUCTURAL


def test_all_unfinished_grammars_must_be_permissive():
    string, digits = part(regex('"[^"]*"')), part(gbnf('root ::= "\\"" [0-9]+ "\\""'))
    assert after('"1', string).region() is Region.PERMISSIVE
    assert after('"1', string, digits).region() is Region.STRUCTURAL
    assert (
        after('"1', string, part(gbnf('root ::= "\\"" [^x]*'))).region() is Region.PERMISSIVE
    )  # the second is complete


def stays(constraint, *tokens):
    return constraint.stays_within([spelled for token in tokens for spelled in [TOKEN.get(token, token)]])


@pytest.mark.parametrize("engine", JSON)
def test_a_token_stays_if_every_byte_of_it_does(engine):
    inside = after('{"a": "', part(JSON[engine]()))
    assert stays(inside, "foo", ord('"'), 'foo"', 'foo",', "é", ord("a"), ord("\\"), ord("\n")) == [
        True, False, False, False, True, True, False, False,
    ]  # fmt: skip
    assert stays(inside, 0xC3, 0xE1, 0xE0, 0xF1) == [True, True, False, True]  # 64, 64, 32 and 64 ways on
    assert stays(inside, CALL, EOG, 290, 10**6) == [False, False, False, False]
    assert stays(inside) == []
    assert stays(inside, "foo", "foo", 'foo"', "foo") == [True, True, False, True]


def test_asking_changes_nothing():
    constraint = after('{"a": "', part(json_object()), part(gbnf()))
    places, view = constraint.places(), constraint.mask()
    stays(constraint, *WORDS, *range(256))
    assert (constraint.places(), constraint.mask()) == (places, view)
    assert constraint.region() is Region.PERMISSIVE


def test_a_token_must_stay_in_every_unfinished_grammar():
    one, other = part(regex('"[^"]*"')), part(regex('"[^f"][^f"]*"'))
    assert stays(after('"a', one), "foo", "é") == [True, True]
    assert stays(after('"a', one, other), "foo", "é") == [False, True]


def test_a_token_that_completes_the_grammar_leaves():
    # Behind two characters it is complete, and behind one it isn't.
    assert stays(after("a", part(regex("(.|\n)(.|\n)(.|\n)+"))), ord("b"), "foo", "call") == [True, False, False]


def oracle(matcher, text):
    """Byte by byte on a fresh copy, by the definition."""
    ahead = matcher.fork()
    for byte in text:
        if not ahead.consume_bytes(bytes([byte])) or ahead.is_accepting() or len(legal(ahead)) < 64:
            return False
    return bool(text)


GRAMMARS = {
    "json object": json_object,
    "json schema": lambda: json_schema('{"properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]}'),
    "gbnf": gbnf,
    "counted": lambda: regex("[^x\n]{1,12}x"),
    "counted tokens": lambda: lark('start: <[97]>* text\ntext: /[^;]+/ ";" <|call|>'),
    "at most so many tokens": lambda: lark('start: text "x"\ntext[max_tokens=30]: /[^x]*/'),
    "up to a stop": lambda: lark('start: text /[^q]+q/\ntext[stop="x"]: /[^y]*/'),
    "ends": lambda: regex("([^x]x)*[^x][^x]"),
    "a dead end": lambda: lark("start: /[^q][^q]/ NEVER\nNEVER: /a/ & /b/"),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_walk_over_many_texts_agrees_with_walking_each_alone(name):
    source = GRAMMARS[name]()
    chance = random.Random(0)
    alphabet = ["a", "b", "x", '"', "\\", "n", "é", "ü", "q", ";", " "]
    for _ in range(25):
        matcher = source.start()
        for _ in range(chance.randrange(8)):
            ways = sorted(legal(matcher))
            if not ways:
                break
            matcher.consume_bytes(bytes([chance.choice(ways)]))
        texts = ["".join(chance.choices(alphabet, k=chance.randrange(5))).encode() for _ in range(40)]
        texts += [text[:-1] for text in texts]  # some end inside of a character
        expected = [oracle(matcher, text) for text in texts]
        for walk in [ForkWalk(matcher), *([matcher.walk()] if isinstance(matcher, LlguidanceMatcher) else [])]:
            assert staying(walk, texts) == expected
            assert staying(walk, texts) == expected  # it came back to where it was


# --- completeness ---


def test_the_two_clauses_of_incompleteness_do_not_know_of_each_other():
    eager, call = part(regex("a*b?")), part(lazy(regex("<tool>a"), word("<tool>")), PartKind.LAZY)
    digits = part(regex("[0-9]{3}"))
    assert not after("", eager, call).incomplete_at_end()
    assert after("1", digits).incomplete_at_end()
    assert not after("1", digits, part(regex("[0-9]*"))).incomplete_at_end()  # one of them is complete
    free = part(regex("(.|\n)*"))
    assert not after("text", free, call).incomplete_at_end()
    assert after("<tool>", free, call).incomplete_at_end()
    assert not after("<tool>a", free, call).incomplete_at_end()
    assert not after("text", call).incomplete_at_end()


def test_some_grammar_is_complete_only_if_it_is_awake():
    call = part(lazy(regex("<tool>a"), word("<tool>")), PartKind.LAZY)
    assert not after("").any_complete()
    assert not after("text", call).any_complete()
    assert not after("<tool>", call).any_complete()
    assert after("<tool>a", call).any_complete()
    assert after("1", part(regex("[0-9]{3}")), part(regex("[0-9]*"))).any_complete()
    behind = part(lazy(regex("a*"), word("</think>", exclusive=True), eog_legal=False))
    assert not after("x", behind).any_complete()
    assert after("x", behind).incomplete_at_end()
    assert after("</think>", behind).any_complete()


def test_token_rules_never_count_for_completeness():
    rule = FixedMask.allowed([97], VOCABULARY)
    only = after("a", PartSpec("rule", PartKind.RULE, b"", rule.fork, rule.at))
    assert not only.any_complete()
    assert not only.incomplete_at_end()
