"""Lazy grammars, token rules, compositions and reasoning over real gRPC."""

from __future__ import annotations

import json

import grpc
import pytest

from constraintd.v1 import grammar_pb2, session_pb2, token_ids_pb2
from tests.daemon_process import EOG, SECOND_EOG, TOOL, UNCONSTRAINED, allowed, open_request, regex, step_message
from tests.e2e.test_conversation import reason_of

ENDS = {EOG, SECOND_EOG}


def lazy(pattern, **options):
    constraint = session_pb2.Constraint()
    constraint.lazy.grammar.regex = pattern.encode()
    constraint.lazy.triggers.add(word=b"<call>")
    constraint.lazy.rearm = options.get("rearm", False)
    return constraint


def all_of(*constraints):
    return session_pb2.Constraint(all_of=session_pb2.AllOf(constraints=constraints))


def rule(**kwargs):
    return session_pb2.Constraint(token_rule=session_pb2.TokenRule(**kwargs))


class Walk:
    """One session, stepped by unary calls."""

    def __init__(self, stub, vocabulary_id, constraint, reasoning_end=None, prompt=(), **sampler):
        self.stub = stub
        request = open_request(vocabulary_id, constraint, prompt_tokens=prompt, **sampler)
        if reasoning_end is not None:
            request.reasoning_end.CopyFrom(reasoning_end)
        self.session_id = request.session_id
        opened = stub.OpenSession(request)
        self.epoch = opened.epoch
        self.directive = opened.directive

    def take(self, tokens):
        for token in tokens:
            step = step_message(self.session_id, self.epoch, self.directive.position, [token])
            self.directive = self.stub.Step(session_pb2.StepRequest(step=step)).directive
        return self

    @property
    def legal(self):
        return set(allowed(self.directive))

    @property
    def known(self):
        return self.stub.GetSession(session_pb2.GetSessionRequest(session_id=self.session_id)).session


def test_a_lazy_grammar_sleeps_wakes_and_finishes(stub, byte_vocabulary):
    walk = Walk(stub, byte_vocabulary, lazy("<call>[0-9]+;"))
    assert walk.known.awaiting_trigger
    assert ENDS <= walk.legal
    walk.take(b"say <call>")
    assert not walk.known.awaiting_trigger
    assert walk.legal == set(b"0123456789")
    walk.take(b"12;")
    assert walk.directive.finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED
    assert not walk.directive.finish.constraint_incomplete


def test_a_rearmed_grammar_sleeps_again_and_a_woken_one_can_be_incomplete(stub, byte_vocabulary):
    walk = Walk(stub, byte_vocabulary, lazy("<call>[0-9];", rearm=True), max_tokens=25)
    walk.take(b"<call>1; and <call>2;")
    assert walk.known.awaiting_trigger
    assert walk.directive.WhichOneof("outcome") == "mask"
    walk = Walk(stub, byte_vocabulary, lazy("<call>[0-9];"), max_tokens=7).take(b"<call>1")
    assert walk.directive.finish.constraint_incomplete
    walk = Walk(stub, byte_vocabulary, lazy("<call>[0-9];"), max_tokens=7).take(b"no call")
    assert not walk.directive.finish.constraint_incomplete


def test_several_constraints_hold_at_once(stub, byte_vocabulary):
    constraint = all_of(
        regex("[a-z]+"),
        rule(deny_ranges=token_ids_pb2.IdRanges(ranges=[token_ids_pb2.IdRange(first=ord("f"), end=263)])),
        rule(length=session_pb2.Length(min=2, max=3)),
    )
    walk = Walk(stub, byte_vocabulary, constraint)
    assert walk.legal == set(b"abcde")
    walk.take(b"ab")
    assert walk.legal == set(b"abcde")  # the deny range took EOG too
    walk.take(b"c")
    assert walk.directive.finish.reason == session_pb2.FINISH_REASON_LENGTH


def test_a_dead_end_of_several_names_them(stub, byte_vocabulary):
    walk = Walk(stub, byte_vocabulary, all_of(regex("b"), rule(allowed=token_ids_pb2.TokenIds(ids=[97]))))
    message = walk.directive.no_token_allowed.message
    assert "grammar" in message
    assert "allowed tokens" in message


