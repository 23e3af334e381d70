"""Steps tell of the forward passes that ran, so that a session can be computed again in the same ones."""

from __future__ import annotations

import numpy as np
import pytest
from constraintd_runner.directives import step_bytes

from constraintd.v1 import session_pb2
from tests.unit.runner.scripted import CountingDecoder, Running, ScriptedSource, generation, until


def test_each_step_says_which_forward_passes_ran_since_the_last_one() -> None:
    source = ScriptedSource()
    with Running(CountingDecoder(), source) as loop:
        long, short = generation(source.open(until(4))), generation(source.open(until(2)))
        long.prompt = np.array([7, 8, 9])
        for each in (long, short):
            loop.submit(each)
        for each in (long, short):
            list(each.events())
    assert source.passes[long.session.session_id] == [[3], [1], [1], [1]]
    assert source.passes[short.session.session_id] == [[1], [1]]


def test_a_token_that_waited_for_its_answer_is_one_pass_of_the_next_step() -> None:
    source = ScriptedSource()
    with Running(CountingDecoder(), source) as loop:
        wanted = generation(source.open(until(3)), eog=frozenset({1, 2}))
        loop.submit(wanted)
        list(wanted.events())
    assert source.passes[wanted.session.session_id] == [[1], [1], [1]]


@pytest.mark.parametrize(
    ("position", "token", "passes"),
    [(0, 0, [1]), (0, 5, [128, 16384]), (1, 127, []), (127, 128, [1]), (128, 49151, [1]), (100_000, 2_000_000, [1])],
)
def test_step_bytes_is_the_size_of_the_message(position: int, token: int, passes: list[int]) -> None:
    step = session_pb2.Step(
        session_id=bytes(16), epoch=2**64 - 1, position=position, tokens=[token], surprisals=[0.5], passes=passes
    )
    assert step_bytes(position, token, passes) == step.ByteSize()
