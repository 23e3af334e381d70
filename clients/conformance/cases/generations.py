"""Text from a runner: events, refusals, cancelling, deadlines, and generations that outlive their runner."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import fields, near, same, true
from clients.conformance.harness.places import logged_tokens
from clients.conformance.harness.talk import UNCONSTRAINED, Talk, base64_text, regex, wait_until
from constraintd.v1 import session_pb2
from tests.daemon_process import stub_for
from tests.runner_process import mortal_runner

LENGTH = 900
"""Tokens of a long generation: a second or so, in which a case can act."""
LONG = {"constraint": regex("((é|世|[a-f]){1,9}[ ,.]){1,2000}")}
"""Characters of one to three bytes, so that bytes, characters and tokens are different numbers."""
GREEDY = {"stages": [{"greedy": {}}], "maxTokens": LENGTH, "seed": "1"}
DRAWN = {"stages": [{"temperature": {"temperature": 1.2}}], "minTokens": LENGTH, "maxTokens": LENGTH, "seed": "5"}
ENDLESS = {**DRAWN, "minTokens": 1900, "maxTokens": 1900}
"""As far as the model's context reaches: nobody waits for the end of these."""


def begin(talk: Talk, *more: str) -> None:
    """Connects to the runner that stays, behind others if there are any."""
    talk.ok("connect_runner", targets=[*more, talk.places.runner])


def whole(talk: Talk, name: str, **request: Any) -> list[dict[str, Any]]:
    """A generation's events from its beginning to its end, consistent in themselves."""
    talk.ok("generate", generation=name, **request)
    answer = talk.ok("events", generation=name)
    return checked(answer["events"], answer)


