"""A fold takes many tokens at once; the state is the one that they lead to one by one."""

import random

import pytest

from constraintd.sampler.config import MirostatV2, NGramPenalty, SamplerConfig, WindowPenalty
from constraintd.sampler.settings import Settings
from constraintd.sampler.state import SamplerState
from tests.daemon_process import EOG
from tests.plain_daemon import BYTES

CONFIGS = {
    "plain": {},
    "stop strings": {"stop_strings": (b"zz", b"abcabcab")},
    "stop ids": {"stop_ids": (ord("q"),)},
    "mirostat": {"stages": (MirostatV2(),)},
    "penalties": {"ngram_penalty": NGramPenalty(), "window_penalty": WindowPenalty()},
}


def both(tokens, surprisals, min_tokens=0, **config):
    settings = Settings(BYTES, SamplerConfig(**config), min_tokens=min_tokens)
    single, many = SamplerState.start(settings), SamplerState.start(settings)
    for token, surprisal in zip(tokens, surprisals, strict=True):
        single.advance(token, surprisal)
    many.advance_all(tokens[:70], surprisals[:70])
    many.advance_all(tokens[70:], surprisals[70:])
    return single, many


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("ending", [[], [EOG], [ord("q")], [ord("z"), ord("z")]], ids=["open", "eog", "q", "zz"])
@pytest.mark.parametrize("min_tokens", [0, 500])
def test_state_and_finish_are_those_of_single_steps(name, ending, min_tokens):
    rng = random.Random(f"{name}{ending}")
    tokens = [*rng.choices(b"abc \xc3\xa4", k=200), *ending]
    surprisals = [rng.choice([0.0, 0.5, 3.25]) for _ in tokens]
    single, many = both(tokens, surprisals, min_tokens, **CONFIGS[name])
    assert many.to_bytes() == single.to_bytes()
    assert many.finish == single.finish
    assert many.settled_bytes() == single.settled_bytes()


def test_a_stop_id_in_the_middle_ends_no_text_before_its_least_length():
    single, many = both([*b"abqcd"] * 30, [1.0] * 150, 1000, **CONFIGS["stop ids"])
    assert many.to_bytes() == single.to_bytes()
    assert many.finish is None


def test_nothing_changes_nothing():
    state = SamplerState.start(Settings(BYTES, SamplerConfig()))
    before = state.to_bytes()
    state.advance_all([], [])
    assert state.to_bytes() == before
