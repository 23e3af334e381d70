"""The conversation with a real daemon over real gRPC, point by point."""

from __future__ import annotations

import queue
import secrets

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from constraintd.v1 import constraint_service_pb2, error_pb2, grammar_pb2, session_pb2, vocabulary_pb2
from tests.daemon_process import (
    BYTE_TABLE,
    EOG,
    SECOND_EOG,
    TOOL,
    UNCONSTRAINED,
    WIDTH,
    allowed,
    open_request,
    record,
    regex,
    step_message,
    stub_for,
    upload,
)


class Stream:
    """A Decode stream by hand: send batches, read answers one by one."""

    def __init__(self, stub, vocabulary_id, width=WIDTH):
        self.requests = queue.SimpleQueue()
        self.requests.put(
            constraint_service_pb2.DecodeRequest(
                hello=constraint_service_pb2.Hello(vocabulary_id=vocabulary_id, logits_width=width)
            )
        )
        self.call = stub.Decode(iter(self.requests.get, None), timeout=60)

    def send(self, *steps):
        batch = constraint_service_pb2.StepBatch(steps=steps)
        self.requests.put(constraint_service_pb2.DecodeRequest(step_batch=batch))

    def answers(self, count):
        found = []
        while len(found) < count:
            found.extend(next(self.call).directive_batch.answers)
        assert len(found) == count
        return {answer.session_id: answer for answer in found}

    def close(self):
        self.requests.put(None)
        return list(self.call)


@pytest.fixture
def stream(stub, byte_vocabulary):
    stream = Stream(stub, byte_vocabulary)
    yield stream
    stream.call.cancel()


def reason_of(error: grpc.RpcError) -> str:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    status = status_pb2.Status.FromString(details)
    assert status.details[0].Unpack(info)
    assert info.domain == "constraintd"
    return info.reason


def test_1_registering_twice_is_free(stub, byte_vocabulary):
    again = stub.RegisterVocabulary(upload(BYTE_TABLE))
    assert (again.created, again.vocabulary.vocabulary_id) == (False, byte_vocabulary)
    assert again.vocabulary.eog_ids == [EOG, SECOND_EOG]
    assert (again.vocabulary.token_count, again.vocabulary.logits_width) == (263, WIDTH)
    assert not again.vocabulary.has_encoder


def test_1_the_token_table_comes_back_as_it_was_registered(stub, byte_vocabulary):
    answers = list(stub.GetVocabulary(vocabulary_pb2.GetVocabularyRequest(vocabulary_id=byte_vocabulary)))
    assert answers[0].vocabulary.vocabulary_id == byte_vocabulary
    assert b"".join(answer.table for answer in answers[1:]) == BYTE_TABLE


def test_1_a_vocabulary_of_more_than_20_megabytes_is_taken(stub):
    # 300,000 tokens of 80 bytes: 25.5 MB in 25 chunks.

    table = b"CDTABLE\x01" + b"".join(record(0, b"%080d" % i) for i in range(300_000))
    assert len(table) > 20_000_000
    answer = stub.RegisterVocabulary(upload(table, width=None, eog_ids=[0]))
    assert (answer.created, answer.vocabulary.token_count) == (True, 300_000)


def test_2_compiling_is_idempotent_by_content(stub, byte_vocabulary):
    def compile_(source):
        return stub.CompileGrammar(
            grammar_pb2.CompileGrammarRequest(
                vocabulary_id=byte_vocabulary, grammar=grammar_pb2.Grammar(json_schema=source)
            )
        )

    first = compile_(b'{"type": "object", "title": "%s"}' % secrets.token_hex(8).encode())
    assert not first.cached
    assert first.compile_us > 0
    one, other = compile_(b'{"type": "array"}'), compile_(b'{"type":\n"array"}')
    assert one.grammar_id == other.grammar_id
    assert other.cached


def test_3_a_session_opens_at_its_first_directive_and_a_repeat_gives_the_same(stub, byte_vocabulary):
    request = open_request(byte_vocabulary, regex("a[bc]"), prompt_tokens=[1, 2, 3], seed=7)
    first = stub.OpenSession(request)
    assert (first.seed, first.directive.position, first.directive.draw) == (7, 0, 0.8720734548204873)
    assert allowed(first.directive) == [ord("a"), 261, 262]
    assert stub.OpenSession(request) == first


