"""Bad input gets a typed error and harms nobody: beside every test a witness session goes on at the same daemon."""

from __future__ import annotations

import queue
import secrets
import threading
import time

import grpc
import pytest

from constraintd.v1 import (
    constraint_service_pb2,
    error_pb2,
    grammar_pb2,
    sampler_pb2,
    session_pb2,
    vocabulary_pb2,
)
from tests.daemon_process import (
    BYTE_TABLE,
    EOG,
    HOLE,
    UNCONSTRAINED,
    WIDTH,
    daemon_process,
    open_request,
    record,
    regex,
    register_bytes,
    step_message,
    stub_for,
    upload,
)
from tests.e2e.test_conversation import Stream, reason_of


@pytest.fixture(autouse=True)
def witness(stub, byte_vocabulary):
    """A session on a stream of its own, opened before the test and stepped after it."""
    request = open_request(byte_vocabulary, regex("a{1000}"))
    epoch = stub.OpenSession(request).epoch
    stream = Stream(stub, byte_vocabulary)
    stream.send(step_message(request.session_id, epoch, 0, [97]))
    assert stream.answers(1)[request.session_id].directive.position == 1
    yield
    stream.send(step_message(request.session_id, epoch, 1, [97]))
    assert stream.answers(1)[request.session_id].directive.position == 2
    stream.call.cancel()


def refused(call, *arguments) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments)
    return caught.value.code(), reason_of(caught.value), caught.value.details()


INVALID, EXHAUSTED, MISSING = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.NOT_FOUND,
)


# --- vocabularies ---


def test_a_vocabulary_that_is_half_sent_or_out_of_order_is_refused(stub):
    chunk = vocabulary_pb2.RegisterVocabularyRequest(
        chunk=vocabulary_pb2.VocabularyChunk(file=vocabulary_pb2.VOCABULARY_FILE_TOKENIZER, data=b"x")
    )
    header = next(upload(b""))
    for messages in ([], [chunk], [header], [header, header], [vocabulary_pb2.RegisterVocabularyRequest()]):
        assert refused(stub.RegisterVocabulary, iter(messages))[:2] == (INVALID, "INVALID_FIELD")
    half = upload(BYTE_TABLE[:-3])
    assert refused(stub.RegisterVocabulary, half)[:2] == (INVALID, "INVALID_VOCABULARY")


def test_a_vocabulary_over_the_size_limit_is_refused(stub):
    def endless():
        yield next(upload(b""))
        for _ in range(200):
            yield vocabulary_pb2.RegisterVocabularyRequest(
                chunk=vocabulary_pb2.VocabularyChunk(file=vocabulary_pb2.VOCABULARY_FILE_TOKENIZER, data=bytes(1 << 20))
            )

    assert refused(stub.RegisterVocabulary, endless())[:2] == (EXHAUSTED, "TOO_LARGE")


def test_an_eog_id_past_the_width_is_an_error_at_registration(stub):
    code, reason, details = refused(stub.RegisterVocabulary, upload(BYTE_TABLE, width=100))
    assert (code, reason) == (INVALID, "INVALID_VOCABULARY")
    assert "256" in details


def test_a_format_or_file_that_the_server_does_not_know_is_refused(stub):
    header = vocabulary_pb2.RegisterVocabularyRequest(header=vocabulary_pb2.VocabularyHeader(format=77))
    assert refused(stub.RegisterVocabulary, iter([header]))[1] == "INVALID_FIELD"
    chunk = vocabulary_pb2.RegisterVocabularyRequest(chunk=vocabulary_pb2.VocabularyChunk(file=77, data=b"x"))
    assert refused(stub.RegisterVocabulary, iter([next(upload(b"")), chunk]))[1] == "INVALID_FIELD"


def test_more_vocabularies_than_the_limit_are_refused_and_known_ones_stay_free():
    with daemon_process("--max-vocabularies", "2") as address:
        channel, stub = stub_for(address)
        with channel:
            for extra in (b"x", b"y"):
                stub.RegisterVocabulary(upload(BYTE_TABLE + record(0, extra)))
            assert refused(stub.RegisterVocabulary, upload(BYTE_TABLE))[:2] == (EXHAUSTED, "LIMIT_REACHED")
            assert not stub.RegisterVocabulary(upload(BYTE_TABLE + record(0, b"x"))).created


