"""Points 8 and 9: updates, rollbacks, forks, new turns, and sessions that move."""

from __future__ import annotations

import secrets

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import directive, fields, same, true
from clients.conformance.harness.talk import UNCONSTRAINED, Talk, json_schema, regex
from tests.daemon_process import EOG


@case()
def an_update_changes_what_comes_next(talk: Talk) -> None:
    """A grammar that stays goes on where it stands; the sampler changes; the epoch is a new one."""
    talk.begin()
    opened = talk.open("s", {"allOf": {"constraints": [regex("abc"), regex("a[bx].")]}})
    talk.ok("handle", of="s", session="before")
    talk.step("s", [97])
    updated = talk.ok("update", session="s", constraint=regex("abc"), sampler={"maxTokens": 2, "seed": "5"})
    directive(updated, position=1, allows=[98])
    true(updated["epoch"] != opened["epoch"], "the epoch is the old one")
    same(updated["seed"], "5", "the seed")
    directive(talk.step("s", [98]), finish={"reason": "LENGTH", "cut_offset": 2, "constraint_incomplete": True})
    talk.ok("handle", of="before", session="stale", position=2)
    stale = {"reason": "STALE_EPOCH", "code": "ABORTED"}
    talk.refused(stale, "update", session="stale", constraint=UNCONSTRAINED)


@case()
def a_change_repeated_gets_its_first_answer(talk: Talk) -> None:
    """Update and rollback under the same request id are one change, even when steps came since."""
    talk.begin()
    talk.open("s", regex("[abc]*"), sampler={"seed": "1"})
    talk.step("s", [97])
    for op, change in (("update", {"constraint": regex("[bc]*")}), ("rollback", {"to_position": 0})):
        talk.ok("handle", of="s", session="again")
        request_id = secrets.token_hex(16)
        first = talk.ok(op, session="s", request_id=request_id, **change)
        same(talk.ok(op, session="again", request_id=request_id, **change), first, f"the answer to the repeated {op}")
        talk.step("s", [98])
    same(talk.ok("get", session="s")["tokens"], [98], "the tokens")


@case()
def a_rollback_returns_to_an_earlier_position(talk: Talk) -> None:
    """A seeded session draws as before and allows what it allowed; a finish is undone; past the end is refused."""
    talk.begin()
    first = talk.open("s", regex("abc"), sampler={"seed": "3"})
    second = talk.step("s", [97])
    directive(talk.step("s", [98, 99]), finish={"reason": "GRAMMAR_EXHAUSTED"})
    back = talk.ok("rollback", session="s", to_position=1)
    same(back["directive"], second["directive"], "the Directive at position 1")
    talk.ok("rollback", session="s", to_position=0)
    same(talk.ok("rollback", session="s", to_position=0)["directive"], first["directive"], "that at position 0")
    talk.refused({"reason": "INVALID_FIELD", "field": "to_position"}, "rollback", session="s", to_position=1)
    same(talk.ok("get", session="s")["tokens"], [], "the tokens")


@case()
def an_unseeded_session_draws_anew_after_a_rollback(talk: Talk) -> None:
    """Without a seed of the caller's a rollback brings a new one; with one in the call, that one."""
    talk.begin()
    first = talk.open("s", UNCONSTRAINED)
    back = talk.ok("rollback", session="s", to_position=0)
    true(back["seed"] != first["seed"], "the seed is the old one")
    true(back["directive"]["draw"] != first["directive"]["draw"], "the draw is the old one")
    back = talk.ok("rollback", session="s", to_position=0, seed=first["seed"])
    same([back["seed"], back["directive"]["draw"]], [first["seed"], first["directive"]["draw"]], "seed and draw")


@case()
def a_fork_shares_the_history_and_leaves_its_parent_alone(talk: Talk) -> None:
    """A fork at an earlier position goes its own way; the same request again is the same fork."""
    talk.begin()
    talk.open("s", regex("a[bc]d"), sampler={"seed": "4"})
    talk.step("s", [97])
    talk.step("s", [98])
    fork_id = secrets.token_hex(16)
    fork = talk.ok("fork", of="s", session="fork", position=1, session_id=fork_id)
    directive(fork, position=1, allows=[98, 99])
    same(talk.ok("fork", of="s", session="again", position=1, session_id=fork_id), fork, "the answer to the repeat")
    directive(talk.step("fork", [99]), position=2, allows=[100])
    directive(talk.step("s", [100]), finish={"reason": "GRAMMAR_EXHAUSTED"})
    same(talk.ok("get", session="s")["tokens"], [97, 98, 100], "the parent's tokens")
    same(talk.ok("get", session="fork")["tokens"], [97, 99], "the fork's tokens")


