"""SamplerConfig messages and domain values: defaults, presets, and there and back again."""

import pytest

from constraintd.errors import InvalidField, TooLarge
from constraintd.sampler.config import (
    DenyRanges,
    Greedy,
    IgnoredNGrams,
    IgnoredSet,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    NGramPenalty,
    PenaltyMode,
    SamplerConfig,
    SplitL,
    SplitP,
    TailFree,
    Temperature,
    TopK,
    TopP,
    TypicalP,
    WindowPenalty,
)
from constraintd.translate_sampler import sampler_config_message, sampler_config_of
from constraintd.v1 import sampler_pb2


def domain(seed=7, **fields):
    return sampler_config_of(sampler_pb2.SamplerConfig(**fields), seed=seed)


def stage(**fields):
    (only,) = domain(stages=[sampler_pb2.SamplerStage(**fields)]).stages
    return only


def refused_field(**fields):
    with pytest.raises(InvalidField) as caught:
        domain(**fields)
    return caught.value.metadata["field"]


def test_an_empty_message_has_the_defaults_and_the_given_seed():
    assert domain(seed=7) == SamplerConfig(
        stages=(),
        seed=7,
        max_tokens=None,
        stop_strings=(),
        stop_ids=(),
        min_tokens=0,
        include_stop=False,
        banned_specials=(),
        window_penalty=None,
        ngram_penalty=None,
    )


def test_values_that_are_set_win_even_at_zero():
    config = domain(seed=0, max_tokens=0)
    assert domain(seed=7).seed == 7
    assert sampler_config_of(sampler_pb2.SamplerConfig(seed=0), seed=7).seed == 0
    assert config.max_tokens == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"greedy": {}}, Greedy()),
        ({"temperature": {"temperature": 0.5}}, Temperature(0.5)),
        ({"temperature": {}}, Temperature(0.0)),
        ({"top_k": {"k": 5}}, TopK(5)),
        ({"top_p": {"p": 0.5}}, TopP(0.5)),
        ({"min_p": {"p": 0.5}}, MinP(0.5)),
        ({"typical_p": {"p": 0.5}}, TypicalP(0.5)),
        ({"tail_free": {"z": 0.5}}, TailFree(0.5)),
        ({"split_p": {}}, SplitP(1, 50)),
        ({"split_p": {"min_keep": 0, "max_keep": 0}}, SplitP(0, 0)),
        ({"split_l": {"max_keep": 9}}, SplitL(1, 9)),
        ({"mirostat_v1": {}}, MirostatV1(3.0, 0.1, 100)),
        ({"mirostat_v1": {"tau": 5.0, "eta": 0.2, "max_keep": 3}}, MirostatV1(5.0, 0.2, 3)),
        ({"mirostat_v2": {}}, MirostatV2(3.0, 0.1, 100)),
        ({"mirostat_v2": {"tau": 0.0}}, MirostatV2(0.0, 0.1, 100)),
        ({"logit_bias": {"ids": [1, 2], "biases": [0.5]}}, LogitBias((1, 2), (0.5,))),
        ({"deny_ranges": {"ranges": [{"first": 1, "end": 3}, {"end": 2}]}}, DenyRanges(((1, 3), (0, 2)))),
    ],
)
def test_a_stage_has_its_values_and_the_defaults_of_those_left_out(fields, expected):
    assert stage(**fields) == expected


def test_a_window_penalty_has_the_documented_defaults():
    assert domain(window_penalty={}).window_penalty == WindowPenalty(
        repetition=1.0,
        frequency=0.0,
        presence=0.0,
        window=None,
        repetition_counts_prompt=True,
        frequency_counts_prompt=False,
    )
    assert domain(
        window_penalty={"repetition": 0.0, "window": 0, "repetition_counts_prompt": False}
    ).window_penalty == (WindowPenalty(0.0, 0.0, 0.0, 0, False, False))


