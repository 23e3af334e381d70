"""The conversation, points 3 to 6: opening, steps, repeats, and all that a step may be refused for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import json_format

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import allowed, directive, same, true
from clients.conformance.harness.talk import UNCONSTRAINED, Talk, base64_text, json_schema, regex
from constraintd.v1 import session_pb2
from tests.daemon_process import stub_for


@case()
def an_open_repeated_is_the_same_session(talk: Talk) -> None:
    """The same request gives the same epoch, seed and Directive; another one under that id is ALREADY_EXISTS."""
    talk.begin()
    request: dict[str, Any] = {
        "session_id": secrets.token_hex(16),
        "prompt_tokens": [1, 2, 3],
        "sampler": {"seed": "7"},
    }
    first = talk.open("s", regex("a[bc]"), **request)
    directive(first, position=0, draw=0.8720734548204873, allows=[97, 261, 262], settled_bytes=0, allows_eog=False)
    same(first["seed"], "7", "the seed")
    same(talk.open("again", regex("a[bc]"), **request), first, "the answer to the repeat")
    talk.refused(
        {"reason": "ALREADY_EXISTS", "code": "ALREADY_EXISTS"},
        "open",
        session="other",
        vocabulary_id=talk.vocabulary_id,
        constraint=regex("b"),
        **request,
    )


@case()
def numbers_of_64_bits_come_whole(talk: Talk) -> None:
    """Epoch and seed are exact above 2^53, and the largest seed is taken."""
    talk.begin()
    answer = talk.open("s", UNCONSTRAINED, sampler={"seed": str(2**64 - 1)})
    same(answer["seed"], str(2**64 - 1), "the seed")
    channel, stub = stub_for(talk.places.daemon)
    with channel:
        request = _open_message(talk, UNCONSTRAINED, {"seed": str(2**64 - 1)})
        same(answer["epoch"], str(stub.OpenSession(request, timeout=30).epoch), "the epoch")
    directive(talk.step("s", [97]), position=1)


@case()
def a_directive_comes_whole(talk: Talk) -> None:
    """Every field of a Directive is what the daemon sent: mask, draw, penalties, mu, flags, settled bytes."""
    talk.begin()
    constraint = {
        "lazy": {
            "grammar": {"jsonSchema": base64_text('{"type": "integer"}')},
            "triggers": [{"word": base64_text("<n>"), "exclusive": True}],
        }
    }
    sampler = {
        "seed": "3",
        "stages": [{"mirostatV1": {"tau": 2.5}}],
        "stopStrings": [base64_text("END")],
        "windowPenalty": {"repetition": 1.25, "frequency": 0.5},
    }
    talk.open("s", constraint, sampler=sampler, prompt_tokens=[120, 121])
    channel, stub = stub_for(talk.places.daemon)
    with channel:
        for text in (b"caf\xc3", b"\xa9 E", b"N", b"<n>-12"):
            answer = talk.ok("step", session="s", tokens=list(text), surprisals=[0.5] * len(text))
            message = stub.OpenSession(_open_message(talk, constraint, sampler, [120, 121]), timeout=30).directive
            same(_rounded(answer["directive"]), _rounded(_spelled(message)), f"the Directive behind {text!r}")
    true(answer["directive"]["adjustments"] is not None, "the session's penalties change nothing")


@case()
def a_repeated_step_gives_the_same_directive(talk: Talk) -> None:
    """The same step twice counts once: the same answer, and the first surprisals stand."""
    talk.begin()
    talk.stream()
    talk.open("s", regex("[ab]*"), sampler={"seed": "1"})
    talk.ok("handle", of="s", session="late")
    talk.ok("handle", of="s", session="later")
    first = talk.ok("step", session="s", tokens=[97, 98], surprisals=[0.5, 0.25])
    again = talk.ok("step", session="late", tokens=[97, 98], surprisals=[3.0, 3.0])
    same(again, first, "the answer to the repeat")
    same(talk.through("later", [97, 98]), first, "the answer to the repeat in a stream")
    kept = {"tokens": [97, 98], "surprisals": [0.5, 0.25], "position": 2}
    same(talk.ok("get", session="s"), kept, "what the daemon has")


@case()
def gaps_conflicts_and_stale_steps_are_told_apart(talk: Talk) -> None:
    """POSITION_GAP and STALE_POSITION with the expected position, POSITION_CONFLICT with the logged tokens."""
    talk.begin()
    talk.stream()
    talk.open("s", UNCONSTRAINED)
    talk.ok("handle", of="s", session="same place")
    talk.step("s", [97, 98])
    talk.ok("handle", of="s", session="ahead", position=3)
    talk.ok("handle", of="s", session="behind", position=1)
    gap = {"reason": "POSITION_GAP", "code": "FAILED_PRECONDITION", "expected_position": 2}
    talk.refused_step(gap, "ahead", [97])
    stale = {"reason": "STALE_POSITION", "code": "ABORTED", "expected_position": 2}
    talk.refused_step(stale, "behind", [97])
    conflict = {"reason": "POSITION_CONFLICT", "code": "ABORTED", "logged_tokens": [97, 98]}
    talk.refused_step(conflict, "same place", [97, 99])
    directive(talk.through("s", [99]), position=3)


@case()
def a_token_that_is_not_allowed_is_named_by_its_index(talk: Talk) -> None:
    """TOKEN_NOT_ALLOWED and INVALID_SURPRISAL name the first illegal entry, and nothing of the step is applied."""
    talk.begin()
    talk.stream()
    talk.open("s", regex("abc"))
    wrong = {"reason": "TOKEN_NOT_ALLOWED", "code": "INVALID_ARGUMENT"}
    talk.refused_step({**wrong, "illegal_index": 1}, "s", [97, 120, 99])
    talk.refused_step({**wrong, "illegal_index": 0}, "s", [100_000])
    surprisal = {"reason": "INVALID_SURPRISAL", "code": "INVALID_ARGUMENT", "illegal_index": 1}
    talk.refused_step(surprisal, "s", [97, 98], surprisals=[1.0, -1.0])
    directive(talk.through("s", [97]), position=1, allows=[98])


@case()
def a_takeover_fences_the_old_owner_off(talk: Talk) -> None:
    """Behind a second client's takeover the first one's steps are STALE_EPOCH, and the second one's count."""
    talk.begin()
    talk.stream()
    first = talk.open("s", regex("[ab]*"), prompt_tokens=[5, 6], sampler={"seed": "9"})
    talk.step("s", [97])
    talk.ok("connect", client="other", targets=[talk.places.daemon])
    taken = talk.ok("resume", client="other", session="mine", session_id=talk.ids["s"])
    true(taken["epoch"] != first["epoch"], "the epoch is the old one")
    same([taken["tokens"], taken["model_input"]], [[97], [5, 6, 97]], "tokens and model input")
    talk.refused_step({"reason": "STALE_EPOCH", "code": "ABORTED"}, "s", [98])
    directive(talk.ok("step", client="other", session="mine", tokens=[98], surprisals=[1.0]), position=2)


