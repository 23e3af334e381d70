"""A preset in the words of llama.cpp's server: what each parameter becomes, its default, its place and its range."""

import json

import pytest

from constraintd.errors import InvalidField
from constraintd.sampler.config import (
    DenyRanges,
    Greedy,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    SamplerConfig,
    TailFree,
    Temperature,
    TopK,
    TopP,
    TypicalP,
    WindowPenalty,
)
from constraintd.sampler.presets import PresetStyle, config_of_preset

DEFAULT_STAGES = (TopK(40), TopP(0.95), MinP(0.05), Temperature(0.8))
NO_STAGES = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}


def config(**parameters):
    return config_of_preset(PresetStyle.LLAMA_CPP, json.dumps(parameters).encode(), seed=7)


def refusal(**parameters):
    with pytest.raises(InvalidField) as caught:
        config(**parameters)
    return caught.value


def test_nothing_given_has_the_servers_defaults():
    assert config() == SamplerConfig(stages=DEFAULT_STAGES, seed=7)


def test_null_is_the_default():
    names = ["temperature", "temp", "top_k", "top_p", "min_p", "typical_p", "typ_p", "tfs_z", "repeat_penalty"]
    names += ["repeat_last_n", "presence_penalty", "frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta"]
    names += ["seed", "n_predict", "stop", "logit_bias", "samplers", "dry_multiplier", "ignore_eos"]
    assert config(**dict.fromkeys(names)) == SamplerConfig(stages=DEFAULT_STAGES, seed=7)


def test_values_that_keep_everything_make_no_stage():
    assert config(**NO_STAGES, typical_p=1, tfs_z=1) == SamplerConfig(stages=(), seed=7)


def test_the_default_order_is_top_k_tfs_z_typ_p_top_p_min_p_temperature():
    assert config(temperature=0.5, min_p=0.1, top_p=0.9, typical_p=0.7, tfs_z=0.6, top_k=30).stages == (
        TopK(30),
        TailFree(0.6),
        TypicalP(0.7),
        TopP(0.9),
        MinP(0.1),
        Temperature(0.5),
    )


def test_samplers_says_which_stages_run_and_in_which_order():
    assert config(samplers=["temperature", "min_p", "typical_p"], typ_p=0.9).stages == (
        Temperature(0.8),
        MinP(0.05),
        TypicalP(0.9),
    )
    assert config(samplers=["top_k", "temperature", "top_k"]).stages == (TopK(40), Temperature(0.8), TopK(40))
    assert config(samplers=[]).stages == ()


