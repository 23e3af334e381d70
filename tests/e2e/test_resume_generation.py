"""A generation outlives its runner: another goes on with it, and its caller sees one text, whole and once."""

from __future__ import annotations

import asyncio
import secrets
import time

import pytest
from constraintd_client import (
    ConstraintClient,
    ContextExceeded,
    DaemonUnavailable,
    Delta,
    Finished,
    GenerationClient,
    InvalidField,
    StaleEpoch,
    Started,
    UnknownSession,
    VocabularyMismatch,
    choice,
    greedy,
    json_schema,
    regex,
    sampler_config,
    temperature,
    tool_calls,
)
from constraintd_client.aio import AsyncGenerationClient
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cut_proxy import cut_proxy
from tests.daemon_process import daemon_process, stub_for
from tests.killable_daemon import KillableDaemon
from tests.redis_process import RedisProcess
from tests.runner_process import mortal_runner, runner_process
from tests.tiny_decoder import write_genai_folder

WORDS = regex("([a-z]{1,9}[ ,.]|é){1,2000}")
GREEDY = sampler_config(greedy(), max_tokens=600, seed=1)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
DRAWN = sampler_config(temperature(1.2), min_tokens=600, max_tokens=600, seed=5)


@pytest.fixture(scope="module")
def daemon_here():
    with daemon_process() as address:
        yield address


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_genai_folder(tmp_path_factory.mktemp("genai"))


@pytest.fixture(scope="module")
def standing(daemon_here, folder):
    """The runner that stays."""
    with runner_process(folder, daemon_here) as address:
        yield address


def whole(address, constraint=WORDS, sampler=GREEDY, prompt="It was "):
    """An uninterrupted generation."""
    with GenerationClient(address) as client:
        return client.generate(prompt, constraint=constraint, sampler=sampler).wait()


def begun(client, pieces, constraint=WORDS, sampler=GREEDY, prompt="It was "):
    """A resumable one that is on its way."""
    generation = client.generate(prompt, constraint=constraint, sampler=sampler, resumable=True, resume_timeout=20)
    for _, _ in zip(generation, range(pieces), strict=False):
        pass
    return generation


def surprisals(daemon, session_id):
    with ConstraintClient(daemon) as client:
        return list(client.get_session(session_id).surprisals)


