"""Opens many sessions at a daemon, and steps them in batches over one Decode stream, for the benchmark `sessions`."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from constraintd_client import ConstraintClient, SessionHandle, constraint, json_schema
from constraintd_client.directive import directive_of
from constraintd_client.samplers import greedy, sampler_config

from benchmarks.sessions_text import SCHEMA, WIDTH, Walk
from constraintd.v1 import constraint_service_pb2_grpc, session_pb2

BATCH = 32
_IN_FLIGHT = 16
_CONSTRAINT = constraint(json_schema(SCHEMA))
_SAMPLER = sampler_config(greedy())


class Load:
    """One client of one daemon: its sessions follow the walk. Close it after use."""

    def __init__(self, address: str, walk: Walk) -> None:
        self._walk = walk
        self._client = ConstraintClient(address, timeout=60.0)
        info = self._client.register_vocabulary(
            "tokenizer_json",
            walk.folder / "tokenizer.json",
            logits_width=WIDTH,
            generation_config=walk.folder / "generation_config.json",
        )
        self._vocabulary_id = info.vocabulary_id
        self._stream = self._client.decode_stream(info.vocabulary_id, info.logits_width)
        self._channel = grpc.insecure_channel(address)

    def open(self, count: int, done: Callable[[int], None] = lambda _: None) -> list[SessionHandle]:
        """Opens sessions with a prompt of 20 tokens, some calls at a time."""
        call = constraint_service_pb2_grpc.ConstraintServiceStub(self._channel).OpenSession
        prompt = (self._walk.prompt * 20)[:20]
        waiting: deque[tuple[bytes, Any]] = deque()
        opened: list[SessionHandle] = []
        for number in range(count + _IN_FLIGHT):
            if number >= _IN_FLIGHT and waiting:
                session_id, future = waiting.popleft()
                answer = future.result()
                directive = directive_of(answer.directive, answer.ByteSize())
                opened.append(SessionHandle(session_id, answer.epoch, answer.seed, directive))
                done(len(opened))
            if number < count:
                request = session_pb2.OpenSessionRequest(
                    session_id=os.urandom(16),
                    vocabulary_id=self._vocabulary_id,
                    constraint=_CONSTRAINT,
                    sampler=_SAMPLER,
                    prompt_tokens=prompt,
                )
                waiting.append((request.session_id, call.future(request, timeout=120)))
        return opened

    def step(self, sessions: Sequence[SessionHandle]) -> list[float]:
        """One Step of each, as one batch; the microseconds from the sending until each answer was taken."""
        tokens = self._walk.tokens
        reports = [(each, (tokens[each.position],), (1.5,), (1 if each.position else 20,)) for each in sessions]
        began = time.perf_counter()
        self._stream.send(reports)
        took = []
        for each in sessions:
            self._stream.take(each, 60.0)
            took.append((time.perf_counter() - began) * 1e6)
        return took

    def step_all(self, sessions: Sequence[SessionHandle]) -> list[float]:
        """One Step of each, in batches, one after the other."""
        return [us for at in range(0, len(sessions), BATCH) for us in self.step(sessions[at : at + BATCH])]

    def close(self) -> None:
        """Ends its connections; the sessions stay."""
        self._stream.close()
        self._client.close()
        self._channel.close()
