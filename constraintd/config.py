"""The daemon's typed config: what it listens on and what it allows. Read by `constraintd.serving.settings`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit, urlunsplit

from constraintd.serving.settings import setting
from constraintd.serving.socket_mode import check_mode

ENVIRONMENT_PREFIX: Final = "CONSTRAINTD_"
FOREIGN_VARIABLES: Final = (
    "CONSTRAINTD_RUNNER_",  # the runner's own settings
    "CONSTRAINTD_BIN",  # where the clients' tests find the programs
    "CONSTRAINTD_SEQUENCES",  # how much the long tests do
    "CONSTRAINTD_PUSHDOWN_",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one daemon takes at most. Sizes in bytes, counts in pieces, times in seconds."""

    max_grammar_bytes: int = 1 << 20
    max_vocabulary_bytes: int = 128 << 20
    max_vocabularies: int = 16
    # Compiled grammars that no session uses are evicted past this; those in use count, and stay.
    max_grammar_cache_bytes: int = 512 << 20
    refused_grammar_seconds: float = 5.0
    max_compilations: int = 4
    max_waiting_compilations: int = 256
    # What compiling and probing one grammar may take, and what a request may ask for at most.
    compile_seconds: float = 10.0
    max_compile_seconds: float = 60.0
    compile_memory_bytes: int = 512 << 20
    max_compile_memory_bytes: int = 2 << 30
    # A grammar that nests too deeply for this is refused; the daemon's threads have four times as much.
    compile_stack_bytes: int = 4 << 20
    compile_step_seconds: float = 0.05
    max_compile_step_seconds: float = 0.5
    max_uploads: int = 4
    max_sessions: int = 1 << 17
    # Of sessions in memory, by estimate; those that were stepped longest ago make room, and are revived when needed.
    max_hot_session_bytes: int = 1 << 30
    # A session that was not stepped for so long is kept in the store alone.
    session_passive_seconds: float = 60.0
    max_streams: int = 64
    max_batch_steps: int = 4096
    max_step_tokens: int = 1024
    max_prompt_tokens: int = 1 << 20
    max_session_tokens: int = 1 << 20
    max_stop_strings: int = 32
    max_stop_string_bytes: int = 1024
    max_stages: int = 32
    # Above max_grammar_bytes and a full prompt, so that the typed limits answer before the transport's.
    max_message_bytes: int = 64 << 20
    # Calls at once on one connection, Decode streams included; a client's further ones wait there.
    max_connection_calls: int = 1024
    directive_batch_bytes: int = (1 << 20) - 1024
    session_idle_seconds: int = 900
    upload_idle_seconds: float = 30.0


def default_store() -> str:
    """A file of the user's own, where such files belong (XDG base directory specification)."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return f"sqlite:{home}/constraintd/sessions.sqlite"


def without_password(store: str) -> str:
    """A store's name as others may see it."""
    if "://" not in store:
        return store
    try:
        parts = urlsplit(store)
        host = parts.netloc.rpartition("@")[2]
        user = "***@" if "@" in parts.netloc else ""
        return urlunsplit((parts.scheme, user + host, parts.path, "***" if parts.query else "", ""))
    except ValueError:
        return "***"


@dataclass(frozen=True, slots=True)
class Config:
    """One daemon."""

    listen: tuple[str, ...] = setting(
        ("127.0.0.1:50051",),
        "unix:/path or host:port (port 0: any free one); may be given several times",
        metavar="ADDRESS",
    )
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
    drain_seconds: float = setting(5.0, "how long running calls may finish after SIGTERM", metavar="S")
    keepalive_seconds: float = setting(
        30.0, "of silence, after which a client is asked whether it is still there (0: never)", metavar="S"
    )
    store: str = setting(
        text="where sessions are kept: memory, sqlite:PATH (one daemon a file) or redis://HOST:PORT/DB (many daemons)",
        factory=default_store,
        metavar="STORE",
        shown=without_password,
    )
    durability: Literal["relaxed", "strict"] = setting(
        "relaxed", "sqlite: an answered step survives the daemon's death (relaxed), or power loss too (strict)"
    )
    sandbox: bool = setting(
        True,
        "try new grammars in a process of their own before compiling them; --no-sandbox only if you trust all of them",
    )
    threads: int | None = setting(
        None, "of the pools that open and step sessions, each [twice the CPUs at hand]", minimum=1
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
    failpoints: str = setting("", hidden=True)
    """For tests alone: see `constraintd.failpoints`."""
    limits: Limits = field(default_factory=Limits)
