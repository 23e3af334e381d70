"""SamplerState: what it tells of its constraint and its statistics, and what advancing does. Over the real engines."""

import pytest

from constraintd.errors import ConstraintdError
from constraintd.sampler.config import MirostatV2, NGramPenalty
from constraintd.sampler.draws import draw
from constraintd.sampler.finish import FinishReason
from constraintd.sampler.ngrams import NGramCount, NGramStats
from tests.unit.inprocess.states import UNIGRAMS, adjustments, deferred, legal, settings, start, take
from tests.unit.inprocess.toy import AB, ENDS, EOG, gbnf, part, regex

QUOTE, A, B, X, Y = b'"abxy'


def test_only_advancing_changes_it():
    state = take(start(part(regex('"[^"]*"')), deferred(regex("<t>a"), "<t>"), ngram_penalty=UNIGRAMS), b'"xx')
    before = state.to_bytes()
    state.mask()
    state.adjustments()
    state.completes_with_terminal(QUOTE)
    state.fork().advance(X, 2.0)
    state.reset_constraints(state.settings)
    type(state).resumed_from(state, settings(ngram_penalty=NGramPenalty()))
    looked_at = [
        state.grammar_complete,
        state.grammar_exhausted,
        state.constraint_incomplete_at_end,
        state.ngram_stats,
        state.step,
        state.constrained_ngram_stats,
        state.constrained_step,
    ]
    assert len(looked_at) == 7
    assert state.to_bytes() == before


def test_equal_states_stay_equal_under_equal_tokens_and_surprisals():
    made = [start(part(regex("[a-z]+")), ngram_penalty=UNIGRAMS, stages=(MirostatV2(),)) for _ in range(2)]
    for token in b"abcabc":
        for state in made:
            state.advance(token, 2.5)
        assert made[0].to_bytes() == made[1].to_bytes()
    made[1].advance(A, 2.5)
    assert made[0].to_bytes() != made[1].to_bytes()


# --- what it tells of the constraint ---


def test_a_grammar_is_complete_where_any_eager_one_accepts():
    state = start(part(regex("ab")), part(regex("[a-z]*")))
    assert state.grammar_complete
    assert not state.complete
    assert not start(part(regex("ab")), part(regex("[a-z]+"))).grammar_complete


def test_an_activated_deferred_grammar_counts_as_one_and_a_sleeping_one_does_not():
    state = start(deferred(regex("<t>a"), "<t>"))
    assert not state.grammar_complete
    take(state, b"text <t>")
    assert not state.grammar_complete
    take(state, A)
    assert state.grammar_complete


def test_a_complete_grammar_goes_on_where_it_can_and_only_an_exhausted_one_halts():
    state = take(start(part(regex("(call;)+"))), b"call;")
    assert (state.grammar_complete, state.grammar_exhausted) == (True, False)
    assert legal(state) == {ord("c")} | ENDS
    once = take(start(part(regex("call;"))), b"call;")
    assert (once.grammar_complete, once.grammar_exhausted) == (True, True)
    assert once.mask().reason is FinishReason.GRAMMAR_EXHAUSTED


def test_an_end_in_the_middle_of_an_eager_grammar_is_incomplete():
    state = take(start(part(regex("abc"))), b"ab")
    assert state.constraint_incomplete_at_end
    take(state, b"c")
    assert not state.constraint_incomplete_at_end


def test_one_complete_eager_grammar_is_enough_for_the_eager_clause():
    assert not take(start(part(regex("abc")), part(regex("[a-z]+"))), b"ab").constraint_incomplete_at_end


def test_without_a_constraint_no_end_is_incomplete():
    assert not take(start(), b"anything").constraint_incomplete_at_end


def test_a_deferred_grammar_that_was_activated_and_is_unfinished_is_incomplete():
    state = take(start(deferred(regex("<t>ab"), "<t>")), b"I call <t>a")
    assert state.constraint_incomplete_at_end
    take(state, b"b")
    assert not state.constraint_incomplete_at_end


def test_a_deferred_grammar_that_never_triggered_is_no_violation():
    assert not take(start(deferred(regex("<t>ab"), "<t>")), b"I call nothing <").constraint_incomplete_at_end


def test_the_two_clauses_do_not_know_of_each_other():
    state = take(start(part(regex("[^!]*")), deferred(regex("<t>ab"), "<t>")), b"<t>a")
    assert state.grammar_complete
    assert state.constraint_incomplete_at_end


def test_a_call_that_max_tokens_truncates_is_reported_as_incomplete():
    finish = take(start(deferred(regex("<t>ab"), "<t>"), max_tokens=4), b"<t>a").mask()
    assert (finish.reason, finish.constraint_incomplete) == (FinishReason.LENGTH, True)
    silent = take(start(deferred(regex("<t>ab"), "<t>"), max_tokens=4), b"text").mask()
    assert (silent.reason, silent.constraint_incomplete) == (FinishReason.LENGTH, False)


def test_a_terminal_token_that_completes_the_constraint_is_seen_by_asking_for_it():
    state = take(start(part(regex("ab|ax")), stop_ids=(B, Y)), b"a")
    before = state.to_bytes()
    assert state.completes_with_terminal(B)
    assert state.to_bytes() == before
    finish = state.advance(B, 1.0)
    assert (finish.reason, finish.constraint_incomplete) == (FinishReason.STOP_ID, False)
    assert state.constraint_incomplete_at_end