def test_an_ngram_penalty_has_the_documented_defaults():
    assert domain(ngram_penalty={}).ngram_penalty == NGramPenalty(
        mode=PenaltyMode.SURGICAL,
        min_size=1,
        max_size=4,
        repeat=1.05,
        frequency=0.025,
        presence=0.0625,
        window=2048,
        decay=0.99,
        max_count=1.0,
        counts_prompt=True,
        ignored=IgnoredNGrams((), (), (IgnoredSet.COMMON_WORDS, IgnoredSet.JSON_PUNCTUATION, IgnoredSet.STOP_TOKENS)),
    )


def test_an_ngram_penalty_that_ignores_nothing_says_so_by_an_empty_message():
    assert domain(ngram_penalty={"ignored": {}}).ngram_penalty.ignored == IgnoredNGrams((), (), ())


def test_a_set_that_is_named_twice_is_one():
    penalty = domain(ngram_penalty={"mode": 2, "ignored": {"sets": [3, 1, 3]}}).ngram_penalty
    assert penalty.mode is PenaltyMode.BROAD
    assert penalty.ignored.sets == (IgnoredSet.STOP_TOKENS, IgnoredSet.COMMON_WORDS)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"stages": [{"top_k": {"k": 1}}, {}]}, "sampler.stages[1]"),
        ({"ngram_penalty": {"mode": 9}}, "sampler.ngram_penalty.mode"),
        ({"ngram_penalty": {"ignored": {"sets": [1, 0]}}}, "sampler.ngram_penalty.ignored.sets[1]"),
        ({"ngram_penalty": {"ignored": {"sets": [9]}}}, "sampler.ngram_penalty.ignored.sets[0]"),
        ({"preset": {}}, "sampler.preset.style"),
        ({"preset": {"style": 9, "parameters": b"{}"}}, "sampler.preset.style"),
        ({"preset": {"style": 1, "parameters": b'{"temperature": 3}'}}, "sampler.preset.parameters.temperature"),
        ({"preset": {"style": 1, "parameters": b"[]"}}, "sampler.preset.parameters"),
    ],
)
def test_what_this_server_does_not_know_is_refused_by_name(fields, field):
    assert refused_field(**fields) == field


FULL = SamplerConfig(
    stages=(
        DenyRanges(((1, 3), (7, 9))),
        LogitBias((1, 2), (0.5, -1.0)),
        TypicalP(0.9),
        TailFree(0.8),
        SplitP(2, 40),
        SplitL(3, 30),
        TopK(5),
        TopP(0.7),
        MinP(0.0),
        Temperature(0.5),
        MirostatV1(4.0, 0.2, 50),
        MirostatV2(5.0, 0.3, 60),
        Greedy(),
    ),
    seed=2**64 - 1,
    max_tokens=0,
    stop_strings=(b"a", b"\xff"),
    stop_ids=(4, 5),
    min_tokens=6,
    include_stop=True,
    banned_specials=(8, 9),
    window_penalty=WindowPenalty(1.1, 0.5, -0.5, 64, False, True),
    ngram_penalty=NGramPenalty(
        PenaltyMode.BROAD,
        2,
        3,
        1.2,
        0.1,
        0.2,
        512,
        0.5,
        0.0,
        False,
        IgnoredNGrams(((1, 2), (3,)), (b"the",), (IgnoredSet.STOP_TOKENS,)),
    ),
)


@pytest.mark.parametrize(
    "config",
    [
        FULL,
        SamplerConfig(),
        SamplerConfig(window_penalty=WindowPenalty(), ngram_penalty=NGramPenalty()),
        SamplerConfig(ngram_penalty=NGramPenalty(ignored=IgnoredNGrams((), (), ()))),
        SamplerConfig(stages=(DenyRanges(()), LogitBias((), ()), LogitBias((1,), ()))),
    ],
)
def test_a_config_comes_back_as_it_went(config):
    wire = sampler_config_message(config).SerializeToString()
    assert sampler_config_of(sampler_pb2.SamplerConfig.FromString(wire), seed=1) == config


