"""Sampler configs, built from Python values. The daemon checks the ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from constraintd.v1 import sampler_pb2

SamplerConfig: TypeAlias = sampler_pb2.SamplerConfig
"""How a token is picked from the masked logits, and when a session ends, as the protocol has it."""

SamplerStage: TypeAlias = sampler_pb2.SamplerStage
"""One stage of the chain, as the protocol has it."""


def greedy() -> SamplerStage:
    """Takes the highest logit, ties by the lowest id. Ends the chain."""
    return SamplerStage(greedy=sampler_pb2.Greedy())


def temperature(value: float) -> SamplerStage:
    """Divides the logits by `value`, finite and >= 0; 0 is greedy."""
    return SamplerStage(temperature=sampler_pb2.Temperature(temperature=value))


def top_k(k: int) -> SamplerStage:
    """Keeps the k highest logits, k >= 1."""
    return SamplerStage(top_k=sampler_pb2.TopK(k=k))


def top_p(p: float) -> SamplerStage:
    """Keeps the smallest set of most probable tokens whose probability reaches p, in (0, 1]."""
    return SamplerStage(top_p=sampler_pb2.TopP(p=p))


def min_p(p: float) -> SamplerStage:
    """Keeps tokens whose probability is at least p, in [0, 1], times that of the most probable one."""
    return SamplerStage(min_p=sampler_pb2.MinP(p=p))


def sampler_config(
    *stages: SamplerStage,
    seed: int | None = None,
    max_tokens: int | None = None,
    stop_strings: Sequence[str | bytes] = (),
    stop_ids: Sequence[int] = (),
    min_tokens: int = 0,
) -> SamplerConfig:
    """The stages in their order (none: pick by draw), and where the session stops.

    `seed` None lets the daemon pick one. `max_tokens` None is no limit, 0 ends the session before its first
    token. Before `min_tokens` tokens no end is legal and stops are ignored, unless nothing else is legal. Raises
    ValueError if a number doesn't fit its field.
    """
    if isinstance(stop_strings, str | bytes):
        raise TypeError("stop_strings is a list of texts, not one text")
    return SamplerConfig(
        stages=stages,
        seed=seed,
        max_tokens=max_tokens,
        stop_strings=[text.encode() if isinstance(text, str) else text for text in stop_strings],
        stop_ids=stop_ids,
        min_tokens=min_tokens,
    )