def test_an_allow_list_goes_on_where_a_candidate_does_and_ends_where_all_are_done(stub, byte_vocabulary):
    sequences = [token_ids_pb2.TokenIds(ids=ids) for ids in ([1], [1, 2])]
    walk = Walk(stub, byte_vocabulary, rule(allow_list=session_pb2.AllowList(sequences=sequences)))
    assert walk.legal == {1}
    assert walk.take([1]).legal == {2} | ENDS
    assert walk.take([2]).directive.finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED


def test_min_tokens_of_the_sampler_hold_the_end_back(stub, byte_vocabulary):
    walk = Walk(stub, byte_vocabulary, regex("a*"), min_tokens=1)
    assert not ENDS & walk.legal
    assert ENDS <= walk.take(b"a").legal


def test_until_its_reasoning_ends_a_session_is_free_and_can_not_end(stub, byte_vocabulary):
    end = session_pb2.ReasoningEnd(texts=[b"</think>"])
    walk = Walk(stub, byte_vocabulary, regex("[0-9]+"), end)
    assert walk.known.awaiting_trigger
    assert walk.legal >= set(range(256))
    assert not ENDS & walk.legal
    walk.take(b"hm <call> 1 + 1 </think")
    # The token "</think>" can't be cut short, but what follows it is the grammar's.
    assert walk.take(b">").legal == set(b"0123456789")
    assert ENDS <= walk.take(b"2").legal


def test_a_lazy_grammar_s_trigger_inside_the_reasoning_wakes_nothing(stub, byte_vocabulary):
    end = session_pb2.ReasoningEnd(texts=[b"</think>"])
    walk = Walk(stub, byte_vocabulary, lazy("<call>1"), end).take(b"I might <call> later</think>")
    assert walk.known.awaiting_trigger
    assert ENDS <= walk.legal
    assert walk.take(b"<call>").legal == {ord("1")}


@pytest.mark.parametrize(
    ("prompt", "begin", "reasons"),
    [
        (b"question <think>", b"", True),
        (b"question <think>so</think>", b"", False),
        (b"old <think>x</think> new <think>", b"<think>", True),
        (b"old <think>x</think> new", b"<think>", False),
        (b"question", b"<think>", False),
    ],
)
def test_the_prompt_tells_whether_the_reasoning_is_over(stub, byte_vocabulary, prompt, begin, reasons):
    end = session_pb2.ReasoningEnd(texts=[b"</think>"], begin=begin)
    walk = Walk(stub, byte_vocabulary, regex("[0-9]+"), end, prompt=prompt)
    assert walk.known.awaiting_trigger == reasons