def test_stalled_uploads_end_and_free_their_places():
    with daemon_process("--max-uploads", "2", "--upload-idle-seconds", "4") as address:
        channel, stub = stub_for(address)
        with channel:
            calls = [_stalled_upload(stub) for _ in range(2)]

            def every_place_is_stalled():
                # A probe may have held the place that a stalled upload came for: that one tries again.
                for index, call in enumerate(calls):
                    if call.done():
                        calls[index] = _stalled_upload(stub)
                return _reason_now(stub) == "LIMIT_REACHED"

            _wait_until(every_place_is_stalled)
            for call in calls:
                assert reason_of(call.exception(timeout=20)) == "INVALID_FIELD"
            assert register_bytes(stub)


def _stalled_upload(stub):
    """A call that sent its header and sends nothing more."""
    messages = queue.SimpleQueue()
    messages.put(next(upload(b"")))
    return stub.RegisterVocabulary.future(iter(messages.get, None))


def _reason_now(stub):
    try:
        register_bytes(stub)
    except grpc.RpcError as error:
        return reason_of(error)
    return None


def _wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- grammars ---


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({}, "INVALID_FIELD"),
        ({"regex": b""}, "INVALID_GRAMMAR"),
        ({"regex": b"("}, "INVALID_GRAMMAR"),
        ({"regex": b"a\xff"}, "INVALID_FIELD"),
        ({"regex": b"a" * 10_000_000}, "TOO_LARGE"),
        ({"lark": b"start: nothing"}, "INVALID_GRAMMAR"),
        ({"lark": b"\x00"}, "INVALID_GRAMMAR"),
        ({"json_schema": b""}, "INVALID_GRAMMAR"),
        ({"json_schema": b"{"}, "INVALID_GRAMMAR"),
        ({"json_schema": b"[" * 1_000_000}, "INVALID_GRAMMAR"),
        ({"json_schema": b'{"type":"object"}' + b" " * 10_000_000}, "TOO_LARGE"),
        ({"json_schema": b'{"$ref":"#"}'}, "INVALID_GRAMMAR"),
        ({"json_schema": b'{"const":"\\ud800"}'}, "INVALID_GRAMMAR"),
        ({"json_schema": b'{"a":1,"a":2}'}, "INVALID_GRAMMAR"),
        ({"choice": grammar_pb2.Choice()}, "INVALID_FIELD"),
        ({"choice": grammar_pb2.Choice(texts=[b"\xff"])}, "INVALID_FIELD"),
    ],
    ids=str,
)
def test_a_bad_grammar_is_refused(stub, byte_vocabulary, source, reason):
    request = grammar_pb2.CompileGrammarRequest(vocabulary_id=byte_vocabulary, grammar=grammar_pb2.Grammar(**source))
    code, found, details = refused(stub.CompileGrammar, request)
    assert found == reason
    assert code in (INVALID, EXHAUSTED)
    assert len(details) > 20


def test_unknown_ids_say_what_to_do(stub, byte_vocabulary):
    grammar = grammar_pb2.Grammar(regex=b"a")
    for vocabulary_id in ("", "0" * 64, "x" * 100_000, "é"):
        request = grammar_pb2.CompileGrammarRequest(vocabulary_id=vocabulary_id, grammar=grammar)
        code, reason, details = refused(stub.CompileGrammar, request)
        assert (code, reason) == (MISSING, "UNKNOWN_VOCABULARY")
        assert "register" in details
    constraint = session_pb2.Constraint(grammar_id="0" * 64)
    code, reason, details = refused(stub.OpenSession, open_request(byte_vocabulary, constraint))
    assert (code, reason) == (MISSING, "UNKNOWN_GRAMMAR")
    assert "compile it" in details
    code, reason, details = refused(stub.GetSession, session_pb2.GetSessionRequest(session_id=bytes(16)))
    assert (code, reason) == (MISSING, "UNKNOWN_SESSION")


# --- sessions ---