def checked(events: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> list[Any]:
    """The events, which are Started, Deltas and Finished; tokens and text are the sum of the Deltas'."""
    kinds = [event["event"] for event in events]
    same(kinds, ["started", *["delta"] * (len(events) - 2), "finished"], "the kinds of the events")
    deltas = events[1:-1]
    same(answer["tokens"], [token for delta in deltas for token in delta["tokens"]], "all tokens")
    same(answer["text"], "".join(delta["text"] for delta in deltas), "all text")
    same(events[-1]["completion_tokens"], len(answer["tokens"]), "the number of tokens")
    if "\ufffd" not in answer["text"]:  # which stands for a character that was cut off by the last token
        same(len(answer["text"].encode()), events[-1]["finish"]["cut_offset"], "the length of the text in bytes")
    return list(events)


def text_of(events: Sequence[Mapping[str, Any]]) -> str:
    """All text of these events."""
    return "".join(event.get("text", "") for event in events)


def tokens_of(events: Sequence[Mapping[str, Any]]) -> list[int]:
    """All tokens of these events."""
    return [token for event in events for token in event.get("tokens", [])]


@case()
def text_and_tokens_come_as_they_are_made(talk: Talk) -> None:
    """A generation tells Started, Deltas and Finished; its tokens spell its text; a seed makes it the same again."""
    begin(talk)
    constraint = {"grammar": {"choice": {"texts": [base64_text("Grüße, 世界 🌍!")]}}}
    events = whole(talk, "g", prompt="Say hello: ", constraint=constraint, sampler={"seed": "7"})
    same(text_of(events), "Grüße, 世界 🌍!", "the text")
    same(events[0]["seed"], "7", "the seed")
    finish = {"reason": "GRAMMAR_EXHAUSTED", "constraint_incomplete": False}
    fields(events[-1]["finish"], finish, "the finish")
    info = talk.ok("model_info")
    talk.ok("connect", targets=[talk.places.daemon])
    table = talk.ok("token_table", vocabulary_id=info["vocabulary_id"], spell=tokens_of(events))
    same(bytes.fromhex(table["text"]).decode(), "Grüße, 世界 🌍!", "what the tokens spell")
    drawn = {"prompt": "x", "constraint": regex("[a-z]{40}"), "sampler": {"seed": str(2**64 - 1)}}
    first, second = (whole(talk, name, **drawn) for name in ("first", "second"))
    same([tokens_of(second), second[0]["seed"]], [tokens_of(first), str(2**64 - 1)], "tokens and seed the second time")


@case()
def a_prompt_is_text_or_tokens_or_a_chat(talk: Talk) -> None:
    """Each kind of prompt gets as many tokens as it has."""
    begin(talk)
    # The tokenizer of tests/tiny_decoder.py: "the" and " the" are tokens, and the template writes
    # <s> u s er \n the </s> \n <s> a s s i st an t \n.
    for prompt, tokens in (("the the", 2), ([5, 6, 7], 3), ([{"role": "user", "content": "the"}], 17)):
        events = whole(talk, "g", prompt=prompt, constraint=regex("a"), sampler={"seed": "1"})
        same(text_of(events), "a", "the text")
        found = [events[0]["prompt_tokens"], events[-1]["prompt_tokens"]]
        same(found, [tokens, tokens], f"the tokens of the prompt {prompt}, at the beginning and at the end")


@case()
def text_ends_where_a_stop_string_begins(talk: Talk) -> None:
    """A stop string and what follows it never reach the reader, though the tokens of it were made."""
    begin(talk)
    events = whole(talk, "g", prompt="x", constraint=regex("grün#ende"), sampler={"stopStrings": [base64_text("#en")]})
    same(text_of(events), "grün", "the text")
    fields(events[-1]["finish"], {"reason": "STOP_STRING", "stop_string": b"#en".hex(), "cut_offset": 5}, "the finish")


@case()
def log_probabilities_come_where_they_are_asked_for(talk: Talk) -> None:
    """One entry a token: the taken one, and as many others as were asked for, the most probable first."""
    begin(talk)
    request = {"prompt": "x", "constraint": regex("[ab]{5}"), "sampler": GREEDY}
    plain, asked = whole(talk, "plain", **request), whole(talk, "asked", **request, logprobs=2)
    same([entry for event in plain[1:-1] for entry in event["logprobs"]], [], "the log probabilities nobody asked for")
    entries = [entry for event in asked[1:-1] for entry in event["logprobs"]]
    same([entry["taken"][0] for entry in entries], tokens_of(asked), "the taken tokens")
    for entry in entries:
        same(entry["top"][0], entry["taken"], "the first of the top under greedy")
        true(len(entry["top"]) == 2 and entry["top"][0][1] >= entry["top"][1][1], f"the top is {entry['top']}")
        near(sum(2.718281828459045 ** pair[1] for pair in entry["top"]), 1.0, "the sum of two probabilities", 1e-3)


@case()
def an_answer_is_taken_apart_into_its_tool_calls(talk: Talk) -> None:
    """Under tool calls Finished has each call's name and arguments."""
    begin(talk)
    parameters = (
        '{"type": "object", "properties": {"n": {"enum": [4]}}, "required": ["n"], "additionalProperties": false}'
    )
    tools = f'[{{"type": "function", "function": {{"name": "roll", "parameters": {parameters}}}}}]'
    calls = {
        "tools": base64_text(tools),
        "toolChoice": base64_text('{"type": "function", "function": {"name": "roll"}}'),
        "format": "TOOL_CALL_FORMAT_HERMES",
        "jsonOptions": {"whitespace": "JSON_WHITESPACE_COMPACT"},
    }
    events = whole(talk, "g", prompt="x", constraint={"toolCalls": calls}, sampler={"seed": "1", "maxTokens": 400})
    answer = events[-1]["tool_answer"]
    same([call["name"] for call in answer["calls"]], ["roll"], "the names of the calls")
    same(answer["calls"][0]["arguments"].replace(" ", ""), '{"n":4}', "the arguments")
    same([answer["content"], answer["malformed"]], ["", ""], "content and malformed")


@case()
def a_generation_that_fails_is_a_fragment_with_a_reason(talk: Talk) -> None:
    """A dead end, a bad grammar and a prompt that is too long fail when iterating, with their reason and fragment."""
    begin(talk)
    dead_end = {"allOf": {"constraints": [regex("zzb"), regex("zzc")]}}
    talk.ok("generate", generation="dead end", prompt="x", constraint=dead_end)
    wanted = {"reason": "NO_TOKEN_ALLOWED", "code": "FAILED_PRECONDITION", "fragment": "zz"}
    talk.refused(wanted, "events", generation="dead end")
    talk.ok(
        "generate", generation="bad", prompt="x", constraint={"grammar": {"jsonSchema": base64_text('{"type": 5}')}}
    )
    wanted = {"reason": "INVALID_GRAMMAR", "code": "INVALID_ARGUMENT", "location": "/type", "fragment": ""}
    talk.refused(wanted, "events", generation="bad")
    talk.ok("generate", generation="long", prompt=[5] * 2048, constraint=UNCONSTRAINED)
    talk.refused({"reason": "CONTEXT_EXCEEDED", "code": "INVALID_ARGUMENT"}, "events", generation="long")


@case()
def a_cancelled_generation_frees_its_place(talk: Talk) -> None:
    """Behind a cancel the reader gets CANCELLED, and the session is closed at the daemon."""
    begin(talk)
    talk.ok("generate", generation="g", prompt="x", **LONG, sampler=ENDLESS)
    started = talk.ok("events", generation="g", count=3)["events"][0]
    talk.ok("cancel", generation="g")
    talk.refused({"code": "CANCELLED", "reason": ""}, "events", generation="g")
    wait_until(10, lambda: not _is_open(talk, started["session_id"]), "the session was not closed")


@case()
def what_ends_by_ones_own_hand_leaves_the_address(talk: Talk) -> None:
    """Behind a cancelled and behind a finished generation, calls go to the same one of two addresses as before."""
    nobody = f"unix:{talk.places.folder()}/nobody.sock"
    talk.ok("connect_runner", targets=[talk.places.runner, nobody])
    for _ in range(3):
        talk.ok("generate", generation="g", prompt="x", **LONG, sampler=ENDLESS)
        talk.ok("events", generation="g", count=3)
        talk.ok("cancel", generation="g")
        talk.refused({"code": "CANCELLED"}, "events", generation="g")
        talk.ok("model_info")
        same(text_of(whole(talk, "g", prompt="x", constraint=regex("abc"))), "abc", "the text")
        talk.ok("model_info")


@case()
def a_deadline_ends_a_generation(talk: Talk) -> None:
    """A generation that outlasts its time fails with DEADLINE_EXCEEDED, and its session is closed at the daemon."""
    begin(talk)
    session_id = secrets.token_hex(16)
    request = {"constraint": regex("[a-z]{1900}"), "sampler": {"seed": "1"}}
    talk.ok("generate", generation="g", prompt="x", timeout_ms=200, session_id=session_id, **request)
    error = talk.refused({"code": "DEADLINE_EXCEEDED", "reason": ""}, "events", generation="g")
    true(len(error["fragment"]) < 1900, "the generation had ended in time")
    wait_until(10, lambda: not _is_open(talk, session_id), "the session was not closed")


@case()
def a_resumable_generation_outlives_its_runner(talk: Talk) -> None:
    """kill -9 of the runner in the middle: at the next address it goes on, with no token twice and none missing."""
    for name, sampler in (("greedy", GREEDY), ("drawn", DRAWN)):
        with talk.places.other_runner() as runner:
            begin(talk)
            expected = whole(talk, "whole", prompt="It was ", **LONG, sampler=sampler)
            begin(talk, runner.address)
            talk.ok("generate", generation=name, prompt="It was ", **LONG, sampler=sampler, resumable=True)
            events = talk.ok("events", generation=name, count=20)["events"]
            runner.kill()
            before = len(logged_tokens(talk.places.daemon, events[0]["session_id"]))
            shown = len(tokens_of(events))
            true(shown <= before < LENGTH, f"{shown} tokens were shown, and {before} there when the runner was killed")
            answer = talk.ok("events", generation=name)
            events = checked([*events, *answer["events"]], answer)
        same([tokens_of(events), text_of(events)], [tokens_of(expected), text_of(expected)], "tokens and text")
        same(events[-1]["finish"], expected[-1]["finish"], "the finish")
        session_id = events[0]["session_id"]
        same(logged_tokens(talk.places.daemon, session_id), tokens_of(expected), "the daemon's tokens")
        same(talk.ok("close_generation", session_id=session_id), {"closed": True}, "the first closing")
        same(talk.ok("close_generation", session_id=session_id), {"closed": False}, "the second closing")


@case()
def a_resumable_generation_outlives_the_daemon(talk: Talk) -> None:
    """kill -9 of the daemon in the middle, and a start on the same store: the text is that of an undisturbed one."""
    begin(talk)
    expected = whole(talk, "whole", prompt="It was ", **LONG, sampler=DRAWN)
    with talk.places.mortal_daemon() as daemon, mortal_runner(talk.places.model, daemon.address) as runner:
        talk.ok("connect_runner", targets=[runner.address])
        talk.ok("generate", generation="g", prompt="It was ", **LONG, sampler=DRAWN, resumable=True)
        events = talk.ok("events", generation="g", count=20)["events"]
        daemon.kill()
        daemon.start()
        before = len(logged_tokens(daemon.address, events[0]["session_id"]))
        shown = len(tokens_of(events))
        true(shown <= before < LENGTH, f"{shown} tokens were shown, and {before} there when the daemon was back")
        answer = talk.ok("events", generation="g")
        events = checked([*events, *answer["events"]], answer)
        same([tokens_of(events), text_of(events)], [tokens_of(expected), text_of(expected)], "tokens and text")
        same(logged_tokens(daemon.address, events[0]["session_id"]), tokens_of(expected), "the daemon's tokens")


@case()
def a_cancelled_resumable_generation_is_gone_on_with(talk: Talk) -> None:
    """Another call takes it up behind the tokens and bytes that were seen; text and tokens join without a seam."""
    begin(talk)
    expected = whole(talk, "whole", prompt="It was ", **LONG, sampler=DRAWN)
    talk.ok("generate", generation="g", prompt="It was ", **LONG, sampler=DRAWN, resumable=True)
    seen = talk.ok("events", generation="g", count=30)["events"]
    talk.ok("cancel", generation="g")
    talk.refused({"code": "CANCELLED"}, "events", generation="g")
    session_id = seen[0]["session_id"]
    true(
        len(text_of(seen).encode()) > len(text_of(seen)), "no character of several bytes was seen, so that none counts"
    )
    place = {"seen_tokens": len(tokens_of(seen)), "seen_text_bytes": len(text_of(seen).encode())}
    talk.ok("resume_generation", generation="rest", session_id=session_id, **place)
    rest = talk.ok("events", generation="rest")["events"]
    same(tokens_of(seen) + tokens_of(rest), tokens_of(expected), "the tokens")
    same(text_of(seen) + text_of(rest), text_of(expected), "the text")
    too_much = {"seen_tokens": LENGTH + 1, "seen_text_bytes": 0}
    talk.ok("resume_generation", generation="too much", session_id=session_id, **too_much)
    talk.refused({"reason": "INVALID_FIELD", "expected_position": LENGTH}, "events", generation="too much")
    talk.ok("close_generation", session_id=session_id)
    talk.ok("resume_generation", generation="gone", session_id=session_id, seen_tokens=1, seen_text_bytes=1)
    talk.refused({"reason": "UNKNOWN_SESSION", "code": "NOT_FOUND"}, "events", generation="gone")


@case()
def a_generation_that_another_takes_over_ends(talk: Talk) -> None:
    """Whoever still reads a generation that was resumed elsewhere gets STALE_EPOCH, and does not fight for it."""
    begin(talk)
    with talk.places.other_runner() as runner:
        talk.ok("connect_runner", runner="other", targets=[runner.address])
        request = {"constraint": regex("[a-z]{1900}"), "sampler": {"seed": "3"}}
        talk.ok("generate", runner="other", generation="first", prompt="x", **request, resumable=True)
        started = talk.ok("events", generation="first", count=5)["events"][0]
        os.kill(runner.pid, signal.SIGSTOP)  # so that it can't come to its end before the other one begins
        place = {"session_id": started["session_id"], "seen_tokens": 0, "seen_text_bytes": 0}
        talk.ok("resume_generation", generation="second", **place)
        talk.ok("events", generation="second", count=2)
        os.kill(runner.pid, signal.SIGCONT)
        talk.refused({"reason": "STALE_EPOCH", "code": "ABORTED"}, "events", generation="first")
    rest = talk.ok("events", generation="second")
    same(len(rest["text"]), 1900, "the length of the second one's text")
    talk.ok("close_generation", session_id=started["session_id"])


def _is_open(talk: Talk, session_id: str) -> bool:
    """Whether the daemon has that session, asked for without any client."""
    channel, stub = stub_for(talk.places.daemon)
    with channel:
        listed = stub.ListSessions(session_pb2.ListSessionsRequest(page_size=1000), timeout=30)
        return bytes.fromhex(session_id) in {each.session_id for each in listed.sessions}
