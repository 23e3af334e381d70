"""A small gRPC proxy that loses, holds up and doubles messages: `python -m tests.fault.proxy --help`.

It passes bytes through, whatever the method; on the way in or out it may, by a seeded plan,

    drop        lose the message: a unary call then fails as if the connection had broken, before or after it was done
    delay       hold it up for a moment
    duplicate   send it twice, the second time at once or much later, when the session may be elsewhere
    cut         break the call, stream and all

What it sends twice is written into the history as a call of its own, whose outcome nobody learns.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from constraintd.v1 import constraint_service_pb2, session_pb2
from tests.fault.history import Call, Recorder

_FAULTY = ("OpenSession", "Step", "ResumeSession", "UpdateSession", "RollbackSession", "CloseSession", "GetSession")
_KINDS = {"OpenSession": "open", "ResumeSession": "resume", "CloseSession": "close", "GetSession": "get"}
_LATE_SECONDS = 0.3
_DELAY_SECONDS = 0.05
# Headers that are the transport's own.
_NOT_PASSED = ("user-agent", "te", "content-type", "grpc-")


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each thing happens to a message, from 0 to 1."""

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    cut: float = 0.0

    def draw(self, rng: random.Random) -> str:
        """What happens to the next message."""
        fates = ["drop", "delay", "duplicate", "cut", "pass"]
        chances = [self.drop, self.delay, self.duplicate, self.cut]
        return rng.choices(fates, [*chances, 1.0 - sum(chances)])[0]


class Proxy(grpc.GenericRpcHandler):
    """Relays every call to one upstream. Used from one event loop."""

    def __init__(self, upstream: grpc.aio.Channel, plan: Plan, rng: random.Random, recorder: Recorder) -> None:
        self._upstream = upstream
        self._plan = plan
        self._rng = rng
        self._recorder = recorder
        self._late: set[asyncio.Task[None]] = set()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """On the wire every call is a stream of messages each way, so one kind of handler does for all."""
        method = details.method
        name = method.rpartition("/")[2]

        async def relay(requests: AsyncIterator[bytes], context: Any) -> None:
            metadata = [(k, v) for k, v in context.invocation_metadata() if not k.startswith(_NOT_PASSED)]
            open_call: Any = self._upstream.stream_stream(method)

            def begin() -> Any:
                return open_call(metadata=metadata, timeout=context.time_remaining())

            if name == "Decode":
                await self._stream(begin, requests, context)
            else:
                await self._unary(name, begin, requests, context)

        return grpc.stream_stream_rpc_method_handler(relay)

    def _fate(self) -> str:
        return self._plan.draw(self._rng)

    async def _unary(self, name: str, begin: Callable[[], Any], requests: AsyncIterator[bytes], context: Any) -> None:
        messages = [message async for message in requests]
        fates = [self._fate() if name in _FAULTY else "pass" for _ in range(2)]
        if fates[0] in ("drop", "cut"):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy has lost the request")
        if "delay" in fates:
            await asyncio.sleep(self._rng.uniform(0.0, _DELAY_SECONDS))
        if fates[0] == "duplicate":
            self._twice(calls_of(name, messages[0]), partial(_discarded, begin, messages))
        call = begin()
        answers = await _whole(call, messages)
        await _end_as(call, context)
        if fates[1] in ("drop", "cut"):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy has lost the answer")
        for answer in answers:
            await context.write(answer)

    async def _stream(self, begin: Callable[[], Any], requests: AsyncIterator[bytes], context: Any) -> None:
        call = begin()
        cut = asyncio.Event()

        async def inward() -> None:
            try:
                hello = b""
                async for message in requests:
                    fate = self._fate() if hello else "pass"
                    hello = hello or message
                    if fate == "drop":
                        continue
                    if fate == "cut":
                        cut.set()
                        return
                    if fate == "delay":
                        await asyncio.sleep(self._rng.uniform(0.0, _DELAY_SECONDS))
                    if fate == "duplicate":
                        # As it would come: from another connection, whose answers nobody reads.
                        self._twice(calls_of("Decode", message), partial(_discarded, begin, [hello, message]))
                    await call.write(message)
                await call.done_writing()
            except (grpc.RpcError, asyncio.InvalidStateError):
                return  # the call is over: the other direction says how

        async def outward() -> None:
            while (message := await call.read()) is not grpc.aio.EOF:
                fate = self._fate()
                if fate == "drop":
                    continue
                if fate == "cut":
                    cut.set()
                    return
                if fate == "delay":
                    await asyncio.sleep(self._rng.uniform(0.0, _DELAY_SECONDS))
                # An error's duplicate could pass for the answer to a later step, since it names no position.
                twice = fate == "duplicate" and not _has_error(message)
                for _ in range(2 if twice else 1):
                    await context.write(message)

        tasks = [asyncio.create_task(work) for work in (inward(), outward(), cut.wait())]
        try:
            await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            if cut.is_set() or not tasks[1].done():
                call.cancel()
        if cut.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the proxy has cut the stream")
        await _end_as(call, context)

    def _twice(self, calls: Sequence[tuple[str, Call]], send: Callable[[], Any]) -> None:
        """Sends it again, at once or late."""
        for session, call in calls:
            self._recorder.invoke(session, call)
        wait = 0.0 if self._rng.random() < 0.5 else self._rng.uniform(0.0, _LATE_SECONDS)

        async def again() -> None:
            await asyncio.sleep(wait)
            try:
                await send()
            except (grpc.RpcError, asyncio.InvalidStateError):
                return  # lost, like so much else

        task = asyncio.create_task(again())
        self._late.add(task)
        task.add_done_callback(self._late.discard)


