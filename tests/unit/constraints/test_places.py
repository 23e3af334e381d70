"""Places: what a matcher or a constraint writes of where it stands, and how one is restored or taken over from it."""

import random
from array import array

import pytest

from constraintd.constraint import Constraint, PartKind, PartSpec
from constraintd.engine.token_rules import AllowList, FixedMask, MinLength, TokenSequence
from constraintd.errors import InvalidEnvelope, InvalidField, ReplayDiverged
from tests.unit.constraints.byte_words import (
    CALL,
    EOG,
    TOKEN,
    VOCABULARY,
    WIDTH,
    gbnf,
    json_object,
    json_schema,
    lark,
    lazy,
    mask,
    pattern,
    regex,
    spell,
    word,
)

TOOL_CALL = '<tool>\\{"[a-z]+"\\}'


class Rule:
    """A token rule as a thing that matchers begin from."""

    def __init__(self, rule):
        self.start, self.at = rule.fork, rule.at


SOURCES = {
    "json schema": lambda: json_schema('{"properties": {"a": {"type": "string"}}, "required": ["a"]}'),
    "json object": json_object,
    "regex": lambda: regex("(foo|[a-z ]+é)*[0-9]{2,4}"),
    "lark": lambda: lark('start: <|call|> "foo"+ /[a-z]*/'),
    "gbnf": gbnf,
    "lazy by a word": lambda: lazy(regex(TOOL_CALL), word("<tool>")),
    "lazy by a word, again": lambda: lazy(regex('<tool>\\{"[a-c]"\\}'), word("<tool>"), rearm=True),
    "lazy by a pattern": lambda: lazy(gbnf(), pattern("say *(\\{)"), word("call", exclusive=True)),
    "lazy inside of lazy": lambda: lazy(lazy(gbnf(), word("<tool>", exclusive=True)), word("x", exclusive=True)),
    "fixed mask": lambda: Rule(FixedMask.allowed([1, 2, 300 - 1 - 40], VOCABULARY)),
    "allow-list": lambda: Rule(AllowList.start([[1, 2, 3], [1, 2], [1, 2, 3, 4], [7]], VOCABULARY)),
    "token sequence": lambda: Rule(TokenSequence.start([5, 6, 7], VOCABULARY)),
    "min length": lambda: Rule(MinLength(3, VOCABULARY)),
}
# What wakes the lazy ones, and goes far into the others, now and then.
TEXTS = ["<tool>", "x", "call", '{"', "foo", "say {"]


def step(matcher, chance):
    """One legal token that is not the end; False where there is none."""
    legal = sorted(mask(matcher) - {EOG})
    if not legal:
        return False
    wanted = spell(chance.choice(TEXTS))
    token = wanted[0] if chance.random() < 0.4 and wanted[0] in legal else chance.choice(legal)
    matcher.consume(token)
    return True


@pytest.mark.parametrize("name", SOURCES)
def test_a_restored_matcher_goes_on_as_the_one_that_wrote_its_place(name):
    source = SOURCES[name]()
    for seed in range(20):
        chance = random.Random(seed)
        matcher = source.start()
        for _ in range(chance.randrange(12)):
            if not step(matcher, chance):
                break
        place = matcher.place()
        restored = source.at(place)
        assert restored.place() == place
        for ahead in range(6):
            assert mask(restored) == mask(matcher), (seed, ahead)
            assert restored.is_accepting() == matcher.is_accepting()
            one, other = random.Random(ahead), random.Random(ahead)
            if not step(matcher, one):
                break
            step(restored, other)
            assert restored.place() == matcher.place()


@pytest.mark.parametrize("name", SOURCES)
def test_a_place_is_the_same_bytes_from_a_grammar_that_is_made_again(name):
    places = []
    for _ in range(2):
        matcher, chance = SOURCES[name]().start(), random.Random(3)
        while step(matcher, chance) and chance.random() < 0.9:
            pass
        places.append(matcher.place())
    assert places[0] == places[1]


def fed(source, *tokens):
    matcher = source.start()
    for token in tokens:
        matcher.consume(token)
    return matcher


def test_two_ways_to_one_place_of_a_structural_engine_give_the_same_bytes():
    grammar = gbnf()
    assert fed(grammar, *b'{"foo": "').place() == fed(grammar, TOKEN['{"'], TOKEN["foo"], TOKEN['": "']).place()
    rule = TokenSequence.start([5], VOCABULARY)
    assert fed(Rule(rule), 5).place() == fed(Rule(rule), 5, 9, 9).place() == b"\x01"


