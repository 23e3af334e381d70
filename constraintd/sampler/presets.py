"""Sampler configs in the words of other APIs. One module an API knows its names, defaults and order of stages."""

from __future__ import annotations

from enum import Enum

from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.presets_hugging_face import hugging_face_config
from constraintd.sampler.presets_llama_cpp import llama_cpp_config
from constraintd.sampler.presets_openai import openai_config


class PresetStyle(Enum):
    """Whose names a preset's parameters bear; values are the protocol's names."""

    OPENAI = "OPENAI"
    HUGGING_FACE = "HUGGING_FACE"
    LLAMA_CPP = "LLAMA_CPP"


def config_of_preset(style: PresetStyle, parameters: bytes, *, seed: int) -> SamplerConfig:
    """The config that `parameters`, a JSON object of at most 64 KiB, become; what they leave out has the API's default.

    Stages and penalties that change nothing at their value are left out. `seed` (64 bits) is used where the parameters
    name none. Ids are not yet checked against a vocabulary: `check_sampler_config` does that.

    Raises TooLarge and InvalidField, the field being `sampler.preset.parameters` or a path below it.
    """
    match style:
        case PresetStyle.OPENAI:
            return openai_config(parameters, seed=seed)
        case PresetStyle.HUGGING_FACE:
            return hugging_face_config(parameters, seed=seed)
        case PresetStyle.LLAMA_CPP:
            return llama_cpp_config(parameters, seed=seed)
