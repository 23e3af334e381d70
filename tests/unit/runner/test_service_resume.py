"""ResumeGeneration, CloseGeneration and resumable generations over real gRPC, with a scripted model and daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from constraintd_client import (
    Delta,
    Directive,
    Finish,
    Finished,
    SessionHandle,
    Started,
    ToolAnswer,
    greedy,
    tool_calls,
)
from constraintd_client import sampler_config as config
from constraintd_client.errors import (
    ContextExceeded,
    InvalidField,
    NoTokenAllowed,
    UnknownSession,
    VocabularyMismatch,
)
from constraintd_client.session_changes import Resumed, Turn

from tests.unit.runner.scripted import anything, dead, until
from tests.unit.runner.service_bench import Bench

SESSION = b"r" * 16


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def take_over(bench: Bench, directive: Directive, *tokens: int, **fields: object) -> None:
    """The session that the daemon hands over: prompt 0, then these tokens."""
    sampler = config(greedy(), max_tokens=10)
    handle = SessionHandle(SESSION, 2, 7, directive, sampler)
    known = {"vocabulary_id": "f" * 64, "turns": (Turn(0, (0,)),), "tokens": tokens, "passes": (1,) * len(tokens)}
    bench.daemon.resumed[SESSION] = Resumed(handle, **(known | fields))  # type: ignore[arg-type]


def test_it_goes_on_behind_what_was_seen(bench: Bench) -> None:
    take_over(bench, anything(3, 3), 1, 2, 3)
    last = Directive(5, None, Finish("EOG", b"", None, 5, False), None, 0.0, 5, 0)
    bench.daemon.script = lambda position, token: last if position == 5 else anything(position, 3)
    generation = bench.client.resume(SESSION, seen_tokens=2, seen_text_bytes=1)
    events = list(generation.events())
    assert events[0] == Started(SESSION, 7, 1)
    assert events[1] == Delta((3,), "cd")
    assert generation.token_ids == (3, 4, 5)
    assert generation.text == "cdef"
    assert isinstance(events[-1], Finished)
    usage = events[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (1, 5)
    # Prompt and tokens went in at once, and the first Step says so.
    assert bench.source.passes[SESSION] == [[4], [1]]
    assert bench.source.left == [SESSION]
    assert bench.source.closed == []


def test_an_exact_one_repeats_the_passes(bench: Bench) -> None:
    take_over(bench, anything(3, 3), 1, 2, 3)
    bench.daemon.script = until(4)
    bench.client.resume(SESSION, exact=True).wait()
    assert bench.source.passes[SESSION] == [[1, 1, 1, 1]]


def test_a_finished_one_gives_its_rest_and_its_end(bench: Bench) -> None:
    finish = Finish("LENGTH", b"", None, 3, False)
    take_over(bench, Directive(3, None, finish, None, 0.0, 2, 9), 1, 2, 3)
    generation = bench.client.resume(SESSION, seen_tokens=1, seen_text_bytes=1)
    assert list(generation) == ["cd"]
    assert (generation.token_ids, generation.finish) == ((2, 3), finish)
    assert generation.usage is not None
    assert generation.usage.completion_tokens == 3
    assert bench.decoder.passes == []


def test_a_dead_end_gives_its_rest_and_stays_open(bench: Bench) -> None:
    take_over(bench, dead(2, 2), 1, 2)
    with pytest.raises(NoTokenAllowed) as caught:
        bench.client.resume(SESSION).wait()
    assert caught.value.fragment == "bc"
    assert bench.source.closed == []


def test_its_answer_is_taken_apart_from_the_first_token_on(bench: Bench) -> None:
    finish = Finish("LENGTH", b"", None, 2, False)
    calls = tool_calls([], choice="required", template=("<tool>",))
    take_over(bench, Directive(4, None, finish, None, 0.0, 2, 0), 35, 36, 37, 38, constraint=calls)
    generation = bench.client.resume(SESSION, seen_tokens=4, seen_text_bytes=2).wait()
    assert generation.tool_answer == ToolAnswer("..<think>", (), "<tool>")


def test_what_does_not_fit_is_refused_and_the_session_stays(bench: Bench) -> None:
    with pytest.raises(UnknownSession):
        bench.client.resume(SESSION).wait()
    take_over(bench, anything(1), 1, vocabulary_id="e" * 64)
    with pytest.raises(VocabularyMismatch):
        bench.client.resume(SESSION).wait()
    take_over(bench, anything(1), 1, turns=(Turn(0, (0,) * 11),))
    with pytest.raises(ContextExceeded):
        bench.client.resume(SESSION).wait()
    take_over(bench, anything(1), 1)
    with pytest.raises(InvalidField) as caught:
        bench.client.resume(SESSION, seen_tokens=2).wait()
    assert caught.value.metadata == {"field": "seen_tokens", "expected_position": "1"}
    take_over(bench, anything(1), 1, passes=())
    with pytest.raises(InvalidField) as caught:
        bench.client.resume(SESSION, exact=True).wait()
    assert caught.value.metadata == {"field": "exact"}
    with pytest.raises(InvalidField):
        bench.client.resume(SESSION, logprobs=21).wait()
    assert bench.source.closed == []


def test_a_resumable_generation_leaves_its_session_open(bench: Bench) -> None:
    session_id = b"c" * 16
    bench.client.generate([0], constraint=None, resumable=True, session_id=session_id).wait()
    assert bench.daemon.session_ids == [session_id]
    assert len(bench.source.left) == 1
    bench.daemon.first = Directive(0, None, Finish("LENGTH", b"", None, 0, True), None, 0.0, 0, 10)
    bench.client.generate([0], constraint=None, resumable=True).wait()
    assert bench.source.closed == []


def test_a_request_that_came_before_goes_on_from_its_first_token(bench: Bench) -> None:
    take_over(bench, anything(2, 2), 1, 2)
    bench.daemon.first = anything(2, 2)
    opened = bench.source.open

    def open_again(script: object) -> SessionHandle:
        handle = opened(script)  # type: ignore[arg-type]
        return SessionHandle(SESSION, handle.epoch, handle.seed, handle.directive)

    bench.source.open = open_again  # type: ignore[method-assign]
    bench.daemon.script = until(3)
    generation = bench.client.generate([0], constraint=None, resumable=True, session_id=SESSION).wait()
    assert generation.token_ids == (1, 2, 3)


def test_closing_is_the_daemon_s_word(bench: Bench) -> None:
    take_over(bench, anything(1), 1)
    assert bench.client.close_generation(SESSION)
    assert not bench.client.close_generation(SESSION)
