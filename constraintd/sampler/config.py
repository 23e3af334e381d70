"""How a session's tokens are picked and where it stops: validated values, which the runner executes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from constraintd.config import Limits
from constraintd.errors import InvalidField, TooLarge


@dataclass(frozen=True, slots=True)
class Greedy:
    """Takes the highest logit; ends the chain."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides the logits; 0 is greedy and ends the chain."""

    temperature: float


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k highest logits."""

    k: int


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the smallest set whose probability reaches p."""

    p: float


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps tokens at least p times as probable as the most probable."""

    p: float


Stage: TypeAlias = Greedy | Temperature | TopK | TopP | MinP


@dataclass(frozen=True, slots=True)
class SamplerConfig:
    """A session's sampler config. `seed` is set by the time a session has one."""

    stages: tuple[Stage, ...] = ()
    seed: int = 0
    max_tokens: int | None = None
    stop_strings: tuple[bytes, ...] = ()
    stop_ids: tuple[int, ...] = ()
    min_tokens: int = 0


def check_sampler_config(config: SamplerConfig, *, logits_width: int, limits: Limits) -> None:
    """Raises InvalidField or TooLarge with the field's name if the config contradicts itself or leaves its ranges."""
    _check_stages(config.stages, limits)
    if config.max_tokens is not None and config.min_tokens > config.max_tokens:
        raise InvalidField("sampler.min_tokens", f"{config.min_tokens} is above max_tokens {config.max_tokens}")
    if len(config.stop_strings) > limits.max_stop_strings:
        raise TooLarge(
            "sampler.stop_strings",
            limit=limits.max_stop_strings,
            actual=len(config.stop_strings),
            unit="strings",
        )
    for i, stop in enumerate(config.stop_strings):
        if not stop:
            raise InvalidField(f"sampler.stop_strings[{i}]", "an empty stop string would stop everywhere; leave it out")
        if len(stop) > limits.max_stop_string_bytes:
            raise TooLarge(f"sampler.stop_strings[{i}]", limit=limits.max_stop_string_bytes, actual=len(stop))
    for i, token in enumerate(config.stop_ids):
        if token >= logits_width:
            raise InvalidField(
                f"sampler.stop_ids[{i}]", f"{token} is past the logits width of {logits_width}; no such token exists"
            )


def _check_stages(stages: Sequence[Stage], limits: Limits) -> None:
    if len(stages) > limits.max_stages:
        raise TooLarge("sampler.stages", limit=limits.max_stages, actual=len(stages), unit="stages")
    for i, stage in enumerate(stages):
        field = f"sampler.stages[{i}]"
        match stage:
            case Temperature(t) if not (math.isfinite(t) and t >= 0):
                raise InvalidField(f"{field}.temperature", f"{t} must be finite and at least 0 (0 is greedy)")
            case TopK(k) if k < 1:
                raise InvalidField(f"{field}.top_k", "must be at least 1; leave the stage out to keep every token")
            case TopP(p) if not 0 < p <= 1:
                raise InvalidField(f"{field}.top_p", f"{p} must be above 0 and at most 1")
            case MinP(p) if not 0 <= p <= 1:
                raise InvalidField(f"{field}.min_p", f"{p} must be between 0 and 1")
        ends = isinstance(stage, Greedy) or (isinstance(stage, Temperature) and stage.temperature == 0)
        if ends and i + 1 < len(stages):
            raise InvalidField(field, "greedy ends the chain, yet another stage follows it; put it last")
