"""The runner's typed config. Read by `constraintd.serving.settings`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from constraintd.serving.settings import setting
from constraintd.serving.socket_mode import check_mode

ENVIRONMENT_PREFIX: Final = "CONSTRAINTD_RUNNER_"


def _check_positive(seconds: float) -> str | None:
    return None if seconds > 0 else "expected a positive number of seconds"


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """One runner; see `constraintd-runner serve --help`."""

    model: str = setting(text="a model folder, or smollm2 for the one that `model fetch` made", metavar="DIR")
    daemon: str = setting(
        text="the daemon: unix:/path or host:port; or several of one store, separated by commas", metavar="TARGET"
    )
    listen: str = setting("127.0.0.1:50052", "unix:/path or host:port (port 0: any free one)", metavar="ADDRESS")
    socket_mode: str = setting("0600", "rights of a Unix socket, as octal digits", metavar="MODE", check=check_mode)
    tls_cert: str | None = setting(
        None, "PEM file of the certificate chain; read again when it changes", metavar="FILE"
    )
    tls_key: str | None = setting(None, "PEM file of its key", metavar="FILE")
    tls_client_ca: str | None = setting(
        None, "clients must show a certificate that this authority signed (mutual TLS)", metavar="FILE"
    )
    tokens_file: str | None = setting(
        None,
        "calls must carry a token of this file; see `constraintd token`; read again when it changes",
        metavar="FILE",
    )
    insecure: bool = setting(False, "listen off this machine without TLS, because something else protects it")
    daemon_ca: str | None = setting(
        None, "talk to the daemon over TLS, if this authority signed its certificate", metavar="FILE"
    )
    daemon_cert: str | None = setting(None, "the runner's own certificate chain, for mutual TLS", metavar="FILE")
    daemon_key: str | None = setting(None, "PEM file of its key", metavar="FILE")
    daemon_token_file: str | None = setting(
        None, "holds the token that the daemon knows the runner by; read again when it changes", metavar="FILE"
    )
    daemon_plaintext_token: bool = setting(
        False, "send that token to another machine without TLS, because something else protects the way"
    )
    ep: Literal["cpu", "cuda", "auto"] = setting(
        "cpu", "ONNX Runtime's execution provider; auto: CUDA where it is installed"
    )
    threads: int | None = setting(None, "threads of the model [the CPUs at hand]", minimum=1)
    slots: int = setting(8, "generations at once; more wait", minimum=1)
    max_length: int | None = setting(
        None, "tokens of one generation, prompt included [the model's context length]", minimum=1
    )
    max_waiting: int = setting(256, "calls that may wait for a slot", minimum=1)
    max_message_bytes: int = setting(64 << 20, "of one request or answer", minimum=1)
    max_connection_calls: int = setting(1024, "calls at once on one connection; more wait at the client", minimum=1)
    answer_timeout: float = setting(
        30.0,
        "seconds until a generation without a daemon's answer fails, reconnecting included; then the runner's health "
        "is NOT_SERVING until one is back",
        metavar="S",
        check=_check_positive,
    )
    daemon_wait: float = setting(15.0, "seconds that the daemon may take to come up", metavar="S")
    drain_seconds: float = setting(
        10.0,
        "how long running generations may finish after SIGTERM; resumable ones then go on at another runner",
        metavar="S",
    )
    keepalive_seconds: float = setting(
        30.0, "of silence, after which a client is asked whether it is still there (0: never)", metavar="S"
    )
    health_listen: str | None = setting(
        None,
        "host:port for health checks alone, without TLS and token: for probes that know neither",
        metavar="ADDRESS",
    )
    metrics_listen: str | None = setting(
        None, "host:port for Prometheus; without it nothing is measured", metavar="ADDRESS"
    )
    log_format: Literal["text", "json"] = setting("text", "of the lines on stderr")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "of the lines on stderr")
    log_calls: bool = setting(False, "log every call, and not the refused ones alone")
