"""A preset in OpenAI's words: what each parameter becomes, its default and its range."""

import json

import pytest

from constraintd.errors import InvalidField
from constraintd.sampler.config import Greedy, LogitBias, SamplerConfig, Temperature, TopK, TopP, WindowPenalty
from constraintd.sampler.presets import PresetStyle, config_of_preset


def config(**parameters):
    return config_of_preset(PresetStyle.OPENAI, json.dumps(parameters).encode(), seed=7)


def refusal(**parameters):
    with pytest.raises(InvalidField) as caught:
        config(**parameters)
    return caught.value


def test_nothing_given_is_the_plain_distribution():
    assert config() == SamplerConfig(seed=7)


def test_the_defaults_given_change_nothing():
    assert config(
        temperature=1, top_p=1, frequency_penalty=0, presence_penalty=0, logit_bias={}, seed=7, stop=[], n=1, best_of=1
    ) == SamplerConfig(seed=7)


def test_null_is_the_default():
    names = ["temperature", "top_p", "frequency_penalty", "presence_penalty", "logit_bias", "seed", "max_tokens"]
    names += ["max_completion_tokens", "stop", "n", "best_of"]
    assert config(**dict.fromkeys(names)) == SamplerConfig(seed=7)


def test_bias_comes_before_temperature_and_temperature_before_top_p():
    assert config(top_p=0.9, temperature=0.7, logit_bias={"15043": -100, "0": 2.5}).stages == (
        LogitBias((15043, 0), (-100.0, 2.5)),
        Temperature(0.7),
        TopP(0.9),
    )


def test_temperature_0_is_greedy_and_ends_the_chain():
    assert config(temperature=0, top_p=0.5, logit_bias={"3": 1}).stages == (LogitBias((3,), (1.0,)), Greedy())


def test_top_p_0_keeps_the_most_probable_token():
    assert config(top_p=0).stages == (TopK(1),)


def test_penalties_count_the_output_alone():
    assert config(frequency_penalty=0.5, presence_penalty=-2).window_penalty == WindowPenalty(
        repetition=1.0, frequency=0.5, presence=-2.0, window=None, frequency_counts_prompt=False
    )
    assert config(presence_penalty=0.25).window_penalty == WindowPenalty(presence=0.25)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, 0), (42, 42), (7.0, 7), (-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1)],
)
def test_a_signed_seed_is_taken_modulo_2_to_the_64(given, expected):
    assert config(seed=given).seed == expected


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_max_tokens_are_known(name):
    assert config(**{name: 12}).max_tokens == 12


def test_both_names_of_max_tokens_at_once_contradict_each_other():
    error = refusal(max_tokens=5, max_completion_tokens=5)
    assert error.metadata["field"] == "sampler.preset.parameters.max_tokens"
    assert config(max_tokens=5, max_completion_tokens=None).max_tokens == 5


def test_stop_is_a_string_or_up_to_four():
    assert config(stop="\n").stop_strings == (b"\n",)
    assert config(stop=["a", "ä", "c", "d"]).stop_strings == (b"a", b"\xc3\xa4", b"c", b"d")
    assert refusal(stop=["a", "b", "c", "d", "e"]).message == (
        "sampler.preset.parameters.stop: has 5 strings; the API takes at most 4"
    )


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"logit_bias": [[1, 1]]}, "logit_bias"),
        ({"logit_bias": {"1": 100.1}}, "logit_bias.1"),
        ({"logit_bias": {"1": -101}}, "logit_bias.1"),
        ({"logit_bias": {"1": True}}, "logit_bias.1"),
        ({"logit_bias": {"1": None}}, "logit_bias.1"),
        ({"logit_bias": {"hello": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"01": 1}}, "logit_bias"),
        ({"logit_bias": {"": 1}}, "logit_bias"),
        ({"logit_bias": {"4294967296": 1}}, "logit_bias"),
        ({"logit_bias": {"١": 1}}, "logit_bias"),
        ({"seed": 2**64}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"seed": "7"}, "seed"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": 0.5}, "max_completion_tokens"),
        ({"stop": ""}, "stop"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"tools": []}, "tools"),
        ({"logprobs": False}, "logprobs"),
        ({"user": "me"}, "user"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(parameters, field):
    assert refusal(**parameters).metadata["field"] == f"sampler.preset.parameters.{field}"


def test_a_refusal_gives_the_range():
    assert refusal(temperature=2.5).message == (
        "sampler.preset.parameters.temperature: 2.5 must be at least 0 and at most 2"
    )
    assert refusal(n=2).message == (
        "sampler.preset.parameters.n: 2 is not offered here; open a session for each completion"
    )
