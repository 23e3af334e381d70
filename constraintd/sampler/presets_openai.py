"""OpenAI's chat and completion requests: the sampling part. Source: the API reference, "Create chat completion"."""

from __future__ import annotations

from constraintd.errors import InvalidField
from constraintd.sampler.config import Greedy, LogitBias, SamplerConfig, Stage, WindowPenalty
from constraintd.sampler.presets_parameters import (
    FIELD,
    Names,
    Parameters,
    Span,
    number_at,
    parameters_of,
    token_id_of,
    words,
)
from constraintd.sampler.presets_stages import temperature_stages, top_p_stages

_GRAMMAR = "compile it as a grammar and open the session with that"

NAMES = Names(
    api="OpenAI's chat and completion requests",
    offered=words(
        "temperature top_p frequency_penalty presence_penalty logit_bias seed max_tokens max_completion_tokens stop"
    ),
    idle={"n": (1,), "best_of": (1,)},
    unrelated=words(
        "model messages prompt stream stream_options logprobs top_logprobs user tools tool_choice functions "
        "function_call parallel_tool_calls response_format reasoning_effort verbosity modalities audio prediction "
        "suffix echo store metadata service_tier safety_identifier prompt_cache_key web_search_options"
    ),
    remedies={
        "n": "open a session for each completion",
        "best_of": "open a session for each completion",
        "response_format": _GRAMMAR,
        "tools": _GRAMMAR,
        "tool_choice": _GRAMMAR,
    },
)


def openai_config(text: bytes, *, seed: int) -> SamplerConfig:
    """The config. Order: penalties, logit_bias, temperature, top_p.

    | name                              | values                   | default | becomes                              |
    |-----------------------------------|--------------------------|---------|--------------------------------------|
    | temperature                       | 0 to 2                   | 1       | temperature; 0: greedy               |
    | top_p                             | 0 to 1                   | 1       | top_p                                |
    | frequency_penalty                 | -2 to 2                  | 0       | window_penalty, over the output only |
    | presence_penalty                  | -2 to 2                  | 0       | window_penalty, over the output only |
    | logit_bias                        | {"id": -100 to 100}      | none    | logit_bias                           |
    | seed                              | 64 bits, signed or not   | `seed`  | seed, modulo 2^64                    |
    | max_completion_tokens, max_tokens | whole, at least 0        | none    | max_tokens; both at once are refused |
    | stop                              | string, or up to 4       | none    | stop_strings                         |

    null is the default. The older completions' default of 16 tokens is not taken over. `n` and `best_of` are taken at
    1. Raises InvalidField, TooLarge.
    """
    given = parameters_of(text, NAMES)
    temperature = given.number("temperature", 1, Span(0, 2))
    top_p = given.number("top_p", 1, Span(0, 1))
    frequency = given.number("frequency_penalty", 0, Span(-2, 2))
    presence = given.number("presence_penalty", 0, Span(-2, 2))
    bias = _bias_of(given)
    # Greedy ends the chain, and what top_p would have cut it never picks.
    picks = (Greedy(),) if temperature == 0 else (*temperature_stages(temperature), *top_p_stages(top_p))
    return SamplerConfig(
        stages=(*bias, *picks),
        seed=given.integer("seed", seed, least=-(1 << 63), most=(1 << 64) - 1) % (1 << 64),
        max_tokens=_max_tokens_of(given),
        stop_strings=given.texts("stop", or_one=True, most=4),
        window_penalty=WindowPenalty(frequency=frequency, presence=presence) if frequency or presence else None,
    )


def _max_tokens_of(given: Parameters) -> int | None:
    names = [name for name in ("max_completion_tokens", "max_tokens") if given.given(name)]
    if len(names) == 2:
        raise InvalidField(f"{FIELD}.max_tokens", "stands beside max_completion_tokens, its new name; keep one of them")
    return given.integer(names[0], 0, least=0) if names else None


def _bias_of(given: Parameters) -> tuple[Stage, ...]:
    if not given.given("logit_bias"):
        return ()
    at, value = f"{FIELD}.logit_bias", given.values["logit_bias"]
    if not isinstance(value, dict):
        raise InvalidField(at, 'must be an object of token ids and biases, such as {"15043": -100}')
    ids = tuple(token_id_of(at, key) for key in value)
    biases = tuple(number_at(f"{at}.{key}", bias, Span(-100, 100)) for key, bias in value.items())
    return (LogitBias(ids, biases),) if ids else ()
