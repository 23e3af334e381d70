"""Faults of other engines from public reports: wrong tokens, and going back; see test_bug_reports.py."""

from __future__ import annotations

import pytest
from constraintd_client import (
    InvalidField,
    LimitExceeded,
    SessionFinished,
    TokenNotAllowed,
    gbnf,
    json_schema,
    lark,
    lazy,
    regex,
    sampler_config,
    triggers,
)

from tests.conformance.bug_report_sessions import AX, BEST, CALL, DONE, EOGS, FUNCTION, GET, LIST, UNK, legal

# --- tokens that were never legal ---


def test_bug_031_a_token_that_fails_half_way_changes_nothing(sessions):
    session = sessions.open(regex("abc"))
    before = legal(session)
    with pytest.raises(TokenNotAllowed):
        sessions.take(session, AX)
    assert (session.position, legal(session), before) == (0, {ord("a")}, {ord("a")})
    assert sessions.take(session, "abc").finish.reason == "GRAMMAR_EXHAUSTED"


def test_bug_058_a_special_token_out_of_turn_is_an_error_and_the_session_goes_on(sessions):
    grammar = gbnf(
        'root ::= "<think>\\n" line* "</think>" "\\n" "\\n" "Scientific accuracy: " [1-5]\n'
        'line ::= [^\\n<]* (("<" [^/] line) | "\\n")'
    )
    session = sessions.open(grammar)
    sessions.take(session, "<think>\nabc")
    before = legal(session)
    for token in (UNK, *EOGS, CALL):
        with pytest.raises(TokenNotAllowed) as refused:
            sessions.take(session, token)
        assert refused.value.illegal_index == 0
    assert legal(session) == before
    finish = sessions.take(session, "\n</think>\n\nScientific accuracy: 3").finish
    assert finish.reason == "GRAMMAR_EXHAUSTED"


def test_bug_059_no_id_whatever_is_more_than_an_error_of_its_step(client):
    info = client.register_token_table([None, b"a"], special={0: "<unk>", 2: "</s>"}, eog_ids=[2])
    session = client.open_session(info.vocabulary_id, regex("a+"))
    for token in (0, 3, 31, 32, 2**31, 2**32 - 1):
        with pytest.raises((TokenNotAllowed, InvalidField)):
            client.step(session, [token], [1.0])
    with pytest.raises(ValueError, match="out of range"):  # an id is unsigned on the wire: -1 can't be said
        client.step(session, [-1], [1.0])
    assert client.step(session, [1], [1.0]).position == 1


def test_bug_062_a_token_across_a_trigger_is_legal_iff_the_grammar_takes_its_tail(sessions):
    calls = gbnf('root ::= "<function=" ("get_time" | "get_weather") ">"')
    session = sessions.open(lazy(calls, triggers.word("<function=")))
    sessions.take(session, FUNCTION)
    assert session.directive.awaiting_trigger
    assert legal(session) >= {ord("a"), ord("="), GET, *EOGS}
    assert LIST not in legal(session)
    with pytest.raises(TokenNotAllowed):
        sessions.take(session, LIST)
    sessions.take(session, GET)
    assert (session.directive.awaiting_trigger, legal(session)) == (False, {ord("_")})
    assert sessions.take(session, "_time>").finish.reason == "GRAMMAR_EXHAUSTED"


def test_bug_013_a_grammar_that_breaks_the_engine_ends_its_own_session_alone(sessions):
    # In llguidance 1.9.1 a stop text that the grammar spells once more panics in the middle of it.
    grammar = lark('start: text "Best=" best\ntext[stop="Best="]: /(?s:.*)/\nbest: /[0-9]+/')
    session, other = sessions.open(grammar), sessions.open(regex("[0-9]+"))
    sessions.take(session, " wait times.")
    with pytest.raises(LimitExceeded, match="engine gave up"):
        sessions.take(session, BEST)
    assert session.position == 12
    assert sessions.take(other, "3").complete


