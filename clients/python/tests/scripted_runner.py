"""A real gRPC server that speaks the runner's protocol by script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from clients.python.tests.scripted_daemon import EndStream, refuse
from constraintd.runner.v1 import generation_service_pb2 as runner_pb2
from constraintd.runner.v1 import generation_service_pb2_grpc as runner_pb2_grpc
from constraintd.v1 import session_pb2

Script = Callable[[], Iterable[runner_pb2.GenerateResponse]]

STARTED = runner_pb2.GenerateResponse(started=runner_pb2.Started(session_id=b"s" * 16, seed=3, prompt_tokens=2))
FINISHED = runner_pb2.GenerateResponse(
    finished=runner_pb2.Finished(
        finish=session_pb2.Finish(reason=session_pb2.FINISH_REASON_STOP_STRING, stop_string=b"!"),
        usage=runner_pb2.Usage(prompt_tokens=2, completion_tokens=3, mask_wait_us=9),
    )
)


def delta(text: str, *token_ids: int) -> runner_pb2.GenerateResponse:
    return runner_pb2.GenerateResponse(delta=runner_pb2.Delta(text=text, token_ids=token_ids))


class RunningRunner(runner_pb2_grpc.GenerationServiceServicer):
    """Answers every Generate by `script`; behind a port of this machine."""

    def __init__(self) -> None:
        self.script: Script = lambda: ()
        self.resume_script: Script = lambda: ()
        self.requests: list[runner_pb2.GenerateRequest] = []
        self.resumes: list[runner_pb2.ResumeGenerationRequest] = []
        self.ended = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        runner_pb2_grpc.add_GenerationServiceServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def Generate(
        self, request: runner_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[runner_pb2.GenerateResponse]:
        self.requests.append(request)
        context.add_callback(self.ended.set)
        try:
            yield from self.script()
        except EndStream as end:
            refuse(context, end.code or grpc.StatusCode.UNKNOWN, end.reason, end.message)

    def ResumeGeneration(
        self, request: runner_pb2.ResumeGenerationRequest, context: grpc.ServicerContext
    ) -> Iterator[runner_pb2.GenerateResponse]:
        self.resumes.append(request)
        try:
            yield from self.resume_script()
        except EndStream as end:
            refuse(context, end.code or grpc.StatusCode.UNKNOWN, end.reason, end.message)

    def CloseGeneration(
        self, request: runner_pb2.CloseGenerationRequest, _context: Any
    ) -> runner_pb2.CloseGenerationResponse:
        return runner_pb2.CloseGenerationResponse(closed=request.session_id == b"s" * 16)

    def GetModelInfo(self, _request: Any, _context: Any) -> runner_pb2.GetModelInfoResponse:
        return runner_pb2.GetModelInfoResponse(model="tiny", slots=4)
