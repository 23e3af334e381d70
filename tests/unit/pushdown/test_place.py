"""A place as bytes: equal everywhere, restored exactly, refused when it isn't one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from constraintd.errors import InvalidField
from tests.unit.pushdown.small_vocabulary import ENGINE, Reader, legal

NESTED = 'root ::= value\nvalue ::= "[" (value ("," value)*)? "]" | [é€]+ | <tool>'

# Walks another way to the same place, so that all numbers of the automaton differ.
ELSEWHERE = """
import sys
from tests.unit.pushdown.small_vocabulary import Reader, legal
grammar = Reader({grammar!r}).grammar
for text in ("€€", "[[[[€", "[é,[é,é]]"):
    grammar.start().consume_bytes(text.encode())
    legal(grammar.start())
matcher = grammar.at(bytes.fromhex({place!r}))
print(matcher.place().hex(), sorted(legal(matcher)))
other = grammar.start()
other.consume_bytes(bytes.fromhex({data!r}))
print(other.place().hex())
"""


@pytest.mark.parametrize("text", [b"", b"[", b"[[\xc3\xa9,[", b"[\xe2", b"[[\xe2\x82", b"[]"])
def test_a_place_is_the_same_in_another_process(text):
    matcher = Reader(NESTED).grammar.start()
    assert matcher.consume_bytes(text)
    place = matcher.place()
    code = ELSEWHERE.format(grammar=NESTED, place=place.hex(), data=text.hex())
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [f"{place.hex()} {sorted(legal(matcher))}", place.hex()]


def test_two_ways_to_one_place_give_the_same_bytes():
    grammar = Reader('root ::= ("a" | "b")* "." root | "c"').grammar
    one, other = grammar.start(), grammar.start()
    one.consume_bytes(b"aab.b.")
    other.consume_bytes(b".")
    assert one.place() == other.place()


def test_a_deep_place_takes_bytes_in_proportion():
    matcher = Reader(NESTED).grammar.start()
    matcher.consume_bytes(b"[" * 10_000)
    place = matcher.place()
    assert len(place) < 60_000
    other = Reader(NESTED).grammar.at(place)
    assert other.consume_bytes(b"]" * 10_000)
    assert other.is_exhausted()


def test_a_place_survives_that_the_grammar_forgets_everything():
    grammar = Reader(NESTED).grammar
    matcher = grammar.start()
    matcher.consume_bytes(b"[[")
    place = matcher.place()
    grammar.forget()
    assert matcher.place() == place
    matcher.consume(ord("]"))
    assert matcher.consume_bytes(b"]")
    assert matcher.is_exhausted()
    assert grammar.statistics().renewals == 1


def test_a_place_of_another_grammar_or_vocabulary_is_refused():
    place = Reader(NESTED).after("[").place()
    with pytest.raises(InvalidField, match="another grammar"):
        Reader('root ::= "["').grammar.at(place)
    with pytest.raises(InvalidField, match="another grammar"):
        ENGINE.compile("cd" * 32, NESTED).at(place)


def test_broken_places_are_refused():
    grammar = Reader(NESTED).grammar
    place = Reader(NESTED).after("[[").place()
    assert grammar.at(place).place() == place
    broken = [b"", place[:10], place[:-1], place + b"\0", place[:24] + b"\xff" * 20, place[:24] + b"\x00\x01\x7f\x00"]
    for at in range(24, len(place)):
        for value in range(256):
            changed = place[:at] + bytes([value]) + place[at + 1 :]
            if changed != place:
                broken.append(changed)
    refused = 0
    for each in broken:
        try:
            # What is not refused is another place of the same grammar, in its one form.
            assert grammar.at(each).place() == each
        except InvalidField as error:
            refused += 1
            assert error.metadata["field"] == "place"
    assert refused > len(broken) // 2
