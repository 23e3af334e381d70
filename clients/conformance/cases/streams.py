"""Point 4: many sessions on one Decode stream."""

from __future__ import annotations

from typing import Any

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import allowed, directive, same, true
from clients.conformance.harness.talk import UNCONSTRAINED, Talk, regex

SESSIONS = 32


def pick(said: dict[str, Any]) -> int:
    """One of the allowed tokens, by the Directive's own draw."""
    ways = allowed(said)
    return ways[int(said["draw"] * len(ways))]


@case()
def many_sessions_on_one_stream_give_what_each_gives_alone(talk: Talk) -> None:
    """32 sessions, each with its own grammar and draws, interleaved on one stream: the Directives of unary calls."""
    talk.begin()
    talk.stream()
    patterns = [f"({chr(97 + i % 26)}|x{{{i}}}y)+[0-9]{{{1 + i % 5}}}z?" for i in range(SESSIONS)]
    alone, together = {}, {}
    for index, pattern in enumerate(patterns):
        sampler = {"seed": str(index), "maxTokens": 12}
        said = talk.open(f"alone {index}", regex(pattern), sampler=sampler)["directive"]
        history = alone[index] = [said]
        while said["mask"] is not None:
            said = talk.step(f"alone {index}", [pick(said)])["directive"]
            history.append(said)
        together[index] = [talk.open(f"{index}", regex(pattern), sampler=sampler)["directive"]]
    live = list(together)
    while live:
        talk.send({f"{index}": [pick(together[index][-1])] for index in live})
        for index in reversed(live):  # not in the order in which they were sent
            together[index].append(talk.take(f"{index}")["directive"])
        live = [index for index in live if together[index][-1]["mask"] is not None]
    same(together, alone, "the Directives of the sessions on the stream")
    true(sum(map(len, alone.values())) > 5 * SESSIONS, "the sessions were too short to be interleaved")


@case()
def a_refused_step_is_that_sessions_alone(talk: Talk) -> None:
    """In one batch a refused step, a finish and an answer each go to their session, and the stream stands."""
    talk.begin()
    talk.stream()
    for name in ("good", "bad", "last", "unknown"):
        talk.open(name, regex("a" if name == "last" else "ab?c?"))
    talk.ok("close", session="unknown")
    talk.send({"unknown": [97], "bad": [98], "last": [97], "good": [97]})
    directive(talk.take("good"), position=1)
    wrong = {"reason": "TOKEN_NOT_ALLOWED", "illegal_index": 0}
    talk.refused(wrong, "take", stream="stream", session="bad", timeout_ms=30_000)
    directive(talk.take("last"), finish={"reason": "GRAMMAR_EXHAUSTED"})
    talk.refused({"reason": "UNKNOWN_SESSION"}, "take", stream="stream", session="unknown", timeout_ms=30_000)
    directive(talk.through("bad", [97]), position=1)
    directive(talk.through("good", [98]), position=2)


@case()
def a_batch_of_more_steps_than_the_server_takes_is_cut(talk: Talk) -> None:
    """A daemon that takes four steps in a batch gets eleven in several."""
    with talk.places.mortal_daemon("--max-batch-steps", "4", store="memory") as daemon:
        talk.begin(daemon.address)
        talk.stream()
        names = [f"s{index}" for index in range(11)]
        for name in names:
            talk.open(name, UNCONSTRAINED)
        talk.send_each(names, [97])
        for name in names:
            directive(talk.take(name), position=1)


@case()
def a_forgotten_step_leaves_the_stream_alone(talk: Talk) -> None:
    """A step whose answer nobody wants is forgotten; the session's next step gets its own answer."""
    talk.begin()
    talk.stream()
    talk.open("s", regex("[ab]*"))
    talk.ok("handle", of="s", session="ahead", position=1)
    talk.send({"s": [97]})
    talk.ok("forget", stream="stream", session="s")
    # The daemon may be at the forgotten step still: the next one is sent when that is applied.
    answer: dict[str, Any] = {}
    for _ in range(100):
        talk.send({"ahead": [98]})
        answer = talk.ask("take", stream="stream", session="ahead", timeout_ms=30_000)
        if answer.get("error", {}).get("reason") not in ("STEP_IN_FLIGHT", "POSITION_GAP"):
            break
    true("ok" in answer, f"the next step got {answer}")
    directive(answer["ok"], position=2)


@case()
def what_is_wrong_with_the_stream_itself_is_told_to_its_takers(talk: Talk) -> None:
    """UNKNOWN_VOCABULARY and LOGITS_WIDTH_MISMATCH end the stream: the take says so, without waiting for its time."""
    talk.begin()
    talk.open("s", UNCONSTRAINED)
    for vocabulary_id, width, reason in (
        ("0" * 64, 300, "UNKNOWN_VOCABULARY"),
        (talk.vocabulary_id, 301, "LOGITS_WIDTH_MISMATCH"),
    ):
        talk.ok("stream", stream=reason, vocabulary_id=vocabulary_id, logits_width=width)
        talk.send({"s": [97]}, reason)
        talk.refused({"reason": reason}, "take", stream=reason, session="s", timeout_ms=40_000)
        talk.ok("close_stream", stream=reason)
    same(talk.ok("get", session="s")["tokens"], [], "the session's tokens")
