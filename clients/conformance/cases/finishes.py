"""Point 7: every way in which a session ends, and the one in which it can't go on."""

from __future__ import annotations

from typing import Any

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import directive, same, true
from clients.conformance.harness.talk import Talk, base64_text, json_schema, regex
from tests.daemon_process import EOG, SECOND_EOG


def ends(talk: Talk, constraint: dict[str, Any], sampler: dict[str, Any], tokens: list[int], **finish: Any) -> None:
    """The session ends with the last of the tokens, by the unary call and in a stream, and takes no more."""
    talk.begin()
    talk.stream()
    wanted = {"stop_string": "", "stop_id": None, "constraint_incomplete": False, "schema_satisfied": None, **finish}
    talk.open("unary", constraint, sampler=sampler)
    talk.open("stream", constraint, sampler=sampler)
    for index, token in enumerate(tokens):
        for answer in (talk.step("unary", [token]), talk.through("stream", [token])):
            if index + 1 < len(tokens):
                directive(answer, position=index + 1)
            else:
                directive(answer, position=len(tokens), finish=wanted, settled_bytes=finish["cut_offset"])
    talk.refused_step({"reason": "SESSION_FINISHED", "code": "FAILED_PRECONDITION"}, "unary", [97])


@case()
def an_end_of_generation_token_finishes(talk: Talk) -> None:
    """EOG, with the token that it was."""
    ends(talk, regex("a+"), {}, [97, 97, EOG], reason="EOG", stop_id=EOG, cut_offset=2)
    ends(talk, regex("a+"), {}, [97, SECOND_EOG], reason="EOG", stop_id=SECOND_EOG, cut_offset=1)


@case()
def a_stop_string_finishes_and_is_cut_off(talk: Talk) -> None:
    """STOP_STRING, with the string, the cut offset before it, and a constraint that is not complete."""
    sampler = {"stopStrings": [base64_text("xyz"), base64_text("bc")]}
    stop = {"reason": "STOP_STRING", "stop_string": b"bc".hex(), "cut_offset": 1, "constraint_incomplete": True}
    ends(talk, regex("abcd"), sampler, [97, 98, 99], **stop)


@case()
def a_stop_string_may_belong_to_the_text(talk: Talk) -> None:
    """With include_stop the cut offset lies behind the stop string, whose bytes need be no UTF-8."""
    sampler = {"stopStrings": [base64_text(b"\xff\x00")], "includeStop": True}
    stop = {"reason": "STOP_STRING", "stop_string": "ff00", "cut_offset": 3}
    ends(talk, {"unconstrained": {}}, sampler, [97, 255, 0], **stop)


@case()
def a_stop_id_finishes(talk: Talk) -> None:
    """STOP_ID, with the id, whose text is cut off."""
    ends(talk, regex(".*"), {"stopIds": [98]}, [97, 98], reason="STOP_ID", stop_id=98, cut_offset=1)


@case()
def an_exhausted_grammar_finishes(talk: Talk) -> None:
    """GRAMMAR_EXHAUSTED, where the text is complete and nothing can follow."""
    ends(talk, regex("ab"), {}, [261], reason="GRAMMAR_EXHAUSTED", cut_offset=2)


@case()
def a_length_finishes(talk: Talk) -> None:
    """LENGTH, with constraint_incomplete; max_tokens 0 finishes before the first token."""
    length = {"reason": "LENGTH", "constraint_incomplete": True}
    ends(talk, regex("a{9}"), {"maxTokens": 2}, [97, 97], **length, cut_offset=2)
    directive(talk.open("none", regex("a"), sampler={"maxTokens": 0}), position=0, finish={**length, "cut_offset": 0})


@case()
def a_finish_says_whether_the_schema_is_satisfied(talk: Talk) -> None:
    """schema_satisfied is true, false with the violation, or not there at all."""
    number = json_schema('{"enum": [1]}')
    ends(talk, number, {}, [ord("1")], reason="GRAMMAR_EXHAUSTED", cut_offset=1, schema_satisfied=True)
    schema = '{"type": "array", "items": {"type": "integer"}, "uniqueItems": true}'
    unenforced = {
        "grammar": {
            "jsonSchema": base64_text(schema),
            "jsonOptions": {"policy": "SCHEMA_POLICY_APPROXIMATE", "whitespace": "JSON_WHITESPACE_COMPACT"},
        }
    }
    talk.open("twice", unenforced)
    answer = talk.write("twice", b"[1,1]")
    directive(answer, finish={"reason": "GRAMMAR_EXHAUSTED", "schema_satisfied": False, "constraint_incomplete": False})
    true(answer["directive"]["finish"]["schema_violation"] != "", "nothing says what is violated")


@case()
def a_dead_end_is_an_outcome_and_is_widened(talk: Talk) -> None:
    """Where nothing is legal the step stays applied and the session open; an update widens the constraint."""
    talk.begin()
    talk.stream()
    narrow = {"allOf": {"constraints": [regex("ab"), regex("a[xy]")]}}
    talk.open("s", narrow)
    talk.ok("handle", of="s", session="late")
    answer = talk.through("s", [97])
    message = answer["directive"]["no_token_allowed"]
    true(bool(message), f"the dead end says nothing: {answer}")
    directive(answer, position=1, no_token_allowed=message)
    same(talk.step("late", [97]), answer, "the answer to the repeated step")
    wanted = {"reason": "TOKEN_NOT_ALLOWED", "code": "INVALID_ARGUMENT", "illegal_index": 0}
    talk.refused_step(wanted, "s", [98])
    widened = talk.ok("update", session="s", constraint=regex("[bc]d"))
    directive(widened, position=1, allows=[98, 99])
    directive(talk.through("s", [98, 100]), position=3, finish={"reason": "GRAMMAR_EXHAUSTED", "cut_offset": 3})
    same(talk.ok("get", session="s")["tokens"], [97, 98, 100], "the history")
