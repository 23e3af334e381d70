"""Sends hostile grammars to a real daemon and records what becomes of each, and of the daemon."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from google.rpc import error_details_pb2, status_pb2

from constraintd.v1 import constraint_service_pb2_grpc, grammar_pb2, session_pb2
from tests.daemon_process import EOG, SECOND_EOG, allowed, daemon_process, open_request, register_bytes, stub_for
from tests.daemon_process import step_message as step
from tests.fault.hostile import Hostile

COMPILE_SECONDS = 0.5
"""The daemon's time limit for one compilation in these tests."""
STEPS = 50
# The cache holds next to nothing, so that what an attack has compiled goes with the next grammars.
FLAGS = (
    *("--max-grammar-bytes", str(16 << 20)),
    *("--max-grammar-cache-bytes", str(1 << 20)),
    *("--compile-seconds", str(COMPILE_SECONDS)),
    *("--compile-memory-bytes", str(256 << 20)),
    *("--max-compilations", "2"),
)
_AT_ONCE = 2
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one grammar. `verdict` is OK or the error's reason; `limit` what it went over, if anything."""

    hostile: Hostile
    verdict: str
    limit: str
    message: str
    seconds: float
    """Until CompileGrammar answered."""
    compile_seconds: float
    """In the daemon itself."""
    steps: int
    """Taken in a session in it."""
    slowest_step: float
    ended: str
    """Why no further step was taken: "steps", a finish, NO_TOKEN_ALLOWED or an error's reason."""


class Attack:
    """A daemon that is being attacked. Owns a channel to it."""

    def __init__(self, address: str, stub: constraint_service_pb2_grpc.ConstraintServiceStub) -> None:
        self.address = address
        self.stub = stub
        self.pid = _peer_pid(address)
        self.vocabulary_id = register_bytes(stub)

    def rss(self) -> int:
        """Bytes of memory that the daemon has in use."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def answers_as(self) -> int:
        """The pid that listens at the address now."""
        return _peer_pid(self.address)

    def send(self, corpus: Sequence[Hostile]) -> list[Outcome]:
        """Compiles them all, two at a time, and takes steps in those that compile."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._try, corpus))

    def evict(self) -> None:
        """Compiles ordinary grammars until none of the attack's is kept."""
        for i in range(6):
            self.compile(grammar_pb2.Grammar(regex=b"[a-f]{%d}" % (i + 3)))

    def children(self) -> list[str]:
        """The daemon's descendants: "helper" for its compile helper, "child" for each try under way."""
        helpers = _children(self.pid)
        return ["helper" for _ in helpers] + ["child" for helper in helpers for _ in _children(helper)]

    def compile(self, grammar: grammar_pb2.Grammar, timeout: float = _PATIENCE) -> grammar_pb2.CompileGrammarResponse:
        """CompileGrammar. Raises grpc.RpcError."""
        request = grammar_pb2.CompileGrammarRequest(vocabulary_id=self.vocabulary_id, grammar=grammar)
        return self.stub.CompileGrammar(request, timeout=timeout)

    def _try(self, hostile: Hostile) -> Outcome:
        message = hostile.message()
        began = time.monotonic()
        try:
            answer = self.compile(message)
        except grpc.RpcError as error:
            seconds = time.monotonic() - began
            metadata = metadata_of(error)
            return Outcome(
                *(hostile, _reason(error), metadata.get("limit", ""), str(error.details())),
                *(seconds, 0.0, 0, 0.0, ""),
            )
        seconds = time.monotonic() - began
        constraint = session_pb2.Constraint(grammar_id=answer.grammar_id)
        steps, slowest, ended = self._walk(constraint)
        if ended == "UNKNOWN_GRAMMAR":  # the other worker's grammar has pushed it out of the tiny cache
            steps, slowest, ended = self._walk(session_pb2.Constraint(grammar=message))
        return Outcome(hostile, "OK", "", "", seconds, answer.compile_us / 1e6, steps, slowest, ended)

    def _walk(self, constraint: session_pb2.Constraint) -> tuple[int, float, str]:
        request = open_request(self.vocabulary_id, constraint)
        rng = random.Random(7)
        slowest, position = 0.0, 0
        try:
            opened = self.stub.OpenSession(request, timeout=_PATIENCE)
            directive = opened.directive
            while position < STEPS:
                if not directive.HasField("mask"):
                    kind = directive.WhichOneof("outcome") or "?"
                    return position, slowest, kind
                legal = [token for token in allowed(directive) if token not in (EOG, SECOND_EOG)]
                if not legal:
                    return position, slowest, "complete"
                began = time.monotonic()
                message = session_pb2.StepRequest(
                    step=step(request.session_id, opened.epoch, position, [rng.choice(legal)])
                )
                directive = self.stub.Step(message, timeout=_PATIENCE).directive
                slowest = max(slowest, time.monotonic() - began)
                position += 1
            return position, slowest, "steps"
        except grpc.RpcError as error:
            return position, slowest, _reason(error)
        finally:
            self.stub.CloseSession(session_pb2.CloseSessionRequest(session_id=request.session_id), timeout=_PATIENCE)


@contextmanager
def attacked_daemon(*flags: str) -> Iterator[Attack]:
    """A daemon with tight limits, warm: the vocabulary is registered and ordinary grammars have been compiled."""
    with daemon_process(*FLAGS, *flags) as address, attack_on(address) as attack:
        attack.evict()
        yield attack


@contextmanager
def attack_on(address: str) -> Iterator[Attack]:
    """An attack on a daemon that runs already."""
    channel, stub = stub_for(address)
    with channel:
        yield Attack(address, stub)


def verdict_table(outcomes: Sequence[Outcome]) -> str:
    """A line each, and the counts."""
    lines = []
    for outcome in outcomes:
        what = outcome.verdict if not outcome.limit else f"{outcome.verdict}({outcome.limit})"
        walk = f"{outcome.steps:>3} steps, {outcome.slowest_step * 1e3:6.1f} ms, {outcome.ended}"
        detail = walk if outcome.verdict == "OK" else outcome.message[:70]
        lines.append(
            f"{outcome.hostile.kind:12} {outcome.hostile.name[:52]:52} {outcome.seconds:6.2f} s  {what:30} {detail}"
        )
    counts = Counter(outcome.verdict + (f"({outcome.limit})" if outcome.limit else "") for outcome in outcomes)
    lines.append(f"\n{len(outcomes)} grammars, slowest answer {max(o.seconds for o in outcomes):.2f} s")
    lines += [f"{count:>5} {what}" for what, count in counts.most_common()]
    return "\n".join(lines)


def metadata_of(error: grpc.RpcError) -> dict[str, str]:
    """The metadata of the error's ErrorInfo."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = error_details_pb2.ErrorInfo()
            status_pb2.Status.FromString(value).details[0].Unpack(info)
            return dict(info.metadata)
    return {}


def _reason(error: grpc.RpcError) -> str:
    """The error's reason, or its bare code where nobody gave one: a deadline that passed, a daemon that is gone."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            info = error_details_pb2.ErrorInfo()
            status_pb2.Status.FromString(value).details[0].Unpack(info)
            return info.reason
    return str(error.code().name)


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


def _peer_pid(address: str) -> int:
    """The process that listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address.removeprefix("unix:"))
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])