@pytest.mark.parametrize("sampler", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_a_second_runner_goes_on_behind_what_was_seen_of_a_killed_one(daemon_here, folder, standing, sampler):
    expected = whole(standing, sampler=sampler)
    with mortal_runner(folder, daemon_here) as first, GenerationClient(first.address) as client:
        begin = begun(client, 40, sampler=sampler)
        text, tokens = begin.text, begin.token_ids
        first.kill()
    with GenerationClient(standing) as client:
        rest = client.resume(begin.session_id, seen_tokens=len(tokens), seen_text_bytes=len(text.encode())).wait()
        assert text + rest.text == expected.text
        assert tokens + rest.token_ids == expected.token_ids
        assert rest.finish == expected.finish
        assert rest.seed == expected.seed
        assert (rest.usage.prompt_tokens, rest.usage.completion_tokens) == (expected.usage.prompt_tokens, 600)
        # Whoever has seen nothing gets everything, and whoever has seen all gets the end alone.
        again = client.resume(begin.session_id).wait()
        assert (again.text, again.token_ids, again.finish) == (expected.text, expected.token_ids, expected.finish)
        end = client.resume(begin.session_id, seen_tokens=600, seen_text_bytes=len(expected.text.encode()))
        assert [type(event) for event in end.events()] == [Started, Finished]


def test_a_generation_heals_by_itself_when_its_runner_is_killed(daemon_here, folder, standing):
    expected = whole(standing)
    with mortal_runner(folder, daemon_here) as first, GenerationClient([first.address, standing]) as client:
        generation = client.generate("It was ", constraint=WORDS, sampler=GREEDY, resumable=True)
        events = []
        for event in generation.events():
            events.append(event)
            if len(events) == 30:
                first.kill()
    assert [type(event) for event in events[:1] + events[-1:]] == [Started, Finished]
    deltas = events[1:-1]
    assert all(isinstance(delta, Delta) for delta in deltas)
    assert tuple(token for delta in deltas for token in delta.token_ids) == expected.token_ids
    assert "".join(delta.text for delta in deltas) == expected.text == generation.text


async def test_an_asyncio_generation_heals_as_well(daemon_here, folder, standing):
    expected = await asyncio.to_thread(whole, standing)
    with mortal_runner(folder, daemon_here) as first:
        async with AsyncGenerationClient([first.address, standing]) as client:
            generation = client.generate("It was ", constraint=WORDS, sampler=GREEDY, resumable=True)
            seen = 0
            async for _ in generation:
                seen += 1
                if seen == 30:
                    first.kill()
    assert (generation.text, generation.token_ids) == (expected.text, expected.token_ids)


def test_a_runner_that_is_stopped_hands_over_too(daemon_here, folder, standing):
    expected = whole(standing, sampler=sampler_config(greedy(), max_tokens=1500, seed=1))
    with mortal_runner(folder, daemon_here) as first, GenerationClient([first.address, standing]) as client:
        generation = begun(client, 5, sampler=sampler_config(greedy(), max_tokens=1500, seed=1))
        first.stop()
        assert generation.wait().text == expected.text


def test_a_resume_that_is_exact_goes_on_bit_by_bit(daemon_here, folder, standing):
    expected = whole(standing, sampler=DRAWN)
    with GenerationClient(standing) as client:
        uninterrupted = begun(client, 1, sampler=DRAWN).wait()
    with mortal_runner(folder, daemon_here) as first, GenerationClient(first.address) as client:
        begin = begun(client, 40, sampler=DRAWN)
        first.kill()
    with GenerationClient(standing) as client:
        rest = client.resume(begin.session_id, exact=True).wait()
    assert rest.text == expected.text
    assert surprisals(daemon_here, begin.session_id) == surprisals(daemon_here, uninterrupted.session_id)


def test_the_real_model_goes_on_bit_by_bit(daemon_here, smollm2_folder):
    prompt = [{"role": "user", "content": "Tell me about the sea."}]
    sampler = sampler_config(temperature(0.9), max_tokens=60, seed=11)
    with runner_process(smollm2_folder, daemon_here) as standing:
        with GenerationClient(standing) as client:
            uninterrupted = begun(client, 1, None, sampler, prompt).wait()
        with mortal_runner(smollm2_folder, daemon_here) as first, GenerationClient(first.address) as client:
            begin = begun(client, 15, None, sampler, prompt)
            first.kill()
        with GenerationClient(standing) as client:
            rest = client.resume(begin.session_id, exact=True).wait()
    assert (rest.text, rest.token_ids) == (uninterrupted.text, uninterrupted.token_ids)
    assert surprisals(daemon_here, begin.session_id) == surprisals(daemon_here, uninterrupted.session_id)


def test_whoever_ran_the_session_until_then_is_told(standing):
    with GenerationClient(standing) as client:
        first = begun(client, 5, sampler=sampler_config(greedy(), max_tokens=1500, seed=1))
        second = client.resume(first.session_id)
        next(iter(second))
        with pytest.raises(StaleEpoch, match="resumed"):
            first.wait()
        assert second.wait().text == whole(standing, sampler=sampler_config(greedy(), max_tokens=1500, seed=1)).text


def test_a_cancelled_generation_can_be_resumed_until_it_is_closed(standing, daemon_here):
    with GenerationClient(standing) as client:
        generation = begun(client, 5)
        generation.cancel()
        with ConstraintClient(daemon_here) as daemon:
            time.sleep(0.3)
            assert daemon.get_session(generation.session_id).session.position < 600
        rest = client.resume(generation.session_id, seen_tokens=len(generation.token_ids), seen_text_bytes=0).wait()
        assert generation.token_ids + rest.token_ids == whole(standing).token_ids
        assert client.close_generation(generation.session_id)
        assert not client.close_generation(generation.session_id)
        with pytest.raises(UnknownSession):
            client.resume(generation.session_id).wait()


def test_the_same_request_again_is_the_same_generation_from_its_beginning(standing):
    session_id = secrets.token_bytes(16)
    with GenerationClient(standing) as client:

        def ask():
            return client.generate("It was ", constraint=WORDS, sampler=GREEDY, resumable=True, session_id=session_id)

        first = ask()
        next(iter(first))
        first.cancel()
        assert ask().wait().text == whole(standing).text
        assert ask().wait().session_id == session_id


def test_who_has_seen_more_than_there_is_learns_how_much_there_is(standing):
    with GenerationClient(standing) as client:
        generation = begun(client, 1, sampler=sampler_config(greedy(), max_tokens=20, seed=1)).wait()
        with pytest.raises(InvalidField) as caught:
            client.resume(generation.session_id, seen_tokens=21).wait()
        assert caught.value.metadata == {"field": "seen_tokens", "expected_position": "20"}
        with pytest.raises(InvalidField) as caught:
            client.resume(generation.session_id, seen_tokens=20, seen_text_bytes=500).wait()
        shown = len(generation.text.encode())
        assert caught.value.metadata == {"field": "seen_text_bytes", "expected_bytes": str(shown)}


def test_a_session_of_another_model_or_too_long_for_this_one_is_refused(standing, daemon_here, folder, tmp_path):
    with GenerationClient(standing) as client:
        generation = begun(client, 5)
        generation.cancel()
    other = write_genai_folder(tmp_path / "other", logits_width=290)
    with runner_process(other, daemon_here) as address, GenerationClient(address) as client:
        with pytest.raises(VocabularyMismatch):
            client.resume(generation.session_id).wait()
    with runner_process(folder, daemon_here, "--max-length", "300") as address, GenerationClient(address) as client:
        with pytest.raises(ContextExceeded) as caught:
            client.resume(generation.session_id).wait()
        assert caught.value.metadata == {"limit": "300", "actual": str(600 + len("It was "))}


def test_an_end_that_was_not_seen_comes_once_more_and_constrained_text_stays_whole(daemon_here, folder, standing):
    schema = json_schema(
        {"type": "object", "properties": {"a": {"type": "string", "maxLength": 40}}, "required": ["a"]}
    )
    expected = whole(standing, schema, DRAWN)
    with mortal_runner(folder, daemon_here) as first, GenerationClient([first.address, standing]) as client:
        generation = begun(client, 3, schema, DRAWN)
        first.kill()
        assert generation.wait().text == expected.text
    assert generation.finish == expected.finish


def test_the_answer_of_a_resumed_generation_is_taken_apart_as_ever(standing, folder, daemon_here):
    function = {"name": "sum", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}}}
    calls = tool_calls([{"type": "function", "function": function}], choice="required", single=True, format="hermes")
    sampler = sampler_config(greedy(), seed=1, max_tokens=400)
    expected = whole(standing, calls, sampler)
    with mortal_runner(folder, daemon_here) as first, GenerationClient(first.address) as client:
        begin = begun(client, 3, calls, sampler)
        first.kill()
    with GenerationClient(standing) as client:
        rest = client.resume(begin.session_id).wait()
    assert [call.name for call in rest.tool_answer.calls] == ["sum"]
    assert rest.tool_answer.calls[0].arguments == expected.tool_answer.calls[0].arguments
    assert rest.text == expected.text


