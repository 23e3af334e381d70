"""The sampler config of a session becomes the chain that samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from constraintd.v1 import sampler_pb2
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.sampling import (
    Chain,
    Greedy,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    SplitL,
    SplitP,
    Stage,
    TailFree,
    Temperature,
    TopK,
    TopP,
    TypicalP,
)


def chain_of(config: sampler_pb2.SamplerConfig) -> Chain:
    """The chain for a config's stages, defaults filled in. Raises InvalidRequest naming the field that can't be.

    A preset is spelled out by the daemon, never here. deny_ranges are rules of the mask, and no stages.
    """
    if config.HasField("preset"):
        raise InvalidRequest(
            "the daemon left a preset as it is; it is older than this runner, so name the stages",
            field="sampler.preset",
        )
    stages: list[Stage] = []
    for index, message in enumerate(config.stages):
        if message.WhichOneof("stage") != "deny_ranges":
            stages.append(_stage_of(message, f"sampler.stages[{index}]"))
    try:
        return Chain.of(stages)
    except ValueError as error:
        raise InvalidRequest(str(error), field="sampler.stages") from error


def _stage_of(message: sampler_pb2.SamplerStage, field: str) -> Stage:
    kind = message.WhichOneof("stage")
    if kind is None or kind not in _STAGES:
        raise InvalidRequest("the stage is empty, or newer than this runner", field=field)
    try:
        return _STAGES[kind](message)
    except ValueError as error:
        raise InvalidRequest(str(error), field=f"{field}.{kind}") from error


def _split_p(message: sampler_pb2.SplitP) -> SplitP:
    default = SplitP()
    return SplitP(
        message.min_keep if message.HasField("min_keep") else default.min_keep,
        message.max_keep if message.HasField("max_keep") else default.max_keep,
    )


def _split_l(message: sampler_pb2.SplitL) -> SplitL:
    default = SplitL()
    return SplitL(
        message.min_keep if message.HasField("min_keep") else default.min_keep,
        message.max_keep if message.HasField("max_keep") else default.max_keep,
    )


def _mirostat_v1(message: sampler_pb2.MirostatV1) -> MirostatV1:
    return MirostatV1(message.max_keep) if message.HasField("max_keep") else MirostatV1()


def _mirostat_v2(message: sampler_pb2.MirostatV2) -> MirostatV2:
    return MirostatV2(message.max_keep) if message.HasField("max_keep") else MirostatV2()


_STAGES: Final[Mapping[str, Callable[[sampler_pb2.SamplerStage], Stage]]] = {
    "greedy": lambda _: Greedy(),
    "temperature": lambda message: Temperature(message.temperature.temperature),
    "top_k": lambda message: TopK(message.top_k.k),
    "top_p": lambda message: TopP(message.top_p.p),
    "min_p": lambda message: MinP(message.min_p.p),
    "typical_p": lambda message: TypicalP(message.typical_p.p),
    "tail_free": lambda message: TailFree(message.tail_free.z),
    "split_p": lambda message: _split_p(message.split_p),
    "split_l": lambda message: _split_l(message.split_l),
    "mirostat_v1": lambda message: _mirostat_v1(message.mirostat_v1),
    "mirostat_v2": lambda message: _mirostat_v2(message.mirostat_v2),
    "logit_bias": lambda message: LogitBias(tuple(message.logit_bias.ids), tuple(message.logit_bias.biases)),
}