@case()
def a_new_turn_begins_the_constraint_anew(talk: Talk) -> None:
    """Behind a terminal token only a new turn goes on; it carries its prompt, and a takeover tells of both turns."""
    talk.begin()
    talk.open("s", json_schema('{"enum": [1]}'), prompt_tokens=[1, 2])
    ended = talk.write("s", b"1")
    directive(ended, finish={"reason": "GRAMMAR_EXHAUSTED", "schema_satisfied": True, "cut_offset": 1})
    turned = talk.ok("update", session="s", new_turn=[3, 4, 5])
    directive(turned, position=1)
    directive(talk.write("s", b"1"), finish={"reason": "GRAMMAR_EXHAUSTED", "cut_offset": 2})
    resumed = talk.ok("resume", session="s", session_id=talk.ids["s"])
    wanted = {"turns": [[0, [1, 2]], [1, [3, 4, 5]]], "tokens": [49, 49], "model_input": [1, 2, 49, 3, 4, 5, 49]}
    fields(resumed, {**wanted, "vocabulary_id": talk.vocabulary_id}, "the takeover")
    talk.open("t", regex("a*"))
    talk.step("t", [EOG])
    finished = {"reason": "SESSION_FINISHED", "code": "FAILED_PRECONDITION"}
    talk.refused(finished, "update", session="t", sampler={"seed": "1"})
    directive(talk.ok("update", session="t", new_turn=[]), position=1, allows=[97, 256, 258, 262])


@case()
def a_session_is_taken_over_with_all_that_a_runner_needs(talk: Talk) -> None:
    """Tokens, forward passes, sampler and the next Directive of a session come with its takeover."""
    talk.begin()
    talk.open("s", regex("[a-z]*"), prompt_tokens=[7, 8, 9], sampler={"seed": "6", "stages": [{"greedy": {}}]})
    talk.ok("step", session="s", tokens=[97], surprisals=[0.5], passes=[2, 1])
    before = talk.ok("step", session="s", tokens=[98, 99], surprisals=[0.5, 0.25], passes=[1])
    talk.ok("connect", client="other", targets=[talk.places.daemon])
    resumed = talk.ok("resume", client="other", session="mine", session_id=talk.ids["s"])
    fields(
        resumed, {"tokens": [97, 98, 99], "passes": [2, 1, 1], "turns": [[0, [7, 8, 9]]], "seed": "6"}, "the takeover"
    )
    same(resumed["directive"], before["directive"], "the next Directive")
    logits = [float(token == 122) for token in range(300)]
    same(talk.ok("pick", session="mine", logits=logits)["token"], 122, "the pick by the sampler in force")


@case()
def a_session_is_exported_and_imported(talk: Talk) -> None:
    """An envelope opens the session at another daemon; a cut one is refused, and none overwrites another session."""
    talk.begin()
    talk.open("s", regex("a[bc]d"), sampler={"seed": "8"}, prompt_tokens=[1])
    before = talk.step("s", [97])
    envelope = talk.ok("export", session="s")["envelope"]
    with talk.places.mortal_daemon(store="memory") as daemon:
        talk.begin(daemon.address, client="elsewhere")
        damaged = {"reason": "INVALID_ENVELOPE", "code": "DATA_LOSS"}
        talk.refused(damaged, "import", client="elsewhere", session="t", envelope=envelope[:-2])
        moved = talk.ok("import", client="elsewhere", session="t", envelope=envelope)
        same(moved["session_id"], talk.ids["s"], "the id")
        same(moved["directive"], before["directive"], "the Directive")
        answer = talk.ok("step", client="elsewhere", session="t", tokens=[99, 100], surprisals=[1.0, 1.0])
        directive(answer, position=3, finish={"reason": "GRAMMAR_EXHAUSTED", "cut_offset": 3})
        again = talk.ok("import", client="elsewhere", session="t", envelope=envelope)
        same([again["epoch"], again["directive"]], [answer["epoch"], answer["directive"]], "the session imported again")
    talk.refused({"reason": "ALREADY_EXISTS", "code": "ALREADY_EXISTS"}, "import", session="t", envelope=envelope)


@case()
def open_sessions_are_listed(talk: Talk) -> None:
    """All open sessions are listed by ascending id, over as many pages as there are."""
    with talk.places.mortal_daemon(store="memory") as daemon:
        talk.begin(daemon.address)
        ids = [f"{index:032x}" for index in range(1, 151)]
        for index in ids[::-1]:
            talk.open("s", UNCONSTRAINED, session_id=index)
        same(talk.ok("list")["session_ids"], ids, "the sessions")
