"""Sampler configs: every stage, penalty and preset of the protocol has a builder."""

from __future__ import annotations

import pytest
from constraintd_client import greedy, min_p, sampler_config, temperature, top_k, top_p
from constraintd_client.samplers import (
    SamplerStage,
    deny_ranges_stage,
    ignored_ngrams,
    logit_bias,
    mirostat_v1,
    mirostat_v2,
    ngram_penalty,
    sampler_preset,
    split_l,
    split_p,
    tail_free,
    typical_p,
    window_penalty,
)

from constraintd.v1 import sampler_pb2

STAGES: list[SamplerStage] = [
    greedy(),
    temperature(0.5),
    top_k(4),
    top_p(0.9),
    min_p(0.1),
    typical_p(0.8),
    tail_free(0.7),
    split_p(),
    split_l(),
    mirostat_v1(),
    mirostat_v2(),
    logit_bias({3: 1.0}),
    deny_ranges_stage([(2, 5)]),
]


def test_every_stage_of_the_protocol_has_a_builder() -> None:
    kinds = [field.name for field in sampler_pb2.SamplerStage.DESCRIPTOR.fields]
    assert [stage.WhichOneof("stage") for stage in STAGES] == kinds


def test_what_a_stage_is_not_told_is_left_to_the_daemon() -> None:
    for stage in (split_p(), split_l(), mirostat_v1(), mirostat_v2()):
        assert getattr(stage, stage.WhichOneof("stage") or "").ListFields() == []


def test_a_stage_holds_what_it_is_told() -> None:
    assert split_p(2, 9).split_p == sampler_pb2.SplitP(min_keep=2, max_keep=9)
    assert split_l(max_keep=9).split_l == sampler_pb2.SplitL(max_keep=9)
    assert mirostat_v1(5.0, 0.2, 30).mirostat_v1 == sampler_pb2.MirostatV1(tau=5.0, eta=0.2, max_keep=30)
    assert mirostat_v2(tau=4.0).mirostat_v2 == sampler_pb2.MirostatV2(tau=4.0)
    assert logit_bias({3: 1.5, 1: -2.0}).logit_bias == sampler_pb2.LogitBias(ids=[3, 1], biases=[1.5, -2.0])
    (denied,) = deny_ranges_stage([(2, 5)]).deny_ranges.ranges
    assert (denied.first, denied.end) == (2, 5)


def test_penalties_stand_beside_the_stages() -> None:
    window = window_penalty(repetition=1.1, frequency=0.5, window=64)
    ngrams = ngram_penalty(
        mode="broad",
        max_size=3,
        counts_prompt=False,
        ignored=ignored_ngrams([[1, 2], [3]], texts=["the", b"\xff"], sets=["json_punctuation"]),
    )
    config = sampler_config(greedy(), window_penalty=window, ngram_penalty=ngrams)
    assert config.window_penalty == sampler_pb2.WindowPenalty(repetition=1.1, frequency=0.5, window=64)
    assert (config.ngram_penalty.mode, config.ngram_penalty.max_size) == (sampler_pb2.PENALTY_MODE_BROAD, 3)
    assert config.ngram_penalty.HasField("counts_prompt")
    assert not config.ngram_penalty.HasField("repeat")
    ignored = config.ngram_penalty.ignored
    assert [list(ngram.ids) for ngram in ignored.ngrams] == [[1, 2], [3]]
    assert list(ignored.texts) == [b"the", b"\xff"]
    assert list(ignored.sets) == [sampler_pb2.IGNORED_SET_JSON_PUNCTUATION]


def test_a_penalty_that_is_told_nothing_leaves_everything_to_the_daemon() -> None:
    assert window_penalty() == sampler_pb2.WindowPenalty()
    assert ngram_penalty() == sampler_pb2.NGramPenalty()
    assert not sampler_config(greedy()).HasField("window_penalty")
    assert not sampler_config(greedy()).HasField("ngram_penalty")


def test_ignoring_nothing_is_said_and_not_the_default() -> None:
    assert ngram_penalty(ignored=ignored_ngrams()).HasField("ignored")
    assert not ngram_penalty().HasField("ignored")


def test_a_config_says_what_becomes_of_a_stop_and_which_specials_are_banned() -> None:
    config = sampler_config(include_stop=True, banned_specials=[7, 8])
    assert config.include_stop
    assert list(config.banned_specials.ids) == [7, 8]
    assert not sampler_config().HasField("banned_specials")


def test_a_preset_goes_in_its_own_words() -> None:
    config = sampler_preset("hugging_face", {"temperature": 0.5, "do_sample": True}, seed=3)
    assert config.preset.style == sampler_pb2.PRESET_STYLE_HUGGING_FACE
    assert config.preset.parameters == b'{"temperature":0.5,"do_sample":true}'
    assert config.seed == 3
    assert sampler_preset("openai", '{ "top_p":1}').preset.parameters == b'{ "top_p":1}'
    assert sampler_preset("llama_cpp", {}).preset.style == sampler_pb2.PRESET_STYLE_LLAMA_CPP


def test_a_style_or_a_set_that_does_not_exist_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="PRESET_STYLE_VLLM"):
        sampler_preset("vllm", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="IGNORED_SET_EMOJI"):
        ignored_ngrams(sets=["emoji"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="PENALTY_MODE_HARSH"):
        ngram_penalty(mode="harsh")  # type: ignore[arg-type]


def test_a_single_text_is_no_list_of_texts() -> None:
    with pytest.raises(TypeError, match="texts is a list"):
        ignored_ngrams(texts="the")