def test_samplers_that_change_nothing_may_stand_anywhere():
    everything = ["dry", "penalties", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
    assert config(samplers=everything, presence_penalty=1) == SamplerConfig(
        stages=DEFAULT_STAGES, seed=7, window_penalty=WindowPenalty(1.0, 0.0, 1.0, 64, True, True)
    )


def test_penalties_that_samplers_leaves_out_are_off():
    assert config(samplers=["top_k"], presence_penalty=1).window_penalty is None


@pytest.mark.parametrize(
    ("samplers", "field"),
    [
        (["top_k", "penalties"], "samplers[1]"),
        (["penalties", "penalties"], "samplers[1]"),
        (["infill"], "samplers[0]"),
        (["top_k", "top-p"], "samplers[1]"),
        ([7], "samplers[0]"),
        ([["top_k"]], "samplers[0]"),
        ([None], "samplers[0]"),
        ("kfypmt", "samplers"),
        ({}, "samplers"),
    ],
)
def test_samplers_out_of_place_or_unknown_are_refused(samplers, field):
    assert refusal(samplers=samplers).metadata["field"] == f"sampler.preset.parameters.{field}"


@pytest.mark.parametrize("temperature", [0, -1.5])
def test_temperature_0_and_below_is_greedy_and_ends_the_chain(temperature):
    assert config(temperature=temperature).stages == (TopK(40), TopP(0.95), MinP(0.05), Greedy())
    assert config(temp=temperature, samplers=["top_k", "temperature", "typ_p"], typ_p=0.5).stages == (
        TopK(40),
        Greedy(),
    )


@pytest.mark.parametrize("k", [0, -1])
def test_top_k_0_and_below_is_off(k):
    assert config(top_k=k).stages == (TopP(0.95), MinP(0.05), Temperature(0.8))


def test_top_p_0_keeps_the_most_probable_token():
    assert config(samplers=["top_p"], top_p=0).stages == (TopK(1),)


def test_penalties_count_the_prompt_within_the_last_64_tokens():
    assert config(repeat_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.3).window_penalty == WindowPenalty(
        repetition=1.1,
        frequency=0.3,
        presence=0.2,
        window=64,
        repetition_counts_prompt=True,
        frequency_counts_prompt=True,
    )


def test_repeat_last_n_is_the_window_0_is_off_and_minus_1_is_all():
    assert config(repeat_penalty=1.1, repeat_last_n=5).window_penalty == WindowPenalty(1.1, 0.0, 0.0, 5, True, True)
    assert config(repeat_penalty=1.1, repeat_last_n=0).window_penalty is None
    assert config(repeat_penalty=1.1, repeat_last_n=-1).window_penalty == WindowPenalty(1.1, 0.0, 0.0, None, True, True)


def test_mirostat_runs_after_temperature_and_alone():
    assert config(mirostat=1, repeat_penalty=1.5, top_k=5, samplers=["top_p"]) == SamplerConfig(
        stages=(Temperature(0.8), MirostatV1(tau=5.0, eta=0.1, max_keep=100)), seed=7
    )
    assert config(mirostat=2, mirostat_tau=3, mirostat_eta=0.2, logit_bias=[[4, 1]]).stages == (
        LogitBias((4,), (1.0,)),
        Temperature(0.8),
        MirostatV2(tau=3.0, eta=0.2, max_keep=4294967295),
    )
    assert config(mirostat=0, mirostat_tau=3).stages == DEFAULT_STAGES


def test_mirostat_at_temperature_0_has_one_token_to_choose_from():
    assert config(mirostat=2, temperature=0).stages == (Greedy(),)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(-1, 7), (4294967295, 7), (0, 0), (42, 42), (42.0, 42), (-2, 4294967294), (-(2**31), 2**31)],
)
def test_a_seed_has_32_bits_and_minus_1_is_random(given, expected):
    assert config(seed=given).seed == expected


@pytest.mark.parametrize(("given", "expected"), [(-1, None), (0, 0), (128, 128)])
def test_n_predict_minus_1_is_no_limit(given, expected):
    assert config(n_predict=given).max_tokens == expected


def test_stop_is_a_list_of_strings():
    assert config(stop=["</s>", "\n\n"]).stop_strings == (b"</s>", b"\n\n")
    assert refusal(stop="</s>").metadata["field"] == "sampler.preset.parameters.stop"


def test_logit_bias_is_a_list_of_pairs_or_an_object():
    expected = (LogitBias((15043, 7), (1.0, -0.5)),)
    assert config(**NO_STAGES, logit_bias=[[15043, 1.0], [7, -0.5]]).stages == expected
    assert config(**NO_STAGES, logit_bias={"15043": 1, "7": -0.5}).stages == expected
    assert config(**NO_STAGES, logit_bias=[]).stages == ()


def test_a_bias_of_false_bans_the_token():
    assert config(**NO_STAGES, logit_bias=[[5, False], [7, 1], [4, False]]).stages == (
        DenyRanges(((4, 6),)),
        LogitBias((7,), (1.0,)),
    )
    assert config(**NO_STAGES, logit_bias={"5": False}).stages == (DenyRanges(((5, 6),)),)


