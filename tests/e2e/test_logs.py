"""What the logs of a daemon and a runner say, and what they never say: a grammar, a prompt, a text."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from constraintd_client import (
    ConstraintClient,
    ConstraintdError,
    GenerationClient,
    json_schema,
    lark,
    regex,
    sampler_config,
)

from constraintd.v1 import constraint_service_pb2, session_pb2
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH, stub_for
from tests.served_process import ServedProcess
from tests.tiny_decoder import write_genai_folder

JSON_LINES = ("--log-format", "json", "--log-level", "debug", "--log-calls")
SECRET = "Zauberwort"
"""Stands in every grammar, prompt and text of these tests."""


def lines(served: ServedProcess) -> list[dict[str, Any]]:
    """The log, every line of which must be a JSON object."""
    return [json.loads(line) for line in served.log.splitlines()]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedProcess]:
    flags = ("--listen", f"unix:{tmp_path}/d", "--store", f"sqlite:{tmp_path}/sessions", "--drain-seconds", "1")
    with ServedProcess(tmp_path, *flags, *JSON_LINES) as served:
        yield served


def text_tokens(text: str) -> list[int]:
    """As the byte vocabulary spells it."""
    return list(text.encode())


def provoke(client: ConstraintClient, vocabulary_id: str) -> bytes:
    """Says the secret in every way that a daemon may be told it, good and bad; gives a session that it said it in."""
    bad_schema = {"type": "object", "properties": {SECRET: {"type": SECRET}}, "required": [SECRET]}
    for bad in (
        regex(f"({SECRET}"),
        lark(f"start: {SECRET} {SECRET}"),
        json_schema(bad_schema),
        json_schema({"$ref": f"#/{SECRET}"}),
    ):
        with pytest.raises(ConstraintdError):
            client.compile_grammar(vocabulary_id, bad)
    session = client.open_session(
        vocabulary_id,
        regex(f"{SECRET}!"),
        prompt_tokens=text_tokens(SECRET),
        sampler=sampler_config(stop_strings=[SECRET + "?"]),
    )
    with client.decode_stream(vocabulary_id, WIDTH) as stream:
        for token in text_tokens(SECRET):
            stream.send([(session, [token], [0.1])])
            stream.take(session, timeout=10)
        stream.send([(session, text_tokens(SECRET), [0.1] * len(SECRET))])
        with pytest.raises(ConstraintdError):
            stream.take(session, timeout=10)
    with pytest.raises(ConstraintdError):
        client.import_session(SECRET.encode() + client.export_session(session.session_id))
    with pytest.raises(ConstraintdError):
        client.compile_grammar(SECRET, regex("a"))
    return session.session_id


def says_the_secret(log: str) -> bool:
    spelled = ", ".join(map(str, text_tokens(SECRET)[:4]))
    return SECRET.lower() in log.lower() or spelled in log or SECRET.encode().hex() in log


def test_a_session_s_log_has_its_ids_and_nothing_that_was_said(daemon: ServedProcess) -> None:
    with ConstraintClient(daemon.address) as client:
        vocabulary_id = client.register_vocabulary(
            "token_table", BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG]
        ).vocabulary_id
        session_id = provoke(client, vocabulary_id)
    daemon.end()
    ended = [line for line in lines(daemon) if line["message"] == "a call ended"]
    assert all(line["request_id"] and line["method"] and line["code"] for line in ended)
    opened = [line for line in ended if line["method"] == "OpenSession"]
    assert [line["session_id"] for line in opened] == [session_id.hex()]
    refused = [line["reason"] for line in ended if line["method"] == "CompileGrammar"]
    assert refused == ["INVALID_GRAMMAR"] * 4 + ["UNKNOWN_VOCABULARY"]
    assert [line["code"] for line in ended if line["method"] == "Decode"] == ["OK"]
    assert not says_the_secret(daemon.log)


def test_the_caller_s_request_id_is_logged_and_returned_and_a_strange_one_replaced(daemon: ServedProcess) -> None:
    channel, stub = stub_for(daemon.address)

    def returned(sent: str) -> str:
        request = constraint_service_pb2.GetServerInfoRequest()
        _, call = stub.GetServerInfo.with_call(request, metadata=(("x-request-id", sent),))
        return dict(call.trailing_metadata())["x-request-id"]

    assert returned("ann-7") == "ann-7"
    for strange in ("a b", "x" * 129, '"},{"', ""):
        assert len(returned(strange)) == 16
    with pytest.raises(grpc.RpcError) as caught:
        request = session_pb2.GetSessionRequest(session_id=secrets.token_bytes(16))
        stub.GetSession(request, metadata=(("x-request-id", "ann-8"),))
    assert dict(caught.value.trailing_metadata())["x-request-id"] == "ann-8"
    channel.close()
    daemon.end()
    logged = {line.get("request_id"): line for line in lines(daemon)}
    assert logged["ann-7"]["code"] == "OK"
    assert (logged["ann-8"]["code"], logged["ann-8"]["reason"]) == ("NOT_FOUND", "UNKNOWN_SESSION")


def test_a_fault_is_logged_by_its_frames_and_not_by_its_message(tmp_path: Path) -> None:
    script = (
        "import logging\n"
        "from constraintd.serving.logs import set_up_logs\n"
        f"set_up_logs({{form!r}}, 'info')\n"
        "def fail():\n"
        "    try:\n"
        f"        raise KeyError('{SECRET}')\n"
        "    except KeyError as error:\n"
        f"        raise ValueError('{SECRET} too') from error\n"
        "try:\n    fail()\nexcept ValueError:\n    logging.getLogger('x').exception('a handler failed')\n"
    )
    for form in ("json", "text"):
        done = subprocess.run([sys.executable, "-c", script.format(form=form)], capture_output=True, text=True)
        assert SECRET not in done.stderr
        for words in ("a handler failed", "in fail", "builtins.KeyError", "builtins.ValueError"):
            assert words in done.stderr


def test_nobody_who_reads_the_log_can_stop_the_daemon(tmp_path: Path) -> None:
    flags = ["--listen", f"unix:{tmp_path}/d", "--store", "memory", "--no-sandbox", *JSON_LINES]
    command = [sys.executable, "-m", "constraintd.cli", "serve", *flags]
    # Its stderr is a pipe that nobody reads until the end; 64 KiB fit into it.
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    address = daemon.stdout.readline().split()[-1]
    with ConstraintClient(address, timeout=10) as client:
        for _ in range(1500):
            client.server_info()
    daemon.terminate()
    _, log = daemon.communicate(timeout=20)
    assert daemon.returncode == 0
    assert log.count('"method": "GetServerInfo"') == 1500


def test_a_runner_s_log_has_ids_and_nothing_that_was_said(daemon: ServedProcess, tmp_path: Path) -> None:
    model = write_genai_folder(tmp_path / "model", seed=3)
    flags = (
        "--model",
        str(model),
        "--daemon",
        daemon.address,
        "--listen",
        f"unix:{tmp_path}/r",
        "--drain-seconds",
        "1",
    )
    with ServedProcess(tmp_path, *flags, *JSON_LINES, program="constraintd_runner.cli") as runner:
        with GenerationClient(runner.address) as client:
            generation = client.generate(
                f"{SECRET} {SECRET}", constraint=regex(f"{SECRET}+"), sampler=sampler_config(max_tokens=40, seed=1)
            )
            text = "".join(generation)
            assert SECRET in text
            assert generation.session_id is not None
            session_id = generation.session_id.hex()
            with pytest.raises(ConstraintdError):
                client.generate(SECRET, constraint=regex(f"({SECRET}")).wait()
        runner.end()
        told = lines(runner)
        assert not says_the_secret(runner.log)
    daemon.end()
    assert not says_the_secret(daemon.log)
    ended = [line for line in told if line.get("method") == "Generate"]
    assert [line["code"] for line in ended] == ["OK", "INVALID_ARGUMENT"]
    assert ended[0]["session_id"] == session_id
    assert ended[1]["reason"] == "INVALID_GRAMMAR"
    assert {line.get("session_id") for line in lines(daemon) if line.get("method") == "OpenSession"} >= {session_id}
