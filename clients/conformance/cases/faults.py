"""Point 10 and all that breaks: daemons that die, drain, freeze and forget, with steps on their way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from clients.conformance.harness.case import case
from clients.conformance.harness.expect import directive, same, true
from clients.conformance.harness.places import MortalDaemon, logged_tokens
from clients.conformance.harness.talk import UNCONSTRAINED, Talk, regex

NAMES = ("a", "b", "c", "d", "e")


def _open_five(talk: Talk, daemon: MortalDaemon) -> None:
    """Five sessions and one stream."""
    talk.begin(daemon.address)
    talk.stream()
    for name in NAMES:
        talk.open(name, regex("[a-z]*"), sampler={"seed": "1"})


def _five(talk: Talk, daemon: MortalDaemon) -> None:
    """Five sessions on one stream, each behind its first step."""
    _open_five(talk, daemon)
    talk.send_each(NAMES, [97])
    for name in NAMES:
        directive(talk.take(name), position=1)


def _go_on(talk: Talk, daemon: MortalDaemon, before: Sequence[int] = (97,)) -> None:
    """The five steps with the tokens 98 and 99 are answered, one more works, and the daemon has each token once."""
    for name in NAMES:
        directive(talk.take(name), position=len(before) + 2)
    talk.send_each(NAMES, [122])
    for name in NAMES:
        directive(talk.take(name), position=len(before) + 3)
        same(logged_tokens(daemon.address, talk.ids[name]), [*before, 98, 99, 122], f"the tokens of {name}")


@case()
def steps_of_a_killed_daemon_are_sent_again(talk: Talk) -> None:
    """kill -9 with five unanswered steps, and a start on the same store: each is answered, and logged once."""
    with talk.places.mortal_daemon() as daemon:
        _five(talk, daemon)
        daemon.kill()
        talk.send_each(NAMES, [98, 99])
        daemon.start()
        _go_on(talk, daemon)


@case()
def steps_that_were_applied_before_the_daemon_died_are_not_doubled(talk: Talk) -> None:
    """The daemon dies with the steps in its store and no answer sent: sent again, they get their first answers."""
    with talk.places.mortal_daemon("--failpoints", "reply.before=kill@1") as daemon:
        _open_five(talk, daemon)
        talk.send_each(NAMES, [98, 99])
        daemon.ended()
        daemon.start()
        _go_on(talk, daemon, before=())


@case()
def steps_that_were_not_applied_before_the_daemon_died_are_not_lost(talk: Talk) -> None:
    """The daemon dies before the steps are in its store: sent again, they are applied."""
    with talk.places.mortal_daemon("--failpoints", "append.before=kill@1") as daemon:
        _open_five(talk, daemon)
        talk.send_each(NAMES, [98, 99])
        daemon.ended()
        daemon.start()
        _go_on(talk, daemon, before=())


@case()
def an_answer_that_does_not_come_leaves_the_step_unanswered(talk: Talk) -> None:
    """While the daemon is away a take ends in its time, with DEADLINE_EXCEEDED or UNAVAILABLE; a later one succeeds."""
    with talk.places.mortal_daemon() as daemon:
        _five(talk, daemon)
        daemon.kill()
        talk.send_each(NAMES, [98, 99])
        began = time.monotonic()
        answer = talk.ask("take", stream="stream", session="a", timeout_ms=700)
        took = time.monotonic() - began
        true(answer.get("error", {}).get("code") in ("DEADLINE_EXCEEDED", "UNAVAILABLE"), f"the take got {answer}")
        true(0.5 < took < 5, f"the take took {took:.1f} s, of the 0.7 s that it had")
        daemon.start()
        _go_on(talk, daemon)


@case()
def a_stream_goes_on_at_the_next_address(talk: Talk) -> None:
    """Where the daemon's store is taken up at the second of two addresses, unanswered steps go there."""
    with talk.places.mortal_daemon() as daemon:
        talk.ok("connect", client="two", targets=[daemon.address, daemon.second_address])
        talk.begin(daemon.address)
        talk.ok("stream", client="two", stream="stream", vocabulary_id=talk.vocabulary_id, logits_width=300)
        for name in NAMES:
            talk.open(name, regex("[a-z]*"))
        talk.send_each(NAMES, [97])
        for name in NAMES:
            directive(talk.take(name), position=1)
        daemon.kill()
        talk.send_each(NAMES, [98])
        daemon.start(at=daemon.second_address)
        for name in NAMES:
            directive(talk.take(name), position=2)
            same(logged_tokens(daemon.second_address, talk.ids[name]), [97, 98], f"the tokens of {name}")


