"""Stages, stops and contradictions of a sampler config: each is refused by its field's name."""

import pytest

from constraintd.config import Limits
from constraintd.errors import InvalidField, TooLarge
from constraintd.sampler.checks import check_sampler_config
from constraintd.sampler.config import (
    DenyRanges,
    Greedy,
    LogitBias,
    MinP,
    MirostatV1,
    MirostatV2,
    SamplerConfig,
    SplitL,
    SplitP,
    TailFree,
    Temperature,
    TopK,
    TopP,
    TypicalP,
)

WIDTH = 10
NAN = float("nan")
INF = float("inf")


def refusal(config):
    with pytest.raises(InvalidField) as caught:
        check_sampler_config(config, logits_width=WIDTH, limits=Limits())
    return caught.value


def refused_field(config):
    return refusal(config).metadata["field"]


def check(config, **limits):
    check_sampler_config(config, logits_width=WIDTH, limits=Limits(**limits))


def test_the_default_config_is_taken():
    check(SamplerConfig())


@pytest.mark.parametrize(
    "stage",
    [
        Greedy(),
        Temperature(0.0),
        Temperature(1e9),
        TopK(1),
        TopK(2**32 - 1),
        TopP(5e-324),
        TopP(1.0),
        MinP(0.0),
        MinP(1.0),
        TypicalP(1.0),
        TailFree(1.0),
        SplitP(3, 3),
        SplitL(1, 2**32 - 1),
        MirostatV1(0.1, 0.1, 2),
        MirostatV2(0.1, 0.1, 1),
        LogitBias((0, 9), (-1e308, 1e308)),
        LogitBias(tuple(range(10)), (1.0,) * 10),
        DenyRanges(((0, 10),)),
        DenyRanges(((0, 3), (2, 5), (0, 3))),
    ],
)
def test_a_stage_at_the_edge_of_its_range_is_taken(stage):
    check(SamplerConfig(stages=(stage,)))


@pytest.mark.parametrize(
    ("stage", "field"),
    [
        (Temperature(-0.1), "temperature"),
        (Temperature(NAN), "temperature"),
        (Temperature(INF), "temperature"),
        (TopK(0), "top_k"),
        (TopP(0.0), "top_p"),
        (TopP(1.1), "top_p"),
        (TopP(NAN), "top_p"),
        (MinP(-0.1), "min_p"),
        (MinP(1.1), "min_p"),
        (MinP(NAN), "min_p"),
        (TypicalP(0.0), "typical_p"),
        (TypicalP(1.1), "typical_p"),
        (TypicalP(NAN), "typical_p"),
        (TailFree(0.0), "tail_free"),
        (TailFree(1.1), "tail_free"),
        (TailFree(NAN), "tail_free"),
        (SplitP(0, 50), "split_p.min_keep"),
        (SplitP(5, 4), "split_p.max_keep"),
        (SplitP(1, 0), "split_p.max_keep"),
        (SplitL(0, 50), "split_l.min_keep"),
        (SplitL(5, 4), "split_l.max_keep"),
        (MirostatV1(tau=0.0), "mirostat_v1.tau"),
        (MirostatV1(tau=NAN), "mirostat_v1.tau"),
        (MirostatV1(eta=-0.1), "mirostat_v1.eta"),
        (MirostatV1(max_keep=1), "mirostat_v1.max_keep"),
        (MirostatV2(tau=INF), "mirostat_v2.tau"),
        (MirostatV2(eta=0.0), "mirostat_v2.eta"),
        (MirostatV2(eta=NAN), "mirostat_v2.eta"),
        (MirostatV2(max_keep=0), "mirostat_v2.max_keep"),
        (LogitBias((), ()), "logit_bias.ids"),
        (LogitBias((1, 2), (1.0,)), "logit_bias.biases"),
        (LogitBias((1,), ()), "logit_bias.biases"),
        (LogitBias((1, 10), (1.0, 1.0)), "logit_bias.ids[1]"),
        (LogitBias((4, 1, 4), (1.0, 1.0, 2.0)), "logit_bias.ids[2]"),
        (LogitBias((1, 2), (1.0, NAN)), "logit_bias.biases[1]"),
        (LogitBias((1, 2), (-INF, 1.0)), "logit_bias.biases[0]"),
        (LogitBias((0,) * 11, (1.0,) * 11), "logit_bias.ids"),
        (DenyRanges(()), "deny_ranges.ranges"),
        (DenyRanges(((0, 1), (3, 3))), "deny_ranges.ranges[1]"),
        (DenyRanges(((3, 2),)), "deny_ranges.ranges[0]"),
        (DenyRanges(((3, 11),)), "deny_ranges.ranges[0].end"),
        (DenyRanges(((0, 1),) * 11), "deny_ranges.ranges"),
    ],
)
def test_a_stage_out_of_range_is_refused_by_its_place_and_field(stage, field):
    assert refused_field(SamplerConfig(stages=(TopK(5), TopK(5), stage))) == f"sampler.stages[2].{field}"


