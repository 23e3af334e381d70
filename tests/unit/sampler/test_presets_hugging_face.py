"""A preset in the words of Hugging Face's GenerationConfig: what each becomes, its default and its range."""

import json

import pytest

from constraintd.errors import InvalidField
from constraintd.sampler.config import (
    DenyRanges,
    Greedy,
    MinP,
    SamplerConfig,
    Temperature,
    TopK,
    TopP,
    TypicalP,
    WindowPenalty,
)
from constraintd.sampler.presets import PresetStyle, config_of_preset


def config(**parameters):
    return config_of_preset(PresetStyle.HUGGING_FACE, json.dumps(parameters).encode(), seed=7)


def refusal(**parameters):
    with pytest.raises(InvalidField) as caught:
        config(**parameters)
    return caught.value


def test_nothing_given_is_greedy_without_a_length():
    assert config() == SamplerConfig(stages=(Greedy(),), seed=7, max_tokens=None)


def test_sampling_keeps_the_50_most_probable_tokens_by_default():
    assert config(do_sample=True) == SamplerConfig(stages=(TopK(50),), seed=7)


def test_without_do_sample_the_sampling_parameters_change_nothing():
    assert config(temperature=0.7, top_k=5, top_p=0.5, min_p=0.1, typical_p=0.5).stages == (Greedy(),)
    assert config(do_sample=False, temperature=0).stages == (Greedy(),)


def test_the_order_is_temperature_top_k_top_p_min_p_typical_p():
    assert config(typical_p=0.95, min_p=0.05, top_p=0.9, top_k=20, temperature=0.6, do_sample=True).stages == (
        Temperature(0.6),
        TopK(20),
        TopP(0.9),
        MinP(0.05),
        TypicalP(0.95),
    )


def test_values_that_keep_everything_make_no_stage():
    assert config(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0).stages == ()


def test_null_is_none():
    names = ["temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "max_new_tokens", "min_new_tokens"]
    names += ["stop_strings", "eos_token_id", "suppress_tokens", "max_length", "bad_words_ids", "penalty_alpha"]
    assert config(do_sample=True, **dict.fromkeys(names)) == SamplerConfig(stages=(TopK(50),), seed=7)


def test_null_for_top_k_is_refused_since_versions_differ():
    assert refusal(do_sample=True, top_k=None).metadata["field"] == "sampler.preset.parameters.top_k"


def test_top_p_0_keeps_the_most_probable_token():
    assert config(do_sample=True, top_k=0, top_p=0).stages == (TopK(1),)


def test_repetition_penalty_counts_the_prompt_and_every_token():
    assert config(repetition_penalty=1.2).window_penalty == WindowPenalty(
        repetition=1.2, frequency=0.0, presence=0.0, window=None, repetition_counts_prompt=True
    )
    assert config(repetition_penalty=1.0).window_penalty is None


def test_lengths_count_new_tokens():
    assert config(max_new_tokens=20, min_new_tokens=3) == SamplerConfig(
        stages=(Greedy(),), seed=7, max_tokens=20, min_tokens=3
    )


def test_stops_are_strings_and_eos_ids():
    assert config(stop_strings="END", eos_token_id=2).stop_strings == (b"END",)
    assert config(stop_strings=["a", "b"]).stop_strings == (b"a", b"b")
    assert config(eos_token_id=2).stop_ids == (2,)
    assert config(eos_token_id=[128001, 128009, 128001]).stop_ids == (128001, 128009)


def test_suppressed_tokens_become_ranges_that_are_never_legal():
    assert config(suppress_tokens=[9, 4, 5, 6, 5, 0]).stages == (DenyRanges(((0, 1), (4, 7), (9, 10))), Greedy())
    assert config(suppress_tokens=[]).stages == (Greedy(),)


def test_a_models_generation_config_can_be_given_as_it_is():
    assert config(
        _from_model_config=True,
        bos_token_id=128000,
        pad_token_id=0,
        do_sample=True,
        eos_token_id=[128001, 128009],
        temperature=0.6,
        top_p=0.9,
        transformers_version="4.45.0",
        use_cache=True,
    ) == SamplerConfig(stages=(Temperature(0.6), TopK(50), TopP(0.9)), seed=7, stop_ids=(128001, 128009))


@pytest.mark.parametrize(
    ("name", "neutral", "active"),
    [
        ("max_length", None, 4096),
        ("min_length", 0, 5),
        ("max_time", None, 1.0),
        ("early_stopping", False, True),
        ("num_beams", 1, 4),
        ("num_beam_groups", 1, 2),
        ("num_return_sequences", 1, 2),
        ("penalty_alpha", 0.0, 0.6),
        ("dola_layers", None, "low"),
        ("epsilon_cutoff", 0.0, 3e-4),
        ("eta_cutoff", 0.0, 3e-4),
        ("diversity_penalty", 0.0, 0.5),
        ("encoder_repetition_penalty", 1.0, 1.2),
        ("length_penalty", 1.0, 2.0),
        ("exponential_decay_length_penalty", None, [5, 1.2]),
        ("no_repeat_ngram_size", 0, 3),
        ("encoder_no_repeat_ngram_size", 0, 3),
        ("bad_words_ids", [], [[1]]),
        ("force_words_ids", [], [[1]]),
        ("sequence_bias", [], [[[1], 2.0]]),
        ("begin_suppress_tokens", [], [1]),
        ("forced_bos_token_id", None, 1),
        ("forced_eos_token_id", None, 2),
        ("forced_decoder_ids", [], [[1, 123]]),
        ("renormalize_logits", True, 1),
        ("remove_invalid_values", False, True),
        ("token_healing", False, True),
        ("guidance_scale", 1, 1.5),
        ("watermarking_config", None, {}),
    ],
)
def test_what_is_not_offered_is_taken_only_where_it_changes_nothing(name, neutral, active):
    assert config(**{name: neutral}) == SamplerConfig(stages=(Greedy(),), seed=7)
    assert config(**{name: None}) == SamplerConfig(stages=(Greedy(),), seed=7)
    error = refusal(**{name: active})
    assert error.metadata["field"] == f"sampler.preset.parameters.{name}"
    assert "is not offered here" in error.message


def test_a_length_that_counts_the_prompt_is_refused_with_the_name_to_use():
    assert refusal(max_length=20).message == (
        "sampler.preset.parameters.max_length: 20 is not offered here; it counts the prompt too; give max_new_tokens"
    )


def test_a_seed_is_no_part_of_a_generation_config():
    error = refusal(seed=3)
    assert error.metadata["field"] == "sampler.preset.parameters"
    assert "SamplerConfig.seed beside the preset" in error.message


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"do_sample": 1}, "do_sample"),
        ({"do_sample": "true"}, "do_sample"),
        ({"do_sample": True, "temperature": 0}, "temperature"),
        ({"temperature": -0.5}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 4294967296}, "top_k"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_p": -0.1}, "top_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"typical_p": 0}, "typical_p"),
        ({"typical_p": 1.1}, "typical_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": -1.0}, "repetition_penalty"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"min_new_tokens": -1}, "min_new_tokens"),
        ({"eos_token_id": -1}, "eos_token_id"),
        ({"eos_token_id": [1, "2"]}, "eos_token_id[1]"),
        ({"suppress_tokens": 5}, "suppress_tokens"),
        ({"suppress_tokens": [1, -1]}, "suppress_tokens[1]"),
        ({"suppress_tokens": [4294967296]}, "suppress_tokens[0]"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(parameters, field):
    assert refusal(**parameters).metadata["field"] == f"sampler.preset.parameters.{field}"
