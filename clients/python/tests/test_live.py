"""The client against a live daemon, sync and asyncio."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from constraintd_client import (
    ConstraintClient,
    InvalidField,
    InvalidGrammar,
    PositionGap,
    SessionHandle,
    StaleEpoch,
    TokenNotAllowed,
    UnknownSession,
    all_of,
    allow_list,
    allowed_ids,
    allowed_tokens,
    apply_mask,
    banned_specials,
    choice,
    deny_ranges,
    gbnf,
    json_object,
    json_schema,
    lark,
    lazy,
    reasoning_end,
    regex,
    sampler_config,
    structural_tag,
    token_length,
    token_sequence,
    tool_calls,
    triggers,
)
from constraintd_client.aio import AsyncConstraintClient

from tests.daemon_process import daemon_process

BYTES = [bytes([value]) for value in range(256)]
EOG, TOOL, WIDTH = 256, 257, 290


@pytest.fixture(scope="module")
def address():
    with daemon_process() as address:
        yield address


@pytest.fixture
def client(address):
    with ConstraintClient(address) as client:
        yield client


@pytest.fixture
def vocabulary(client):
    return client.register_token_table(
        [*BYTES, None, None], special={EOG: "</s>", TOOL: "<tool>"}, eog_ids=[EOG], logits_width=WIDTH
    )


def test_a_table_comes_back_as_it_was_registered(client, vocabulary):
    table = client.token_table(vocabulary.vocabulary_id)
    assert table.tokens[:256] == tuple(BYTES)
    assert table.special == {EOG: "</s>", TOOL: "<tool>"}
    assert (table.info.logits_width, table.info.eog_ids) == (WIDTH, (EOG,))


def test_greedy_over_a_stream_writes_what_the_schema_asks_for(client, vocabulary):
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [12, 7]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    session = client.open_session(vocabulary.vocabulary_id, json_schema(schema), sampler=sampler_config(max_tokens=99))
    # Logits that like closing and digits, and dislike white space.
    logits = np.array([-9.0 if chr(i).isspace() else float(i == ord("}")) for i in range(WIDTH)], dtype=np.float32)
    text = b""
    with client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
        while session.directive.finish is None:
            row = logits.copy()
            apply_mask(row, session.directive.mask)
            token = int(row.argmax())
            assert token in allowed_ids(session.directive.mask)
            text += BYTES[token]
            stream.send([(session, [token], [0.0])])
            stream.take(session, 10.0)
    assert session.directive.finish.reason == "GRAMMAR_EXHAUSTED"
    assert session.directive.settled_bytes == len(text)
    assert set(json.loads(text)) == {"ok", "n"}


def test_many_sessions_on_one_stream_each_keep_their_own_place(client, vocabulary):
    texts = [f"text number {i} of many" for i in range(40)]
    sessions = [client.open_session(vocabulary.vocabulary_id, choice([text])) for text in texts]
    with client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
        written = [""] * len(texts)
        live = set(range(len(texts)))
        while live:
            steps = []
            for i in live:
                [token] = allowed_ids(sessions[i].directive.mask)
                written[i] += chr(token)
                steps.append((sessions[i], [int(token)], [0.0]))
            stream.send(steps)
            for i in list(live):
                if stream.take(sessions[i], 10.0).finish is not None:
                    live.discard(i)
    assert written == texts


def test_refusals_arrive_as_their_own_classes(client, vocabulary):
    with pytest.raises(InvalidGrammar, match="unknown name"):
        client.compile_grammar(vocabulary.vocabulary_id, lark("start: missing"))
    session = client.open_session(vocabulary.vocabulary_id, regex("ab"))
    with pytest.raises(TokenNotAllowed) as illegal:
        client.step(session, [ord("b")], [0.0])
    assert illegal.value.illegal_index == 0
    ahead = SessionHandle(session.session_id, session.epoch, session.seed, replace(session.directive, position=5))
    with pytest.raises(PositionGap) as gap:
        client.step(ahead, [ord("a")], [0.0])
    assert gap.value.expected_position == 0
    fenced = SessionHandle(session.session_id, session.epoch ^ 1, session.seed, session.directive)
    with pytest.raises(StaleEpoch):
        client.step(fenced, [ord("a")], [0.0])
    assert client.close_session(session.session_id)
    assert not client.close_session(session.session_id)
    with pytest.raises(UnknownSession):
        client.get_session(session.session_id)


def test_a_stream_that_is_reopened_sends_unanswered_steps_again(client, vocabulary):
    session = client.open_session(vocabulary.vocabulary_id, regex("a{30}"))
    with client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
        for position in range(29):
            stream.send([(session, [97], [0.0])])
            if position % 3 == 0:
                stream.reconnect()
            assert stream.take(session, 10.0).position == position + 1
    assert list(client.get_session(session.session_id).tokens) == [97] * 29


async def test_the_asyncio_client_does_the_same(address):
    async with AsyncConstraintClient(address) as client:
        vocabulary = await client.register_token_table(BYTES, eog_ids=[0], logits_width=256)
        session = await client.open_session(vocabulary.vocabulary_id, choice(["yes"]))
        async with await client.decode_stream(vocabulary.vocabulary_id, vocabulary.logits_width) as stream:
            for letter in b"yes":
                assert allowed_ids(session.directive.mask).tolist() == [letter]
                stream.send([(session, [letter], [0.0])])
                directive = await stream.take(session, 10.0)
        assert directive.finish.reason == "GRAMMAR_EXHAUSTED"


class Walk:
    """One session, stepped by unary calls."""

    def __init__(self, client, vocabulary, constraint, **options):
        self.client = client
        self.session = client.open_session(vocabulary.vocabulary_id, constraint, **options)

    def take(self, tokens):
        for token in tokens:
            self.client.step(self.session, [token], [0.0])
        return self

    @property
    def legal(self):
        return set(allowed_ids(self.session.directive.mask).tolist())

    @property
    def finish(self):
        return self.session.directive.finish

    @property
    def sleeps(self):
        return self.client.get_session(self.session.session_id).session.awaiting_trigger


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (triggers.word("<call>"), b"so <call>"),
        (triggers.word("<call>", at_start=True), b"<call>"),
        (triggers.pattern("(<call>)$"), b"so <call>"),
        (triggers.pattern_full("so (<call>)"), b"so <call>"),
    ],
    ids=["word", "word at start", "pattern", "whole pattern"],
)
def test_a_lazy_grammar_sleeps_until_its_trigger(client, vocabulary, trigger, text):
    walk = Walk(client, vocabulary, lazy(regex("<call>[0-9];"), trigger))
    assert EOG in walk.legal
    assert walk.take(text[:-1]).sleeps
    assert walk.take(text[-1:]).legal == set(b"0123456789")
    assert walk.take(b"1;").finish.reason == "GRAMMAR_EXHAUSTED"


def test_a_lazy_grammar_can_be_woken_by_a_token_and_again(client, vocabulary):
    grammar_id = client.compile_grammar(vocabulary.vocabulary_id, regex("[0-9];"))
    walk = Walk(client, vocabulary, lazy(grammar_id, triggers.token(TOOL, exclusive=True), rearm=True))
    for _ in range(2):
        assert walk.take([*b"x", TOOL]).legal == set(b"0123456789")
        assert walk.take(b"1;").sleeps


def test_token_rules_hold_alone_and_together(client, vocabulary):
    assert Walk(client, vocabulary, allowed_tokens([97, 98])).legal == {97, 98, EOG}
    assert Walk(client, vocabulary, token_sequence([97, 98])).take([97]).legal == {98}
    assert Walk(client, vocabulary, allow_list([[97, 98], [97]])).take([97]).legal == {98, EOG}
    assert TOOL not in Walk(client, vocabulary, banned_specials([TOOL])).legal
    walk = Walk(client, vocabulary, all_of(regex("[a-e]*"), deny_ranges([(97, 100)]), token_length(min=1, max=2)))
    assert walk.legal == set(b"de")
    assert walk.take(b"d").legal == {*b"de", EOG}
    assert walk.take(b"e").finish.reason == "LENGTH"


def test_min_tokens_hold_the_end_back(client, vocabulary):
    walk = Walk(client, vocabulary, regex("a*"), sampler=sampler_config(min_tokens=1))
    assert walk.legal == {97}
    assert walk.take(b"a").legal == {97, EOG}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {"type": "object", "properties": {"a": {"enum": [1]}}, "additionalProperties": False},
        },
    }
]


def test_tools_are_called_by_name_choice_and_format(client, vocabulary):
    auto = Walk(client, vocabulary, tool_calls(TOOLS, format="hermes"))
    assert auto.sleeps
    assert not auto.take(b"so <tool_call>").sleeps
    assert Walk(client, vocabulary, tool_calls(TOOLS, choice="required", format="mistral")).legal == {ord("[")}
    named = Walk(client, vocabulary, tool_calls(TOOLS, choice="add", template=("<tool>", "!"), whitespace="compact"))
    assert named.legal == {TOOL}
    assert named.take([TOOL, *b'{"name": "add", "arguments": {"a":1}}!']).finish.reason == "GRAMMAR_EXHAUSTED"
    with pytest.raises(InvalidGrammar, match="none of the tools"):
        Walk(client, vocabulary, tool_calls(TOOLS, choice="sub", format="hermes"))


def test_a_gbnf_grammar_begins_at_its_root(client, vocabulary):
    text = "root ::= <tool> other\nother ::= [xy]"
    assert Walk(client, vocabulary, gbnf(text)).legal == {TOOL}
    assert Walk(client, vocabulary, gbnf(text, "other")).legal == set(b"xy")


def test_a_structural_tag_frees_the_text_around_its_tags(client, vocabulary):
    document = {
        "structures": [{"begin": "<f>", "schema": {"type": "array", "items": {"const": 1}}, "end": "</f>"}],
        "triggers": ["<f>"],
    }
    walk = Walk(client, vocabulary, structural_tag(document, whitespace="compact"))
    assert EOG in walk.legal
    assert walk.take(b"so <f>").legal == {ord("[")}
    assert walk.take(b"[1]</f> and").legal >= {ord("a"), EOG}


def test_json_white_space_is_a_choice(client, vocabulary):
    assert Walk(client, vocabulary, json_object(whitespace="compact")).take(b"{").legal == set(b'"}')
    schema = {"type": "array", "items": {"const": 1}}
    assert Walk(client, vocabulary, json_schema(schema, whitespace="natural")).take(b"[1,").legal == {ord(" ")}


def test_a_report_says_what_is_made_of_each_keyword_and_the_finish_what_came_of_it(client, vocabulary):
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "title": "t"}
    with pytest.raises(InvalidGrammar, match="/uniqueItems"):
        client.compile_report(vocabulary.vocabulary_id, json_schema(schema))
    grammar = json_schema(schema, policy="approximate")
    verdicts = {
        entry.pointer: (entry.keyword, entry.verdict)
        for entry in client.compile_report(vocabulary.vocabulary_id, grammar)
    }
    assert verdicts["/uniqueItems"] == ("uniqueItems", "APPROXIMATED")
    assert verdicts["/title"] == ("title", "ANNOTATION")
    assert client.compile_report(vocabulary.vocabulary_id, regex("a")) == ()
    good = Walk(client, vocabulary, grammar).take(b"[1,2]").finish
    bad = Walk(client, vocabulary, grammar).take(b"[1,1]").finish
    assert (good.schema_satisfied, good.schema_violation) == (True, "")
    assert bad.schema_satisfied is False
    assert bad.schema_violation
    assert Walk(client, vocabulary, choice(["a"])).take(b"a").finish.schema_satisfied is None


def test_a_session_reasons_until_its_end(client, vocabulary):
    walk = Walk(client, vocabulary, regex("[0-9]"), reasoning_end=reasoning_end("</think>", tokens=[TOOL]))
    assert walk.take(b"hm").sleeps
    assert walk.take([TOOL]).legal == set(b"0123456789")
    with pytest.raises(InvalidField, match="reasoning_end"):
        Walk(client, vocabulary, None, reasoning_end=reasoning_end())


def test_a_tiktoken_file_with_its_special_tokens_and_pattern(client):
    ranks = b"".join(base64.b64encode(bytes([value])) + b" %d\n" % value for value in range(256))
    info = client.register_vocabulary("tiktoken", ranks, eog_ids=[256], special={256: "<end>"}, pattern=r"\w+|\W+")
    assert (info.token_count, info.has_encoder) == (257, True)
    assert client.token_table(info.vocabulary_id).special == {256: "<end>"}
