"""The daemon's typed config: what it listens on and what it allows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What one daemon takes at most. Sizes in bytes, counts in pieces, times in seconds."""

    max_grammar_bytes: int = 1 << 20
    max_vocabulary_bytes: int = 128 << 20
    max_vocabularies: int = 16
    max_grammars: int = 1024
    max_compilations: int = 4
    max_uploads: int = 4
    max_sessions: int = 4096
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