async def _whole(call: Any, messages: Sequence[bytes]) -> list[bytes]:
    """The answers to a call of these messages; whether it went well is the call's to say."""
    try:
        for message in messages:
            await call.write(message)
        await call.done_writing()
        return [answer async for answer in call]
    except (grpc.RpcError, asyncio.InvalidStateError):
        return []


async def _discarded(begin: Callable[[], Any], messages: Sequence[bytes]) -> None:
    await _whole(begin(), messages)


async def _end_as(call: Any, context: Any) -> None:
    """Passes the upstream's status on. Raises where it is an error: the relay ends there."""
    code = await call.code()
    trailing = tuple(
        (key, value) for key, value in (await call.trailing_metadata() or ()) if not key.startswith(_NOT_PASSED[:3])
    )
    if code != grpc.StatusCode.OK:
        await context.abort(code, await call.details() or "", trailing)


def _has_error(message: bytes) -> bool:
    answers = constraint_service_pb2.DecodeResponse.FromString(message).directive_batch.answers
    return any(answer.HasField("error") for answer in answers)


def calls_of(method: str, message: bytes) -> list[tuple[str, Call]]:
    """(session, call) for all that a message asks."""
    if method == "Decode":
        batch = constraint_service_pb2.DecodeRequest.FromString(message).step_batch
        return [_step_call(step) for step in batch.steps]
    if method == "Step":
        return [_step_call(session_pb2.StepRequest.FromString(message).step)]
    if method in _KINDS:
        # They all have the session's id in field 1.
        request = session_pb2.ResumeSessionRequest.FromString(message)
        return [(request.session_id.hex(), Call(_KINDS[method]))]
    if method == "RollbackSession":
        rollback = session_pb2.RollbackSessionRequest.FromString(message)
        call = Call(
            *("rollback", rollback.epoch, rollback.position, (), rollback.request_id.hex(), rollback.to_position)
        )
        return [(rollback.session_id.hex(), call)]
    update = session_pb2.UpdateSessionRequest.FromString(message)
    kind = "turn" if update.HasField("new_turn") else "update"
    return [(update.session_id.hex(), Call(kind, update.epoch, update.position, (), update.request_id.hex()))]


def _step_call(step: session_pb2.Step) -> tuple[str, Call]:
    return step.session_id.hex(), Call("step", step.epoch, step.position, tuple(step.tokens))


async def _serve(options: argparse.Namespace) -> None:
    plan = Plan(options.drop, options.delay, options.duplicate, options.cut)
    recorder = Recorder(options.folder / "proxy.jsonl", "proxy")
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    backoff = [("grpc.max_reconnect_backoff_ms", 100), ("grpc.initial_reconnect_backoff_ms", 20)]
    async with grpc.aio.insecure_channel(options.upstream, options=[*unlimited, *backoff]) as upstream:
        server = grpc.aio.server(options=unlimited)
        server.add_generic_rpc_handlers([Proxy(upstream, plan, random.Random(options.seed), recorder)])
        server.add_insecure_port(options.listen)
        await server.start()
        print("listening on", options.listen, flush=True)
        await server.wait_for_termination()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the history of what is sent twice")
    parser.add_argument("--seed", type=int, default=0)
    for fate in ("drop", "delay", "duplicate", "cut"):
        parser.add_argument(f"--{fate}", type=float, default=0.0, metavar="P", help="probability, a message")
    asyncio.run(_serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
