"""The daemon's unary calls, over real gRPC."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from constraintd_client import (
    ConstraintClient,
    InvalidGrammar,
    KeywordReport,
    Unavailable,
    UnknownVocabulary,
    greedy,
    json_schema,
    reasoning_end,
    regex,
    sampler_config,
)

from clients.python.tests.scripted_daemon import WIDTH, RunningDaemon


def test_a_vocabulary_is_uploaded_from_a_file(server: RunningDaemon, client: ConstraintClient, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(b"{}")
    info = client.register_vocabulary("tokenizer_json", file, logits_width=WIDTH, eog_ids=[2, 3])
    assert (info.vocabulary_id, info.logits_width, info.eog_ids, info.bos_id) == ("v", WIDTH, (2, 3), None)
    assert server.daemon.uploads[0][1].chunk.data == b"{}"


def test_a_missing_file_is_the_callers_error(client: ConstraintClient, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        client.register_vocabulary("tokenizer_json", tmp_path / "none")


def test_a_token_table_is_uploaded_and_read_back(server: RunningDaemon, client: ConstraintClient) -> None:
    client.register_token_table([b"a", None], special={2: "<s>"}, eog_ids=[2])
    assert server.daemon.uploads[0][1].chunk.data == b"CDTABLE\x01\0\x01\0\0\0a\x02\0\0\0\0\x01\x03\0\0\0<s>"
    table = client.token_table("v")
    assert table.tokens == (b"ab", b"", b"\xff", b"")
    assert table.special == {3: "</s"}
    assert table.info.token_count == 4


def test_a_refusal_has_its_class_code_and_place(client: ConstraintClient) -> None:
    assert client.compile_grammar("v", regex("a")) == "g"
    with pytest.raises(InvalidGrammar) as caught:
        client.compile_grammar("v", regex("("))
    assert caught.value.location == "1:1"
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(UnknownVocabulary):
        client.token_table("other")


def test_a_report_says_what_is_made_of_each_keyword(client: ConstraintClient) -> None:
    expected = (KeywordReport("/title", "title", "ANNOTATION", "says nothing"),)
    assert client.compile_report("v", json_schema({"title": "t"})) == expected


def test_a_session_says_where_its_reasoning_ends(server: RunningDaemon, client: ConstraintClient) -> None:
    client.open_session("v", "g", reasoning_end=reasoning_end("</think>"))
    client.open_session("v", "g")
    reasoning, none = server.daemon.opened
    assert list(reasoning.reasoning_end.texts) == [b"</think>"]
    assert not none.HasField("reasoning_end")


def test_a_session_opens_steps_and_closes(server: RunningDaemon, client: ConstraintClient) -> None:
    config = sampler_config(greedy(), seed=5)
    session = client.open_session("v", "g", sampler=config, prompt_tokens=[4, 5])
    request = server.daemon.opened[0]
    assert len(request.session_id) == 16
    assert (request.constraint.grammar_id, request.sampler.seed, list(request.prompt_tokens)) == ("g", 5, [4, 5])
    assert (session.epoch, session.seed, session.position) == (7, 11, 0)
    assert client.step(session, [1, 3], [0.0, 0.0]).position == 2
    assert session.position == 2
    assert client.close_session(session.session_id) is True
    assert client.close_session(bytes(16)) is False


def test_a_session_keeps_the_id_that_its_caller_chose(client: ConstraintClient) -> None:
    assert client.open_session("v", None, session_id=bytes(16)).session_id == bytes(16)


def test_sessions_are_listed_over_all_pages(client: ConstraintClient) -> None:
    ids = sorted(client.open_session("v", None).session_id for _ in range(5))
    assert [session.session_id for session in client.list_sessions()] == ids


def test_a_server_that_is_not_there_is_unavailable(server: RunningDaemon) -> None:
    server.stop()
    with ConstraintClient(server.target, timeout=5) as client, pytest.raises(Unavailable):
        client.server_info()
