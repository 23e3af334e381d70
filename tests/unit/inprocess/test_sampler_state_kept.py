"""SamplerState as a value: forked, written and read back, and taken over under another config."""

import pytest

from constraintd.errors import InvalidEnvelope
from constraintd.inprocess import SamplerState
from constraintd.sampler.config import IgnoredNGrams, MirostatV1, MirostatV2, NGramPenalty, WindowPenalty
from tests.unit.inprocess.states import UNIGRAMS, adjustments, deferred, legal, settings, start, take
from tests.unit.inprocess.toy import REAL, gbnf, json_object, part, regex

QUOTE, A, B, X, Y = b'"abxy'


def everything():
    """A state with something in each of its parts."""
    return take(
        start(
            part(regex('"([^"]*"|<t>)*')),
            part(gbnf('root ::= ["] [^!]*')),
            deferred(regex("<t>[a-z]*"), "<t>"),
            prompt=(A, B, A),
            stages=(MirostatV2(),),
            stop_strings=(b"stop here",),
            window_penalty=WindowPenalty(repetition=1.2, frequency=0.5),
            ngram_penalty=UNIGRAMS,
        ),
        b'"xyxxy stop h',
        surprisal=2.5,
    )


# --- clone, equality, serialisation ---


def test_a_fork_is_the_same_state_and_goes_on_independently():
    state = everything()
    twin = state.fork()
    assert twin.to_bytes() == state.to_bytes()
    before = state.to_bytes()
    take(twin, b"yyx")
    assert state.to_bytes() == before
    assert twin.to_bytes() != before
    take(state, b"yyx")
    assert twin.to_bytes() == state.to_bytes()


def test_equal_bytes_are_equal_states_and_any_other_history_gives_other_bytes():
    plain, penalised = {}, {"ngram_penalty": UNIGRAMS, "stages": (MirostatV2(),)}
    for config in (plain, penalised):
        one = take(start(part(regex("[a-z]+")), **config), b"ab")
        assert one.to_bytes() == take(start(part(regex("[a-z]+")), **config), b"ab").to_bytes()
        assert one.to_bytes() != take(start(part(regex("[a-z]+")), **config), b"abb").to_bytes()
    ab, ba = (take(start(part(regex("[a-z]+")), **penalised), text) for text in (b"ab", b"ba"))
    assert ab.to_bytes() != ba.to_bytes()


def test_what_is_read_back_is_everything_that_sampling_changes():
    state = everything()
    back = SamplerState.from_bytes(state.to_bytes(), state.settings)
    assert back.to_bytes() == state.to_bytes()
    for token in b"yx <t>abc":
        assert legal(back) == legal(state)
        assert adjustments(back) == adjustments(state)
        assert (back.mu, back.step, back.constrained_step) == (state.mu, state.step, state.constrained_step)
        assert back.settled_bytes() == state.settled_bytes()
        assert back.advance(token, 1.5) is state.advance(token, 1.5) is None
    assert back.to_bytes() == state.to_bytes()
    assert back.ngram_stats == state.ngram_stats
    assert back.constrained_ngram_stats == state.constrained_ngram_stats


def test_bytes_that_are_cut_off_or_written_under_other_settings_are_refused():
    state = everything()
    data = state.to_bytes()
    for length in range(len(data)):
        with pytest.raises(InvalidEnvelope):
            SamplerState.from_bytes(data[:length], state.settings)
    for other in (settings(), settings(*state.settings.parts, ngram_penalty=UNIGRAMS)):
        with pytest.raises(InvalidEnvelope):
            SamplerState.from_bytes(data, other)


def test_it_says_what_it_is_when_it_is_printed():
    assert "SamplerState" in repr(everything())


# --- resumed_from ---


def resumed(state, *parts, **config):
    return SamplerState.resumed_from(state, settings(*parts, **config))


def test_a_part_takes_over_the_place_of_the_identical_grammar_wherever_it_stands():
    state = take(start(part(regex("abc|xyz")), part(regex("[a-z]+"))), b"ab")
    again = resumed(state, part(regex("[a-z]+")), part(regex("[^0-9]*")), part(regex("abc|xyz")))
    assert legal(again) == {ord("c")}
    assert again.position == 2


def test_a_changed_grammar_begins_at_its_root_and_the_others_keep_their_places():
    state = take(start(part(regex("abc")), part(regex("[a-z]+"))), b"ab")
    assert legal(resumed(state, part(regex("abd")))) == {A, 261}
    assert legal(resumed(state, part(regex("abd|c")), part(regex("abc")))) == {ord("c")}


def test_a_grammar_that_is_named_once_more_than_before_begins_there_anew():
    state = take(start(part(regex("aab"))), b"a")
    assert legal(resumed(state, part(regex("aab")), part(regex("aab")))) == {A}


def test_a_partial_completion_goes_on_where_it_stood():
    state = take(start(part(regex('\\{"a":[0-9]+\\}'))), b'{"a":4')
    again = resumed(state, part(regex('\\{"a":[0-9]+\\}')), stop_strings=(b"}",))
    assert legal(again) == set(b"0123456789}")
    assert take(again, b"2").advance(ord("}"), 1.0).stop_string == b"}"


def test_the_json_matcher_carries_as_any_grammar_of_the_same_id_does():
    state = take(start(part(json_object())), b'{"a":tru')
    assert legal(resumed(state, part(json_object()))) == {ord("e")}


def test_a_deferred_grammar_carries_flag_and_position():
    state = take(start(deferred(regex("<t>abc"), "<t>")), b"so <t>ab")
    again = resumed(state, deferred(regex("<t>abc"), "<t>"))
    assert not again.awaiting_trigger
    assert legal(again) == {ord("c")}
    half = take(start(deferred(regex("<t>a"), "<t>")), b"so <t")
    assert legal(take(resumed(half, deferred(regex("<t>a"), "<t>")), b">")) == {A}


def test_a_deferred_grammar_with_another_trigger_or_text_sleeps_at_its_root():
    state = take(start(deferred(regex("<t>abc"), "<t>")), b"so <t>ab")
    for other in (deferred(regex("<t>abc"), "<t>a"), deferred(regex("<t>xyz"), "<t>")):
        again = resumed(state, other)
        assert again.awaiting_trigger
        assert not again.constraint_incomplete_at_end


def test_mu_and_the_statistics_always_carry():
    state = take(start(part(regex("[a-z]*")), ngram_penalty=UNIGRAMS, stages=(MirostatV2(),)), b"xyx", surprisal=9.0)
    again = resumed(state, ngram_penalty=UNIGRAMS, stages=(MirostatV1(tau=7.0),))
    assert again.mu == state.mu != 6.0
    assert (again.ngram_stats, again.step) == (state.ngram_stats, 3)
    assert legal(again) == REAL


def test_what_is_ignored_is_resolved_anew_from_the_new_config():
    def lasting(*ignored):
        return NGramPenalty(min_size=1, max_size=1, decay=1.0, ignored=IgnoredNGrams(ngrams=ignored, sets=()))

    state = take(start(ngram_penalty=lasting()), b"xxyy")
    assert adjustments(state)[0] == [X, Y]
    assert adjustments(resumed(state, ngram_penalty=lasting((X,))))[0] == [Y]


def test_a_new_turn_resets_the_constraints_instead():
    state = take(start(part(regex("abc")), deferred(regex("<t>abc"), "<t>")), b"ab")
    turned = state.reset_constraints(state.settings, prompt=(X,))
    assert legal(turned) == {A, 261}
    assert (turned.position, turned.turn_position) == (2, 2)
