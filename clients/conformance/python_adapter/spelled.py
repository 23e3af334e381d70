"""The client's values as the JSON that cases compare: the same in every language (see ADAPTER.md)."""

from __future__ import annotations

import math
from typing import Any, Final

import grpc
from constraintd_client import (
    Cancelled,
    ConstraintdError,
    DeadlineExceeded,
    Delta,
    Directive,
    Event,
    Finish,
    IncompleteGeneration,
    MalformedAnswer,
    SessionHandle,
    Started,
    Unavailable,
)
from constraintd_runner.sampling import SamplingError

_CODES: Final = (
    (DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
    (Cancelled, grpc.StatusCode.CANCELLED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
)
"""What this client's own errors come to; one without a status is one that this side decided."""


def session(handle: SessionHandle) -> dict[str, Any]:
    """A session as its handle stands."""
    return {
        "session_id": handle.session_id.hex(),
        "epoch": str(handle.epoch),
        "seed": str(handle.seed),
        "directive": directive(handle.directive),
    }


def directive(said: Directive) -> dict[str, Any]:
    """A Directive."""
    changes = said.adjustments
    return {
        "position": said.position,
        "mask": None if said.mask is None else said.mask.tobytes().hex(),
        "finish": None if said.finish is None else finish(said.finish),
        "no_token_allowed": said.no_token_allowed,
        "draw": said.draw,
        "settled_bytes": said.settled_bytes,
        "mu": said.mu,
        "adjustments": None
        if changes is None
        else {
            "ids": changes.ids.tolist(),
            "scales": changes.scales.tolist(),
            "offsets": changes.offsets.tolist(),
        },
        "awaiting_trigger": said.awaiting_trigger,
        "allows_eog": said.allows_eog,
        "complete": said.complete,
        "exhausted": said.exhausted,
    }


def finish(end: Finish) -> dict[str, Any]:
    """A Finish."""
    return {
        "reason": end.reason,
        "stop_string": end.stop_string.hex(),
        "stop_id": end.stop_id,
        "cut_offset": end.cut_offset,
        "constraint_incomplete": end.constraint_incomplete,
        "schema_satisfied": end.schema_satisfied,
        "schema_violation": end.schema_violation,
    }


def event(told: Event) -> dict[str, Any]:
    """One of a generation's events."""
    if isinstance(told, Started):
        return {
            "event": "started",
            "session_id": told.session_id.hex(),
            "seed": str(told.seed),
            "prompt_tokens": told.prompt_tokens,
        }
    if isinstance(told, Delta):
        return {
            "event": "delta",
            "tokens": list(told.token_ids),
            "text": told.text,
            "logprobs": [
                {"taken": [each.taken.token_id, each.taken.logprob], "top": [[t.token_id, t.logprob] for t in each.top]}
                for each in told.logprobs
            ],
        }
    usage, answer = told.usage, told.tool_answer
    return {
        "event": "finished",
        "finish": finish(told.finish),
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "tool_answer": None
        if answer is None
        else {
            "content": answer.content,
            "calls": [{"name": call.name, "arguments": call.arguments} for call in answer.calls],
            "malformed": answer.malformed,
        },
    }


def number(value: float) -> float | str:
    """A logit: JSON has no infinities."""
    return value if math.isfinite(value) else f"{value}"


def refusal(error: Exception) -> dict[str, Any]:
    """What went wrong. Kind "refused": by a server or the transport; "argument": by this client, before anything was
    sent; "malformed", "incomplete", "sampling": see ADAPTER.md.
    """
    if isinstance(error, SamplingError):
        return {"kind": "sampling", "message": str(error)}
    if not isinstance(error, ConstraintdError):
        kind = "argument" if isinstance(error, (ValueError, TypeError)) else "adapter"
        return {"kind": kind, "message": f"{type(error).__name__}: {error}"}
    kind = "refused"
    if isinstance(error, MalformedAnswer):
        kind = "malformed"
    elif isinstance(error, IncompleteGeneration):
        kind = "incomplete"
    code = error.code or next((code for own, code in _CODES if isinstance(error, own)), None)
    return {
        "kind": kind,
        "message": error.message,
        "reason": error.reason,
        "code": None if code is None else code.name,
        "expected_position": _number(error, "expected_position"),
        "illegal_index": _number(error, "illegal_index"),
        "logged_tokens": list(getattr(error, "logged_tokens", ())),
        "location": error.metadata.get("location", ""),
        "field": error.metadata.get("field", ""),
        "fragment": error.fragment,
        "retryable": error.retryable,
        "retry_after_ms": None if error.retry_after is None else round(error.retry_after * 1000),
    }


def _number(error: ConstraintdError, key: str) -> int | None:
    """What the error's class offers, if it does, else what its metadata says."""
    text = error.metadata.get(key)
    return getattr(error, key, None if text is None else int(text))