def test_3_a_session_without_a_seed_gets_one_and_keeps_it(stub, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    opened = stub.OpenSession(request)
    session = stub.GetSession(session_pb2.GetSessionRequest(session_id=request.session_id)).session
    assert session.sampler.seed == opened.seed
    assert stub.OpenSession(request).seed == opened.seed


def test_3_a_different_request_under_the_id_already_exists(stub, byte_vocabulary):
    session_id = secrets.token_bytes(16)
    stub.OpenSession(open_request(byte_vocabulary, regex("a"), session_id=session_id))
    with pytest.raises(grpc.RpcError) as caught:
        stub.OpenSession(open_request(byte_vocabulary, regex("b"), session_id=session_id))
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS")


def test_3_a_compiled_grammar_is_opened_by_its_id(stub, byte_vocabulary):
    grammar_id = stub.CompileGrammar(
        grammar_pb2.CompileGrammarRequest(
            vocabulary_id=byte_vocabulary, grammar=grammar_pb2.Grammar(choice=grammar_pb2.Choice(texts=[b"x", b"y"]))
        )
    ).grammar_id
    opened = stub.OpenSession(open_request(byte_vocabulary, session_pb2.Constraint(grammar_id=grammar_id)))
    assert allowed(opened.directive) == [ord("x"), ord("y")]


def test_4_one_stream_steps_many_sessions_and_says_each_answer_once(stub, stream, byte_vocabulary):
    opened = {}
    for letter in "abc":
        request = open_request(byte_vocabulary, regex(letter * 3))
        opened[letter] = (request.session_id, stub.OpenSession(request).epoch)
    stream.send(*[step_message(sid, epoch, 0, [ord(letter)]) for letter, (sid, epoch) in opened.items()])
    answers = stream.answers(3)
    for letter, (sid, _) in opened.items():
        assert answers[sid].directive.position == 1
        assert ord(letter) in allowed(answers[sid].directive)


def test_4_outstanding_answers_come_after_the_client_has_closed_its_side(stub, stream, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    epoch = stub.OpenSession(request).epoch
    stream.send(step_message(request.session_id, epoch, 0, [97]))
    assert [len(answer.directive_batch.answers) for answer in stream.close()] == [1]
    assert stream.call.code() is grpc.StatusCode.OK


def test_5_repeats_conflicts_gaps_and_stale_steps_are_told_apart(stub, stream, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    sid, epoch = request.session_id, stub.OpenSession(request).epoch

    def answer(step):
        stream.send(step)
        return stream.answers(1)[sid]

    first = answer(step_message(sid, epoch, 0, [97, 98], [0.5, 0.25])).directive
    assert first.position == 2
    assert answer(step_message(sid, epoch, 0, [97, 98], [3.0, 3.0])).directive == first
    conflict = answer(step_message(sid, epoch, 0, [97, 99])).error
    assert (conflict.reason, conflict.logged_tokens) == (error_pb2.ERROR_REASON_POSITION_CONFLICT, [97, 98])
    gap = answer(step_message(sid, epoch, 3, [97])).error
    assert (gap.reason, gap.expected_position) == (error_pb2.ERROR_REASON_POSITION_GAP, 2)
    stale = answer(step_message(sid, epoch, 1, [97])).error
    assert (stale.reason, stale.expected_position) == (error_pb2.ERROR_REASON_STALE_POSITION, 2)
    assert answer(step_message(sid, epoch ^ 1, 2, [97])).error.reason == error_pb2.ERROR_REASON_STALE_EPOCH
    kept = stub.GetSession(session_pb2.GetSessionRequest(session_id=sid))
    assert (kept.tokens, kept.surprisals) == ([97, 98], [0.5, 0.25])


def test_5_two_steps_of_a_session_in_one_batch_are_one_too_many(stub, stream, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    sid, epoch = request.session_id, stub.OpenSession(request).epoch
    stream.send(step_message(sid, epoch, 0, [97]), step_message(sid, epoch, 1, [98]))
    answers = {a.WhichOneof("answer"): a for a in next(stream.call).directive_batch.answers}
    assert answers["directive"].directive.position == 1
    assert answers["error"].error.reason == error_pb2.ERROR_REASON_STEP_IN_FLIGHT


def test_6_text_is_settled_only_when_nothing_can_take_it_back(stub, stream, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED, stop_strings=[b"END"])
    sid, epoch = request.session_id, stub.OpenSession(request).epoch
    settled = []
    for position, byte in enumerate("é.EN!".encode()):
        stream.send(step_message(sid, epoch, position, [byte]))
        settled.append(stream.answers(1)[sid].directive.settled_bytes)
    assert settled == [0, 2, 3, 3, 3, 6]


@pytest.mark.parametrize(
    ("constraint", "sampler", "tokens", "expected"),
    [
        ("a+", {}, [97, 97, EOG], {"reason": "EOG", "stop_id": EOG, "cut_offset": 2}),
        ("a+", {}, [97, SECOND_EOG], {"reason": "EOG", "stop_id": SECOND_EOG, "cut_offset": 1}),
        ("ab", {}, [261], {"reason": "GRAMMAR_EXHAUSTED", "cut_offset": 2}),
        ("a{9}", {"max_tokens": 2}, [97, 97], {"reason": "LENGTH", "cut_offset": 2, "constraint_incomplete": True}),
        (".*", {"stop_ids": [98]}, [97, 98], {"reason": "STOP_ID", "stop_id": 98, "cut_offset": 1}),
        (
            "abcd",
            {"stop_strings": [b"bc"]},
            [97, 98, 99],
            {"reason": "STOP_STRING", "stop_string": b"bc", "cut_offset": 1, "constraint_incomplete": True},
        ),
    ],
)
def test_7_a_stop_is_decided_by_the_daemon(stub, byte_vocabulary, constraint, sampler, tokens, expected):
    request = open_request(byte_vocabulary, regex(constraint), **sampler)
    epoch = stub.OpenSession(request).epoch
    for position, token in enumerate(tokens):
        step = step_message(request.session_id, epoch, position, [token])
        directive = stub.Step(session_pb2.StepRequest(step=step)).directive
    reason = session_pb2.FinishReason.Value(f"FINISH_REASON_{expected.pop('reason')}")
    assert directive.finish == session_pb2.Finish(reason=reason, **expected)
    assert directive.settled_bytes == expected["cut_offset"]
    late = step_message(request.session_id, epoch, len(tokens), [97])
    with pytest.raises(grpc.RpcError) as caught:
        stub.Step(session_pb2.StepRequest(step=late))
    assert reason_of(caught.value) == "SESSION_FINISHED"


def test_7_max_tokens_zero_finishes_before_the_first_token(stub, byte_vocabulary):
    opened = stub.OpenSession(open_request(byte_vocabulary, regex("a"), max_tokens=0))
    assert opened.directive.finish.reason == session_pb2.FINISH_REASON_LENGTH
    assert opened.directive.finish.constraint_incomplete


def test_7_a_dead_end_is_an_outcome_and_the_session_stays_open(stub):
    table = BYTE_TABLE.replace(b"\x00\x01\x00\x00\x00\x01", b"\x02\x00\x00\x00\x00", 1)  # no token for 0x01
    vocabulary_id = stub.RegisterVocabulary(upload(table)).vocabulary.vocabulary_id
    request = open_request(vocabulary_id, regex("a\x01"))
    epoch = stub.OpenSession(request).epoch
    step = session_pb2.StepRequest(step=step_message(request.session_id, epoch, 0, [97]))
    directive = stub.Step(step).directive
    assert directive.WhichOneof("outcome") == "no_token_allowed"
    assert stub.GetSession(session_pb2.GetSessionRequest(session_id=request.session_id)).tokens == [97]
    assert stub.Step(step).directive == directive


def test_8_a_closed_session_is_unknown_and_closing_twice_is_no_error(stub, byte_vocabulary):
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    stub.OpenSession(request)
    close = session_pb2.CloseSessionRequest(session_id=request.session_id)
    assert stub.CloseSession(close).closed
    assert not stub.CloseSession(close).closed
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetSession(session_pb2.GetSessionRequest(session_id=request.session_id))
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_SESSION")


def test_11_the_unary_step_gives_what_the_stream_gives(stub, stream, byte_vocabulary):
    requests = [open_request(byte_vocabulary, regex("a(b|c)*d"), seed=3) for _ in range(2)]
    epochs = [stub.OpenSession(request).epoch for request in requests]
    for position, byte in enumerate(b"abcbcd"):
        stream.send(step_message(requests[0].session_id, epochs[0], position, [byte]))
        streamed = stream.answers(1)[requests[0].session_id].directive
        step = step_message(requests[1].session_id, epochs[1], position, [byte])
        assert stub.Step(session_pb2.StepRequest(step=step)).directive == streamed
    assert streamed.finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED


def test_12_a_bad_text_in_one_call_leaves_the_stream_alone(stub, stream, byte_vocabulary):
    with pytest.raises(grpc.RpcError) as caught:
        constraint = session_pb2.Constraint(grammar=grammar_pb2.Grammar(regex=b"a\xff"))
        stub.OpenSession(open_request(byte_vocabulary, constraint))
    assert reason_of(caught.value) == "INVALID_FIELD"
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    stream.send(step_message(request.session_id, stub.OpenSession(request).epoch, 0, [TOOL]))
    assert stream.answers(1)[request.session_id].directive.position == 1


def test_sessions_are_listed_page_by_page(daemon, byte_vocabulary):
    channel, stub = stub_for(daemon)
    with channel:
        mine = {secrets.token_bytes(16) for _ in range(7)}
        for session_id in mine:
            stub.OpenSession(open_request(byte_vocabulary, regex("a"), session_id=session_id))
        seen, token = [], b""
        while True:
            page = stub.ListSessions(session_pb2.ListSessionsRequest(page_size=3, page_token=token))
            assert len(page.sessions) <= 3
            seen += [session.session_id for session in page.sessions]
            token = page.next_page_token
            if not token:
                break
        assert seen == sorted(set(seen))
        assert mine <= set(seen)


def test_the_server_says_what_it_is(stub):
    info = stub.GetServerInfo(constraint_service_pb2.GetServerInfoRequest())
    assert info.version == "0.1.0"
    assert "llguidance" in {component.name for component in info.components}
    assert set(info.grammar_kinds) == set(range(1, 9))
    assert info.limits.max_message_bytes > info.limits.max_grammar_bytes > 0


def test_health_and_reflection_are_served(daemon):
    channel, _ = stub_for(daemon)
    with channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "constraintd.v1.ConstraintService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = reflection.ServerReflectionInfo(iter([request]))
        assert "constraintd.v1.ConstraintService" in {s.name for s in answer.list_services_response.service}


def test_32_sessions_interleaved_on_one_stream_give_what_each_gives_alone(stub, stream, byte_vocabulary):
    # Each walks by its own draws through its own grammar; alone through the unary call, together through the stream.
    patterns = [f"({chr(97 + i % 26)}|x{{{i}}}y)+[0-9]{{{1 + i % 5}}}z?" for i in range(32)]

    def pick(directive):
        ways = allowed(directive)
        return ways[int(directive.draw * len(ways))]

    def opened(pattern, seed):
        request = open_request(byte_vocabulary, regex(pattern), seed=seed, max_tokens=40)
        answer = stub.OpenSession(request)
        return request.session_id, answer.epoch, answer.directive

    alone = []
    for seed, pattern in enumerate(patterns):
        sid, epoch, directive = opened(pattern, seed)
        history = [directive]
        while directive.WhichOneof("outcome") == "mask":
            step = step_message(sid, epoch, directive.position, [pick(directive)])
            directive = stub.Step(session_pb2.StepRequest(step=step)).directive
            history.append(directive)
        alone.append(history)

    live, together = {}, {}
    for seed, pattern in enumerate(patterns):
        sid, epoch, directive = opened(pattern, seed)
        live[sid] = (epoch, directive)
        together[sid] = [directive]
    while live:
        stream.send(*[step_message(sid, e, d.position, [pick(d)]) for sid, (e, d) in live.items()])
        for sid, answer in stream.answers(len(live)).items():
            together[sid].append(answer.directive)
            if answer.directive.WhichOneof("outcome") == "mask":
                live[sid] = (live[sid][0], answer.directive)
            else:
                del live[sid]
    assert list(together.values()) == alone
    assert sum(map(len, alone)) > 300
