"""A config's message becomes a chain, or an error that names the field."""

from __future__ import annotations

import pytest
from constraintd_client import SamplerStage, greedy, min_p, sampler_config, temperature, top_k, top_p
from constraintd_client.samplers import (
    deny_ranges_stage,
    logit_bias,
    mirostat_v1,
    mirostat_v2,
    sampler_preset,
    split_l,
    split_p,
    tail_free,
    typical_p,
)
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.sampler_config import chain_of
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

from constraintd.v1 import sampler_pb2


@pytest.mark.parametrize(
    ("message", "stage"),
    [
        (greedy(), Greedy()),
        (temperature(0.5), Temperature(0.5)),
        (top_k(7), TopK(7)),
        (top_p(0.9), TopP(0.9)),
        (min_p(0.1), MinP(0.1)),
        (typical_p(0.8), TypicalP(0.8)),
        (tail_free(0.7), TailFree(0.7)),
        (split_p(), SplitP(1, 50)),
        (split_p(2, 9), SplitP(2, 9)),
        (split_l(), SplitL(1, 50)),
        (split_l(max_keep=9), SplitL(1, 9)),
        (mirostat_v1(), MirostatV1(100)),
        (mirostat_v1(5.0, 0.2, 30), MirostatV1(30)),
        (mirostat_v2(), MirostatV2(100)),
        (mirostat_v2(max_keep=30), MirostatV2(30)),
        (logit_bias({3: -1.5, 1: 2.0}), LogitBias((3, 1), (-1.5, 2.0))),
    ],
    ids=lambda value: value.WhichOneof("stage") if isinstance(value, SamplerStage) else "",
)
def test_each_stage_of_the_protocol_is_a_stage_of_the_chain(message: SamplerStage, stage: Stage) -> None:
    assert chain_of(sampler_config(message)) == Chain.of([stage])


def test_no_stage_of_the_protocol_is_unknown() -> None:
    for field in sampler_pb2.SamplerStage.DESCRIPTOR.fields:
        stage = SamplerStage()
        getattr(stage, field.name).SetInParent()
        try:
            chain_of(sampler_config(stage))
        except InvalidRequest as error:
            # An empty message lacks what it must have; its kind is known.
            assert error.metadata == {"field": f"sampler.stages[0].{field.name}"}


def test_stages_keep_their_order_and_deny_ranges_are_the_masks_business() -> None:
    config = sampler_config(top_k(7), deny_ranges_stage([(0, 5)]), temperature(0.5), deny_ranges_stage([(9, 10)]))
    assert chain_of(config) == Chain.of([TopK(7), Temperature(0.5)])
    assert chain_of(sampler_config(greedy(), deny_ranges_stage([(0, 5)]))) == Chain.of([Greedy()])


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (typical_p(0.0), "sampler.stages[1].typical_p"),
        (tail_free(1.5), "sampler.stages[1].tail_free"),
        (split_p(3, 2), "sampler.stages[1].split_p"),
        (split_l(0), "sampler.stages[1].split_l"),
        (mirostat_v1(max_keep=1), "sampler.stages[1].mirostat_v1"),
        (mirostat_v2(max_keep=0), "sampler.stages[1].mirostat_v2"),
        (logit_bias({}), "sampler.stages[1].logit_bias"),
        (SamplerStage(), "sampler.stages[1]"),
    ],
)
def test_a_stage_that_cannot_be_is_named(message: SamplerStage, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chain_of(sampler_config(deny_ranges_stage([(0, 5)]), message))
    assert caught.value.metadata == {"field": field}


def test_a_preset_is_not_the_runners_to_spell_out() -> None:
    with pytest.raises(InvalidRequest) as caught:
        chain_of(sampler_preset("llama_cpp", {}))
    assert caught.value.metadata == {"field": "sampler.preset"}
