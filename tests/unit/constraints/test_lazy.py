"""Lazy grammars: when they wake, what they are fed, and what is legal before. Over the real engine, byte vocabulary."""

import pytest

from constraintd.engine.deferred import LazyGrammar, LazyOptions
from constraintd.engine.llguidance_ import LlguidanceEngine
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.errors import InvalidField
from constraintd.grammar.source import GrammarKind, parse_grammar
from constraintd.mask.packed import empty, ids
from constraintd.vocabulary.token_table import TokenEntry, TokenKind, from_table

# The bytes, then tokens that cross a trigger, then specials.
PIECES = [b"<t", b"<tool>", b"l>{", b'x<tool>{"', b">a", b"{}"]
CROSS, WHOLE, TAIL, WRAPPED, BAD_TAIL, BRACES, CALL, EOG = range(256, 264)
VOCABULARY = from_table(
    [
        *[TokenEntry(value, TokenKind.TEXT, bytes([value])) for value in range(256)],
        *[TokenEntry(256 + i, TokenKind.TEXT, piece) for i, piece in enumerate(PIECES)],
        TokenEntry(CALL, TokenKind.SPECIAL, b"<|call|>"),
        TokenEntry(EOG, TokenKind.SPECIAL, b"</s>"),
    ],
    eog_ids=[EOG],
    logits_width=270,
)
ENGINE = LlguidanceEngine(VOCABULARY)


def grammar(pattern):
    return ENGINE.compile(parse_grammar(GrammarKind.REGEX, [pattern.encode()], max_bytes=10_000))


def word(text, **options):
    return Trigger(TriggerKind.WORD, text=text, **options)


def pattern(text, kind=TriggerKind.PATTERN, **options):
    return Trigger(kind, text=text, **options)


def lazy(regex, *triggers, **options):
    return LazyGrammar(grammar(regex), triggers, VOCABULARY, LazyOptions(**options)).start()


def mask(matcher):
    words = empty(270)
    matcher.fill_mask(words)
    return set(ids(words).tolist())


def take(matcher, *tokens):
    for part in tokens:
        for token in list(part) if isinstance(part, bytes) else [part]:
            assert token in mask(matcher), (token, matcher.is_awaiting)
            matcher.consume(token)
    return matcher


def test_while_it_sleeps_every_real_token_is_legal_and_the_text_may_end():
    asleep = lazy("<tool>a", word("<tool>"))
    assert asleep.is_awaiting
    assert asleep.is_accepting()
    # All but the three whose tail "<tool>" the grammar would refuse: it wants an "a" behind it.
    assert mask(asleep) == set(range(264)) - {WRAPPED}


def test_a_word_wakes_it_and_it_is_fed_from_the_word_s_start():
    awake = take(lazy("<tool>ab", word("<tool>")), b"text <tool>")
    assert not awake.is_awaiting
    assert mask(awake) == {ord("a")}
    assert not awake.is_accepting()
    assert take(awake, b"ab").is_accepting()


def test_an_exclusive_word_feeds_what_comes_after_it():
    assert mask(take(lazy("ab", word("<tool>", exclusive=True)), b"<tool>")) == {ord("a")}


def test_a_token_across_the_trigger_is_cut_in_its_bytes():
    awake = take(lazy('<tool>\\{"a', word("<tool>")), WRAPPED)
    assert mask(awake) == {ord("a")}


def test_a_token_that_completes_the_word_with_a_refused_tail_is_masked_before_it_is_sampled():
    asleep = take(lazy("<tool>\\{", word("<tool>")), b"<too")
    assert TAIL in mask(asleep)  # "l>{"
    assert mask(take(lazy("<tool>b", word("<tool>")), b"<too")) == set(range(264)) - {TAIL, WRAPPED}
    assert BAD_TAIL not in mask(take(lazy("<tool>b", word("<tool>")), b"<tool"))
    assert BAD_TAIL in mask(take(lazy("<tool>a", word("<tool>")), b"<tool"))


def test_the_mask_before_waking_is_the_truth_at_every_place_of_a_text():
    asleep = lazy('<tool>\\{"a', word("<tool>"))
    for token in [CROSS, *b"oo", CROSS, *b"o<", WHOLE]:
        legal = mask(asleep)
        for candidate in range(264):
            ahead = asleep.fork()
            if candidate != EOG:
                ahead.consume(candidate)
                assert ahead.is_refused == (candidate not in legal), (candidate, token)
        asleep.consume(token)
    assert not asleep.is_awaiting


def test_a_begun_word_that_goes_on_otherwise_wakes_nothing():
    assert take(lazy("<tool>a", word("<tool>")), b"<too many tools>").is_awaiting


def test_a_trigger_inside_a_longer_word_fires_as_its_text_says():
    assert not take(lazy("<tool>a", word("<tool>")), b"xx<tool>").is_awaiting


