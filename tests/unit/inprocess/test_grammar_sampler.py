"""GrammarSampler: masks in place, accepts what the mask has, ends where the text is complete. Over the real engines."""

import numpy as np
import pytest

from constraintd.engine.deferred import LazyGrammar, LazyOptions
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.inprocess import (
    ConstraintError,
    EarlyEnd,
    ForbiddenToken,
    GrammarSampler,
    MaskOutcome,
    VocabMismatch,
)
from tests.unit.inprocess.toy import (
    AB,
    CALL,
    ENDS,
    EOG,
    EOG_TEXT,
    HOLE,
    NUL,
    REAL,
    VOCABULARY,
    WIDTH,
    flat,
    gbnf,
    liking,
    regex,
    vocabulary,
)

ENGINES = pytest.mark.parametrize("compiled", [regex("ab?c"), gbnf('root ::= "a" "b"? "c"')], ids=["regex", "gbnf"])


def left(sampler, row=None):
    """The ids that `mask_logits` leaves, and its outcome."""
    row = flat() if row is None else row
    outcome = sampler.mask_logits(row)
    return set(np.flatnonzero(~np.isneginf(row)).tolist()), outcome


def word(text, **options):
    return Trigger(TriggerKind.WORD, text=text, **options)


def lazy(compiled, *triggers, **options):
    return GrammarSampler(LazyGrammar(compiled, triggers, VOCABULARY, LazyOptions(**options)), VOCABULARY)


def take(sampler, text):
    for token in text:
        sampler.accept(token)
    return sampler


@ENGINES
def test_it_forbids_in_place_all_that_the_grammar_forbids(compiled):
    sampler = GrammarSampler(compiled, VOCABULARY)
    row = liking(ord("x"), ord("a"))
    assert left(sampler, row) == ({ord("a"), AB}, MaskOutcome.APPLIED)
    assert row[ord("a")] == 9.0
    take(sampler, [AB])
    assert left(sampler) == ({ord("c")}, MaskOutcome.APPLIED)


def test_its_vocabulary_is_a_snapshot_of_pieces_and_ends():
    sampler = GrammarSampler(regex("[a-b]*"), VOCABULARY)
    assert sampler.vocab_size == 270
    assert left(sampler)[0] == {ord("a"), ord("b"), AB} | ENDS


def test_a_grammar_of_another_vocabulary_is_refused():
    other = vocabulary(bos_id=1)
    for grammar in (regex("a"), LazyGrammar(regex("a"), [word("x")], VOCABULARY)):
        with pytest.raises(VocabMismatch):
            GrammarSampler(grammar, other)


def test_the_live_grammar_can_be_asked():
    sampler = take(GrammarSampler(regex("ab?"), VOCABULARY), b"a")
    assert sampler.grammar.is_accepting()
    ahead = sampler.grammar.fork()
    ahead.consume(ord("b"))
    assert left(sampler)[0] == {ord("b")} | ENDS


def test_an_entry_that_is_minus_infinity_already_stays_so_and_is_not_left():
    sampler = GrammarSampler(regex("[ab]"), VOCABULARY)
    row = flat()
    row[ord("a")] = -np.inf
    assert left(sampler, row) == ({ord("b")}, MaskOutcome.APPLIED)


def test_nothing_left_behind_a_complete_text_is_success():
    sampler = take(GrammarSampler(regex("a"), VOCABULARY), b"a")
    assert left(sampler) == (ENDS, MaskOutcome.APPLIED)
    row = flat()
    row[[EOG, EOG_TEXT]] = -np.inf
    assert left(sampler, row) == (set(), MaskOutcome.COMPLETE)


def test_nothing_left_behind_an_unfinished_text_is_a_dead_end():
    sampler = take(GrammarSampler(regex("ab"), VOCABULARY), b"a")
    row = flat()
    row[ord("b")] = -np.inf
    assert left(sampler, row) == (set(), MaskOutcome.NO_ALLOWED_TOKEN)


@pytest.mark.parametrize("width", [WIDTH - 1, WIDTH + 1, 0])
def test_a_row_of_another_length_is_refused_and_unchanged_even_while_the_grammar_sleeps(width):
    for sampler in (GrammarSampler(regex("a"), VOCABULARY), lazy(regex("a"), word("<call>"))):
        row = np.zeros(width, np.float32)
        with pytest.raises(VocabMismatch, match=f"the row has {width} logits, the grammar's vocabulary 270 ids"):
            sampler.mask_logits(row)
        assert not np.isneginf(row).any()


def test_float64_rows_are_masked_too_and_what_is_no_row_is_refused():
    assert left(GrammarSampler(regex("a"), VOCABULARY), flat(np.float64)) == ({ord("a")}, MaskOutcome.APPLIED)
    with pytest.raises(ValueError, match="expected one row"):
        GrammarSampler(regex("a"), VOCABULARY).mask_logits(np.zeros((1, WIDTH), np.float32))


@ENGINES
def test_an_end_asserts_that_the_text_is_complete_and_moves_nothing(compiled):
    sampler = take(GrammarSampler(compiled, VOCABULARY), b"abc")
    before = left(sampler)
    sampler.accept(EOG)
    sampler.accept(EOG_TEXT)
    assert left(sampler) == before == (ENDS, MaskOutcome.APPLIED)