def test_a_place_in_llguidance_is_what_it_was_fed():
    matcher = fed(json_object(), TOKEN['{"'], ord("a"))
    assert matcher.place() == bytes([2, 0x80, 0x02, 97])  # 256 as LEB128
    assert matcher.consume_bytes(b"b")
    assert matcher.place() == bytes([3, 0x80, 0x02, 97, 0x8E, 0x03])  # 300 + 98


def test_a_refused_run_of_bytes_leaves_no_trace_in_the_place():
    matcher = fed(json_object(), ord("{"))
    assert not matcher.consume_bytes(b"x")
    assert matcher.place() == bytes([1, ord("{")])


def test_a_fork_writes_its_own_place():
    matcher = fed(json_object(), ord("{"))
    twin = matcher.fork()
    twin.consume(ord("}"))
    assert (matcher.place(), twin.place()) == (bytes([1, ord("{")]), bytes([2, ord("{"), ord("}")]))


def numbers(*values):
    out = bytearray([len(values)])
    for value in values:
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


@pytest.mark.parametrize(
    ("ids", "index"),
    [
        ([ord("{"), ord("x")], 1),
        ([EOG], 0),
        ([ord("{"), 290], 1),  # no token of the vocabulary
        ([*b'{"a', WIDTH + ord("\n")], 3),
        ([*b'{"', *[ord("a")] * 120, ord("\n")], 122),
    ],
)
def test_a_replay_that_is_refused_names_the_first_token_that_is(ids, index):
    with pytest.raises(ReplayDiverged) as caught:
        json_object().at(numbers(*ids))
    assert caught.value.metadata["index"] == str(index)


ASLEEP, AWAKE, REFUSED = b"\x00", b"\x01", b"\x02"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("json object", b""),
        ("json object", b"\x02{"),  # cut off
        ("json object", b"\x01{}"),  # more than it says
        ("json object", b"\x01\xfb\x00"),  # not the shortest form of "{"
        ("json object", numbers(WIDTH + 256)),
        ("lazy by a word", b""),
        ("lazy by a word", b"\x03"),
        ("lazy by a word", REFUSED + b"\x00"),
        ("lazy by a word", ASLEEP + b"\x00\x01\x00\x00\x00"),  # more than it says
        ("lazy by a word", ASLEEP + b"\x00\x00\x00" + numbers(291)),  # 290 is no token
        ("lazy by a word", ASLEEP + b"\x00\x00\x00" + numbers(302)),
        ("lazy by a word", ASLEEP + b"\x00\x01\x00" + numbers(98)),  # a token before the first one
        ("lazy by a word", ASLEEP + b"\x00\x01\x05" + numbers()),  # so are five bytes
        ("lazy by a word", ASLEEP + b"\x00\x00\x00" + numbers(*[98] * 6)),  # one more than "<tool>" can need
        ("lazy by a word", ASLEEP + b"\x00\x00\x00" + numbers(TOKEN["<tool>"] + 1)),  # awake
        ("lazy by a pattern", ASLEEP + b"\x00\x00\x05" + numbers(98)),  # a pattern needs all
        ("lazy by a word", AWAKE + b"\x00\x02\x01"),  # the inner place is cut off
        ("lazy by a word, again", AWAKE + b"\x00\x0d\x0c" + b'<tool>{"a"}<'),
        ("fixed mask", b"\x00"),
        ("allow-list", b""),
        ("allow-list", b"\x00\x00"),  # none active at the beginning
        ("allow-list", b"\x00\x01\x00"),
        ("allow-list", b"\x02\x03\x00\x02\x01"),
        ("allow-list", b"\x03\x03\x00\x01\x02"),  # [1, 2] is too short to be active behind 3
        ("allow-list", b"\x01\x04\x00\x01\x02\x03"),  # [7] does not agree
        ("allow-list", b"\x01\x01\x04"),
        ("token sequence", b"\x04"),
        ("token sequence", b""),
        ("min length", b"\x04"),
        ("min length", b"\x80\x00"),
    ],
)
def test_bytes_that_are_no_place_are_refused(name, place):
    with pytest.raises((InvalidEnvelope, ReplayDiverged) if "again" in name else InvalidEnvelope):
        SOURCES[name]().at(place)


@pytest.mark.parametrize("name", SOURCES)
def test_a_place_that_is_cut_or_altered_is_refused_or_is_another_place(name):
    source = SOURCES[name]()
    chance = random.Random(1)
    matcher = source.start()
    for _ in range(5):
        step(matcher, chance)
    place = matcher.place()
    for end in range(len(place)):
        with pytest.raises((InvalidEnvelope, InvalidField)):
            source.at(place[:end])
    for _ in range(60):
        altered = bytearray(place or b"\0")
        altered[chance.randrange(len(altered))] ^= 1 << chance.randrange(8)
        if bytes(altered) == place:
            continue
        try:
            restored = source.at(bytes(altered))
        except (InvalidEnvelope, InvalidField, ReplayDiverged):
            continue
        assert restored.place() == bytes(altered)