def test_the_message_has_its_defaults_filled_in_so_that_a_runner_needs_none():
    sent = sampler_pb2.SamplerConfig(stages=[{"split_p": {}}, {"mirostat_v2": {}}], ngram_penalty={}, window_penalty={})
    message = sampler_config_message(sampler_config_of(sent, seed=7))
    assert message.seed == 7
    assert (message.stages[0].split_p.min_keep, message.stages[0].split_p.max_keep) == (1, 50)
    mirostat = message.stages[1].mirostat_v2
    assert (mirostat.tau, mirostat.eta, mirostat.max_keep) == (3.0, 0.1, 100)
    assert message.window_penalty.HasField("repetition")
    assert message.window_penalty.repetition_counts_prompt
    assert message.ngram_penalty.mode == sampler_pb2.PENALTY_MODE_SURGICAL
    assert list(message.ngram_penalty.ignored.sets) == [1, 2, 3]
    assert not message.HasField("max_tokens")
    assert not message.HasField("banned_specials")


OPENAI = {"style": 1, "parameters": b'{"temperature": 0.5, "max_tokens": 9}'}


def test_a_preset_is_expanded_and_does_not_come_back():
    config = domain(seed=7, preset=OPENAI)
    assert config == SamplerConfig(stages=(Temperature(0.5),), seed=7, max_tokens=9)
    assert not sampler_config_message(config).HasField("preset")


def test_each_style_has_its_own_defaults():
    assert domain(preset={"style": 1}).stages == ()
    assert domain(preset={"style": 2}).stages == (Greedy(),)
    assert domain(preset={"style": 3}).stages == (TopK(40), TopP(0.95), MinP(0.05), Temperature(0.8))


def test_the_seed_beside_a_preset_wins_over_the_one_in_it():
    seeded = {"style": 1, "parameters": b'{"seed": 3}'}
    assert sampler_config_of(sampler_pb2.SamplerConfig(preset=seeded), seed=7).seed == 3
    assert sampler_config_of(sampler_pb2.SamplerConfig(preset=seeded, seed=5), seed=7).seed == 5
    assert sampler_config_of(sampler_pb2.SamplerConfig(preset=seeded, seed=0), seed=7).seed == 0


def test_of_two_bounds_the_smaller_one_holds():
    bounded = {"style": 1, "parameters": b'{"max_tokens": 3}'}
    assert domain(preset=bounded, max_tokens=2).max_tokens == 2
    assert domain(preset=bounded, max_tokens=5).max_tokens == 3
    assert domain(preset=OPENAI, max_tokens=0).max_tokens == 0


@pytest.mark.parametrize(
    ("beside", "field"),
    [
        ({"stages": [{"greedy": {}}]}, "sampler.stages"),
        ({"stop_strings": [b"a"]}, "sampler.stop_strings"),
        ({"stop_ids": [1]}, "sampler.stop_ids"),
        ({"min_tokens": 1}, "sampler.min_tokens"),
        ({"include_stop": True}, "sampler.include_stop"),
        ({"banned_specials": {}}, "sampler.banned_specials"),
        ({"window_penalty": {}}, "sampler.window_penalty"),
        ({"ngram_penalty": {}}, "sampler.ngram_penalty"),
    ],
)
def test_nothing_but_seed_and_max_tokens_may_stand_beside_a_preset(beside, field):
    assert refused_field(preset=OPENAI, **beside) == field


def test_a_preset_past_64_kib_is_refused_with_the_limit():
    with pytest.raises(TooLarge) as caught:
        domain(preset={"style": 1, "parameters": b"{" + b" " * 65_535 + b"}"})
    assert caught.value.metadata == {"field": "sampler.preset.parameters", "limit": "65536", "actual": "65537"}