@pytest.mark.parametrize(
    ("sampler", "field"),
    [
        ({"stages": [sampler_pb2.SamplerStage()]}, "sampler.stages[0]"),
        ({"stages": [{"temperature": {"temperature": -1}}]}, "sampler.stages[0].temperature"),
        ({"stages": [{"temperature": {"temperature": float("nan")}}]}, "sampler.stages[0].temperature"),
        ({"stages": [{"top_k": {"k": 5}}, {"top_k": {}}]}, "sampler.stages[1].top_k"),
        ({"stages": [{"top_p": {"p": 1.5}}]}, "sampler.stages[0].top_p"),
        ({"stages": [{"min_p": {"p": -0.1}}]}, "sampler.stages[0].min_p"),
        ({"stages": [{"greedy": {}}, {"top_k": {"k": 1}}]}, "sampler.stages[0]"),
        ({"stop_strings": [b"a", b""]}, "sampler.stop_strings[1]"),
        ({"stop_ids": [WIDTH]}, "sampler.stop_ids[0]"),
    ],
    ids=str,
)
def test_a_sampler_config_out_of_range_is_refused_with_the_field(stub, byte_vocabulary, sampler, field):
    code, reason, details = refused(stub.OpenSession, open_request(byte_vocabulary, UNCONSTRAINED, **sampler))
    assert (code, reason) == (INVALID, "INVALID_FIELD")
    assert details.startswith(field + ":")


@pytest.mark.parametrize(
    "sampler",
    [
        {"stop_strings": [b"x" * 1025]},
        {"stop_strings": [b"%d" % i for i in range(33)]},
        {"stages": [{"top_k": {"k": 5}}] * 33},
    ],
    ids=["long stop", "many stops", "many stages"],
)
def test_a_sampler_config_over_its_limits_is_refused(stub, byte_vocabulary, sampler):
    assert refused(stub.OpenSession, open_request(byte_vocabulary, UNCONSTRAINED, **sampler))[1] == "TOO_LARGE"


