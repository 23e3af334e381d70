"""Hostile grammars meet a limit, not the memory or the clock; and only the session that asked."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from constraintd.engine.pushdown_limits import AutomatonLimits, PushdownLimits
from constraintd.errors import InvalidGrammar, LimitExceeded
from tests.unit.pushdown.small_vocabulary import ENGINE, legal


def grammar_of(source, **automaton):
    limits = PushdownLimits(automaton=replace(AutomatonLimits(), **automaton))
    return ENGINE.compile("ab" * 32, source, limits=limits)


def drive(grammar, data):
    matcher = grammar.start()
    for byte in data:
        legal(matcher)
        assert matcher.consume_bytes(bytes([byte]))


@pytest.mark.parametrize(
    "source",
    [
        'root ::= (("a"? b){0,90}){0,90}\nb ::= ("a"? "a"?){0,90}',
        'root ::= x\nx ::= ("a" | "a" y | x2)+\ny ::= x? x?\nx2 ::= "a" x "a"? x',
        "root ::= s\ns ::= [a] s s s s | [a]",
    ],
)
def test_exponential_growth_meets_a_limit(source):
    began = time.monotonic()
    with pytest.raises(LimitExceeded):
        drive(grammar_of(source, states=2_000, stacks=20_000, stacks_in_state=500, step_seconds=0.5), b"a" * 300)
    assert time.monotonic() - began < 20


def test_too_many_positions_are_refused_at_compile():
    with pytest.raises(LimitExceeded):
        ENGINE.compile("ab" * 32, 'root ::= "a"{4000} "b"{4000}', limits=PushdownLimits(positions=5_000))


def test_deep_groups_and_chains_of_quantifiers_compile():
    assert grammar_of("root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000)
    assert grammar_of('root ::= "a"' + "?" * 20_000)
    assert grammar_of("root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(5_000)) + '\nr5000 ::= "a"')


def test_six_nested_repetitions_are_refused_at_once():
    with pytest.raises(InvalidGrammar, match="multiply"):  # llama.cpp, tests/test-grammar-integration.cpp (MIT)
        grammar_of("root ::= (((((([^x]*){0,99}){0,99}){0,99}){0,99}){0,99}){0,99}")


def test_a_grammar_outlives_its_automaton():
    """Long sessions meet ever new states: the table is renewed, and all sessions go on."""
    grammar = grammar_of('root ::= v\nv ::= "[" v* "]"', states=100)
    waiting = grammar.start()
    waiting.consume_bytes(b"[[[")
    matcher = grammar.start()
    for _ in range(60):
        assert matcher.consume_bytes(b"[")
    for _ in range(60):
        assert matcher.consume_bytes(b"]")
    assert matcher.is_exhausted()
    assert grammar.statistics().renewals > 0
    assert legal(waiting) == {ord("["), ord("]")}
    assert waiting.consume_bytes(b"]]]")
    assert waiting.is_exhausted()


def test_a_text_longer_than_the_automatons_limit_is_read():
    grammar = grammar_of('root ::= v\nv ::= "[" v* "]"', states=2_000)
    matcher = grammar.start()
    assert matcher.consume_bytes(b"[" * 5_000)
    assert not matcher.consume_bytes(b"]" * 5_000 + b"x")
    assert matcher.consume_bytes(b"]" * 5_000)
    assert matcher.is_exhausted()
    assert grammar.statistics().renewals > 0


def test_a_place_that_alone_fills_the_limit_ends_its_session_only():
    grammar = grammar_of('root ::= v\nv ::= "[" v* "]"', stacks=400)
    greedy, other = grammar.start(), grammar.start()
    other.consume_bytes(b"[")
    with pytest.raises(LimitExceeded):
        for _ in range(1_000):
            greedy.consume_bytes(b"[")
    assert other.consume_bytes(b"[]]")
    assert other.is_exhausted()


def test_masks_stay_within_their_bytes():
    limits = PushdownLimits(mask_cache_bytes=2_000)
    grammar = ENGINE.compile(
        "ab" * 32, "root ::= " + " ".join(f'"{c}"' for c in "abcdefghijklmnopqrstuvwxyz"), limits=limits
    )
    drive(grammar, b"abcdefghijklmnopqrstuvwxyz")
    statistics = grammar.statistics()
    assert statistics.mask_bytes <= 2_000
    assert 0 < statistics.masks < 27
    drive(grammar, b"abcdefghijklmnopqrstuvwxyz")
