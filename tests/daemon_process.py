"""A real daemon in a process of its own, for tests, and a byte vocabulary to talk to it with."""

from __future__ import annotations

import secrets
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from constraintd.v1 import (
    constraint_service_pb2_grpc,
    sampler_pb2,
    session_pb2,
    vocabulary_pb2,
)

# Ids 0 to 255 are the bytes, 256 and 258 end the text, 257 is a special token that spells "<tool>", 259 is a hole,
# 260 is the text "<tool>", 261 is "ab", 262 is a second "a"; the logits row is wider than that.
EOG, TOOL, SECOND_EOG, HOLE, TOOL_TEXT, AB, SECOND_A = 256, 257, 258, 259, 260, 261, 262
WIDTH = 300


def record(kind: int, content: bytes) -> bytes:
    """One id of a packed token table: kind 0 text, 1 special, 2 unused."""
    return struct.pack("<BI", kind, len(content)) + content


BYTE_TABLE = b"CDTABLE\x01" + b"".join(
    [
        *[record(0, bytes([value])) for value in range(256)],
        record(1, b"</s>"),
        record(1, b"<tool>"),
        record(1, b"<|end|>"),
        record(2, b""),
        record(0, b"<tool>"),
        record(0, b"ab"),
        record(0, b"a"),
    ]
)


@contextmanager
def daemon_process(*arguments: str) -> Iterator[str]:
    """`constraintd serve` on a Unix socket; gives its address, and ends the process by SIGTERM."""
    folder = Path(tempfile.mkdtemp(prefix="constraintd-"))
    address = f"unix:{folder}/daemon.sock"
    command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", address, "--drain-seconds", "0.5"]
    if "--store" not in arguments:
        command += ["--store", "memory"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line == f"listening on {address}\n", (line, process.stderr.read() if not line else "")
        yield address
        assert process.poll() is None, "the daemon died during the test"
        process.terminate()
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0, log
        assert "Traceback" not in log, log
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def stub_for(address: str) -> tuple[grpc.Channel, constraint_service_pb2_grpc.ConstraintServiceStub]:
    """A channel of its own and a stub on it."""
    options = [
        ("grpc.max_receive_message_length", 64 << 20),
        ("grpc.max_send_message_length", 128 << 20),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    channel = grpc.insecure_channel(address, options=options)
    return channel, constraint_service_pb2_grpc.ConstraintServiceStub(channel)


def upload(
    table: bytes, *, width: int | None = WIDTH, eog_ids: Sequence[int] = (EOG, SECOND_EOG)
) -> Iterator[vocabulary_pb2.RegisterVocabularyRequest]:
    """The messages that register a token table."""
    yield vocabulary_pb2.RegisterVocabularyRequest(
        header=vocabulary_pb2.VocabularyHeader(
            format=vocabulary_pb2.VOCABULARY_FORMAT_TOKEN_TABLE, logits_width=width, eog_ids=eog_ids
        )
    )
    for begin in range(0, len(table), 1 << 20):
        yield vocabulary_pb2.RegisterVocabularyRequest(
            chunk=vocabulary_pb2.VocabularyChunk(
                file=vocabulary_pb2.VOCABULARY_FILE_TOKENIZER, data=table[begin : begin + (1 << 20)]
            )
        )


def register_bytes(stub: constraint_service_pb2_grpc.ConstraintServiceStub) -> str:
    """Registers BYTE_TABLE; gives its vocabulary id."""
    return stub.RegisterVocabulary(upload(BYTE_TABLE)).vocabulary.vocabulary_id


def regex(pattern: str) -> session_pb2.Constraint:
    """A constraint from a regular expression."""
    constraint = session_pb2.Constraint()
    constraint.grammar.regex = pattern.encode()
    return constraint


UNCONSTRAINED = session_pb2.Constraint(unconstrained=session_pb2.Unconstrained())


def open_request(
    vocabulary_id: str,
    constraint: session_pb2.Constraint,
    *,
    session_id: bytes | None = None,
    prompt_tokens: Sequence[int] = (),
    **sampler: object,
) -> session_pb2.OpenSessionRequest:
    """An OpenSession request; keywords are SamplerConfig's fields."""
    return session_pb2.OpenSessionRequest(
        session_id=secrets.token_bytes(16) if session_id is None else session_id,
        vocabulary_id=vocabulary_id,
        constraint=constraint,
        prompt_tokens=prompt_tokens,
        sampler=sampler_pb2.SamplerConfig(**sampler),  # type: ignore[arg-type]
    )


def step_message(
    session_id: bytes, epoch: int, position: int, tokens: Sequence[int], surprisals: Sequence[float] | None = None
) -> session_pb2.Step:
    """A step; surprisals default to 1 bit each."""
    return session_pb2.Step(
        session_id=session_id,
        epoch=epoch,
        position=position,
        tokens=tokens,
        surprisals=[1.0] * len(tokens) if surprisals is None else surprisals,
    )


def allowed(directive: session_pb2.Directive) -> list[int]:
    """The ids whose bit is set, read from the wire bytes by hand."""
    dense = directive.mask.dense
    return [token for token in range(8 * len(dense)) if dense[token // 8] >> (token % 8) & 1]