# --- going back, and on ---


def test_bug_011_going_back_over_a_token_that_is_matched_by_its_id_leads_where_it_was(sessions):
    session = sessions.open(lark(f"start: <[{CALL}]> /[ab]+/ <[{DONE}]>"))
    first = legal(session)
    sessions.take(session, CALL)
    second = legal(session)
    sessions.take(session, "a")
    third = legal(session)
    assert (first, second, third) == ({CALL}, {ord("a"), ord("b")}, {ord("a"), ord("b"), DONE})
    for position, mask in ((1, second), (0, first)):
        sessions.client.rollback_session(session, position)
        assert legal(session) == mask
    assert sessions.take(session, CALL, "a", DONE).finish.reason == "GRAMMAR_EXHAUSTED"
    sessions.client.rollback_session(session, 2)
    assert legal(session) == third
    with pytest.raises(InvalidField):
        sessions.client.rollback_session(session, 99)
    assert (session.position, legal(session)) == (2, third)
    assert sessions.take(session, "b").position == 3


def test_bug_030_going_back_over_an_eog_undoes_it_alone(sessions):
    session = sessions.open(json_schema({"type": "integer"}))
    masks = []
    for text in ("-", "1", "2"):
        sessions.take(session, text)
        masks.append(legal(session))
    assert sessions.take(session, EOGS[0]).finish.reason == "EOG"
    for position in (3, 2, 1):
        assert sessions.client.rollback_session(session, position).finish is None
        assert legal(session) == masks[position - 1]


def test_bug_046_what_comes_after_the_end_is_refused_and_the_end_is_told_again(sessions):
    session = sessions.open(regex("[0-9]+"))
    finish = sessions.take(session, "5", EOGS[1]).finish
    assert (finish.reason, finish.stop_id) == ("EOG", EOGS[1])
    for token in (ord("7"), EOGS[1]):
        with pytest.raises(SessionFinished):
            sessions.take(session, token)
    resumed = sessions.client.resume_session(session.session_id)
    assert (resumed.session.directive.finish, resumed.tokens) == (finish, (ord("5"), EOGS[1]))


@pytest.mark.parametrize("drafts", ["", "a", "abc"], ids=["none (bug-049)", "one", "three (bug-048)"])
def test_bug_048_so_many_drafts_and_one_masks_come_of_a_fork_and_none_of_them_touches_the_session(sessions, drafts):
    session = sessions.open(regex("abcd"))
    ahead = sessions.client.fork_session(session.session_id, 0)
    masks = [legal(ahead)]
    for draft in drafts:
        sessions.take(ahead, draft)
        masks.append(legal(ahead))
    assert masks == [{ord(letter)} for letter in "abcd"[: len(drafts) + 1]]
    assert (session.position, sessions.client.get_session(session.session_id).session.position) == (0, 0)
    assert sessions.take(session, "abcd").finish.reason == "GRAMMAR_EXHAUSTED"


def test_bug_056_going_back_to_where_it_stands_changes_nothing(sessions):
    session = sessions.open(regex("[0-9]+"))
    first = legal(session)
    sessions.take(session, "123")
    mask = legal(session)
    sessions.client.rollback_session(session, 3)
    assert (session.position, legal(session)) == (3, mask)
    sessions.client.rollback_session(session, 0)
    assert (session.position, legal(session)) == (0, first)


def test_bug_082_a_new_turn_begins_where_the_first_one_did(sessions):
    session = sessions.open(regex("(yes|no)"), sampler=sampler_config(seed=1))
    first = legal(session)
    assert sessions.take(session, "yes").finish.reason == "GRAMMAR_EXHAUSTED"
    sessions.client.update_session(session, new_turn=[ord("?")])
    assert (session.directive.finish, legal(session)) == (None, first)
    assert sessions.take(session, "no").finish.reason == "GRAMMAR_EXHAUSTED"
