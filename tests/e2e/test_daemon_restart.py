"""The daemon is killed, and another on the same store goes on with every session as if nothing had happened."""

import os
import time

import numpy as np
import pytest
from constraintd_client import ConstraintClient, gbnf, json_schema, lazy, regex, sampler_config, triggers
from constraintd_client.errors import AlreadyExists, PositionConflict, StaleEpoch, UnknownSession

from constraintd.v1 import sampler_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH
from tests.killable_daemon import KillableDaemon
from tests.toy_runner import generate

PROMPT = [*b"once upon a time"]


@pytest.fixture(params=["relaxed", "strict"])
def killable(request, tmp_path):
    store = f"sqlite:{tmp_path}/sessions.sqlite"
    with KillableDaemon(tmp_path, store, "--durability", request.param) as daemon:
        yield daemon


@pytest.fixture
def client(killable):
    with ConstraintClient(killable.address) as client:
        yield client


def register(client):
    found = client.register_vocabulary("token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
    return found.vocabulary_id


def back(killable, client):
    killable.restart()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            return client.server_info()
        except Exception:
            time.sleep(0.05)
    raise AssertionError("the daemon did not come back")


SESSIONS = {
    "none": None,
    "regex": regex("[a-z ]{10,60}"),
    "schema": json_schema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    "gbnf": gbnf('root ::= ("(" root ")" | [a-z])*'),
    "lazy": lazy(regex("<a>[a-z]{1,3}</a>"), triggers.word("<"), rearm=True),
}


def test_every_session_goes_on_with_the_same_epoch_masks_draws_and_penalties(killable, client):
    sampler = sampler_pb2.SamplerConfig(
        stages=[{"mirostat_v2": {"tau": 4.0}}],
        window_penalty={"repetition": 1.3},
        ngram_penalty={"window": 32, "max_count": 0.5, "ignored": {}},
        seed=7,
        min_tokens=30,
    )
    vocabulary_id = register(client)
    expected, sessions, tokens = {}, {}, {}
    for name, constraint in SESSIONS.items():
        whole = client.open_session(vocabulary_id, constraint, sampler=sampler, prompt_tokens=PROMPT)
        expected[name] = generate(client, whole, PROMPT, 30)
        sessions[name] = client.open_session(vocabulary_id, constraint, sampler=sampler, prompt_tokens=PROMPT)
        tokens[name] = generate(client, sessions[name], PROMPT, 8)
    for _ in range(2):
        back(killable, client)
        for name, session in sessions.items():
            tokens[name] += generate(client, session, [*PROMPT, *tokens[name]], 11)
    assert tokens == expected


def test_what_was_answered_is_there_and_what_was_not_can_be_sent_again(killable, client):
    session = client.open_session(register(client), regex("[ab]*"))
    client.step(session, [97], [0.5])
    before = session.directive
    client.step(session, [98], [0.25])
    after = session.directive
    back(killable, client)
    session.directive = before
    client.step(session, [98], [0.75])  # the answer might have been lost: a repeat gets the same one
    assert (session.directive.position, session.directive.draw) == (after.position, after.draw)
    kept = client.get_session(session.session_id)
    assert (list(kept.tokens), list(kept.surprisals)) == ([97, 98], [0.5, 0.25])
    session.directive = before
    with pytest.raises(PositionConflict):
        client.step(session, [97], [0.5])


def test_fencing_and_request_ids_outlive_the_daemon(killable, client):
    vocabulary_id = register(client)
    session_id = os.urandom(16)
    opened = client.open_session(vocabulary_id, regex("[ab]*"), session_id=session_id)
    client.step(opened, [97], [0.5])
    request_id = os.urandom(16)
    first = client.resume_session(session_id).session
    place = (first.epoch, first.directive)
    client.rollback_session(first, 0, request_id=request_id)
    answer = (first.epoch, first.seed, first.directive.draw)
    client.step(first, [98], [0.5])
    back(killable, client)
    with pytest.raises(StaleEpoch):
        client.step(opened, [97], [0.5])
    # The repeat gets the first answer, though more has happened since.
    again = client.resume_session(session_id).session
    again.epoch, again.directive = place
    client.rollback_session(again, 0, request_id=request_id)
    assert (again.epoch, again.seed, again.directive.draw) == answer
    # So does the opening.
    assert client.open_session(vocabulary_id, regex("[ab]*"), session_id=session_id).position == 1
    with pytest.raises(AlreadyExists):
        client.open_session(vocabulary_id, regex("b"), session_id=session_id)


def test_turns_updates_forks_and_grammars_by_id_come_back(killable, client):
    vocabulary_id = register(client)
    grammar_id = client.compile_grammar(vocabulary_id, regex("only (here)+"))
    session = client.open_session(vocabulary_id, grammar_id, prompt_tokens=PROMPT)
    for byte in b"only ":
        client.step(session, [byte], [1.0])
    fork = client.fork_session(session.session_id, 2)
    client.update_session(session, constraint=regex("[xy]+"))
    client.step(session, [ord("x")], [1.0], passes=[len(PROMPT) + 5])
    client.update_session(session, new_turn=[1, 2], constraint=grammar_id)
    masks = [np.array(each.directive.mask) for each in (session, fork)]
    back(killable, client)
    resumed = client.resume_session(session.session_id)
    assert resumed.model_input() == [*PROMPT, *b"only x", 1, 2]
    assert resumed.passes == (len(PROMPT) + 5,)
    assert np.array_equal(resumed.session.directive.mask, masks[0])
    assert np.array_equal(client.resume_session(fork.session_id).session.directive.mask, masks[1])


def test_a_finish_stays_a_finish_and_a_closed_session_stays_closed(killable, client):
    vocabulary_id = register(client)
    done = client.open_session(vocabulary_id, json_schema({"enum": [1]}))
    client.step(done, [ord("1")], [1.0])
    none = client.open_session(vocabulary_id, regex("a"), sampler=sampler_config(max_tokens=0))
    gone = client.open_session(vocabulary_id, regex("a"))
    client.close_session(gone.session_id)
    back(killable, client)
    finish = client.resume_session(done.session_id).session.directive.finish
    assert (finish.reason, finish.schema_satisfied) == ("GRAMMAR_EXHAUSTED", True)
    assert client.resume_session(none.session_id).session.directive.finish.reason == "LENGTH"
    with pytest.raises(UnknownSession):
        client.resume_session(gone.session_id)
    assert [each.session_id for each in client.list_sessions()] == sorted([done.session_id, none.session_id])