@ENGINES
@pytest.mark.parametrize("end", [EOG, EOG_TEXT])
def test_an_early_end_is_refused_and_the_place_is_unchanged(compiled, end):
    sampler = take(GrammarSampler(compiled, VOCABULARY), b"a")
    with pytest.raises(EarlyEnd, match=f"token {end} ends the text, which is not complete"):
        sampler.accept(end)
    assert take(sampler, b"c").allows_eog


@ENGINES
@pytest.mark.parametrize("token", [ord("x"), AB, HOLE, WIDTH - 1, WIDTH, -1])
def test_a_forbidden_token_is_refused_and_the_place_is_unchanged(compiled, token):
    sampler = take(GrammarSampler(compiled, VOCABULARY), b"a")
    with pytest.raises(ForbiddenToken) as caught:
        sampler.accept(token)
    assert (caught.value.token, isinstance(caught.value, ConstraintError)) == (token, True)
    assert left(sampler)[0] == {ord("b"), ord("c")}


def test_the_mask_is_the_truth_for_every_id():
    for compiled in (regex("(ab|<)*[^c]"), gbnf('root ::= ("ab" | "<")* [^c]')):
        sampler = GrammarSampler(compiled, VOCABULARY)
        legal = left(sampler)[0]
        for token in range(-1, WIDTH + 1):
            ahead = GrammarSampler(compiled, VOCABULARY)
            try:
                ahead.accept(token)
            except ConstraintError:
                assert token not in legal
            else:
                assert token in legal


def test_empty_pieces_and_those_that_begin_with_nul_are_masked_in_gbnf():
    legal = left(GrammarSampler(gbnf("root ::= [^x]*"), VOCABULARY))[0]
    assert not {0, NUL, CALL, HOLE} & legal


def test_an_unfinished_character_goes_on_with_the_next_token():
    sampler = GrammarSampler(gbnf("root ::= [à-ï]"), VOCABULARY)
    assert left(sampler)[0] == {0xC3}
    take(sampler, [0xC3])
    assert left(sampler)[0] == set(range(0xA0, 0xB0))
    assert not sampler.allows_eog


def test_a_text_may_end_exactly_where_a_parse_is_complete():
    sampler = GrammarSampler(gbnf('root ::= "a" "b"?'), VOCABULARY)
    assert [sampler.allows_eog, take(sampler, b"a").allows_eog, take(sampler, b"b").allows_eog] == [False, True, True]


def test_a_sleeping_grammar_allows_the_end_and_has_no_say():
    sampler = lazy(regex("<t>a"), word("<t>"))
    assert sampler.is_awaiting_trigger
    assert sampler.allows_eog
    assert left(sampler) == (REAL, MaskOutcome.AWAITING_TRIGGER)


def test_a_sleeping_grammar_keeps_even_an_end_and_goes_on_waiting():
    sampler = take(lazy(regex("<t>a"), word("<t>")), [*b"text", EOG])
    assert sampler.is_awaiting_trigger
    take(sampler, b"<t>")
    assert not sampler.is_awaiting_trigger
    assert left(sampler) == ({ord("a")}, MaskOutcome.APPLIED)


def test_an_end_whose_text_completes_a_trigger_wakes_the_grammar():
    sampler = take(lazy(regex("a"), word("<end>!", exclusive=True)), [EOG_TEXT, ord("!")])
    assert not sampler.is_awaiting_trigger
    with pytest.raises(EarlyEnd):
        sampler.accept(EOG)


def test_a_woken_grammar_constrains_from_the_trigger_on():
    sampler = take(lazy(regex("<t>ab"), word("<t>")), b"some text <t>")
    assert (sampler.is_awaiting_trigger, sampler.allows_eog) == (False, False)
    assert left(sampler) == ({ord("a"), AB}, MaskOutcome.APPLIED)


def test_waiting_never_means_that_logits_are_not_needed():
    """The token that completes a trigger with a text that the grammar refuses is masked before it is sampled."""
    sampler = take(lazy(regex("<a"), word("<a")), b"<")
    assert sampler.is_awaiting_trigger
    assert left(sampler) == (REAL - {AB}, MaskOutcome.AWAITING_TRIGGER)
    with pytest.raises(ForbiddenToken):
        sampler.accept(AB)


def test_a_token_trigger_may_be_the_very_first_token():
    sampler = take(lazy(regex("a"), Trigger(TriggerKind.TOKEN, token=CALL, exclusive=True)), [CALL])
    assert left(sampler) == ({ord("a")}, MaskOutcome.APPLIED)


def test_a_pattern_that_wakes_a_grammar_which_refuses_its_text_is_a_dead_end():
    sampler = take(lazy(regex("x"), Trigger(TriggerKind.PATTERN, text="call")), b"call")
    assert (sampler.is_awaiting_trigger, sampler.allows_eog) == (False, False)
    assert left(sampler) == (set(), MaskOutcome.NO_ALLOWED_TOKEN)


def test_a_grammar_that_has_to_come_allows_no_end_while_it_sleeps():
    sampler = lazy(regex("a"), word("</think>", exclusive=True), eog_legal=False)
    assert left(sampler) == (REAL - ENDS, MaskOutcome.AWAITING_TRIGGER)
    with pytest.raises(EarlyEnd):
        sampler.accept(EOG)


def test_a_grammar_that_is_armed_again_sleeps_where_its_text_has_ended():
    sampler = take(lazy(regex("<t>a"), word("<t>"), rearm=True), b"<t>a")
    assert sampler.is_awaiting_trigger
    assert take(sampler, b" <t>").is_awaiting_trigger is False