@case()
def text_is_settled_when_nothing_can_take_it_back(talk: Talk) -> None:
    """settled_bytes holds back halves of characters and beginnings of stop strings."""
    talk.begin()
    talk.stream()
    talk.open("s", UNCONSTRAINED, sampler={"stopStrings": [base64_text("END")]})
    found = [talk.through("s", [byte])["directive"]["settled_bytes"] for byte in "é.EN!".encode()]
    same(found, [0, 2, 3, 3, 3, 6], "the settled bytes")


@case()
def a_sleeping_grammar_is_told_of(talk: Talk) -> None:
    """awaiting_trigger, allows_eog, complete and exhausted follow a lazy grammar and a schema."""
    talk.begin()
    lazy = {
        "lazy": {
            "grammar": {"regex": base64_text("[0-9]")},
            "triggers": [{"word": base64_text("<n>"), "exclusive": True}],
        }
    }
    directive(talk.open("s", lazy), awaiting_trigger=True, allows_eog=True)
    answer = talk.write("s", b"x<n>")
    directive(answer, awaiting_trigger=False, allows_eog=False, allows=list(b"0123456789"))
    answer = talk.open("t", json_schema('{"type": "integer"}'))
    directive(answer, awaiting_trigger=False, allows_eog=False, complete=False)
    answer = talk.write("t", b"4")
    directive(answer, allows_eog=True, complete=True, exhausted=False)
    true(256 in allowed(answer["directive"]), "the end is not among the allowed tokens")


def _open_message(
    talk: Talk, constraint: Mapping[str, Any], sampler: Mapping[str, Any], prompt: Sequence[int] = ()
) -> session_pb2.OpenSessionRequest:
    """The request that opened session "s", to be asked again without any client."""
    request = {
        "vocabularyId": talk.vocabulary_id,
        "constraint": constraint,
        "sampler": sampler,
        "promptTokens": [*prompt],
    }
    message = json_format.ParseDict(request, session_pb2.OpenSessionRequest())
    message.session_id = bytes.fromhex(talk.ids["s"])
    return message


def _spelled(said: session_pb2.Directive) -> dict[str, Any]:
    """A Directive with a mask, as adapters spell it, from the message itself."""
    changes = said.adjustments
    return {
        "position": said.position,
        "mask": said.mask.dense.hex(),
        "finish": None,
        "no_token_allowed": None,
        "draw": said.draw,
        "settled_bytes": said.settled_bytes,
        "mu": said.mu if said.HasField("mu") else None,
        "adjustments": {
            "ids": np.frombuffer(changes.ids, "<u4").tolist(),
            "scales": np.frombuffer(changes.scales, "<f8").tolist(),
            "offsets": np.frombuffer(changes.offsets, "<f8").tolist(),
        },
        "awaiting_trigger": said.awaiting_trigger,
        "allows_eog": said.allows_eog,
        "complete": said.complete,
        "exhausted": said.exhausted,
    }


def _rounded(said: dict[str, Any]) -> dict[str, Any]:
    """JSON of some languages writes 1.0 as 1, and -0.0 as 0: numbers that may have a fraction are made floats."""
    changes = said["adjustments"]
    exact = {key: [float(value) + 0.0 for value in changes[key]] for key in ("scales", "offsets")}
    return {**said, "mu": float(said["mu"]), "adjustments": {"ids": changes["ids"], **exact}}
