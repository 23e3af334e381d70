"""MatcherConstraint: the service's grammars and rules, asked by text. Over the real engines."""

from dataclasses import replace

import pytest

from constraintd.engine.pushdown_limits import AutomatonLimits, PushdownLimits
from constraintd.engine.token_rules import AllowList, FixedMask
from constraintd.errors import InvalidField, LimitExceeded
from constraintd.inprocess import EarlyEnd, ForbiddenToken, MatcherConstraint, VocabMismatch
from tests.unit.inprocess.toy import (
    AB,
    ENDS,
    EOG,
    PUSHDOWN,
    REAL,
    VOCABULARY,
    gbnf,
    json_object,
    legal,
    part,
    regex,
    vocabulary,
)


def of(grammar):
    return MatcherConstraint.of_grammar(grammar, VOCABULARY)


@pytest.mark.parametrize("grammar", [regex("abc|abd"), gbnf('root ::= "abc" | "abd"')], ids=["llguidance", "pushdown"])
def test_a_grammar_of_either_engine_tells_what_is_legal_behind_a_text(grammar):
    constraint = of(grammar)
    assert legal(constraint.allowed([])) == {ord("a"), AB}
    assert legal(constraint.allowed(b"ab")) == {ord("c"), ord("d")}
    assert legal(constraint.allowed([AB, ord("c")])) == ENDS


def test_the_answer_depends_on_the_tokens_alone_in_whatever_order_they_are_asked_about():
    constraint = of(regex("[0-9]+(,[a-z])?"))
    texts = [b"", b"12,", b"1", b"12,x", b"12", b"7,", b"", b"12,x"]
    first = [legal(constraint.allowed(text)) for text in texts]
    assert first == [legal(of(regex("[0-9]+(,[a-z])?")).allowed(text)) for text in texts]
    assert first[0] == set(b"0123456789")
    assert first[3] == ENDS


def test_an_eog_is_legal_exactly_where_the_text_is_complete_and_behind_it_nothing_is():
    constraint = of(regex("ab?"))
    assert legal(constraint.allowed([])) == {ord("a"), AB}
    assert legal(constraint.allowed(b"a")) == {ord("b")} | ENDS
    assert legal(constraint.allowed([ord("a"), EOG])) == set()
    assert legal(constraint.allowed(b"a")) == {ord("b")} | ENDS


def test_a_history_that_could_not_have_been_sampled_is_an_error_with_the_index_of_its_first_illegal_token():
    constraint = of(regex("abc"))
    with pytest.raises(ForbiddenToken) as caught:
        constraint.allowed(b"abx")
    assert (caught.value.index, caught.value.token) == (2, ord("x"))
    with pytest.raises(EarlyEnd) as caught:
        constraint.allowed([ord("a"), EOG])
    assert caught.value.index == 1
    with pytest.raises(ForbiddenToken):
        constraint.allowed([-1])
    assert legal(constraint.allowed(b"ab")) == {ord("c")}


def test_behind_an_end_no_token_could_have_been_sampled():
    with pytest.raises(ForbiddenToken) as caught:
        of(regex("a*")).allowed([ord("a"), EOG, ord("a")])
    assert caught.value.index == 2


def test_several_parts_are_anded():
    constraint = MatcherConstraint.of_parts([part(regex("[a-f]+")), part(gbnf("root ::= [d-z]+"))], VOCABULARY)
    assert legal(constraint.allowed([])) == {ord("d"), ord("e"), ord("f")}


def test_of_no_parts_every_token_of_the_vocabulary_is_legal_and_nothing_else():
    assert legal(MatcherConstraint.of_parts([], VOCABULARY).allowed([])) == REAL


def test_a_token_rule_is_a_constraint_too():
    constraint = MatcherConstraint.of_rule(AllowList.start([[1], [1, 2]], VOCABULARY), VOCABULARY)
    assert legal(constraint.allowed([1])) == {2} | ENDS
    fixed = MatcherConstraint.of_rule(FixedMask.allowed([3, 4], VOCABULARY), VOCABULARY)
    assert legal(fixed.allowed([3, 3])) == {3, 4} | ENDS


def test_an_empty_set_of_allowed_tokens_is_refused_at_construction():
    with pytest.raises(InvalidField, match="an empty set allows nothing"):
        FixedMask.allowed([], VOCABULARY)


@pytest.mark.parametrize(
    ("text", "legal_bytes", "illegal_bytes"),
    [(b'{"a":1.2', b"3,}e", b".-"), (b'{"a":nul', b"l", b',} "'), (b'{"a":"\\', b'n"\\', b"x q0'")],
    ids=["number", "null", "escape"],
)
def test_json_is_strict(text, legal_bytes, illegal_bytes):
    """What a loose JSON structure lets pass: a second point, a cut word, any byte behind a backslash."""
    behind = legal(of(json_object()).allowed(text))
    assert set(legal_bytes) <= behind
    assert not set(illegal_bytes) & behind


def test_json_may_end_only_where_its_value_is_complete():
    constraint = of(json_object())
    assert not ENDS & legal(constraint.allowed(b'{"a":1'))
    assert ENDS <= legal(constraint.allowed(b'{"a":1}'))


def test_a_grammar_of_another_vocabulary_is_refused():
    with pytest.raises(VocabMismatch):
        MatcherConstraint.of_grammar(regex("a"), vocabulary(bos_id=1))


def test_what_it_answers_can_not_be_written_to():
    mask = of(regex("a")).allowed([])
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = True


def test_an_engine_that_gives_up_is_an_error_and_shorter_texts_are_still_answered():
    limits = PushdownLimits(automaton=replace(AutomatonLimits(), stacks=400))
    constraint = of(PUSHDOWN.compile("ab" * 32, 'root ::= v\nv ::= "[" v* "]"', limits=limits))
    with pytest.raises(LimitExceeded):
        constraint.allowed(b"[" * 1_000)
    assert legal(constraint.allowed(b"[")) == {ord("["), ord("]")}
