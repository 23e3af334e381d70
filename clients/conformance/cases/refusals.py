"""Errors with what they bring: reason, status, place, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import same, true
from clients.conformance.harness.talk import UNCONSTRAINED, Talk, base64_text, json_schema, regex

NOWHERE: Final = "0" * 64


def refused_open(talk: Talk, wanted: Mapping[str, Any], constraint: Mapping[str, Any], **request: Any) -> None:
    """A session that can't be opened."""
    request.setdefault("vocabulary_id", talk.vocabulary_id)
    talk.refused(wanted, "open", session="s", session_id="0123456789abcdef" * 2, constraint=constraint, **request)


@case()
def a_bad_grammar_names_the_place(talk: Talk) -> None:
    """INVALID_GRAMMAR says where: a line and column, or a JSON pointer."""
    talk.begin()
    wanted = {"reason": "INVALID_GRAMMAR", "code": "INVALID_ARGUMENT"}
    schema = '{"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}'
    refused_open(talk, {**wanted, "location": "/properties/a/$ref"}, json_schema(schema))
    gbnf = {"gbnf": {"text": base64_text('root ::= "a"\nitem ::= [0-9'), "root": ""}}
    refused = {**wanted, "location": "2:10"}
    talk.refused(refused, "compile", vocabulary_id=talk.vocabulary_id, grammar=gbnf)


@case()
def a_text_that_is_too_large_is_refused_by_the_server(talk: Talk) -> None:
    """TOO_LARGE names the field; the client's own transport does not get in the way."""
    talk.begin()
    wanted = {"reason": "TOO_LARGE", "code": "RESOURCE_EXHAUSTED", "field": "grammar.regex"}
    refused_open(talk, wanted, regex("a" * (5 << 20)))


@case()
def a_field_that_is_out_of_range_is_named(talk: Talk) -> None:
    """INVALID_FIELD names the field, also where bytes are no UTF-8; and a constraint has to be said."""
    talk.begin()
    wanted = {"reason": "INVALID_FIELD", "code": "INVALID_ARGUMENT"}
    sampler = {"stages": [{"topP": {"p": 2.0}}]}
    refused_open(talk, {**wanted, "field": "sampler.stages[0].top_p"}, UNCONSTRAINED, sampler=sampler)
    bad_text = {"grammar": {"regex": base64_text(b"a\xff")}}
    refused_open(talk, {**wanted, "field": "grammar.regex"}, bad_text)
    refused_open(talk, {**wanted, "field": "constraint"}, {})


@case()
def what_is_not_there_is_named(talk: Talk) -> None:
    """An unknown vocabulary, grammar and session are NOT_FOUND, each with its reason."""
    talk.begin()
    missing = {"code": "NOT_FOUND"}
    refused_open(talk, {**missing, "reason": "UNKNOWN_VOCABULARY"}, UNCONSTRAINED, vocabulary_id=NOWHERE)
    refused_open(talk, {**missing, "reason": "UNKNOWN_GRAMMAR"}, {"grammarId": NOWHERE})
    talk.refused({**missing, "reason": "UNKNOWN_SESSION"}, "resume", session="s", session_id="5a" * 16)
    talk.open("s", UNCONSTRAINED)
    same(talk.ok("close", session="s"), {"closed": True}, "the first closing")
    same(talk.ok("close", session="s"), {"closed": False}, "the second closing")
    talk.stream()
    talk.refused_step({**missing, "reason": "UNKNOWN_SESSION"}, "s", [97])


@case()
def what_the_client_can_see_itself_is_never_sent(talk: Talk) -> None:
    """A step without its surprisals, a second step of a session, a take without a step: the client itself refuses."""
    talk.begin()
    talk.stream()
    talk.open("s", UNCONSTRAINED)
    talk.open("t", UNCONSTRAINED)
    argument = {"kind": "argument"}
    talk.refused(argument, "step", session="s", tokens=[97, 98], surprisals=[1.0])
    good, short = (
        {"session": "t", "tokens": [97], "surprisals": [1.0]},
        {"session": "s", "tokens": [97, 98], "surprisals": [1.0]},
    )
    talk.refused(argument, "send", stream="stream", steps=[good, short])
    talk.refused(argument, "take", stream="stream", session="t", timeout_ms=5000)
    talk.refused(argument, "send", stream="stream", steps=[good, good])
    talk.send({"t": [97]})
    talk.refused(argument, "send", stream="stream", steps=[good])
    same(talk.take("t")["directive"]["position"], 1, "the position behind the one step that was sent")
    same(talk.ok("get", session="s")["tokens"], [], "the tokens of the session whose steps were all refused")


@case(features="retryable")
def an_error_says_whether_the_same_call_may_succeed_later(talk: Talk) -> None:
    """LIMIT_REACHED may pass, with the server's own delay; a wrong position never does."""
    with talk.places.mortal_daemon("--max-sessions", "1", store="memory") as daemon:
        talk.begin(daemon.address)
        talk.open("s", regex("a*"))
        error = talk.refused(
            {"reason": "LIMIT_REACHED", "code": "RESOURCE_EXHAUSTED", "retryable": True},
            "open",
            session="t",
            session_id="5a" * 16,
            vocabulary_id=talk.vocabulary_id,
            constraint=UNCONSTRAINED,
        )
        true((error["retry_after_ms"] or 0) > 0, f"the server's delay is {error['retry_after_ms']}")
        talk.ok("handle", of="s", session="ahead", position=3)
        wanted = {"reason": "POSITION_GAP", "retryable": False}
        talk.refused(wanted, "step", session="ahead", tokens=[97], surprisals=[1.0])
    talk.ok("connect", targets=[daemon.address], client="nobody", timeout_ms=10_000)
    gone = {"reason": "", "code": "UNAVAILABLE", "retryable": True}
    talk.refused(gone, "register", client="nobody", tokens=["61"], special={"1": "</s>"}, eog_ids=[1], logits_width=2)
