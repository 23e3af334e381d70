"""Identities of parts: the same for what is the same, another for every difference in what a part demands."""

import pytest

from constraintd.constraint import Constraint
from constraintd.constraint_plan import plan_constraint
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.reasoning import Reasoning
from constraintd.v1 import session_pb2
from tests.unit.constraints.byte_words import CALL, TOKEN, VOCABULARY, regex

GRAMMARS = {"one": regex("<tool>[a-z]+;"), "other": regex("<tool>[a-z]*;")}
THINKING = Reasoning((Trigger(TriggerKind.WORD, text="</think>", exclusive=True),))
CALLING = Reasoning((Trigger(TriggerKind.TOKEN, token=CALL, exclusive=True),))


def lazy(*triggers, grammar="one", **options):
    sent = [session_pb2.Trigger(**trigger) for trigger in triggers or [{"word": b"<tool>"}]]
    return session_pb2.Constraint(lazy=session_pb2.LazyGrammar(grammar_id=grammar, triggers=sent, **options))


def eager(grammar="one"):
    return session_pb2.Constraint(grammar_id=grammar)


def rule(**kind):
    return session_pb2.Constraint(token_rule=session_pb2.TokenRule(**kind))


def ids(*values):
    return {"ids": values}


def parts(constraint, reasoning=None):
    plan = plan_constraint(constraint)
    return plan.parts([GRAMMARS[ref.grammar_id] for ref in plan.refs], VOCABULARY, reasoning)


def identity(constraint, reasoning=None):
    (part,) = parts(constraint, reasoning)
    return part.identity


ALL_DIFFERENT = {
    "eager": (eager(), None),
    "another grammar": (eager("other"), None),
    "eager behind a reasoning": (eager(), THINKING),
    "eager behind another reasoning": (eager(), CALLING),
    "lazy": (lazy(), None),
    "lazy with another grammar": (lazy(grammar="other"), None),
    "lazy behind a reasoning": (lazy(), THINKING),
    "armed again": (lazy(rearm=True), None),
    "another word": (lazy({"word": b"tool>"}), None),
    "a pattern": (lazy({"pattern": b"<tool>"}), None),
    "a full pattern": (lazy({"pattern_full": b"<tool>"}), None),
    "a token": (lazy({"token": TOKEN["<tool>"]}), None),
    "another token": (lazy({"token": CALL}), None),
    "at start": (lazy({"word": b"<tool>", "at_start": True}), None),
    "exclusive": (lazy({"word": b"<tool>", "exclusive": True}), None),
    "lazy on the reasoning's end": (lazy({"word": b"</think>", "exclusive": True}), None),
    "two triggers": (lazy({"word": b"<tool>"}, {"word": b"call"}), None),
    "two triggers in another order": (lazy({"word": b"call"}, {"word": b"<tool>"}), None),
    "allowed": (rule(allowed=ids(1, 2)), None),
    "others allowed": (rule(allowed=ids(1, 3)), None),
    "allow-list": (rule(allow_list={"sequences": [ids(1, 2)]}), None),
    "allow-list of two": (rule(allow_list={"sequences": [ids(1), ids(2)]}), None),
    "sequence": (rule(sequence=ids(1, 2)), None),
    "deny ranges": (rule(deny_ranges={"ranges": [{"first": 1, "end": 3}]}), None),
    "banned specials": (rule(banned_specials=ids(CALL)), None),
}


def test_every_difference_in_what_a_part_demands_is_another_identity():
    identities = {name: identity(*given) for name, given in ALL_DIFFERENT.items()}
    assert len(set(identities.values())) == len(ALL_DIFFERENT) == 25
    assert {len(value) for value in identities.values()} == {32}


@pytest.mark.parametrize("name", ALL_DIFFERENT)
def test_the_same_part_made_again_has_the_same_identity(name):
    constraint, reasoning = ALL_DIFFERENT[name]
    again = session_pb2.Constraint.FromString(constraint.SerializeToString())
    assert identity(again, reasoning) == identity(constraint, reasoning)


def test_identity_does_not_depend_on_what_stands_beside_a_part():
    both = session_pb2.Constraint(all_of={"constraints": [lazy(), eager()]})
    assert {part.identity for part in parts(both)} == {identity(lazy()), identity(eager())}


def fed(text, constraint, reasoning=None):
    made = Constraint.start(parts(constraint, reasoning), VOCABULARY)
    for byte in text:
        made.consume(byte)
    return made


def test_a_lazy_grammar_carries_over_only_with_identical_triggers():
    asleep = fed(b"<too", lazy())
    resumed = Constraint.resumed(parts(lazy()), asleep, VOCABULARY)
    assert resumed.places() == asleep.places()
    for byte in b"l>":
        resumed.consume(byte)
    assert not resumed.awaiting_trigger

    awake = fed(b"<tool>ab", lazy())
    assert not Constraint.resumed(parts(lazy()), awake, VOCABULARY).awaiting_trigger
    for changed in (lazy({"word": b"<tool>"}, {"word": b"call"}), lazy(rearm=True), lazy(grammar="other")):
        assert Constraint.resumed(parts(changed), awake, VOCABULARY).awaiting_trigger


def test_a_grammar_behind_a_reasoning_carries_flag_and_place():
    cached = fed(b"so</think><tool>ab", eager(), THINKING)
    resumed = Constraint.resumed(parts(eager(), THINKING), cached, VOCABULARY)
    resumed.consume(ord(";"))
    assert resumed.is_complete()
    assert Constraint.resumed(parts(eager(), CALLING), cached, VOCABULARY).awaiting_trigger