# --- the way to the daemon breaks ---


def test_a_cut_connection_to_the_daemon_is_noticed_by_nobody(daemon_here, folder, standing):
    sampler = sampler_config(greedy(), max_tokens=1500, seed=1)
    expected = whole(standing, sampler=sampler)
    with cut_proxy(daemon_here) as proxy, runner_process(folder, proxy.address) as address:
        with GenerationClient(address) as client:
            generation = client.generate("It was ", constraint=WORDS, sampler=sampler)
            for count, _ in enumerate(generation):
                if count in (20, 40, 300):
                    proxy.cut()
            assert generation.text == expected.text
        assert proxy.connections >= 4


def test_generations_wait_for_a_daemon_that_is_away_for_a_while_and_new_ones_do_too(daemon_here, folder, standing):
    sampler = sampler_config(greedy(), max_tokens=1500, seed=1)
    with cut_proxy(daemon_here) as proxy, runner_process(folder, proxy.address) as address:
        with GenerationClient(address) as client:
            generation = client.generate("It was ", constraint=WORDS, sampler=sampler)
            next(iter(generation))
            proxy.shut()
            new = client.generate("x", constraint=choice(["late"]))
            time.sleep(1.5)
            proxy.reopen()
            assert new.wait().text == "late"
            assert generation.wait().text == whole(standing, sampler=sampler).text


