"""The daemon's typed config: what it listens on and what it allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


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
    directive_batch_bytes: int = (1 << 20) - 1024
    session_idle_seconds: int = 900
    upload_idle_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Config:
    """One daemon. `listen` holds gRPC addresses: `unix:/path` or `host:port` (port 0: any free one)."""

    listen: tuple[str, ...] = ("127.0.0.1:50051",)
    limits: Limits = field(default_factory=Limits)
    drain_seconds: float = 5.0
    store: str = "memory"
    """Where sessions are kept: `memory`, `sqlite:PATH` or `redis://HOST:PORT/DB`."""
    durability: Literal["relaxed", "strict"] = "relaxed"
    """What an answered step survives on sqlite: `relaxed` the process's death, `strict` the machine's too."""
    failpoints: str = ""
    """For tests alone: see `constraintd.failpoints`."""
    sandbox: bool = True
    """Whether new grammars are first tried in a disposable process."""