def test_a_token_can_end_the_reasoning(stub, byte_vocabulary):
    walk = Walk(stub, byte_vocabulary, regex("[0-9]+"), session_pb2.ReasoningEnd(tokens=[TOOL]))
    assert walk.take([*b"abc", TOOL]).legal == set(b"0123456789")


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        (all_of(), "constraint.all_of.constraints"),
        (all_of(regex("a"), all_of(regex("b"))), "constraint.all_of.constraints[1]"),
        (all_of(regex("a"), session_pb2.Constraint()), "constraint.all_of.constraints[1]"),
        (rule(), "constraint.token_rule"),
        (rule(allowed=token_ids_pb2.TokenIds()), "allowed_ids"),
        (rule(length=session_pb2.Length(min=5, max=2)), "constraint.token_rule.length"),
        (session_pb2.Constraint(lazy=session_pb2.LazyGrammar()), "constraint.lazy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_constraint_that_means_nothing_is_refused_with_its_place(stub, byte_vocabulary, constraint, field):
    with pytest.raises(grpc.RpcError) as caught:
        stub.OpenSession(open_request(byte_vocabulary, constraint))
    assert reason_of(caught.value) == "INVALID_FIELD"
    assert caught.value.details().startswith(field + ":")


def test_contradicting_bounds_and_empty_reasoning_ends_are_refused(stub, byte_vocabulary):
    for request in (open_request(byte_vocabulary, UNCONSTRAINED, min_tokens=5, max_tokens=2),):
        with pytest.raises(grpc.RpcError) as caught:
            stub.OpenSession(request)
        assert caught.value.details().startswith("sampler.min_tokens:")
    request = open_request(byte_vocabulary, UNCONSTRAINED)
    request.reasoning_end.SetInParent()
    with pytest.raises(grpc.RpcError) as caught:
        stub.OpenSession(request)
    assert caught.value.details().startswith("reasoning_end:")


def schema(document, **options):
    constraint = session_pb2.Constraint()
    constraint.grammar.json_schema = document
    constraint.grammar.json_options.CopyFrom(grammar_pb2.JsonOptions(**options))
    return constraint


def test_a_complete_output_is_checked_against_the_schema_as_it_was_given(stub, byte_vocabulary):
    document = b'{"type":"array","items":{"type":"integer"},"uniqueItems":true}'
    approximate = {"policy": grammar_pb2.SCHEMA_POLICY_APPROXIMATE}
    for text, satisfied in ((b"[1,2]", True), (b"[1,1]", False)):
        walk = Walk(stub, byte_vocabulary, schema(document, **approximate)).take(text)
        finish = walk.directive.finish
        assert finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED
        assert (finish.HasField("schema_satisfied"), finish.schema_satisfied) == (True, satisfied)
        assert bool(finish.schema_violation) != satisfied
    cut = Walk(stub, byte_vocabulary, schema(document, **approximate), max_tokens=2).take(b"[1")
    assert not cut.directive.finish.HasField("schema_satisfied")


def test_a_schema_too_long_to_be_read_in_the_daemon_is_the_same_grammar_and_checked_as_well(stub, byte_vocabulary):
    values = [f"value {i:05}" for i in range(9000)]
    short, long = (json.dumps({"enum": values}, indent=indent).encode() for indent in (None, 1))
    ids = [
        stub.CompileGrammar(
            grammar_pb2.CompileGrammarRequest(vocabulary_id=byte_vocabulary, grammar=schema(text).grammar)
        ).grammar_id
        for text in (short, long)
    ]
    assert ids[0] == ids[1]
    walk = Walk(stub, byte_vocabulary, schema(long)).take(b'"value 00700"')
    assert walk.directive.finish.schema_satisfied


def test_what_follows_the_reasoning_is_what_is_checked(stub, byte_vocabulary):
    end = session_pb2.ReasoningEnd(texts=[b"</think>"])
    walk = Walk(stub, byte_vocabulary, schema(b'{"enum":["a"]}'), end).take(b'thinking</think>"a"')
    assert walk.directive.finish.schema_satisfied


def test_strict_refuses_what_approximate_takes_and_reports(stub, byte_vocabulary):
    document = b'{"type":"array","items":{"type":"integer"},"uniqueItems":true,"title":"t"}'

    def compile_(policy):
        constraint = schema(document, policy=policy)
        return stub.CompileGrammar(
            grammar_pb2.CompileGrammarRequest(vocabulary_id=byte_vocabulary, grammar=constraint.grammar)
        )

    with pytest.raises(grpc.RpcError) as caught:
        compile_(grammar_pb2.SCHEMA_POLICY_STRICT)
    assert reason_of(caught.value) == "INVALID_GRAMMAR"
    assert "/uniqueItems" in caught.value.details()
    report = {entry.pointer: entry.verdict for entry in compile_(grammar_pb2.SCHEMA_POLICY_APPROXIMATE).report}
    assert report["/uniqueItems"] == grammar_pb2.KEYWORD_VERDICT_APPROXIMATED
    assert report["/title"] == grammar_pb2.KEYWORD_VERDICT_ANNOTATION
    assert report["/type"] == grammar_pb2.KEYWORD_VERDICT_ENFORCED


def test_json_white_space_is_a_choice(stub, byte_vocabulary):
    document = b'{"type":"array","items":{"type":"integer"}}'
    compact = Walk(stub, byte_vocabulary, schema(document, whitespace=grammar_pb2.JSON_WHITESPACE_COMPACT))
    assert compact.take(b"[1").legal == set(b",]0123456789")
    natural = Walk(stub, byte_vocabulary, schema(document, whitespace=grammar_pb2.JSON_WHITESPACE_NATURAL))
    assert natural.take(b"[1,").legal == {ord(" ")}


def gbnf(text, root=b""):
    constraint = session_pb2.Constraint()
    constraint.grammar.gbnf.text = text
    constraint.grammar.gbnf.root = root
    return constraint


def test_gbnf_grammars_with_token_elements_are_taken(stub, byte_vocabulary):
    walk = Walk(stub, byte_vocabulary, gbnf(b'root ::= <tool> [a-c]+ ";"'))
    assert walk.legal == {TOOL}
    walk.take([TOOL, *b"ab;"])
    assert walk.directive.finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED
    other = Walk(stub, byte_vocabulary, gbnf(b'root ::= "a"\nother ::= "x"', root=b"other"))
    assert other.legal == {ord("x")}


def tag(document):
    constraint = session_pb2.Constraint()
    constraint.grammar.structural_tag = json.dumps(document).encode()
    return constraint


def test_a_structural_tag_frees_the_text_around_its_tags(stub, byte_vocabulary):
    document = {
        "type": "structural_tag",
        "format": {
            "type": "triggered_tags",
            "triggers": ["<fn="],
            "tags": [
                {"type": "tag", "begin": "<fn=f>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</fn>"}
            ],
        },
    }
    walk = Walk(stub, byte_vocabulary, tag(document)).take(b"text <fn=")
    assert walk.legal == {ord("f")}
    assert walk.take(b"f>12</fn> more").legal >= {ord("a"), EOG}


TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "add",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
            },
        }
    ]
).encode()


