"""The hostile corpus against a real daemon: every grammar gets its answer, and the daemon is as it was."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass

import grpc
import pytest

from constraintd.v1 import grammar_pb2, session_pb2
from tests.daemon_process import open_request, regex, step_message, stub_for
from tests.fault.attack import COMPILE_SECONDS, STEPS, Attack, Outcome, attacked_daemon
from tests.fault.hostile_grammars import corpus

# Beside compiling in the child and then in the daemon: the wire, reading 10 MB of JSON, and a machine that is busy.
_SLACK_SECONDS = 12.0
_REFUSALS = {"INVALID_GRAMMAR", "LIMIT_EXCEEDED", "INVALID_FIELD", "TOO_LARGE"}
# The helper, and the one child that it forks ahead.
IDLE = ["helper", "child"]
_ENDS = {"steps", "finish", "complete", "no_token_allowed", "LIMIT_EXCEEDED"}


@dataclass
class Aftermath:
    """What the attack left."""

    outcomes: list[Outcome]
    pids: tuple[int, int]
    memory: tuple[int, int]
    witness_steps: int
    children: list[str]


class Witness:
    """A session of somebody else, stepped all the while."""

    def __init__(self, attack: Attack) -> None:
        self.steps = 0
        self._channel, self._stub = stub_for(attack.address)
        self._request = open_request(attack.vocabulary_id, regex("a{60000}"))
        self._epoch = self._stub.OpenSession(self._request).epoch
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            step = step_message(self._request.session_id, self._epoch, self.steps, [97])
            answer = self._stub.Step(session_pb2.StepRequest(step=step), timeout=30)
            assert answer.directive.position == self.steps + 1
            self.steps += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        self._channel.close()
        return self.steps


@pytest.fixture(scope="module")
def aftermath() -> Aftermath:
    with attacked_daemon() as attack:
        before = attack.rss()
        witness = Witness(attack)
        outcomes = attack.send(corpus())
        steps = witness.stop()
        after = 0
        for _ in range(10):  # freed memory goes back to the system a second after the last large grammar
            attack.evict()
            time.sleep(1.5)
            after = attack.rss()
            if after < before + (50 << 20):
                break
        return Aftermath(outcomes, (attack.pid, attack.answers_as()), (before, after), steps, attack.children())


def test_the_corpus_has_200_grammars_and_more_of_every_kind(aftermath):
    kinds = Counter(outcome.hostile.kind for outcome in aftermath.outcomes)
    assert sum(kinds.values()) >= 200
    declared = {field.name for field in grammar_pb2.Grammar.DESCRIPTOR.oneofs_by_name["source"].fields}
    assert set(kinds) == declared
    assert len({outcome.hostile.name for outcome in aftermath.outcomes}) == sum(kinds.values())


def test_every_grammar_is_answered_within_its_limit_by_ok_or_a_typed_refusal(aftermath):
    for outcome in aftermath.outcomes:
        assert outcome.verdict in {"OK", *_REFUSALS}, outcome
        assert outcome.seconds < 2 * COMPILE_SECONDS + _SLACK_SECONDS, outcome
        assert outcome.verdict == "OK" or len(outcome.message) > 10, outcome


def test_what_compiles_goes_50_steps_or_to_its_end_or_to_a_typed_limit(aftermath):
    compiled = [outcome for outcome in aftermath.outcomes if outcome.verdict == "OK"]
    assert len(compiled) > 50
    for outcome in compiled:
        assert outcome.ended in _ENDS, outcome
        assert outcome.steps == STEPS or outcome.ended != "steps", outcome


def test_the_corpus_reaches_each_limit_that_it_was_made_for(aftermath):
    limits = Counter(outcome.limit for outcome in aftermath.outcomes)
    assert limits["seconds"] > 5
    assert limits["stack_bytes"] > 0


def test_the_daemon_is_the_same_process_and_its_memory_is_back(aftermath):
    assert aftermath.pids[0] == aftermath.pids[1]
    before, after = aftermath.memory
    assert after - before < 50 << 20


def test_no_child_is_left_behind(aftermath):
    assert aftermath.children == IDLE


def test_another_session_was_stepped_all_the_while(aftermath):
    assert aftermath.witness_steps > 100


def test_a_caller_that_goes_away_ends_its_compilation():
    with attacked_daemon("--compile-seconds", "60", "--max-compile-seconds", "60") as attack:
        slow = grammar_pb2.Grammar(choice=grammar_pb2.Choice(texts=[b"%d" % i for i in range(200_000)]))
        with pytest.raises(grpc.RpcError) as caught:
            attack.compile(slow, timeout=0.5)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        end = time.monotonic() + 10
        while attack.children() != IDLE:
            assert time.monotonic() < end
            time.sleep(0.05)
