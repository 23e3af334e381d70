"""Python values become the protocol's messages, and messages become values."""

from __future__ import annotations

import pytest
from constraintd_client import (
    MalformedAnswer,
    VocabularyInfo,
    choice,
    constraint,
    greedy,
    json_object,
    json_schema,
    lark,
    min_p,
    regex,
    sampler_config,
    temperature,
    top_k,
    top_p,
)
from constraintd_client.directive import directive_of
from constraintd_client.generation_events import generate_request
from constraintd_client.step_batch import step_batches
from constraintd_client.vocabulary import CHUNK_BYTES, encode_table, parse_table, upload

from constraintd.v1 import mask_pb2, session_pb2


def info(token_count: int) -> VocabularyInfo:
    return VocabularyInfo("v", token_count, token_count, (0,), None, False)


def test_a_schema_keeps_its_member_order() -> None:
    grammar = json_schema({"type": "object", "properties": {"b": {}, "a": {"const": "ä"}}})
    assert grammar.json_schema == '{"type":"object","properties":{"b":{},"a":{"const":"ä"}}}'.encode()


def test_a_schemas_text_is_sent_as_it_is() -> None:
    assert json_schema('{ "a" :1}').json_schema == b'{ "a" :1}'
    assert json_schema(b"\xff").json_schema == b"\xff"


def test_a_schema_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_schema({"const": float("nan")})


def test_each_kind_of_grammar_sets_its_source() -> None:
    kinds = [json_schema(True), json_object(), regex("a+"), lark("start: A"), choice(["x", b"y"])]
    assert [grammar.WhichOneof("source") for grammar in kinds] == [
        "json_schema",
        "json_object",
        "regex",
        "lark",
        "choice",
    ]
    assert list(kinds[4].choice.texts) == [b"x", b"y"]


def test_a_single_text_is_no_list_of_texts() -> None:
    with pytest.raises(TypeError):
        choice("yes")
    with pytest.raises(TypeError):
        sampler_config(stop_strings="stop")


def test_unconstrained_is_said_with_none() -> None:
    assert constraint(None).WhichOneof("kind") == "unconstrained"
    assert constraint("abc").grammar_id == "abc"
    assert constraint(regex("a")).grammar.regex == b"a"


def test_a_sampler_config_keeps_the_order_of_its_stages_and_what_was_left_out() -> None:
    config = sampler_config(
        temperature(0.5), top_k(4), top_p(0.9), min_p(0.1), greedy(), stop_strings=["é", b"\xff"], max_tokens=0
    )
    stages = [stage.WhichOneof("stage") for stage in config.stages]
    assert stages == ["temperature", "top_k", "top_p", "min_p", "greedy"]
    assert list(config.stop_strings) == [b"\xc3\xa9", b"\xff"]
    assert config.HasField("max_tokens")
    assert not config.HasField("seed")
    assert (config.min_tokens, sampler_config(min_tokens=3).min_tokens) == (0, 3)


def test_a_token_table_reads_as_it_was_written() -> None:
    encoded = encode_table([b"ab", None, b"\xff", b"overridden"], {3: "</s>", 5: "<pad>"})
    table = parse_table(info(6), encoded)
    assert table.tokens == (b"ab", b"", b"\xff", b"", b"", b"")
    assert table.special == {3: "</s>", 5: "<pad>"}
    assert table.text([0, 3, 2, 0]) == b"ab\xffab"


def test_a_token_tables_layout_is_the_protocols() -> None:
    assert encode_table([b"ab", None], {2: "<s>"}) == (
        b"CDTABLE\x01" + b"\0\x02\0\0\0ab" + b"\x02\0\0\0\0" + b"\x01\x03\0\0\0<s>"
    )


@pytest.mark.parametrize(
    "table",
    [
        b"",
        b"\0\x01\0\0\0a",
        b"CDTABLE\x01",
        b"CDTABLE\x01\0",
        b"CDTABLE\x01\0\x02\0\0\0a",
        b"CDTABLE\x01\x03\0\0\0\0",
        b"CDTABLE\x01" + b"\x02\0\0\0\0" * 2,
    ],
    ids=["empty", "no magic", "no records", "cut head", "cut text", "unknown kind", "a record too many"],
)
def test_a_broken_token_table_is_refused(table: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_table(info(1), table)


def test_an_upload_is_a_header_and_chunks_of_every_file() -> None:
    data = bytes(CHUNK_BYTES + 1)
    messages = list(
        upload("token_table", data, logits_width=None, eog_ids=[2], generation_config=b"", tokenizer_config=None)
    )
    assert messages[0].header.format == 3
    assert not messages[0].header.HasField("logits_width")
    assert [(m.chunk.file, len(m.chunk.data)) for m in messages[1:]] == [(1, CHUNK_BYTES), (1, 1), (2, 0)]


def test_an_unknown_format_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="MORSE"):
        upload("morse", b"", logits_width=None, eog_ids=[], generation_config=None, tokenizer_config=None)


def test_a_mask_is_a_read_only_view_of_little_endian_words() -> None:
    message = session_pb2.Directive(
        position=3, mask=mask_pb2.Mask(dense=b"\x01\0\0\x80\0\0\0\0"), draw=0.5, settled_bytes=9
    )
    directive = directive_of(message, 77)
    assert directive.mask is not None
    assert directive.mask.tolist() == [0x80000001, 0]
    assert not directive.mask.flags.writeable
    assert (directive.position, directive.draw, directive.settled_bytes, directive.wire_bytes) == (3, 0.5, 9, 77)


@pytest.mark.parametrize(
    "message",
    [
        session_pb2.Directive(position=1),
        session_pb2.Directive(mask=mask_pb2.Mask()),
        session_pb2.Directive(mask=mask_pb2.Mask(dense=b"\xff\xff\xff")),
    ],
)
def test_an_answer_that_allows_nothing_definite_is_refused(message: session_pb2.Directive) -> None:
    with pytest.raises(MalformedAnswer):
        directive_of(message, 0)


def test_a_finish_is_told_by_name() -> None:
    finish = session_pb2.Finish(
        reason=session_pb2.FINISH_REASON_EOG, stop_id=0, cut_offset=4, constraint_incomplete=True
    )
    directive = directive_of(session_pb2.Directive(finish=finish), 0)
    assert directive.mask is None
    assert directive.finish is not None
    assert (directive.finish.reason, directive.finish.stop_id) == ("EOG", 0)
    assert (directive.finish.cut_offset, directive.finish.constraint_incomplete) == (4, True)
    assert (directive.finish.schema_satisfied, directive.finish.schema_violation) == (None, "")
    finish.schema_satisfied, finish.schema_violation = False, "/a: no"
    checked = directive_of(session_pb2.Directive(finish=finish), 0).finish
    assert checked is not None
    assert (checked.schema_satisfied, checked.schema_violation) == (False, "/a: no")


def test_steps_are_cut_into_batches() -> None:
    steps = [session_pb2.Step(session_id=bytes([i])) for i in range(5)]
    assert len(step_batches(steps, 2)) == 3
    assert step_batches([], 2) == []


def test_a_prompt_is_text_or_messages_or_tokens() -> None:
    assert generate_request("é", None, None).text == b"\xc3\xa9"
    assert list(generate_request([1, 2], None, None).tokens.ids) == [1, 2]
    chat = generate_request([{"role": "user", "content": "Hi"}], None, None).chat
    assert [(m.role, m.content) for m in chat.messages] == [(b"user", b"Hi")]
    with pytest.raises(TypeError, match="mixture"):
        generate_request([{"role": "user", "content": "Hi"}, 1], None, None)  # type: ignore[list-item]