def test_a_daemon_that_stays_away_ends_generations_in_time_and_the_runner_says_so(daemon_here, folder):
    with cut_proxy(daemon_here) as proxy:
        with runner_process(folder, proxy.address, "--answer-timeout", "1") as address:
            channel, _ = stub_for(address)
            health = health_pb2_grpc.HealthStub(channel)
            with GenerationClient(address) as client, channel:
                generation = client.generate("It was ", constraint=WORDS, sampler=GREEDY)
                next(iter(generation))
                proxy.shut()
                began = time.monotonic()
                with pytest.raises(DaemonUnavailable):
                    generation.wait()
                with pytest.raises(DaemonUnavailable):
                    client.generate("x", constraint=choice(["no"])).wait()
                assert time.monotonic() - began < 8
                until(
                    lambda: (
                        health.Check(health_pb2.HealthCheckRequest()).status
                        == health_pb2.HealthCheckResponse.NOT_SERVING
                    )
                )
                proxy.reopen()
                until(
                    lambda: (
                        health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
                    )
                )
                assert client.generate("x", constraint=choice(["back"])).wait().text == "back"


# --- the daemon dies ---


def test_a_daemon_that_is_killed_and_comes_back_is_noticed_by_nobody(folder, standing, tmp_path):
    sampler = sampler_config(greedy(), max_tokens=1200, seed=1)
    with (
        KillableDaemon(tmp_path, f"sqlite:{tmp_path}/sessions") as daemon,
        runner_process(folder, daemon.address) as address,
    ):
        with GenerationClient(address) as client:
            running = [client.generate("It was ", constraint=WORDS, sampler=sampler) for _ in range(2)]
            first = [next(iter(generation)) for generation in running]
            daemon.kill()
            new = client.generate("x", constraint=choice(["late"]))
            daemon.start()
            assert new.wait().text == "late"
            assert [generation.wait().text for generation in running] == [whole(standing, sampler=sampler).text] * 2
            assert first[0] == first[1]


def test_a_generation_outlives_its_runner_and_its_daemon(folder, standing, tmp_path):
    expected = whole(standing)
    with KillableDaemon(tmp_path, f"sqlite:{tmp_path}/sessions") as daemon:
        with mortal_runner(folder, daemon.address) as first, GenerationClient(first.address) as client:
            begin = begun(client, 40)
            text, tokens = begin.text, begin.token_ids
            first.kill()
            daemon.kill()
        daemon.start()
        with runner_process(folder, daemon.address) as address, GenerationClient(address) as client:
            rest = client.resume(
                begin.session_id, seen_tokens=len(tokens), seen_text_bytes=len(text.encode()), exact=True
            )
            assert text + rest.wait().text == expected.text
            assert tokens + rest.token_ids == expected.token_ids


def test_one_daemon_of_two_on_the_same_store_is_enough(folder, standing, tmp_path):
    sampler = sampler_config(greedy(), max_tokens=1200, seed=1)
    expected = whole(standing, sampler=sampler)
    homes = [tmp_path / name for name in ("redis", "one", "two")]
    for home in homes:
        home.mkdir()
    redis = RedisProcess(homes[0])
    redis.start()
    try:
        with KillableDaemon(homes[1], redis.url) as one, KillableDaemon(homes[2], redis.url) as two:
            with runner_process(folder, f"{one.address},{two.address}") as address:
                with GenerationClient(address) as client:
                    generation = client.generate("It was ", constraint=WORDS, sampler=sampler)
                    next(iter(generation))
                    one.kill()
                    assert client.generate("x", constraint=choice(["at once"])).wait().text == "at once"
                    assert generation.wait().text == expected.text
    finally:
        redis.kill()


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
