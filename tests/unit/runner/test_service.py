"""The generation service over real gRPC, with a scripted model and daemon behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from constraintd_client import (
    Directive,
    Finish,
    ToolAnswer,
    greedy,
    reasoning_end,
    sampler_config,
    temperature,
    tool_calls,
    top_k,
)
from constraintd_client.errors import (
    Cancelled,
    ContextExceeded,
    InvalidField,
    InvalidGrammar,
    LimitReached,
    NoTokenAllowed,
)

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd.v1 import sampler_pb2, session_pb2
from tests.unit.runner.scripted import anything, dead, end, until
from tests.unit.runner.service_bench import CONTEXT, Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def test_a_generation_streams_tokens_text_finish_and_usage(bench: Bench) -> None:
    bench.daemon.script = lambda position, token: end(3) if position == 3 else anything(position, position)
    generation = bench.generate(0).wait()
    assert generation.text == "bcd"
    assert generation.token_ids == (1, 2, 3)
    assert generation.seed == 7
    assert generation.finish is not None
    assert generation.usage is not None
    assert (generation.finish.reason, generation.finish.cut_offset) == ("EOG", 3)
    assert (generation.usage.prompt_tokens, generation.usage.completion_tokens) == (1, 3)


def test_deltas_never_split_a_character(bench: Bench) -> None:
    bench.daemon.script = lambda position, token: end(3) if position == 3 else anything(position, position)
    assert list(bench.generate(9)) == ["k", "é"]


def test_a_stop_cuts_the_text_at_its_offset(bench: Bench) -> None:
    stop = Directive(3, None, Finish("STOP_STRING", b"cd", None, 1, False), None, 0.0, 1, 0)
    bench.daemon.script = lambda position, token: stop if position == 3 else anything(position, 1)
    generation = bench.generate(0).wait()
    assert generation.text == "b"
    assert generation.finish == stop.finish


def test_a_schema_s_verdict_passes_through(bench: Bench) -> None:
    finish = Finish("EOG", b"", 39, 2, False, False, "/a: too long")
    bench.daemon.script = lambda position, token: (
        Directive(3, None, finish, None, 0.0, 2, 0) if position == 3 else anything(position)
    )
    assert bench.generate(0).wait().finish == finish


def test_the_end_of_reasoning_is_the_daemon_s_to_know(bench: Bench) -> None:
    end_of = reasoning_end("</think>")
    bench.client.generate([0], constraint=None, sampler=sampler_config(greedy()), reasoning_end=end_of).wait()
    bench.generate(0).wait()
    assert bench.daemon.reasoning_ends == [end_of, None]


CALLS = tool_calls([], choice="required", template=("<tool>",))


def test_an_answer_with_tools_is_taken_apart_and_one_without_is_not(bench: Bench) -> None:
    finish = Finish("LENGTH", b"", None, 2, False)
    bench.daemon.script = lambda position, token: (
        Directive(4, None, finish, None, 0.0, 2, 0) if position == 4 else anything(position)
    )
    assert bench.generate(34).wait().tool_answer is None
    generation = bench.client.generate([34], constraint=CALLS, sampler=sampler_config(greedy())).wait()
    assert generation.token_ids == (35, 36, 37, 38)
    assert generation.text == ".."
    assert generation.tool_answer == ToolAnswer("..<think>", (), "<tool>")


def test_no_tokens_asked_for_are_an_answer_without_calls(bench: Bench) -> None:
    bench.daemon.first = Directive(0, None, Finish("LENGTH", b"", None, 0, True), None, 0.0, 0, 10)
    generation = bench.client.generate([0], constraint=CALLS).wait()
    assert generation.tool_answer == ToolAnswer("", (), "")


def test_a_dead_end_is_an_error_of_its_own_with_a_fragment(bench: Bench) -> None:
    bench.daemon.script = lambda position, token: dead(2, 2) if position == 2 else anything(position, position)
    with pytest.raises(NoTokenAllowed) as caught:
        bench.generate(0).wait()
    assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.fragment == "bc"


def test_a_constraint_that_allows_nothing_at_all_is_a_dead_end(bench: Bench) -> None:
    bench.daemon.first = dead(0)
    with pytest.raises(NoTokenAllowed, match="nothing fits here"):
        bench.generate(0).wait()
    assert len(bench.source.closed) == 1


def test_no_tokens_asked_for_is_an_empty_text_without_a_forward_pass(bench: Bench) -> None:
    bench.daemon.first = Directive(0, None, Finish("LENGTH", b"", None, 0, True), None, 0.0, 0, 10)
    generation = bench.generate(0, sampler=sampler_config(greedy(), max_tokens=0)).wait()
    assert generation.text == ""
    assert generation.finish == bench.daemon.first.finish
    assert bench.daemon.samplers[0].max_tokens == 0
    assert bench.decoder.passes == []


@pytest.mark.parametrize(("asked", "given"), [(None, 15), (100, 15), (15, 15), (3, 3)])
def test_max_tokens_is_cut_to_what_the_context_leaves(bench: Bench, asked: int | None, given: int) -> None:
    bench.generate(0, 1, 2, 3, 4, sampler=sampler_config(greedy(), max_tokens=asked)).wait()
    assert bench.daemon.samplers[0].max_tokens == given


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1])
def test_a_prompt_that_leaves_no_room_is_refused(bench: Bench, length: int) -> None:
    with pytest.raises(ContextExceeded) as caught:
        bench.generate(*[0] * length).wait()
    assert caught.value.metadata == {"limit": "20", "actual": str(length)}


def test_the_daemons_refusal_passes_through(bench: Bench) -> None:
    bench.daemon.refusal = InvalidGrammar("no", reason="INVALID_GRAMMAR", metadata={"location": "1:3"})
    with pytest.raises(InvalidGrammar) as caught:
        bench.generate(0).wait()
    assert caught.value.location == "1:3"
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("sampler", "field"),
    [
        (sampler_config(greedy(), top_k(3)), "sampler.stages"),
        (sampler_config(top_k(3), temperature(-1)), "sampler.stages[1].temperature"),
        (sampler_config(top_k(0)), "sampler.stages[0].top_k"),
        (sampler_pb2.SamplerConfig(stages=[sampler_pb2.SamplerStage()]), "sampler.stages[0]"),
    ],
)
def test_a_bad_stage_is_named(bench: Bench, sampler: sampler_pb2.SamplerConfig, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        bench.generate(0, sampler=sampler).wait()
    assert caught.value.metadata == {"field": field}


def test_a_request_without_a_constraint_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidField) as caught:
        bench.client.generate([0], constraint=session_pb2.Constraint()).wait()
    assert caught.value.metadata == {"field": "constraint"}


def test_more_calls_than_slots_wait_their_turn(bench: Bench) -> None:
    generations = [bench.generate(index) for index in range(4)]
    assert [generation.wait().token_ids for generation in generations] == [
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 5),
        (4, 5, 6),
    ]


def test_a_call_too_many_is_refused_and_a_later_one_is_not(bench: Bench) -> None:
    bench.daemon.script = lambda position, token: anything(position)
    running = [bench.generate(0) for _ in range(4)]
    until_all_are_in = time.monotonic() + 30
    while len(bench.daemon.samplers) < 4:  # two have slots; two wait
        assert time.monotonic() < until_all_are_in
        time.sleep(0.005)
    with pytest.raises(LimitReached) as caught:
        bench.generate(0).wait()
    assert caught.value.metadata == {"what": "generations", "limit": "4"}
    for generation in running:
        generation.cancel()
    bench.daemon.script = until(3)
    deadline = time.monotonic() + 5
    while True:
        try:
            assert bench.generate(0).wait().token_ids == (1, 2, 3)
            break
        except LimitReached:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_cancelling_frees_the_slot_and_closes_the_session(bench: Bench) -> None:
    bench.daemon.script = lambda position, token: anything(position)
    generation = bench.generate(0)
    for _ in zip(generation.events(), range(3), strict=False):
        pass
    generation.cancel()
    with pytest.raises(Cancelled):
        generation.wait()
    deadline = time.monotonic() + 5
    while bench.decoder.lengths or not bench.source.closed:
        assert time.monotonic() < deadline, "the slot was not freed"
        time.sleep(0.001)


def test_a_caller_that_is_gone_before_its_turn_frees_its_place(bench: Bench) -> None:
    bench.daemon.script = lambda position, token: anything(position)
    holders = [bench.generate(0) for _ in range(2)]
    for holder in holders:
        next(holder.events())
    waiting = bench.generate(0)
    threading.Timer(0.05, waiting.cancel).start()
    with pytest.raises(Cancelled):
        waiting.wait()
    deadline = time.monotonic() + 5
    while not bench.source.closed:
        assert time.monotonic() < deadline, "the session was not closed"
        time.sleep(0.001)
    for holder in holders:
        holder.cancel()


def test_the_model_is_described(bench: Bench) -> None:
    assert bench.client.model_info() == pb.GetModelInfoResponse(
        model="counting",
        vocabulary_id="f" * 64,
        logits_width=40,
        context_length=20,
        slots=2,
        execution_provider="CPUExecutionProvider",
        version="9.9",
    )
