"""The client against a live daemon, sync and asyncio."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from constraintd_client import (
    ConstraintClient,
    InvalidGrammar,
    PositionGap,
    SessionHandle,
    StaleEpoch,
    TokenNotAllowed,
    UnknownSession,
    allowed_ids,
    apply_mask,
    choice,
    json_schema,
    lark,
    regex,
    sampler_config,
)
from constraintd_client.aio import AsyncConstraintClient

from tests.daemon_process import daemon_process

BYTES = [bytes([value]) for value in range(256)]
EOG, TOOL, WIDTH = 256, 257, 290


@pytest.fixture(scope="module")
def address():
    with daemon_process() as address:
        yield address


@pytest.fixture
def client(address):
    with ConstraintClient(address) as client:
        yield client


@pytest.fixture
def vocabulary(client):
    return client.register_token_table(
        [*BYTES, None, None], special={EOG: "</s>", TOOL: "<tool>"}, eog_ids=[EOG], logits_width=WIDTH
    )


def test_a_table_comes_back_as_it_was_registered(client, vocabulary):
    table = client.token_table(vocabulary.vocabulary_id)
    assert table.tokens[:256] == tuple(BYTES)
    assert table.special == {EOG: "</s>", TOOL: "<tool>"}
    assert (table.info.logits_width, table.info.eog_ids) == (WIDTH, (EOG,))


def test_greedy_over_a_stream_writes_what_the_schema_asks_for(client, vocabulary):
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [12, 7]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    session = client.open_session(vocabulary.vocabulary_id, json_schema(schema), sampler=sampler_config(max_tokens=99))
    # Logits that like closing and digits, and dislike white space.
    logits = np.array([-9.0 if chr(i).isspace() else float(i == ord("}")) for i in range(WIDTH)], dtype=np.float32)
    text = b""
    with client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
        while session.directive.finish is None:
            row = logits.copy()
            apply_mask(row, session.directive.mask)
            token = int(row.argmax())
            assert token in allowed_ids(session.directive.mask)
            text += BYTES[token]
            stream.send([(session, [token], [0.0])])
            stream.take(session, 10.0)
    assert session.directive.finish.reason == "GRAMMAR_EXHAUSTED"
    assert session.directive.settled_bytes == len(text)
    assert set(json.loads(text)) == {"ok", "n"}


def test_many_sessions_on_one_stream_each_keep_their_own_place(client, vocabulary):
    texts = [f"text number {i} of many" for i in range(40)]
    sessions = [client.open_session(vocabulary.vocabulary_id, choice([text])) for text in texts]
    with client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
        written = [""] * len(texts)
        live = set(range(len(texts)))
        while live:
            steps = []
            for i in live:
                [token] = allowed_ids(sessions[i].directive.mask)
                written[i] += chr(token)
                steps.append((sessions[i], [int(token)], [0.0]))
            stream.send(steps)
            for i in list(live):
                if stream.take(sessions[i], 10.0).finish is not None:
                    live.discard(i)
    assert written == texts


def test_refusals_arrive_as_their_own_classes(client, vocabulary):
    with pytest.raises(InvalidGrammar, match="unknown name"):
        client.compile_grammar(vocabulary.vocabulary_id, lark("start: missing"))
    session = client.open_session(vocabulary.vocabulary_id, regex("ab"))
    with pytest.raises(TokenNotAllowed) as illegal:
        client.step(session, [ord("b")], [0.0])
    assert illegal.value.illegal_index == 0
    ahead = SessionHandle(session.session_id, session.epoch, session.seed, replace(session.directive, position=5))
    with pytest.raises(PositionGap) as gap:
        client.step(ahead, [ord("a")], [0.0])
    assert gap.value.expected_position == 0
    fenced = SessionHandle(session.session_id, session.epoch ^ 1, session.seed, session.directive)
    with pytest.raises(StaleEpoch):
        client.step(fenced, [ord("a")], [0.0])
    assert client.close_session(session.session_id)
    assert not client.close_session(session.session_id)
    with pytest.raises(UnknownSession):
        client.get_session(session.session_id)


def test_a_stream_that_is_reopened_sends_unanswered_steps_again(client, vocabulary):
    session = client.open_session(vocabulary.vocabulary_id, regex("a{30}"))
    with client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
        for position in range(29):
            stream.send([(session, [97], [0.0])])
            if position % 3 == 0:
                stream.reconnect()
            assert stream.take(session, 10.0).position == position + 1
    assert list(client.get_session(session.session_id).tokens) == [97] * 29


async def test_the_asyncio_client_does_the_same(address):
    async with AsyncConstraintClient(address) as client:
        vocabulary = await client.register_token_table(BYTES, eog_ids=[0], logits_width=256)
        session = await client.open_session(vocabulary.vocabulary_id, choice(["yes"]))
        async with await client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
            for letter in b"yes":
                assert allowed_ids(session.directive.mask).tolist() == [letter]
                stream.send([(session, [letter], [0.0])])
                directive = await stream.take(session, 10.0)
        assert directive.finish.reason == "GRAMMAR_EXHAUSTED"
