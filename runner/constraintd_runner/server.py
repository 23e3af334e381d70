"""The runner's life: model, daemon, loop and gRPC server come up in that order, and go down in the other."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
from constraintd_client import ConstraintClient, Tls, VocabularyInfo
from constraintd_client.errors import Unavailable
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from constraintd.runner.v1 import generation_service_pb2, generation_service_pb2_grpc
from constraintd.serving.access import access_of
from constraintd.serving.farewell import end_within
from constraintd.serving.metrics_setting import metrics_served
from constraintd.serving.probes import LIVENESS, probes_listener
from constraintd.serving.settings import BadConfig
from constraintd.serving.transport import server_options
from constraintd_runner.config import RunnerConfig
from constraintd_runner.daemon_watch import DaemonWatch
from constraintd_runner.decode import DecodeLoop
from constraintd_runner.directives import DaemonDirectives
from constraintd_runner.model import Decoder, ModelFolder
from constraintd_runner.model.providers import choose_providers
from constraintd_runner.prompt import PromptEncoder
from constraintd_runner.request_interceptor import RequestInterceptor
from constraintd_runner.service import GenerationService, ServedModel
from constraintd_runner.token_interceptor import TokenInterceptor

SERVICE_NAME: Final = generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name

_SPARE_THREADS: Final = 8
"""For GetModelInfo, health checks and reflection, beside those that Generate calls occupy."""

_FAREWELL_SECONDS: Final = 0.5
"""For the last statuses to reach their callers."""

_OVERTIME_SECONDS: Final = 4.0
"""What ending and closing may take after the drain."""

_SWITCH_SECONDS: Final = 0.0005
"""Python's default of 5 ms is how long a busy call thread may keep the decode loop waiting after a forward pass."""

_log = logging.getLogger(__name__)


class Runner:
    """One model behind one gRPC server. Owns model, stream, loop and server, from `start` to `stop`."""

    def __init__(self, config: RunnerConfig) -> None:
        """Loads the model and registers its vocabulary.

        Raises BadConfig for TLS, tokens or a listener that can't be used, ModelError for what is wrong with the folder
        or the provider, ConstraintdError for what the daemon says.
        """
        self._config = config
        access = access_of([config.listen], config)
        (self._listener,) = access.listeners
        self._client = _client_of(config)
        self._requests = RequestInterceptor(log_calls=config.log_calls)
        folder = ModelFolder.open(Path(config.model))
        decoder = Decoder.open(
            folder, ep=config.ep, threads=config.threads, slots=config.slots, max_length=config.max_length
        )
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
            interceptors=[self._requests, *([] if access.tokens is None else [TokenInterceptor(access.tokens)])],
            options=server_options(
                max_message_bytes=config.max_message_bytes,
                max_connection_calls=config.max_connection_calls,
                keepalive_seconds=config.keepalive_seconds,
            ),
        )
        self._health = health.HealthServicer(
            experimental_non_blocking=True,
            experimental_thread_pool=ThreadPoolExecutor(1, thread_name_prefix="runner-health"),
        )
        self._probes: grpc.Server | None = None
        self._watch = DaemonWatch(
            self._client, lambda serving: self._tell_health(serving=serving), bound=config.answer_timeout
        )
        generation_service_pb2_grpc.add_GenerationServiceServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    def start(self) -> str:
        """Listens; gives the address, with the port filled in. Raises CannotListen."""
        address = self._listener.open(self._server)
        if self._config.health_listen is not None:
            self._probes = self._listen_for_probes(self._config.health_listen)
        self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        self._loop.start()
        self._server.start()
        self._tell_health(serving=True)
        self._watch.start()
        return address

    def _listen_for_probes(self, address: str) -> grpc.Server:
        """Answers health checks there, and nothing else."""
        server = grpc.server(
            ThreadPoolExecutor(_SPARE_THREADS, thread_name_prefix="runner-probe"), options=[("grpc.so_reuseport", 0)]
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        bound = probes_listener(address).open(server)
        server.start()
        _log.info("health checks are answered on %s", bound)
        return server

    def stop(self, hurry: threading.Event) -> None:
        """Turns NOT_SERVING and takes no new calls; lets running ones finish for `drain_seconds`, or until somebody is
        in a `hurry`; then ends them with UNAVAILABLE, upon which resumable ones go on at another runner. Health checks
        are answered to the end.
        """
        self._watch.stop()
        self._tell_health(serving=False)
        self._requests.close()
        until = time.monotonic() + self._config.drain_seconds
        while not self._requests.wait_idle(0.05) and time.monotonic() < until and not hurry.is_set():
            pass
        self._loop.stop()
        self._requests.wait_idle(_FAREWELL_SECONDS)
        self._server.stop(_FAREWELL_SECONDS).wait()
        if self._probes is not None:
            self._probes.stop(None).wait()
        self._directives.close()
        self._client.close()
        self._listener.remove()

    def _tell_health(self, *, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", SERVICE_NAME):
            self._health.set(name, status)


def serve(config: RunnerConfig, ready: Callable[[str], None]) -> None:
    """Runs a runner until SIGTERM or SIGINT, a second one of which ends it at once; from the main thread. `ready` gets
    the address once it listens.

    Raises what `Runner` and `Runner.start` raise.
    """
    stopping, hurry = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: (hurry if stopping.is_set() else stopping).set())
    sys.setswitchinterval(_SWITCH_SECONDS)
    with metrics_served(config.metrics_listen, "constraintd_runner.metrics", "runner"):
        runner = Runner(config)
        ready(runner.start())
        stopping.wait()
        _log.info("stopping: running calls have %g s to finish", config.drain_seconds)
        end_within(config.drain_seconds + _OVERTIME_SECONDS)
        runner.stop(hurry)


def _daemon_files(config: RunnerConfig) -> tuple[str | None, str | None, str | None]:
    return config.daemon_ca, config.daemon_cert, config.daemon_key


def _client_of(config: RunnerConfig) -> ConstraintClient:
    """The runner as a client of its daemon. Raises BadConfig."""
    ca, cert, key = (None if name is None else Path(name) for name in _daemon_files(config))
    try:
        return ConstraintClient(
            config.daemon.split(","),
            tls=Tls(ca=ca, cert=cert, key=key) if any(_daemon_files(config)) else None,
            token=None if config.daemon_token_file is None else Path(config.daemon_token_file),
            allow_plaintext_token=config.daemon_plaintext_token,
        )
    except OSError as error:
        raise BadConfig(f"{error.filename}: can't be read: {error.strerror}") from None
    except ValueError as error:
        hint = "; see --daemon-ca, --daemon-cert, --daemon-key, --daemon-token-file and --daemon-plaintext-token"
        raise BadConfig(f"daemon: {error}{hint}") from None


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
