"""The runner's gRPC API end to end: a tiny random ONNX decoder, a real daemon, three processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import jsonschema
import pytest
from constraintd_client import (
    Cancelled,
    ConstraintClient,
    ConstraintdError,
    ContextExceeded,
    DaemonUnavailable,
    Delta,
    GenerationClient,
    InvalidField,
    InvalidGrammar,
    NoTokenAllowed,
    Started,
    choice,
    greedy,
    json_schema,
    min_p,
    regex,
    sampler_config,
    temperature,
    top_k,
    top_p,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc

from constraintd.runner.v1 import generation_service_pb2, generation_service_pb2_grpc
from tests.daemon_process import daemon_process
from tests.runner_process import runner_process
from tests.tiny_decoder import write_genai_folder, write_optimum_folder

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
    },
    "required": ["kind", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def daemon_here():
    with daemon_process() as address:
        yield address


@pytest.fixture(scope="module")
def genai_folder(tmp_path_factory):
    return write_genai_folder(tmp_path_factory.mktemp("genai"))


@pytest.fixture(scope="module")
def runner(daemon_here, genai_folder):
    with runner_process(genai_folder, daemon_here, "--slots", "4") as address:
        yield address


@pytest.fixture
def client(runner):
    with GenerationClient(runner) as client:
        yield client


def open_sessions(daemon):
    with ConstraintClient(daemon) as client:
        return len(list(client.list_sessions()))


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_every_kind_of_model_folder_writes_the_same_valid_texts(daemon_here, tmp_path):
    # The three folders hold the same weights, and the draws are the daemon's.
    folders = [
        write_genai_folder(tmp_path / "genai"),
        write_optimum_folder(tmp_path / "plain", position_ids=False),
        write_optimum_folder(tmp_path / "positions", position_ids=True),
    ]
    texts = []
    for folder in folders:
        with runner_process(folder, daemon_here) as address, GenerationClient(address) as client:
            texts.append([])
            for seed in range(5):
                sampler = sampler_config(temperature(1.0), seed=seed, max_tokens=400)
                generation = client.generate("A pet: ", constraint=json_schema(SCHEMA), sampler=sampler).wait()
                assert generation.finish.reason in ("GRAMMAR_EXHAUSTED", "EOG")
                jsonschema.validate(json.loads(generation.text), SCHEMA)
                texts[-1].append(generation.text)
    assert texts[0] == texts[1] == texts[2]
    assert len(set(texts[0])) == 5


def test_the_stream_begins_with_started_and_ends_with_finished(client):
    generation = client.generate("Say: ", constraint=choice(["yes please"]), sampler=sampler_config(greedy()))
    events = list(generation.events())
    assert isinstance(events[0], Started)
    assert events[0].prompt_tokens == len("Say: ")
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "yes please"
    assert generation.finish.reason == "GRAMMAR_EXHAUSTED"
    usage = generation.usage
    assert usage.completion_tokens == len(generation.token_ids)
    assert usage.prefill_us > 0
    assert usage.decode_us > 0
    assert usage.wire_bytes > 0
    assert 0 <= usage.mask_wait_us_p50 <= usage.mask_wait_us_p99


def test_text_comes_in_pieces_that_never_split_a_character(client):
    text = "añ😀ß→" * 6
    pieces = list(client.generate("x", constraint=choice([text])))
    assert "".join(pieces) == text
    assert len(pieces) >= 20
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize(
    "stages",
    [
        [greedy()],
        [temperature(0)],
        [temperature(2.0), top_k(5)],
        [top_p(0.5), min_p(0.1), temperature(0.7)],
        [],
    ],
    ids=["greedy", "temperature 0", "top-k", "all", "none"],
)
def test_every_stage_samples_inside_the_mask_and_repeats_by_its_seed(client, stages):
    def run():
        sampler = sampler_config(*stages, seed=11, max_tokens=60)
        return client.generate("n", constraint=regex("([a-f]{3}-){5}[0-9]+;"), sampler=sampler).wait()

    one, other = run(), run()
    assert one.text == other.text
    assert one.token_ids == other.token_ids
    assert all(part.isalpha() or part[:1].isdigit() for part in one.text.split("-"))


def test_concurrent_calls_share_the_slots_and_each_writes_what_it_writes_alone(client):
    def run(seed):
        sampler = sampler_config(temperature(1.5), seed=seed, max_tokens=60)
        pattern = f"{'abcdefghijkl'[seed]}[m-z]{{{5 + seed}}}[0-9]{{3,9}}"
        return client.generate([65 + seed] * (1 + seed), constraint=regex(pattern), sampler=sampler).wait().text

    alone = [run(seed) for seed in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(run, range(12))) == alone
    assert len(set(alone)) == 12


def test_a_cancelled_call_frees_its_slot_and_its_session(client, daemon_here):
    before = open_sessions(daemon_here)
    generations = [client.generate("x", constraint=regex("[a-z]{2000}")) for _ in range(8)]
    for generation in generations[:4]:
        next(iter(generation))
    for generation in generations:
        generation.cancel()
    for generation in generations:
        with pytest.raises(Cancelled):
            generation.wait()
    assert client.generate("x", constraint=choice(["ok"])).wait().text == "ok"
    wait_until(lambda: open_sessions(daemon_here) <= before)


def test_a_caller_s_deadline_ends_the_generation(client, daemon_here):
    generation = client.generate("x", constraint=regex("[a-z]{1900}"), timeout=0.5)
    with pytest.raises(ConstraintdError) as caught:
        generation.wait()
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: open_sessions(daemon_here) == 0)


def test_max_tokens_cuts_and_the_finish_says_that_the_constraint_is_incomplete(client):
    generation = client.generate("x", constraint=regex("a{50}"), sampler=sampler_config(max_tokens=5)).wait()
    assert (generation.finish.reason, generation.finish.constraint_incomplete) == ("LENGTH", True)
    assert generation.text == "aaaaa"


def test_zero_tokens_are_an_empty_completion(client):
    generation = client.generate("x", constraint=None, sampler=sampler_config(max_tokens=0)).wait()
    assert (generation.text, generation.token_ids, generation.finish.reason) == ("", (), "LENGTH")


def test_a_stop_string_is_never_shown(client):
    sampler = sampler_config(greedy(), stop_strings=["345"])
    pieces = list(client.generate("x", constraint=choice(["012 34 34567"]), sampler=sampler))
    assert "".join(pieces) == "012 34 "
    # What could still become the stop was held back, so no piece ever ended in it.
    assert not any(piece.endswith(("3", "34")) and piece != "34 " for piece in pieces[:-1])


def test_unconstrained_text_goes_through_the_daemon_too(client):
    generation = client.generate("x", constraint=None, sampler=sampler_config(seed=1, max_tokens=30)).wait()
    assert generation.finish.reason in ("LENGTH", "EOG")
    assert generation.usage.completion_tokens == len(generation.token_ids)


def test_a_chat_goes_through_the_model_s_template(client):
    chat = [{"role": "user", "content": "hé"}]
    generation = client.generate(chat, constraint=choice(["a"]))
    started = next(iter(generation.events()))
    # <s> u s er \n, h and two bytes, </s>, \n, <s> a s s i st an t \n
    assert started.prompt_tokens == 5 + 3 + 1 + 1 + 9
    generation.cancel()


def test_a_prompt_that_is_too_long_or_unknown_is_refused(client, daemon_here, genai_folder):
    with pytest.raises(InvalidField):
        client.generate([10**6], constraint=choice(["a"])).wait()
    with pytest.raises(ContextExceeded):
        client.generate([5] * 5000, constraint=choice(["a"])).wait()
    with runner_process(genai_folder, daemon_here, "--max-length", "20") as address:
        with GenerationClient(address) as small:
            generation = small.generate([5] * 15, constraint=regex("a{50}")).wait()
            assert (generation.finish.reason, generation.text) == ("LENGTH", "aaaaa")


def test_a_bad_grammar_reaches_the_caller_as_what_it_is(client):
    with pytest.raises(InvalidGrammar, match="/type must be among"):
        client.generate("x", constraint=json_schema({"type": "strin"})).wait()
    with pytest.raises(InvalidField) as caught:
        client.generate("x", constraint=None, sampler=sampler_config(greedy(), top_p(7.0))).wait()
    assert caught.value.metadata["field"] == "sampler.stages[1].top_p"


def test_a_request_without_constraint_or_prompt_is_refused(runner):
    with grpc.insecure_channel(runner) as channel:
        stub = generation_service_pb2_grpc.GenerationServiceStub(channel)
        request = generation_service_pb2.GenerateRequest(text=b"x")
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.Generate(request))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        for text in ({"text": b"\xff"}, {}):
            request = generation_service_pb2.GenerateRequest(**text)
            request.constraint.unconstrained.SetInParent()
            with pytest.raises(grpc.RpcError) as caught:
                list(stub.Generate(request))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_dead_end_is_an_error_of_its_own_and_no_finished_text(daemon_here, tmp_path):
    # The tokenizer loses its token for "!", which the grammar needs at the end.
    folder = write_genai_folder(tmp_path / "model")
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["vocab"]["\u0142"] = document["model"]["vocab"].pop("!")
    path.write_text(json.dumps(document))
    with runner_process(folder, daemon_here) as address, GenerationClient(address) as client:
        generation = client.generate("x", constraint=regex("abc!"), sampler=sampler_config(seed=1))
        with pytest.raises(NoTokenAllowed) as caught:
            generation.wait()
        assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION
        assert (generation.finish, caught.value.fragment) == (None, "abc")
        assert client.generate("x", constraint=choice(["ok"])).wait().text == "ok"


def test_health_and_model_info_are_served(runner, client):
    with grpc.insecure_channel(runner) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="constraintd.runner.v1.GenerationService")
        )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    info = client.model_info()
    assert (info.slots, info.execution_provider, info.context_length) == (4, "CPUExecutionProvider", 2048)


def test_a_dead_daemon_fails_its_generations_and_a_new_one_serves_again(genai_folder):
    folder = tempfile.mkdtemp(prefix="constraintd-")
    address = f"unix:{folder}/daemon.sock"
    command = [sys.executable, "-m", "constraintd.cli", "serve", "--listen", address]

    def start():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout.readline()
        return process

    daemon = start()
    try:
        patience = ("--answer-timeout", "2")
        with runner_process(genai_folder, address, *patience) as target, GenerationClient(target) as client:
            generations = [client.generate("x", constraint=regex("[a-z]{1800}")) for _ in range(3)]
            pieces = [next(iter(generation)) for generation in generations]
            assert all(pieces)
            os.kill(daemon.pid, signal.SIGKILL)
            daemon.wait()
            for generation in generations:
                with pytest.raises(DaemonUnavailable) as caught:
                    generation.wait()
                assert generation.finish is None
                assert caught.value.fragment.isalpha()
            daemon = start()
            wait_until(lambda: works(client))
    finally:
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def works(client):
    try:
        return client.generate("x", constraint=choice(["back"])).wait().text == "back"
    except ConstraintdError:
        return False


def test_a_stopped_daemon_costs_waiting_and_nothing_else(genai_folder):
    # SIGSTOP: alive, but answers nothing. Bounded wait, a typed error, nothing sampled without a mask.
    folder = tempfile.mkdtemp(prefix="constraintd-")
    address = f"unix:{folder}/daemon.sock"
    daemon = subprocess.Popen(
        [sys.executable, "-m", "constraintd.cli", "serve", "--listen", address], stdout=subprocess.PIPE, text=True
    )
    try:
        assert daemon.stdout.readline()
        with runner_process(genai_folder, address, "--answer-timeout", "2") as target:
            with GenerationClient(target) as client:
                generation = client.generate("x", constraint=regex("[a-z]{1800}"))
                next(iter(generation))
                os.kill(daemon.pid, signal.SIGSTOP)
                began = time.monotonic()
                with pytest.raises(DaemonUnavailable):
                    generation.wait()
                assert 1.0 < time.monotonic() - began < 15.0
                os.kill(daemon.pid, signal.SIGCONT)
                wait_until(lambda: works(client))
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
        daemon.kill()
        daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_caller_that_reads_slowly_holds_up_nobody(client):
    slow = client.generate("x", constraint=regex("[a-z]{1500}"))
    stream = iter(slow)
    next(stream)
    done = threading.Event()

    def others():
        for _ in range(5):
            client.generate("x", constraint=choice(["quick"])).wait()
        done.set()

    threading.Thread(target=others, daemon=True).start()
    assert done.wait(60)
    slow.cancel()
