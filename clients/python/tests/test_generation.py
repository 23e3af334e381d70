"""Text from a runner: pieces while it runs, a finish at the end, and never a fragment passed off as finished."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest
from constraintd_client import (
    Cancelled,
    DeadlineExceeded,
    Delta,
    Finished,
    GenerationClient,
    IncompleteGeneration,
    NoTokenAllowed,
    Started,
    ToolAnswer,
    ToolCall,
    greedy,
    reasoning_end,
    regex,
    sampler_config,
)
from constraintd_client.generation_events import PositionLogprobs, TokenLogprob

from clients.python.tests.scripted_daemon import EndStream
from clients.python.tests.scripted_runner import FINISHED, STARTED, RunningRunner, delta
from constraintd.runner.v1 import generation_service_pb2 as runner_pb2


@pytest.fixture
def client(runner: RunningRunner) -> Iterator[GenerationClient]:
    with GenerationClient(runner.target) as connected:
        yield connected


def test_text_comes_in_pieces_and_the_end_says_why(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = lambda: [STARTED, delta("ab", 1), delta("", 2), delta("é", 3), FINISHED]
    generation = client.generate("Hi", constraint=regex("a"), sampler=sampler_config(greedy()))
    assert generation.finish is None
    assert list(generation) == ["ab", "é"]
    assert generation.text == "abé"
    assert generation.token_ids == (1, 2, 3)
    assert generation.finish is not None
    assert (generation.finish.reason, generation.finish.stop_string) == ("STOP_STRING", b"!")
    assert generation.usage is not None
    assert (generation.usage.completion_tokens, generation.usage.mask_wait_us) == (3, 9)
    assert (generation.session_id, generation.seed) == (b"s" * 16, 3)
    assert runner.requests[0].constraint.grammar.regex == b"a"


def test_the_end_of_reasoning_goes_to_the_runner(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = lambda: [STARTED, FINISHED]
    client.generate("Hi", constraint=None, reasoning_end=reasoning_end("</think>", begin="<think>")).wait()
    client.generate("Hi", constraint=None).wait()
    reasoning, none = runner.requests
    assert (list(reasoning.reasoning_end.texts), reasoning.reasoning_end.begin) == ([b"</think>"], b"<think>")
    assert not none.HasField("reasoning_end")


def test_an_answer_with_tools_comes_taken_apart(runner: RunningRunner, client: GenerationClient) -> None:
    end = runner_pb2.GenerateResponse()
    end.CopyFrom(FINISHED)
    end.finished.tool_answer.content = "Let me see."
    end.finished.tool_answer.calls.add(id="call_1", name="f", arguments="{}")
    end.finished.tool_answer.malformed = "<tool_call>{"
    runner.script = lambda: [STARTED, end]
    generation = client.generate("Hi", constraint=None)
    assert generation.tool_answer is None
    generation.wait()
    assert generation.tool_answer == ToolAnswer("Let me see.", (ToolCall("call_1", "f", "{}"),), "<tool_call>{")
    runner.script = lambda: [STARTED, FINISHED]
    assert client.generate("Hi", constraint=None).wait().tool_answer is None


def test_events_tell_everything(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = lambda: [STARTED, delta("a", 1), FINISHED]
    kinds = [type(event) for event in client.generate([1, 2], constraint=None).events()]
    assert kinds == [Started, Delta, Finished]


def test_log_probabilities_come_with_their_tokens(runner: RunningRunner, client: GenerationClient) -> None:
    first = delta("a", 1)
    position = first.delta.logprobs.add(taken=runner_pb2.TokenLogprob(token_id=1, logprob=-0.5))
    position.top.add(token_id=4, logprob=-0.25)
    position.top.add(token_id=1, logprob=-0.5)
    runner.script = lambda: [STARTED, first, delta("", 2), FINISHED]
    generation = client.generate("Hi", constraint=None, logprobs=2)
    deltas = [event for event in generation.events() if isinstance(event, Delta)]
    wanted = PositionLogprobs(TokenLogprob(1, -0.5), (TokenLogprob(4, -0.25), TokenLogprob(1, -0.5)))
    assert [each.logprobs for each in deltas] == [(wanted,), ()]
    assert generation.logprobs == (wanted,)


def test_asking_for_0_log_probabilities_is_not_asking_for_none(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = lambda: [STARTED, FINISHED]
    for logprobs in (None, 0, 5):
        client.generate("Hi", constraint=None, logprobs=logprobs).wait()
    none, zero, five = runner.requests
    assert not none.HasField("logprobs")
    assert (zero.HasField("logprobs"), zero.logprobs, five.logprobs) == (True, 0, 5)


def test_a_stream_that_ends_early_raises_with_the_fragment(runner: RunningRunner, client: GenerationClient) -> None:
    runner.script = lambda: [STARTED, delta('{"a"', 1)]
    with pytest.raises(IncompleteGeneration) as caught:
        client.generate("Hi", constraint=None).wait()
    assert caught.value.fragment == '{"a"'


def test_a_dead_end_is_a_kind_of_its_own(runner: RunningRunner, client: GenerationClient) -> None:
    def dead_end() -> Iterator[runner_pb2.GenerateResponse]:
        yield STARTED
        yield delta("ab", 1)
        raise EndStream(grpc.StatusCode.FAILED_PRECONDITION, "NO_TOKEN_ALLOWED", "nothing left")

    runner.script = dead_end
    generation = client.generate("Hi", constraint=None)
    with pytest.raises(NoTokenAllowed) as caught:
        generation.wait()
    assert caught.value.fragment == "ab"
    assert generation.finish is None


def test_cancelling_frees_the_place_at_the_runner(runner: RunningRunner, client: GenerationClient) -> None:
    gate = threading.Event()

    def endless() -> Iterator[runner_pb2.GenerateResponse]:
        yield delta("a", 1)
        gate.wait(5)

    runner.script = endless
    generation = client.generate("Hi", constraint=None)
    pieces = iter(generation)
    assert next(pieces) == "a"
    generation.cancel()
    with pytest.raises(Cancelled) as caught:
        next(pieces)
    assert caught.value.fragment == "a"
    gate.set()
    assert runner.ended.wait(5)


def test_a_generation_that_takes_too_long_exceeds_its_deadline(runner: RunningRunner, client: GenerationClient) -> None:
    gate = threading.Event()

    def slow() -> Iterator[runner_pb2.GenerateResponse]:
        gate.wait(5)
        yield FINISHED

    runner.script = slow
    with pytest.raises(DeadlineExceeded):
        client.generate("Hi", constraint=None, timeout=0.05).wait()
    gate.set()


def test_model_info_says_what_runs(client: GenerationClient) -> None:
    assert client.model_info().model == "tiny"