def test_a_refusal_says_what_was_wrong_and_what_to_do():
    assert refusal(SamplerConfig(stages=(MirostatV2(tau=-1.0),))).message == (
        "sampler.stages[0].mirostat_v2.tau: -1.0 must be finite and above 0; it is in bits; leave it out for 3"
    )
    assert refusal(SamplerConfig(stages=(LogitBias((7, 7), (1.0, 1.0)),))).message == (
        "sampler.stages[0].logit_bias.ids[1]: 7 stands there twice; add its biases up"
    )
    assert refusal(SamplerConfig(stages=(SplitP(5, 4),))).message == (
        "sampler.stages[0].split_p.max_keep: 4 is below min_keep 5; raise it or lower that"
    )


@pytest.mark.parametrize("greedy", [Greedy(), Temperature(0.0)])
def test_greedy_ends_the_chain(greedy):
    assert refused_field(SamplerConfig(stages=(TopK(5), greedy, TopP(0.9)))) == "sampler.stages[1]"
    assert refused_field(SamplerConfig(stages=(greedy, greedy))) == "sampler.stages[0]"
    check(SamplerConfig(stages=(TopK(5), greedy)))


def test_a_rule_of_the_mask_may_stand_after_greedy():
    check(SamplerConfig(stages=(DenyRanges(((0, 1),)), Greedy(), DenyRanges(((2, 3),)))))


@pytest.mark.parametrize("second", [MirostatV1(), MirostatV2()])
def test_there_is_one_mirostat_at_most(second):
    config = SamplerConfig(stages=(MirostatV2(), TopK(5), second))
    assert refused_field(config) == "sampler.stages[2]"
    assert "stages[0]" in refusal(config).message


@pytest.mark.parametrize("greedy", [Greedy(), Temperature(0.0)])
def test_mirostat_and_greedy_contradict_each_other(greedy):
    assert refused_field(SamplerConfig(stages=(MirostatV1(), DenyRanges(((0, 1),)), greedy))) == "sampler.stages[2]"


def test_the_number_of_stages_is_limited():
    check(SamplerConfig(stages=(TopK(5),) * 3), max_stages=3)
    with pytest.raises(TooLarge) as caught:
        check(SamplerConfig(stages=(TopK(5),) * 4), max_stages=3)
    assert caught.value.metadata == {"field": "sampler.stages", "limit": "3", "actual": "4"}


def test_min_tokens_may_reach_max_tokens():
    check(SamplerConfig(min_tokens=4, max_tokens=4))
    check(SamplerConfig(min_tokens=4))
    assert refused_field(SamplerConfig(min_tokens=5, max_tokens=4)) == "sampler.min_tokens"


def test_stop_strings_have_text_and_limits():
    check(SamplerConfig(stop_strings=(b"ab", b"\xff")), max_stop_strings=2, max_stop_string_bytes=2)
    assert refused_field(SamplerConfig(stop_strings=(b"a", b""))) == "sampler.stop_strings[1]"
    with pytest.raises(TooLarge) as caught:
        check(SamplerConfig(stop_strings=(b"a",) * 3), max_stop_strings=2)
    assert caught.value.metadata["field"] == "sampler.stop_strings"
    with pytest.raises(TooLarge) as caught:
        check(SamplerConfig(stop_strings=(b"a", b"abc")), max_stop_string_bytes=2)
    assert caught.value.metadata["field"] == "sampler.stop_strings[1]"


def test_ids_past_the_logits_width_are_no_tokens():
    check(SamplerConfig(stop_ids=(9,), banned_specials=(9,)))
    assert refused_field(SamplerConfig(stop_ids=(9, 10))) == "sampler.stop_ids[1]"
    assert refused_field(SamplerConfig(banned_specials=(10,))) == "sampler.banned_specials.ids[0]"
