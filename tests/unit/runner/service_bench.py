"""A generation service over real gRPC, with a scripted model and daemon behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
from constraintd_client import Directive, SessionHandle, TokenTable, VocabularyInfo, greedy, sampler_config
from constraintd_client.errors import ConstraintdError, UnknownSession
from constraintd_client.generation import Generation, GenerationClient
from constraintd_client.session_changes import Resumed
from constraintd_runner.decode import DecodeLoop
from constraintd_runner.service import GenerationService, ServedModel
from numpy.typing import NDArray

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.runner.v1 import generation_service_pb2_grpc
from constraintd.v1 import sampler_pb2, session_pb2
from tests.unit.runner.scripted import Answer, CountingDecoder, ScriptedSource, until

CONTEXT = 20
# Token i spells the i-th of these; 11 and 12 are the two halves of U+00E9.
SPELLINGS = [
    *(letter.encode() for letter in "abcdefghijk"),
    b"\xc3",
    b"\xa9",
    *(b"." for _ in range(24)),
    b"",
    b"",
    b"",
]
SPECIAL = {37: "<think>", 38: "<tool>", 39: "</s>"}


class ScriptedDaemon:
    """Opens sessions by the script of the test, and remembers what it was asked for."""

    vocabulary = VocabularyInfo("f" * 64, 40, 40, (39,), None, False)

    def __init__(self, source: ScriptedSource) -> None:
        self.source = source
        self.script: Callable[[int, int], Answer] = until(3)
        self.first: Directive | None = None
        self.refusal: ConstraintdError | None = None
        self.in_force: Callable[[sampler_pb2.SamplerConfig], sampler_pb2.SamplerConfig | None] = lambda asked: None
        self.samplers: list[sampler_pb2.SamplerConfig] = []
        self.reasoning_ends: list[session_pb2.ReasoningEnd | None] = []
        self.session_ids: list[bytes | None] = []
        self.resumed: dict[bytes, Resumed] = {}

    def open_session(
        self,
        constraint: session_pb2.Constraint,
        sampler: sampler_pb2.SamplerConfig,
        prompt_tokens: Sequence[int],
        reasoning_end: session_pb2.ReasoningEnd | None,
        *,
        session_id: bytes | None,
        wanted: Callable[[], bool],
    ) -> SessionHandle:
        self.session_ids.append(session_id)
        self.reasoning_ends.append(reasoning_end)
        if self.refusal is not None:
            raise self.refusal
        self.samplers.append(sampler)
        session = self.source.open(self.script)
        session.sampler = self.in_force(sampler)
        if self.first is not None:
            session.directive = self.first
        return session

    def resume_session(self, session_id: bytes, *, wanted: Callable[[], bool]) -> Resumed:
        if session_id not in self.resumed:
            raise UnknownSession("no such session", reason="UNKNOWN_SESSION")
        found = self.resumed[session_id]
        self.source.scripts[session_id] = self.script
        return found

    def close_now(self, session_id: bytes, *, wanted: Callable[[], bool]) -> bool:
        return self.resumed.pop(session_id, None) is not None

    def close_session(self, session: SessionHandle) -> None:
        self.source.close_session(session)


class Bench:
    """A runner whose model counts and whose daemon is scripted."""

    def __init__(self, slots: int = 2, max_calls: int = 4) -> None:
        self.decoder = CountingDecoder(slots)
        self.decoder.fail = lambda: time.sleep(0.002)  # as long as a forward pass takes, so that nobody is starved
        self.source = ScriptedSource()
        self.daemon = ScriptedDaemon(self.source)
        self.loop = DecodeLoop(self.decoder, self.source)
        service = GenerationService(
            ServedModel("counting", CONTEXT, slots, "CPUExecutionProvider", "9.9"),
            encode_prompt=_ids_of,
            table=TokenTable(ScriptedDaemon.vocabulary, tuple(SPELLINGS), SPECIAL),
            directives=self.daemon,  # type: ignore[arg-type]
            loop=self.loop,
            max_calls=max_calls,
        )
        self.server = grpc.server(ThreadPoolExecutor(16))
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server(service, self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.loop.start()
        self.server.start()
        self.client = GenerationClient(f"127.0.0.1:{port}")

    def generate(
        self, *prompt: int, sampler: sampler_pb2.SamplerConfig | None = None, logprobs: int | None = None
    ) -> Generation:
        return self.client.generate(
            prompt or [0],
            constraint=None,
            sampler=sampler_config(greedy()) if sampler is None else sampler,
            logprobs=logprobs,
        )

    def close(self) -> None:
        self.client.close()
        self.server.stop(0).wait()
        self.loop.stop()


def _ids_of(request: pb.GenerateRequest) -> NDArray[np.int64]:
    return np.array(request.tokens.ids, dtype=np.int64)