def tools(choice, **fields):
    calls = session_pb2.ToolCalls(tools=TOOLS, tool_choice=choice, format=session_pb2.TOOL_CALL_FORMAT_HERMES, **fields)
    return session_pb2.Constraint(tool_calls=calls)


CALL = b'<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def test_tools_by_choice_are_lazy_required_named_or_none(stub, byte_vocabulary):
    auto = Walk(stub, byte_vocabulary, tools(b"auto")).take(b"Let me add. " + CALL)
    assert auto.known.awaiting_trigger  # parallel: it sleeps again
    single = Walk(stub, byte_vocabulary, tools(b"", single=True)).take(b"Let me add. " + CALL)
    assert single.directive.finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED
    required = Walk(stub, byte_vocabulary, tools(b"required"))
    assert required.legal == {ord("<")}
    assert ENDS <= required.take(CALL).legal
    named = Walk(stub, byte_vocabulary, tools(b'{"type":"function","function":{"name":"add"}}')).take(CALL)
    assert named.directive.finish.reason == session_pb2.FINISH_REASON_GRAMMAR_EXHAUSTED
    assert Walk(stub, byte_vocabulary, tools(b"none")).legal >= set(range(256))


@pytest.mark.parametrize(
    ("choice", "reason"),
    [(b"sometimes", "INVALID_FIELD"), (b'{"type":"function","function":{"name":"sub"}}', "INVALID_GRAMMAR")],
)
def test_a_tool_choice_that_means_nothing_is_refused(stub, byte_vocabulary, choice, reason):
    with pytest.raises(grpc.RpcError) as caught:
        stub.OpenSession(open_request(byte_vocabulary, tools(choice)))
    assert reason_of(caught.value) == reason
    assert "tool_choice" in caught.value.details()


def test_a_marker_of_a_special_token_and_more_text_is_refused_where_it_would_never_wake(stub, byte_vocabulary):
    def with_begin(begin):
        template = session_pb2.ToolCallTemplate(begin=begin, end=b"</call>")
        calls = session_pb2.ToolCalls(tools=TOOLS, template=template)
        return open_request(byte_vocabulary, session_pb2.Constraint(tool_calls=calls))

    with pytest.raises(grpc.RpcError) as caught:
        stub.OpenSession(with_begin(b"<tool>\n"))
    assert reason_of(caught.value) == "INVALID_FIELD"
    assert stub.OpenSession(with_begin(b"<tool>")).directive.WhichOneof("outcome") == "mask"


def test_a_request_may_ask_for_tighter_compile_limits(stub, byte_vocabulary):
    grammar = grammar_pb2.Grammar(regex=b"(a|b){1,400}c{1,400}[0-9]{3,77}")

    def compile_(**limits):
        request = grammar_pb2.CompileGrammarRequest(
            vocabulary_id=byte_vocabulary, grammar=grammar, limits=grammar_pb2.CompileLimits(**limits)
        )
        return stub.CompileGrammar(request)

    with pytest.raises(grpc.RpcError) as caught:
        compile_(time_ms=1)
    assert reason_of(caught.value) == "LIMIT_EXCEEDED"
    assert not compile_().cached  # the refusal under other limits is no answer to this one
    assert compile_(time_ms=1).cached


def test_a_bad_regex_inside_a_structural_tag_is_refused_by_its_json_pointer(stub, byte_vocabulary):
    document = {"type": "structural_tag", "format": {"type": "regex", "pattern": "a(?=b)"}}
    with pytest.raises(grpc.RpcError) as caught:
        stub.OpenSession(open_request(byte_vocabulary, tag(document)))
    assert reason_of(caught.value) == "INVALID_GRAMMAR"
    assert "/format/pattern" in caught.value.details()
    assert "lookahead" in caught.value.details()