# --- statistics ---


def test_the_statistics_of_the_text_are_a_value_that_can_be_compared():
    state = take(start(ngram_penalty=UNIGRAMS), b"xyx")
    expected = NGramStats(3, {(X,): NGramCount((0, 2), 1.25), (Y,): NGramCount((1,), 0.5)})
    assert state.ngram_stats == expected
    assert take(start(ngram_penalty=UNIGRAMS), b"yxx").ngram_stats != expected


def test_the_step_counts_passes_over_the_text_and_over_a_prompt_by_option():
    state = start(ngram_penalty=UNIGRAMS, prompt=(A, B))
    assert state.step == 2
    assert take(state, b"xy").step == 4
    uncounted = NGramPenalty(counts_prompt=False)
    assert take(start(ngram_penalty=uncounted, prompt=(A, B)), b"xy").step == 2


def test_a_constrained_region_has_statistics_and_a_counter_of_its_own():
    state = take(start(part(regex('"[^"]*"')), ngram_penalty=UNIGRAMS), b'"xx')
    assert (state.step, state.constrained_step) == (0, 3)
    assert state.ngram_stats == NGramStats()
    assert state.constrained_ngram_stats == NGramStats(
        3, {(QUOTE,): NGramCount((0,), 0.25), (X,): NGramCount((1, 2), 1.5)}
    )
    take(state, QUOTE)
    assert (state.step, state.constrained_step) == (1, 3)


def test_in_the_structure_of_a_constraint_nothing_is_counted():
    state = take(start(part(regex("abcabcabc!")), ngram_penalty=UNIGRAMS), b"abcabc")
    assert (state.step, state.constrained_step, adjustments(state)) == (0, 0, None)


def test_a_new_turn_drops_the_constrained_statistics_and_keeps_the_text_s():
    quoted = part(regex('"[^"]*"'))
    state = take(start(quoted, ngram_penalty=UNIGRAMS), b'"xx"')
    turned = state.reset_constraints(state.settings)
    assert (turned.step, turned.constrained_step, turned.constrained_ngram_stats) == (1, 0, NGramStats())
    assert legal(turned) == {QUOTE}


# --- advance ---


def test_advancing_moves_every_active_matcher_by_the_token_s_bytes():
    state = start(part(regex("abc|xyz")), part(gbnf('root ::= "ab" [a-z]')), deferred(regex("<t>"), "<t>"))
    assert take(state, AB).mask().complete is False
    assert legal(state) == {ord("c")}


def test_advancing_moves_an_activated_deferred_grammar():
    assert legal(take(start(deferred(regex("<t>abc"), "<t>")), b"so <t>", AB)) == {ord("c")}


@pytest.mark.parametrize("grammar", [regex("ab"), gbnf('root ::= "ab"')], ids=["llguidance", "pushdown"])
def test_an_error_of_an_engine_is_never_swallowed(grammar):
    with pytest.raises(ConstraintdError):
        start(part(grammar)).advance(X, 1.0)


TERMINAL = pytest.mark.parametrize(
    ("token", "reason"),
    [(EOG, FinishReason.EOG), (Y, FinishReason.STOP_ID), (X, FinishReason.STOP_STRING)],
    ids=lambda value: getattr(value, "value", ""),
)


@TERMINAL
def test_a_terminal_token_moves_neither_the_constraint_nor_the_statistics(token, reason):
    state = start(part(regex("ax*y*")), ngram_penalty=UNIGRAMS, stop_ids=(Y,), stop_strings=(b"ax",))
    take(state, A)
    before = (legal(state), state.grammar_complete, state.ngram_stats, state.constrained_ngram_stats)
    finish = state.advance(token, 1.0)
    assert finish.reason is reason
    assert state.mask() == finish
    state.finish = None
    assert (legal(state), state.grammar_complete, state.ngram_stats, state.constrained_ngram_stats) == before


@TERMINAL
def test_a_terminal_token_counts_as_a_position_and_moves_mu(token, reason):
    state = start(stages=(MirostatV2(tau=3.0, eta=0.5),), stop_ids=(Y,), stop_strings=(b"x",))
    assert state.advance(token, 5.0).reason is reason
    assert (state.position, state.mu) == (1, 5.0)  # 6 - 0.5 * (5 - 3)


def test_a_terminal_token_activates_no_deferred_grammar():
    state = take(start(deferred(regex("<t>a"), "<t>"), stop_strings=(b"<t>",)), b"<t")
    assert state.advance(ord(">"), 1.0).reason is FinishReason.STOP_STRING
    assert state.awaiting_trigger


def test_whether_a_token_goes_on_is_decided_in_advancing_and_told_by_its_answer():
    state = start(stop_strings=(b"xy",))
    assert state.advance(X, 1.0) is None
    assert state.advance(Y, 1.0).stop_string == b"xy"


def test_draws_are_a_function_of_seed_and_position_and_no_state():
    assert start(seed=1).to_bytes() == start(seed=2).to_bytes()
    assert draw(1, 0) == draw(1, 0)
    assert len({draw(1, 0), draw(1, 1), draw(2, 0)}) == 3