@case()
def a_draining_daemon_answers_what_it_has_read(talk: Talk) -> None:
    """SIGTERM with five steps in work: each is answered, by this daemon or the next, and logged once."""
    slow = ("--durability", "strict", "--failpoints", "append.before=delay:1")
    with talk.places.mortal_daemon(*slow) as daemon:
        _five(talk, daemon)
        talk.send_each(NAMES, [98, 99])
        time.sleep(0.5)  # until it has read them, and has answered none
        daemon.drain()
        same(daemon.ended(), 0, "the daemon's exit status")
        for name in NAMES:
            directive(talk.take(name, timeout_ms=2000), position=3)
        daemon.start()
        talk.send_each(NAMES, [122])
        for name in NAMES:
            directive(talk.take(name), position=4)
            same(logged_tokens(daemon.address, talk.ids[name]), [97, 98, 99, 122], f"the tokens of {name}")


@case()
def a_step_that_comes_while_the_daemon_drains_goes_to_the_next(talk: Talk) -> None:
    """What is sent behind Draining is not lost: it is sent where the stream is opened again."""
    slow = ("--durability", "strict", "--failpoints", "append.before=delay:0.7")
    with talk.places.mortal_daemon(*slow) as daemon:
        _five(talk, daemon)
        talk.open("late", regex("[a-z]*"))
        talk.send_each(NAMES, [98, 99])
        time.sleep(0.1)
        daemon.drain()
        time.sleep(0.2)  # it has said Draining, and still works
        talk.send({"late": [120]})
        same(daemon.ended(), 0, "the daemon's exit status")
        daemon.start()
        directive(talk.take("late"), position=1)
        same(logged_tokens(daemon.address, talk.ids["late"]), [120], "the tokens of the late session")
        _go_on(talk, daemon)


@case()
def a_daemon_that_hangs_costs_no_more_than_the_deadline(talk: Talk) -> None:
    """A call and a take end with DEADLINE_EXCEEDED at a frozen daemon; when it goes on, so does the stream."""
    with talk.places.mortal_daemon() as daemon:
        _five(talk, daemon)
        talk.ok("connect", client="hurried", targets=[daemon.address], timeout_ms=700)
        talk.ok("get", client="hurried", session="a")
        daemon.freeze()
        talk.send_each(NAMES, [98, 99])
        late = {"code": "DEADLINE_EXCEEDED", "reason": ""}
        talk.refused(late, "get", client="hurried", session="a")
        talk.refused(late, "take", stream="stream", session="a", timeout_ms=300)
        daemon.thaw()
        _go_on(talk, daemon)


@case()
def a_daemon_that_has_forgotten_everything_is_told_apart(talk: Talk) -> None:
    """A restart without a store is UNKNOWN_VOCABULARY; registered and reconnected, UNKNOWN_SESSION; then it works."""
    with talk.places.mortal_daemon(store="memory") as daemon:
        _five(talk, daemon)
        daemon.kill()
        talk.send({"a": [98]})
        daemon.start()
        talk.refused({"reason": "UNKNOWN_VOCABULARY"}, "take", stream="stream", session="a", timeout_ms=30_000)
        talk.begin(daemon.address)
        talk.ok("reconnect", stream="stream")
        talk.refused({"reason": "UNKNOWN_SESSION"}, "take", stream="stream", session="a", timeout_ms=30_000)
        talk.open("new", UNCONSTRAINED)
        directive(talk.through("new", [97]), position=1)


@case()
def a_closed_stream_tells_its_takers(talk: Talk) -> None:
    """A closed stream takes no more steps, and closing it again is no error."""
    talk.begin()
    talk.stream()
    talk.open("s", UNCONSTRAINED)
    directive(talk.through("s", [97]), position=1)
    talk.ok("close_stream", stream="stream")
    talk.ok("close_stream", stream="stream")
    send = {"stream": "stream", "steps": [{"session": "s", "tokens": [98], "surprisals": [1.0]}]}
    talk.refused({"kind": "argument"}, "send", **send)
