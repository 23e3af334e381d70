"""Stages as several APIs mean them: values that change nothing make no stage."""

from __future__ import annotations

from collections.abc import Iterable

from constraintd.sampler.config import DenyRanges, MinP, Stage, Temperature, TopK, TopP, TypicalP


def temperature_stages(temperature: float) -> tuple[Stage, ...]:
    """For a temperature above 0."""
    return () if temperature == 1 else (Temperature(temperature),)


def top_k_stages(k: int) -> tuple[Stage, ...]:
    """0 and below keep all."""
    return () if k <= 0 else (TopK(k),)


def top_p_stages(p: float) -> tuple[Stage, ...]:
    """0 keeps the most probable token, as every one of the APIs does, though `TopP` itself needs a p above 0."""
    if p == 0:
        return (TopK(1),)
    return () if p == 1 else (TopP(p),)


def min_p_stages(p: float) -> tuple[Stage, ...]:
    """0 keeps all."""
    return () if p == 0 else (MinP(p),)


def typical_p_stages(p: float) -> tuple[Stage, ...]:
    """1 keeps all."""
    return () if p == 1 else (TypicalP(p),)


def deny_stages(ids: Iterable[int]) -> tuple[Stage, ...]:
    """Ids, each once; neighbours share a range."""
    ranges: list[tuple[int, int]] = []
    for token in sorted(ids):
        if ranges and ranges[-1][1] == token:
            ranges[-1] = (ranges[-1][0], token + 1)
        else:
            ranges.append((token, token + 1))
    return (DenyRanges(tuple(ranges)),) if ranges else ()
