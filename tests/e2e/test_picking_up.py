"""Any runner can pick up any session at any token, and draws what the first would have drawn."""

import secrets

import numpy as np
import pytest
from constraintd_client import ConstraintClient, gbnf, json_schema, lazy, regex, triggers

from constraintd.v1 import sampler_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH, daemon_process
from tests.toy_runner import generate

PROMPT = [*b"once upon a time upon a time"]
CONSTRAINTS = {
    "none": None,
    "regex": regex("[a-z ]{10,60}"),
    "schema": json_schema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    "gbnf": gbnf('root ::= ("(" root ")" | [a-z])*'),
    "lazy": lazy(regex("<a>[a-z]{1,3}</a>"), triggers.word("<"), rearm=True),
}
SAMPLERS = {
    "plain": sampler_pb2.SamplerConfig(),
    "mirostat and penalties": sampler_pb2.SamplerConfig(
        stages=[{"temperature": {"temperature": 1.3}}, {"mirostat_v2": {"tau": 4.0}}],
        window_penalty={"repetition": 1.3, "presence": 0.2},
        ngram_penalty={"window": 32, "max_count": 0.5, "ignored": {}},
    ),
    "truncated": sampler_pb2.SamplerConfig(
        stages=[{"top_k": {"k": 60}}, {"typical_p": {"p": 0.9}}, {"min_p": {"p": 0.01}}], stop_strings=[b"zq"]
    ),
}


def open_session(client, constraint, sampler):
    vocabulary = client.register_vocabulary("token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])
    config = sampler_pb2.SamplerConfig()
    config.CopyFrom(sampler)
    config.seed = 7
    config.min_tokens = 30
    return client.open_session(vocabulary.vocabulary_id, constraint, sampler=config, prompt_tokens=PROMPT)


@pytest.fixture(params=CONSTRAINTS, ids=list(CONSTRAINTS))
def constraint(request):
    return CONSTRAINTS[request.param]


@pytest.fixture(params=SAMPLERS, ids=list(SAMPLERS))
def sampler(request):
    return SAMPLERS[request.param]


@pytest.fixture(scope="module")
def other_daemon():
    with daemon_process() as address:
        yield address


def test_the_same_tokens_come_however_often_the_session_changes_hands(daemon, other_daemon, constraint, sampler):
    with ConstraintClient(daemon) as client, ConstraintClient(other_daemon) as other:
        expected = generate(client, open_session(client, constraint, sampler), PROMPT, 40)

        # Another runner takes over.
        session = open_session(client, constraint, sampler)
        tokens = generate(client, session, PROMPT, 7)
        with ConstraintClient(daemon) as second:
            resumed = second.resume_session(session.session_id)
            assert resumed.model_input() == [*PROMPT, *tokens]
            tokens += generate(second, resumed.session, resumed.model_input(), 6)

            # It goes on in a fork,
            fork = second.fork_session(session.session_id, len(tokens))
            forked = generate(second, fork, [*PROMPT, *tokens], 40 - len(tokens))
            assert tokens + forked == expected

            # and the parent in another daemon.
            open_session(other, constraint, sampler)
            moved = other.import_session(second.export_session(session.session_id))
            tokens += generate(other, moved, [*PROMPT, *tokens], 40 - len(tokens))
        assert tokens == expected


def test_a_rollback_leads_to_the_same_tokens_again(daemon, constraint, sampler):
    with ConstraintClient(daemon) as client:
        session = open_session(client, constraint, sampler)
        first = generate(client, session, PROMPT, 25)
        client.rollback_session(session, 9)
        assert first[:9] + generate(client, session, [*PROMPT, *first[:9]], len(first) - 9) == first


def test_a_new_seed_in_a_fork_changes_only_the_draws(daemon, constraint, sampler):
    with ConstraintClient(daemon) as client:
        session = open_session(client, constraint, sampler)
        generate(client, session, PROMPT, 12)
        same, other = (client.fork_session(session.session_id, 12, seed=seed).directive for seed in (7, 8))
    assert same.draw != other.draw
    assert np.array_equal(same.mask, other.mask)
    assert (same.mu, same.settled_bytes) == (other.mu, other.settled_bytes)
    assert (same.adjustments is None) == (other.adjustments is None)
    if same.adjustments is not None:
        assert np.array_equal(same.adjustments.ids, other.adjustments.ids)
        assert np.array_equal(same.adjustments.scales, other.adjustments.scales)
        assert np.array_equal(same.adjustments.offsets, other.adjustments.offsets)


def test_unseeded_sessions_differ(daemon):
    with ConstraintClient(daemon) as client:
        vocabulary = client.register_vocabulary(
            "token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG]
        )
        one, other = (
            client.open_session(vocabulary.vocabulary_id, None, session_id=secrets.token_bytes(16)) for _ in range(2)
        )
        assert one.seed != other.seed
        assert generate(client, one, [], 20) != generate(client, other, [], 20)