@pytest.mark.parametrize(
    ("bias", "field"),
    [
        (7, "logit_bias"),
        ("7", "logit_bias"),
        ([7], "logit_bias[0]"),
        ([[7]], "logit_bias[0]"),
        ([[7, 1], [8, 1, 2]], "logit_bias[1]"),
        ([["Hello", 1]], "logit_bias[0]"),
        ([[-1, 1]], "logit_bias[0]"),
        ([[True, 1]], "logit_bias[0]"),
        ([[7, True]], "logit_bias[0]"),
        ([[7, "1"]], "logit_bias[0]"),
        ([[7, None]], "logit_bias[0]"),
        ([[7, 1], [7, 2]], "logit_bias[1]"),
        ([[7, False], [7, 2]], "logit_bias[1]"),
        ({"Hello": 1}, "logit_bias"),
        ({"7": True}, "logit_bias.7"),
    ],
)
def test_a_bias_that_is_no_pair_of_an_id_and_a_number_is_refused(bias, field):
    assert refusal(logit_bias=bias).metadata["field"] == f"sampler.preset.parameters.{field}"


@pytest.mark.parametrize(
    ("name", "alias", "value", "stages"),
    [
        ("temperature", "temp", 0.5, (TopK(40), TopP(0.95), MinP(0.05), Temperature(0.5))),
        ("typical_p", "typ_p", 0.5, (TopK(40), TypicalP(0.5), TopP(0.95), MinP(0.05), Temperature(0.8))),
    ],
)
def test_a_name_and_its_alias_mean_the_same_and_contradict_each_other(name, alias, value, stages):
    assert config(**{name: value}).stages == stages
    assert config(**{alias: value}).stages == stages
    assert refusal(**{name: value, alias: value}).metadata["field"] == f"sampler.preset.parameters.{alias}"


@pytest.mark.parametrize(
    ("name", "neutral", "active"),
    [
        ("dry_multiplier", 0.0, 0.8),
        ("xtc_probability", 0.0, 0.5),
        ("top_n_sigma", -1, 1.5),
        ("dynatemp_range", 0.0, 0.5),
        ("min_keep", 0, 2),
        ("ignore_eos", False, True),
        ("n_indent", 0, 4),
        ("n_cmpl", 1, 2),
    ],
)
def test_what_is_not_offered_is_taken_only_where_it_changes_nothing(name, neutral, active):
    assert config(**{name: neutral}).stages == DEFAULT_STAGES
    assert refusal(**{name: active}).metadata["field"] == f"sampler.preset.parameters.{name}"


def test_companions_of_idle_parameters_change_nothing():
    assert config(dry_base=2, dry_allowed_length=3, dry_penalty_last_n=4, dry_sequence_breakers=["\n"]) == config()
    assert config(xtc_threshold=0.3, dynatemp_exponent=2) == config()


def test_ignore_eos_is_refused_with_the_way_to_go_on():
    assert "set its min_tokens" in refusal(ignore_eos=True).message


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"top_k": 0.5}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"typical_p": 0}, "typical_p"),
        ({"typ_p": 1.1}, "typ_p"),
        ({"tfs_z": 0}, "tfs_z"),
        ({"tfs_z": 1.1}, "tfs_z"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"repeat_last_n": -2}, "repeat_last_n"),
        ({"presence_penalty": "1"}, "presence_penalty"),
        ({"frequency_penalty": True}, "frequency_penalty"),
        ({"mirostat": 3}, "mirostat"),
        ({"mirostat": -1}, "mirostat"),
        ({"mirostat": True}, "mirostat"),
        ({"mirostat_tau": 0}, "mirostat_tau"),
        ({"mirostat_eta": -0.1}, "mirostat_eta"),
        ({"seed": 4294967296}, "seed"),
        ({"seed": -(2**31) - 1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"n_predict": -2}, "n_predict"),
        ({"temp": "hot"}, "temp"),
        ({"cache_prompt": True}, "cache_prompt"),
        ({"n": 1}, "n"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(parameters, field):
    assert refusal(**parameters).metadata["field"] == f"sampler.preset.parameters.{field}"