def test_a_sleeping_grammar_with_words_keeps_no_more_than_a_word_can_need():
    source = lazy(regex(TOOL_CALL), word("<tool>"))
    matcher = fed(source, *b"a long text " * 40, *b"<too")
    assert len(matcher.place()) < 15
    matcher.consume(ord("l"))
    matcher.consume(ord(">"))
    assert not matcher.is_awaiting
    assert matcher.fed_from == 480
    assert source.at(matcher.place()).fed_from == 480


def test_at_start_still_means_offset_zero_behind_what_was_forgotten():
    source = lazy(regex("foo"), word("foo", at_start=True))
    matcher = fed(source, *b"ab foo", *b"ab", CALL)
    assert matcher.is_awaiting
    restored = source.at(matcher.place())
    for byte in b"foo":
        restored.consume(byte)
    assert restored.is_awaiting


def test_a_refused_lazy_grammar_stays_refused():
    source = lazy(regex("x"), pattern("call"))
    matcher = fed(source, *b"call")
    assert matcher.is_refused
    restored = source.at(matcher.place())
    assert restored.is_refused
    assert mask(restored) == set()


def test_content_tells_rules_apart():
    rules = [
        FixedMask.allowed([1], VOCABULARY),
        FixedMask.allowed([2], VOCABULARY),
        AllowList.start([[1], [2]], VOCABULARY),
        AllowList.start([[1, 2]], VOCABULARY),
        TokenSequence.start([1, 2], VOCABULARY),
        MinLength(1, VOCABULARY),
        MinLength(2, VOCABULARY),
    ]
    assert len({rule.content for rule in rules}) == 7
    assert AllowList.start([[1], [2, EOG]], VOCABULARY).content == rules[2].content


# --- constraints ---


def part(identity, source, kind=PartKind.GRAMMAR):
    return PartSpec(identity, kind, identity.encode(), source.start, source.at)


def constraint(*parts):
    return Constraint.start(parts, VOCABULARY)


def after(text, *parts):
    made = constraint(*parts)
    for byte in text.encode():
        made.consume(byte)
    return made


def test_a_constraint_is_restored_from_the_places_of_its_parts():
    parts = [
        part("json", json_object()),
        part("calls", lazy(regex(TOOL_CALL), word("<tool>")), PartKind.LAZY),
        part("length", Rule(MinLength(6, VOCABULARY)), PartKind.RULE),
        part("gbnf", gbnf()),
    ]
    one = after('{"a": "b', *parts)
    places = one.places()
    assert [identity for identity, _ in places] == [b"json", b"calls", b"length", b"gbnf"]
    other = Constraint.at(parts, places, VOCABULARY)
    assert other.places() == places
    for byte in b'"}':
        assert other.mask() == one.mask()
        one.consume(byte)
        other.consume(byte)
    assert other.mask() == one.mask()
    assert other.is_complete()


def test_places_of_other_parts_are_refused():
    places = constraint(part("json", json_object())).places()
    for parts in ([], [part("other", json_object())], [part("json", json_object()), part("json", json_object())]):
        with pytest.raises(InvalidEnvelope):
            Constraint.at(parts, places, VOCABULARY)
    with pytest.raises(InvalidEnvelope):
        Constraint.at([part("gbnf", gbnf())], [(b"gbnf", b"gbnf-pl1")], VOCABULARY)


def test_an_identical_grammar_carries_its_place_and_a_changed_one_begins_anew():
    cached = after('{"a": ', part("json", json_object()), part("gbnf", gbnf()))
    resumed = Constraint.resumed([part("gbnf", gbnf()), part("other", json_object())], cached, VOCABULARY)
    assert resumed.places()[0] == cached.places()[1]
    assert resumed.places()[1] == (b"other", b"\x00")
    resumed = Constraint.resumed([part("json", json_object())], cached, VOCABULARY)
    assert resumed.places() == cached.places()[:1]
    before = cached.places()
    resumed.consume(ord("1"))
    assert cached.places() == before


def test_each_cached_part_carries_once_in_order():
    first, second = part("same", gbnf()), part("same", gbnf())
    cached = after("[1", first)
    resumed = Constraint.resumed([first, second], cached, VOCABULARY)
    start = constraint(first).places()
    assert resumed.places() == [*cached.places(), *start]


def test_what_is_fed_is_kept_in_four_bytes_a_token():
    assert array("I").itemsize == 4
