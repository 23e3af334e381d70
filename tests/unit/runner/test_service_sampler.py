"""The sampler of a call: the config in force, presets, log probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from constraintd_client import greedy, sampler_config, temperature, top_k
from constraintd_client.errors import ContextExceeded, InvalidField
from constraintd_client.samplers import logit_bias, sampler_preset

from constraintd.v1 import sampler_pb2
from tests.unit.runner.scripted import end, only
from tests.unit.runner.service_bench import Bench

PRESET = sampler_preset("openai", {"temperature": 0})


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def spelled(asked: sampler_pb2.SamplerConfig) -> sampler_pb2.SamplerConfig:
    """What a daemon makes of PRESET, which says nothing of max_tokens itself."""
    return sampler_config(temperature(0), seed=7, max_tokens=asked.max_tokens)


def preset_with(max_tokens: int, seed: int | None = None) -> sampler_pb2.SamplerConfig:
    """PRESET and what may stand beside it."""
    beside = sampler_pb2.SamplerConfig(max_tokens=max_tokens, seed=seed)
    beside.MergeFrom(PRESET)
    return beside


# --- the config in force ---


def test_the_chain_is_built_from_what_the_daemon_says_is_in_force(bench: Bench) -> None:
    bench.daemon.in_force = lambda asked: sampler_config(logit_bias({5: 100.0}), greedy(), max_tokens=asked.max_tokens)
    assert bench.generate(0).wait().token_ids == (5, 5, 5)


def test_a_daemon_that_does_not_say_has_the_one_that_was_asked_for(bench: Bench) -> None:
    assert bench.generate(0, sampler=sampler_config(logit_bias({5: 100.0}), greedy())).wait().token_ids == (5, 5, 5)


def test_a_session_whose_chain_cannot_be_built_is_closed(bench: Bench) -> None:
    with pytest.raises(InvalidField):
        bench.generate(0, sampler=sampler_config(top_k(0))).wait()
    assert len(bench.source.closed) == 1


# --- presets ---


def test_what_the_context_leaves_stands_beside_a_preset(bench: Bench) -> None:
    bench.daemon.in_force = spelled
    assert bench.generate(0, sampler=PRESET).wait().token_ids == (1, 2, 3)
    assert bench.daemon.samplers == [preset_with(max_tokens=19)]


def test_a_callers_own_max_tokens_beside_a_preset_holds_where_it_is_less(bench: Bench) -> None:
    bench.daemon.in_force = spelled
    bench.generate(0, sampler=preset_with(max_tokens=5)).wait()
    bench.generate(0, sampler=preset_with(max_tokens=500)).wait()
    assert [asked.max_tokens for asked in bench.daemon.samplers] == [5, 19]


def test_a_callers_seed_stays_with_a_preset(bench: Bench) -> None:
    bench.daemon.in_force = spelled
    bench.generate(0, sampler=sampler_preset("openai", {"temperature": 0}, seed=7)).wait()
    assert bench.daemon.samplers == [preset_with(max_tokens=19, seed=7)]


def test_a_preset_after_a_prompt_that_leaves_no_room_is_refused_before_a_session_is_opened(bench: Bench) -> None:
    with pytest.raises(ContextExceeded):
        bench.generate(*[0] * 20, sampler=PRESET).wait()
    assert bench.daemon.samplers == []


def test_a_preset_that_the_daemon_did_not_spell_out_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidField) as caught:
        bench.generate(0, sampler=PRESET).wait()
    assert caught.value.metadata == {"field": "sampler.preset"}


# --- log probabilities ---


def test_log_probabilities_come_with_their_tokens(bench: Bench) -> None:
    # The model gives its favourite 5.0 and the others 0.0; two tokens are allowed.
    bench.daemon.first = only(0, 1, 9)
    bench.daemon.script = lambda position, token: end(3) if position == 3 else only(position, 7, 3)
    generation = bench.generate(0, logprobs=5).wait()
    assert generation.token_ids == (1, 3, 3)
    first, second, _ = generation.logprobs
    assert (first.taken.token_id, [each.token_id for each in first.top]) == (1, [1, 9])
    assert (second.taken.token_id, [each.token_id for each in second.top]) == (3, [3, 7])
    assert [each.logprob for each in first.top] == pytest.approx([-0.0067153, -5.0067153], abs=1e-6)
    assert second.taken.logprob == pytest.approx(-0.6931472, abs=1e-6)


def test_0_asks_for_the_taken_tokens_alone(bench: Bench) -> None:
    positions = bench.generate(0, logprobs=0).wait().logprobs
    assert [(each.taken.token_id, each.top) for each in positions] == [(1, ()), (2, ()), (3, ())]


def test_who_does_not_ask_for_log_probabilities_gets_none(bench: Bench) -> None:
    assert bench.generate(0).wait().logprobs == ()


def test_more_than_20_log_probabilities_are_refused(bench: Bench) -> None:
    assert len(bench.generate(0, logprobs=20).wait().logprobs[0].top) == 20
    with pytest.raises(InvalidField) as caught:
        bench.generate(0, logprobs=21).wait()
    assert caught.value.metadata == {"field": "logprobs"}
    assert len(bench.daemon.samplers) == 1
