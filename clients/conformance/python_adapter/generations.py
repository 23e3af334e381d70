"""Generations at a runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from constraintd_client import GenerationClient

from . import spelled
from .daemon_calls import access, constraint_of, sampler_of
from .held import Held

Request = Mapping[str, Any]


def _connect_runner(held: Held, request: Request) -> None:
    held.runners[request.get("runner", "main")] = GenerationClient(request["targets"], **access(request))


def _seconds(request: Request, key: str, default: float | None) -> float | None:
    return request[key] / 1000 if key in request else default


def _generate(held: Held, request: Request) -> None:
    generation = held.runner(request).generate(
        request["prompt"],
        constraint=constraint_of(request),
        sampler=sampler_of(request),
        logprobs=request.get("logprobs"),
        timeout=_seconds(request, "timeout_ms", None),
        resumable=request.get("resumable", False),
        session_id=bytes.fromhex(request["session_id"]) if "session_id" in request else None,
    )
    held.generations[request["generation"]] = generation, generation.events()


def _resume_generation(held: Held, request: Request) -> None:
    generation = held.runner(request).resume(
        bytes.fromhex(request["session_id"]),
        seen_tokens=request["seen_tokens"],
        seen_text_bytes=request["seen_text_bytes"],
        exact=request.get("exact", False),
    )
    held.generations[request["generation"]] = generation, generation.events()


def _events(held: Held, request: Request) -> dict[str, Any]:
    generation, events = held.generations[request["generation"]]
    told = [spelled.event(event) for event in islice(events, request.get("count"))]
    return {"events": told, "text": generation.text, "tokens": list(generation.token_ids)}


def _cancel(held: Held, request: Request) -> None:
    held.generations[request["generation"]][0].cancel()


def _close_generation(held: Held, request: Request) -> dict[str, Any]:
    return {"closed": held.runner(request).close_generation(bytes.fromhex(request["session_id"]))}


def _model_info(held: Held, request: Request) -> dict[str, Any]:
    info = held.runner(request).model_info()
    return {"vocabulary_id": info.vocabulary_id, "logits_width": info.logits_width, "context": info.context_length}


GENERATION_CALLS: Final[Mapping[str, Callable[[Held, Request], Any]]] = {
    "connect_runner": _connect_runner,
    "generate": _generate,
    "resume_generation": _resume_generation,
    "events": _events,
    "cancel": _cancel,
    "close_generation": _close_generation,
    "model_info": _model_info,
}