def test_a_session_needs_an_id_a_constraint_and_a_prompt_of_known_tokens(stub, byte_vocabulary):
    for session_id in (b"", b"short", bytes(17)):
        request = open_request(byte_vocabulary, UNCONSTRAINED, session_id=session_id)
        assert refused(stub.OpenSession, request)[1] == "INVALID_FIELD"
    code, reason, details = refused(stub.OpenSession, open_request(byte_vocabulary, session_pb2.Constraint()))
    assert (code, reason) == (INVALID, "INVALID_FIELD")
    assert "unconstrained" in details
    request = open_request(byte_vocabulary, UNCONSTRAINED, prompt_tokens=[1, 10**6])
    assert refused(stub.OpenSession, request)[2].startswith("prompt_tokens[1]:")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"position": 2**64 - 1}, "POSITION_GAP"),
        ({"tokens": [98]}, "TOKEN_NOT_ALLOWED"),
        ({"tokens": [EOG]}, "TOKEN_NOT_ALLOWED"),
        ({"tokens": [HOLE]}, "TOKEN_NOT_ALLOWED"),
        ({"tokens": [WIDTH]}, "TOKEN_NOT_ALLOWED"),
        ({"tokens": [2**32 - 1]}, "TOKEN_NOT_ALLOWED"),
        ({"tokens": [97] * 1025, "surprisals": [1.0] * 1025}, "TOO_LARGE"),
        ({"tokens": []}, "INVALID_FIELD"),
        ({"surprisals": []}, "INVALID_FIELD"),
        ({"surprisals": [float("nan")]}, "INVALID_SURPRISAL"),
        ({"surprisals": [-1.0]}, "INVALID_SURPRISAL"),
        ({"epoch": 1}, "STALE_EPOCH"),
        ({"session_id": b"?"}, "INVALID_FIELD"),
        ({"session_id": b"?" * 16}, "UNKNOWN_SESSION"),
        ({"session_id": b"?" * 100_000}, "INVALID_FIELD"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_bad_step_is_refused_alike_by_stream_and_call_and_changes_nothing(stub, byte_vocabulary, change, reason):
    request = open_request(byte_vocabulary, regex("a{1000}"))
    opened = stub.OpenSession(request)
    good = {"session_id": request.session_id, "epoch": opened.epoch, "position": 0, "tokens": [97]}
    bad = step_message(**(good | change))
    assert refused(stub.Step, session_pb2.StepRequest(step=bad))[1] == reason
    stream = Stream(stub, byte_vocabulary)
    stream.send(bad)
    [answer] = next(stream.call).directive_batch.answers
    assert answer.error.reason == error_pb2.ErrorReason.Value(f"ERROR_REASON_{reason}")
    stream.send(step_message(**good))
    assert stream.answers(1)[request.session_id].directive.position == 1
    stream.call.cancel()


def test_a_session_of_another_vocabulary_is_refused_on_the_stream(stub, byte_vocabulary):
    other = stub.RegisterVocabulary(upload(BYTE_TABLE + record(0, b"other"))).vocabulary.vocabulary_id
    request = open_request(other, UNCONSTRAINED)
    epoch = stub.OpenSession(request).epoch
    stream = Stream(stub, byte_vocabulary)
    stream.send(step_message(request.session_id, epoch, 0, [97]))
    answer = stream.answers(1)[request.session_id]
    assert answer.error.reason == error_pb2.ERROR_REASON_VOCABULARY_MISMATCH
    stream.call.cancel()


# --- streams ---


def decode(stub, *messages):
    list(stub.Decode(iter(messages), timeout=30))


def test_a_stream_that_does_not_begin_with_hello_is_ended(stub, byte_vocabulary):
    batch = constraint_service_pb2.DecodeRequest(step_batch=constraint_service_pb2.StepBatch())
    empty = constraint_service_pb2.DecodeRequest()
    hello = constraint_service_pb2.DecodeRequest(
        hello=constraint_service_pb2.Hello(vocabulary_id=byte_vocabulary, logits_width=WIDTH)
    )
    for messages in ([batch], [empty], [hello, hello], [hello, empty]):
        assert refused(decode, stub, *messages)[:2] == (INVALID, "HELLO_EXPECTED")
    decode(stub, hello, batch)  # an empty batch is no error
    decode(stub)


def test_hello_with_a_wrong_width_or_vocabulary_ends_the_stream(stub, byte_vocabulary):
    def hello(vocabulary_id, width):
        return constraint_service_pb2.DecodeRequest(
            hello=constraint_service_pb2.Hello(vocabulary_id=vocabulary_id, logits_width=width)
        )

    for width in (0, WIDTH - 1, WIDTH + 1, 2**32 - 1):
        assert refused(decode, stub, hello(byte_vocabulary, width))[:2] == (INVALID, "LOGITS_WIDTH_MISMATCH")
    assert refused(decode, stub, hello("0" * 64, WIDTH))[:2] == (MISSING, "UNKNOWN_VOCABULARY")


def test_more_streams_than_the_limit_are_refused_and_unary_calls_still_answer():
    with daemon_process("--max-streams", "3") as address:
        channel, stub = stub_for(address)
        with channel:
            vocabulary_id = register_bytes(stub)
            streams = [Stream(stub, vocabulary_id) for _ in range(3)]
            request = open_request(vocabulary_id, UNCONSTRAINED)
            epoch = stub.OpenSession(request).epoch
            for position, stream in enumerate(streams):
                stream.send(step_message(request.session_id, epoch, position, [97]))
                assert stream.answers(1)[request.session_id].directive.position == position + 1
            assert refused(lambda: next(Stream(stub, vocabulary_id).call))[:2] == (EXHAUSTED, "LIMIT_REACHED")
            streams.pop().close()
            _wait_until(lambda: _can_stream(stub, vocabulary_id))
            for stream in streams:
                stream.call.cancel()


def _can_stream(stub, vocabulary_id):
    try:
        Stream(stub, vocabulary_id).close()
    except grpc.RpcError:
        return False
    return True


def test_a_cancelled_call_and_a_client_gone_mid_stream_harm_nobody(daemon, stub, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    epoch = stub.OpenSession(request).epoch
    for position in range(20):
        channel, other = stub_for(daemon)
        stream = Stream(other, byte_vocabulary)
        stream.send(step_message(request.session_id, epoch, position, [97]))
        if position % 2:
            stream.answers(1)
            stream.call.cancel()
        else:
            stream.answers(1)
        channel.close()
    future = stub.CompileGrammar.future(
        grammar_pb2.CompileGrammarRequest(
            vocabulary_id=byte_vocabulary, grammar=grammar_pb2.Grammar(regex=b"(a|b){1,500}c{1,500}")
        )
    )
    future.cancel()
    step = step_message(request.session_id, epoch, 20, [98])
    assert stub.Step(session_pb2.StepRequest(step=step)).directive.position == 21


def test_a_stream_that_never_reads_holds_up_nobody():
    # 131,072 tokens make a mask of 16 KiB, so that the transport's buffers are full soon.
    with daemon_process() as address:
        channel, stub = stub_for(address)
        with channel:
            vocabulary_id = stub.RegisterVocabulary(upload(_big_table(), width=131_072, eog_ids=[0])).vocabulary
            vocabulary_id = vocabulary_id.vocabulary_id
            requests = [open_request(vocabulary_id, UNCONSTRAINED) for _ in range(200)]
            epochs = [stub.OpenSession(request).epoch for request in requests]
            deaf = Stream(stub, vocabulary_id, width=131_072)
            for position in range(10):  # 32 MB of answers, none read
                deaf.send(
                    *[
                        step_message(request.session_id, epoch, position, [97])
                        for request, epoch in zip(requests, epochs, strict=True)
                    ]
                )
            other_channel, other = stub_for(address)
            with other_channel:
                request = open_request(vocabulary_id, UNCONSTRAINED)
                epoch = other.OpenSession(request).epoch
                stream = Stream(other, vocabulary_id, width=131_072)
                for position in range(50):
                    stream.send(step_message(request.session_id, epoch, position, [97]))
                    assert stream.answers(1)[request.session_id].directive.position == position + 1
                stream.close()
            deaf.call.cancel()


def _big_table() -> bytes:
    return b"CDTABLE\x01" + b"".join(record(0, b"%d." % i if i > 255 else bytes([i])) for i in range(131_072))


def test_300_sessions_of_a_131072_token_table_in_one_batch_come_in_messages_under_a_megabyte():
    with daemon_process() as address:
        channel, stub = stub_for(address)
        with channel:
            answer = stub.RegisterVocabulary(upload(_big_table(), width=131_072, eog_ids=[0]))
            vocabulary_id = answer.vocabulary.vocabulary_id
            requests = [open_request(vocabulary_id, UNCONSTRAINED) for _ in range(300)]
            epochs = [stub.OpenSession(request).epoch for request in requests]
            # A client with gRPC's own default limit of 4 MiB.
            with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as plain:
                from constraintd.v1 import constraint_service_pb2_grpc

                stream = Stream(constraint_service_pb2_grpc.ConstraintServiceStub(plain), vocabulary_id, 131_072)
                stream.send(
                    *[
                        step_message(request.session_id, epoch, 0, [97])
                        for request, epoch in zip(requests, epochs, strict=True)
                    ]
                )
                seen = {}
                while len(seen) < 300:
                    message = next(stream.call)
                    assert message.ByteSize() < 1 << 20
                    for one in message.directive_batch.answers:
                        assert one.session_id not in seen
                        seen[one.session_id] = one.directive
                assert {len(directive.mask.dense) for directive in seen.values()} == {16_384}
                stream.call.cancel()


def test_1000_sessions_opened_and_abandoned_leave_room_for_others():
    with daemon_process("--max-sessions", "300", "--session-idle-seconds", "1") as address:
        channel, stub = stub_for(address)
        with channel:
            vocabulary_id = register_bytes(stub)
            constraint = regex("[a-z]+ [0-9]+")
            opened, waited = 0, 0
            while opened < 1000:
                try:
                    stub.OpenSession(open_request(vocabulary_id, constraint))
                    opened += 1
                except grpc.RpcError as error:
                    assert (error.code(), reason_of(error)) == (EXHAUSTED, "LIMIT_REACHED")
                    waited += 1
                    time.sleep(0.2)
            assert waited
            assert len(stub.ListSessions(session_pb2.ListSessionsRequest(page_size=1000)).sessions) <= 300


def test_a_session_in_use_is_never_closed_to_make_room():
    with daemon_process("--max-sessions", "1") as address:
        channel, stub = stub_for(address)
        with channel:
            vocabulary_id = register_bytes(stub)
            stub.OpenSession(open_request(vocabulary_id, UNCONSTRAINED))
            for _ in range(3):
                request = open_request(vocabulary_id, UNCONSTRAINED)
                assert refused(stub.OpenSession, request)[:2] == (EXHAUSTED, "LIMIT_REACHED")


def test_a_batch_of_more_steps_than_the_limit_ends_its_stream(stub, byte_vocabulary):
    stream = Stream(stub, byte_vocabulary)
    stream.send(*[step_message(secrets.token_bytes(16), 1, 0, [97]) for _ in range(4097)])
    assert refused(lambda: next(stream.call))[:2] == (EXHAUSTED, "TOO_LARGE")


def test_many_clients_at_once_each_get_their_own_answers(daemon, byte_vocabulary):
    failures = []

    def run(letter):
        channel, stub = stub_for(daemon)
        try:
            with channel:
                request = open_request(byte_vocabulary, regex(letter * 30))
                epoch = stub.OpenSession(request).epoch
                stream = Stream(stub, byte_vocabulary)
                for position in range(29):
                    stream.send(step_message(request.session_id, epoch, position, [ord(letter)]))
                    assert stream.answers(1)[request.session_id].directive.position == position + 1
                stream.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(letter,)) for letter in "bcdefghi"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
