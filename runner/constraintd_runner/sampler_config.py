"""The sampler config of a request becomes the chain that samples."""

from __future__ import annotations

from constraintd.v1 import sampler_pb2
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.sampling import Chain, Greedy, MinP, Stage, Temperature, TopK, TopP


def chain_of(config: sampler_pb2.SamplerConfig) -> Chain:
    """The chain for a config's stages. Raises InvalidRequest naming the stage that can't be."""
    stages = [_stage_of(message, f"sampler.stages[{index}]") for index, message in enumerate(config.stages)]
    try:
        return Chain.of(stages)
    except ValueError as error:
        raise InvalidRequest(str(error), field="sampler.stages") from error


def _stage_of(message: sampler_pb2.SamplerStage, field: str) -> Stage:
    kind = message.WhichOneof("stage")
    try:
        if kind == "greedy":
            return Greedy()
        if kind == "temperature":
            return Temperature(message.temperature.temperature)
        if kind == "top_k":
            return TopK(message.top_k.k)
        if kind == "top_p":
            return TopP(message.top_p.p)
        if kind == "min_p":
            return MinP(message.min_p.p)
    except ValueError as error:
        raise InvalidRequest(str(error), field=f"{field}.{kind}") from error
    raise InvalidRequest("the stage is empty, or newer than this runner", field=field)
