"""The runner's life: model, daemon, loop and gRPC server come up in that order, and go down in the other."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from constraintd_client import ConstraintClient, VocabularyInfo
from constraintd_client.errors import Unavailable
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from constraintd.runner.v1 import generation_service_pb2, generation_service_pb2_grpc
from constraintd_runner.daemon_watch import DaemonWatch
from constraintd_runner.decode import DecodeLoop
from constraintd_runner.directives import DaemonDirectives
from constraintd_runner.model import Decoder, ModelFolder
from constraintd_runner.model.providers import choose_providers
from constraintd_runner.prompt import PromptEncoder
from constraintd_runner.service import GenerationService, ServedModel

SERVICE_NAME: Final = generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name

_SPARE_THREADS: Final = 8
"""For GetModelInfo, health checks and reflection, beside those that Generate calls occupy."""

_SWITCH_SECONDS: Final = 0.0005
"""Python's default of 5 ms is how long a busy call thread may keep the decode loop waiting after a forward pass."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """What `constraintd-runner serve` takes; see its --help."""

    model: Path
    daemon: str
    """Target of the daemon: "unix:/path" or "host:port"; or several, with commas, of daemons on the same store."""
    listen: str
    ep: str = "cpu"
    threads: int | None = None
    slots: int = 8
    max_length: int | None = None
    """Tokens of one sequence, prompt included; None: the model's context length."""
    max_waiting: int = 256
    """Calls that may wait for a slot."""
    answer_timeout: float = 30.0
    """Seconds until a generation without an answer of a daemon fails, and the runner's health turns NOT_SERVING."""
    daemon_wait: float = 15.0
    """Seconds that the daemon may take to come up."""
    grace: float = 10.0
    """Seconds that running calls may take to finish at the end."""


class CannotListen(Exception):
    """The address can't be listened on; the message says which and why."""


class Runner:
    """One model behind one gRPC server. Owns model, stream, loop and server, from `start` to `stop`."""

    def __init__(self, config: RunnerConfig) -> None:
        """Loads the model and registers its vocabulary.

        Raises ModelError for what is wrong with the folder or the provider, ConstraintdError for what the daemon says.
        """
        self._config = config
        folder = ModelFolder.open(config.model)
        decoder = Decoder.open(
            folder, ep=config.ep, threads=config.threads, slots=config.slots, max_length=config.max_length
        )
        self._client = ConstraintClient(config.daemon.split(","))
        self._directives = _when_up(
            self._client,
            lambda: DaemonDirectives(
                self._client,
                _registration(self._client, folder, decoder.logits_width),
                answer_timeout=config.answer_timeout,
            ),
            config.daemon_wait,
        )
        vocabulary = self._directives.vocabulary
        encoder = PromptEncoder.open(folder, bos_id=vocabulary.bos_id, logits_width=decoder.logits_width)
        self._loop = DecodeLoop(decoder, self._directives, answer_timeout=config.answer_timeout)
        max_calls = config.slots + config.max_waiting
        service = GenerationService(
            ServedModel(
                name=folder.path.resolve().name,
                context_length=decoder.max_length,
                slots=config.slots,
                execution_provider=choose_providers(config.ep).names[0],
                version=version(),
            ),
            encode_prompt=encoder.encode,
            table=self._client.token_table(vocabulary.vocabulary_id),
            directives=self._directives,
            loop=self._loop,
            max_calls=max_calls,
        )
        # Sync, with a thread a call: threads are only made when needed, and one that waits for the loop costs nothing.
        self._server = grpc.server(
            ThreadPoolExecutor(max_calls + _SPARE_THREADS, thread_name_prefix="runner-call"),
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 64 << 20)],
        )
        self._health = health.HealthServicer(
            experimental_non_blocking=True,
            experimental_thread_pool=ThreadPoolExecutor(1, thread_name_prefix="runner-health"),
        )
        self._watch = DaemonWatch(
            self._client, lambda serving: self._tell_health(serving=serving), bound=config.answer_timeout
        )
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    def start(self) -> str:
        """Listens; gives the address, with the port filled in. Raises CannotListen."""
        address = self._config.listen
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise CannotListen(
                f"can't listen on {address}: {error}; is another runner there, or the folder missing?"
            ) from None
        self._loop.start()
        self._server.start()
        self._tell_health(serving=True)
        self._watch.start()
        return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"

    def stop(self) -> None:
        """Turns NOT_SERVING, lets running calls finish for the grace period, then ends them."""
        self._watch.stop()
        self._health.enter_graceful_shutdown()
        self._server.stop(self._config.grace).wait()
        self._loop.stop()
        self._directives.close()
        self._client.close()
        if self._config.listen.startswith("unix:"):
            Path(self._config.listen.removeprefix("unix:")).unlink(missing_ok=True)

    def _tell_health(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", SERVICE_NAME):
            self._health.set(name, status)


def serve(config: RunnerConfig, ready: Callable[[str], None]) -> None:
    """Runs a runner until SIGTERM or SIGINT; from the main thread. `ready` gets the address once it listens.

    Raises what `Runner` and `Runner.start` raise.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    sys.setswitchinterval(_SWITCH_SECONDS)
    runner = Runner(config)
    ready(runner.start())
    stopping.wait()
    _log.info("stopping: running calls have %g s to finish", config.grace)
    runner.stop()


def version() -> str:
    """The installed distribution's version."""
    from importlib.metadata import version as installed

    return installed("constraintd")


def _registration(client: ConstraintClient, folder: ModelFolder, width: int) -> Callable[[], VocabularyInfo]:
    def register() -> VocabularyInfo:
        return client.register_vocabulary(
            "tokenizer_json" if folder.tokenizer.suffix == ".json" else "sentencepiece",
            folder.tokenizer,
            logits_width=width,
            eog_ids=[token for token in folder.eos_token_ids if token < width],
            generation_config=_if_there(folder.path / "generation_config.json"),
            tokenizer_config=_if_there(folder.path / "tokenizer_config.json"),
        )

    return register


def _if_there(path: Path) -> Path | None:
    return path if path.is_file() else None


def _when_up(client: ConstraintClient, connect: Callable[[], DaemonDirectives], seconds: float) -> DaemonDirectives:
    """Tries until a daemon is there: the two are often started together. Raises Unavailable after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        target = client.target
        try:
            return connect()
        except Unavailable:
            client.leave(target)
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