def test_a_word_that_is_one_special_token_is_that_token_and_never_its_text():
    asleep = lazy("a", word("<|call|>", exclusive=True))
    assert take(asleep.fork(), b"<|call|>").is_awaiting
    assert not take(asleep, CALL).is_awaiting
    assert mask(asleep) == {ord("a")}


def test_a_token_trigger_drops_what_was_kept_and_feeds_only_itself():
    trigger = Trigger(TriggerKind.TOKEN, token=BRACES)
    assert mask(take(lazy("\\{\\}z", trigger), b"some text", BRACES)) == {ord("z")}
    assert BRACES not in mask(lazy("z", trigger))  # its own bytes would be refused
    assert mask(take(lazy("z", Trigger(TriggerKind.TOKEN, token=BRACES, exclusive=True)), BRACES)) == {ord("z")}


def test_at_start_means_offset_zero():
    asleep = lazy("\\{\\}a", word("{}", at_start=True))
    assert take(asleep.fork(), b" {}").is_awaiting
    assert not take(asleep, b"{}").is_awaiting


def test_the_earliest_start_wins_then_the_longest():
    both = lazy("(<tool>|tool>)X", word("tool>"), word("<tool>"))
    assert mask(take(both, b"a", WHOLE)) == {ord("X")}
    longest = lazy("(<t|<tool>X)", word("<t"), word("<tool>"))
    assert mask(take(longest, WHOLE)) == {ord("X")}


def test_a_pattern_feeds_from_its_first_non_empty_group_on():
    asleep = lazy("call\\(1", pattern("(nothing)?say (call)"))
    assert mask(take(asleep, b"I say call")) == {ord("(")}


def test_a_full_pattern_matches_the_whole_text_so_far():
    asleep = lazy("\\{1", pattern("[a-z ]*(\\{)", TriggerKind.PATTERN_FULL))
    assert take(asleep.fork(), b"ABC {").is_awaiting
    assert mask(take(asleep, b"abc {")) == {ord("1")}


def test_a_pattern_whose_tail_the_grammar_refuses_is_a_dead_end():
    refused = lazy("x", pattern("call"))
    for byte in b"call":
        refused.consume(byte)
    assert refused.is_refused
    assert not refused.is_awaiting
    assert not refused.is_accepting()
    assert mask(refused) == set()


def test_patterns_count_characters_that_are_not_ascii_right():
    asleep = lazy("go!", pattern("é(go)"))
    assert mask(take(asleep, "ü😀é".encode(), b"\xff", "égo".encode())) == {ord("!")}


def test_it_never_wakes_twice_unless_it_is_rearmed():
    once = take(lazy("<tool>a", word("<tool>")), b"<tool>a")
    assert mask(once) == {EOG}
    again = take(lazy("<tool>a", word("<tool>"), rearm=True), b"<tool>a")
    assert again.is_awaiting
    assert mask(take(again, b" then <tool>")) == {ord("a")}


def test_at_start_stays_offset_zero_when_it_is_armed_again():
    again = take(lazy("\\{\\}a", word("{}", at_start=True), rearm=True), b"{}a")
    assert again.is_awaiting
    assert take(again, b"{}").is_awaiting
    token = Trigger(TriggerKind.TOKEN, token=CALL, at_start=True, exclusive=True)
    assert take(lazy("a", token, rearm=True), CALL, b"a", CALL).is_awaiting


def test_behind_something_that_must_come_the_text_may_not_end_while_it_sleeps():
    asleep = lazy("a", word("</think>", exclusive=True), eog_legal=False)
    assert EOG not in mask(asleep)
    assert not asleep.is_accepting()


def test_a_lazy_grammar_inside_another_wakes_in_the_middle_of_a_token():
    inner = LazyGrammar(grammar('<tool>\\{"a'), [word("<tool>")], VOCABULARY)
    outer = LazyGrammar(inner, [word("x", exclusive=True)], VOCABULARY).start()
    awake = take(outer, WRAPPED)  # x<tool>{"
    assert not awake.is_awaiting
    assert mask(awake) == {ord("a")}


@pytest.mark.parametrize(
    ("triggers", "field"),
    [
        ([], "triggers"),
        ([word("")], "triggers[0].word"),
        ([word("a"), pattern("(?=a)")], "triggers[1].pattern"),
        ([pattern("(")], "triggers[0].pattern"),
        ([pattern("(a)\\1", TriggerKind.PATTERN_FULL)], "triggers[0].pattern_full"),
        ([Trigger(TriggerKind.TOKEN, token=268)], "triggers[0].token"),
    ],
    ids=str,
)
def test_triggers_that_can_not_be_used_are_refused_with_their_place(triggers, field):
    with pytest.raises(InvalidField) as caught:
        LazyGrammar(grammar("a"), triggers, VOCABULARY)
    assert caught.value.metadata["field"] == field
