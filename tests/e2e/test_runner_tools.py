"""Tools, structural tags, GBNF, reasoning and presets through the runner: a tiny random decoder and a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest
from constraintd_client import (
    GenerationClient,
    InvalidField,
    InvalidGrammar,
    all_of,
    deny_ranges,
    gbnf,
    greedy,
    json_schema,
    reasoning_end,
    regex,
    sampler_config,
    sampler_preset,
    structural_tag,
    temperature,
    token_length,
    token_sequence,
    tool_calls,
)

from tests.daemon_process import daemon_process
from tests.runner_process import runner_process
from tests.tiny_decoder import BOS, EOS, TOOL, tokenizer_document, write_genai_folder

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
SCHEMAS = {"weather": PARAMETERS, "now": {"type": "object", "maxProperties": 0}}
SPECIAL_CALL = ("<|tool|>", "!")


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    with daemon_process() as daemon:
        with runner_process(write_genai_folder(tmp_path_factory.mktemp("genai")), daemon, "--slots", "4") as address:
            yield address


@pytest.fixture
def client(runner):
    with GenerationClient(runner) as client:
        yield client


def ids(text):
    """A text's bytes as tokens of the tiny tokenizer."""
    vocabulary = tokenizer_document()["model"]["vocab"]
    return [vocabulary[" Ġ"[1] if letter == " " else letter] for letter in text]


def sampler(seed=1, max_tokens=600, **options):
    return sampler_config(temperature(1.0), seed=seed, max_tokens=max_tokens, **options)


def check(answer):
    """Every call is of a known function, with arguments that its schema takes."""
    for call in answer.calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize("format_", ["hermes", "llama3_json", "mistral", "mistral_args"])
def test_a_required_call_comes_as_a_name_and_valid_arguments(client, format_):
    constraint = tool_calls(TOOLS, choice="required", format=format_, single=True, whitespace="compact")
    for seed in range(3):
        generation = client.generate("Go: ", constraint=constraint, sampler=sampler(seed)).wait()
        answer = generation.tool_answer
        assert (answer.content, answer.malformed, len(answer.calls)) == ("", "", 1)
        assert not generation.finish.constraint_incomplete
        check(answer)


def test_a_named_call_is_the_only_one(client):
    constraint = tool_calls(TOOLS, choice="weather", format="hermes")
    generation = client.generate("Go: ", constraint=constraint, sampler=sampler()).wait()
    assert [call.name for call in generation.tool_answer.calls] == ["weather"]
    check(generation.tool_answer)


def forced_start(*tokens):
    """Auto's calls, in an answer that begins with these tokens, so that a random model calls at all."""
    calls = tool_calls(TOOLS, template=SPECIAL_CALL, whitespace="compact")
    return all_of(calls, token_sequence(tokens), deny_ranges([(BOS, BOS + 1)]))


def test_auto_writes_text_and_calls_as_the_draws_have_it(client):
    plain = tool_calls(TOOLS, template=SPECIAL_CALL, whitespace="compact")
    found = []
    for seed in range(5):
        config = sampler(seed, max_tokens=300, min_tokens=250)
        generation = client.generate("Go: ", constraint=plain, sampler=config).wait()
        again = client.generate("Go: ", constraint=plain, sampler=config).wait()
        assert generation.token_ids == again.token_ids
        answer = generation.tool_answer
        check(answer)
        assert bool(generation.token_ids.count(TOOL)) == bool(answer.calls or answer.malformed)
        found.append(len(answer.calls))
    assert any(found), "no seed ever called; the test shows nothing"


def test_a_special_token_begins_a_call_and_text_that_spells_it_does_not(client):
    generation = client.generate("x", constraint=forced_start(*ids("so"), TOOL), sampler=sampler()).wait()
    answer = generation.tool_answer
    assert answer.content.startswith("so")
    assert answer.calls
    check(answer)
    spelled = forced_start(*ids('<|tool|>{"name":"rm","arguments":{}}!'))
    config = sampler_config(greedy(), max_tokens=len(ids('<|tool|>{"name":"rm","arguments":{}}!')))
    answer = client.generate("x", constraint=spelled, sampler=config).wait().tool_answer
    assert (answer.content, answer.calls, answer.malformed) == ('<|tool|>{"name":"rm","arguments":{}}!', (), "")


def test_a_call_cut_by_max_tokens_is_malformed_and_never_text(client):
    required = tool_calls(TOOLS, choice="required", template=SPECIAL_CALL, whitespace="compact")
    generation = client.generate("x", constraint=required, sampler=sampler(max_tokens=9)).wait()
    answer = generation.tool_answer
    assert (generation.finish.reason, generation.finish.constraint_incomplete) == ("LENGTH", True)
    assert (answer.content, answer.calls) == ("", ())
    assert answer.malformed.startswith("<|tool|>")
    auto = client.generate("x", constraint=forced_start(*ids("so"), TOOL), sampler=sampler(max_tokens=9)).wait()
    assert (auto.tool_answer.content, auto.tool_answer.calls) == ("so", ())
    assert auto.tool_answer.malformed.startswith("<|tool|>")
    hermes = tool_calls(TOOLS, choice="required", format="hermes")
    answer = client.generate("x", constraint=hermes, sampler=sampler(max_tokens=4)).wait().tool_answer
    assert (answer.content, answer.calls, answer.malformed) == ("", (), "<too")


def test_no_tools_asked_for_are_none(client):
    none = tool_calls(TOOLS, choice="none", template=SPECIAL_CALL)
    generation = client.generate("x", constraint=none, sampler=sampler(max_tokens=40)).wait()
    assert TOOL not in generation.token_ids
    assert (generation.tool_answer.calls, generation.tool_answer.malformed) == ((), "")
    assert client.generate("x", constraint=regex("a")).wait().tool_answer is None


def test_a_stop_cuts_the_text_before_calls_are_looked_for(client):
    constraint = tool_calls(TOOLS, choice="now", template=("<|tool|>", "END"), whitespace="compact")
    generation = client.generate("x", constraint=constraint, sampler=sampler(stop_strings=["END"])).wait()
    assert generation.finish.reason == "STOP_STRING"
    assert [call.name for call in generation.tool_answer.calls] == ["now"]
    assert "END" not in generation.tool_answer.malformed


def test_a_preset_ends_where_the_model_s_context_does(client):
    preset = sampler_preset("openai", {"temperature": 1, "max_tokens": 3}, seed=1)
    assert client.generate("x", constraint=regex("[ab]{9}"), sampler=preset).wait().usage.completion_tokens == 3
    endless = sampler_preset("openai", {"temperature": 1}, seed=1)
    finished = client.generate([5] * 2043, constraint=regex("[ab]{9}"), sampler=endless).wait()
    assert (finished.usage.completion_tokens, finished.finish.reason) == (5, "LENGTH")


def test_bad_tools_reach_the_caller_as_what_they_are(client):
    for constraint in (
        tool_calls(TOOLS, choice="sub", format="hermes"),
        tool_calls([{"type": "function"}], format="hermes"),
    ):
        with pytest.raises((InvalidGrammar, InvalidField), match="tool"):
            client.generate("x", constraint=constraint).wait()


def test_a_gbnf_grammar_with_a_token_element_writes_its_texts(client):
    grammar = gbnf('root ::= <|tool|> pair ("," pair)*\npair ::= [a-f]{2} "=" [0-9]', "root")
    for seed in range(4):
        constraint = all_of(grammar, token_length(max=60))
        generation = client.generate("x", constraint=constraint, sampler=sampler(seed)).wait()
        assert generation.token_ids[0] == TOOL
        whole = generation.text if not generation.finish.constraint_incomplete else generation.text.rpartition(",")[0]
        pairs = whole.split(",") if whole else []
        assert all(len(pair) == 4 and set(pair[:2]) <= set("abcdef") and pair[2] == "=" for pair in pairs)


def test_a_structural_tag_s_content_is_what_its_schema_takes(client):
    document = {
        "type": "structural_tag",
        "format": {
            "type": "tag",
            "begin": "<|tool|>",
            "content": {"type": "json_schema", "json_schema": PARAMETERS},
            "end": "</>",
        },
    }
    grammar = structural_tag(document, whitespace="compact")
    generation = client.generate("x", constraint=grammar, sampler=sampler()).wait()
    assert generation.token_ids[0] == TOOL
    assert generation.text.endswith("</>")
    jsonschema.validate(json.loads(generation.text.removesuffix("</>")), PARAMETERS)


def test_reasoning_is_free_until_its_end_and_what_follows_is_the_constraint_s(client):
    end = reasoning_end(tokens=[TOOL])
    forced = all_of(regex("[0-9]{3}"), token_sequence([*ids("so 7"), TOOL]))
    generation = client.generate("x", constraint=forced, sampler=sampler(), reasoning_end=end).wait()
    assert generation.finish.reason == "GRAMMAR_EXHAUSTED"
    assert generation.text.startswith("so 7")
    assert generation.text[4:].isdecimal()
    assert len(generation.text) == 7
    assert EOS not in generation.token_ids


def test_a_prompt_that_ended_its_reasoning_leaves_none(client):
    end = reasoning_end("</t>", begin="<t>")
    done = client.generate("<t>hm</t>", constraint=regex("[0-9]{3}"), sampler=sampler(), reasoning_end=end).wait()
    assert done.text.isdecimal()
    forced = all_of(regex("[0-9]{3}"), token_sequence(ids("hm</t>")))
    open_ = client.generate("<t>hm", constraint=forced, sampler=sampler(), reasoning_end=end).wait()
    assert open_.text.startswith("hm</t>")
    assert open_.text[6:].isdecimal()


def test_calls_are_looked_for_behind_the_reasoning(client):
    calls = tool_calls(TOOLS, choice="required", format="hermes", single=True, whitespace="compact")
    thoughts = "<tool_call>?</t>"
    constraint = all_of(calls, token_sequence(ids(thoughts)))
    generation = client.generate("x", constraint=constraint, sampler=sampler(), reasoning_end=reasoning_end("</t>"))
    answer = generation.wait().tool_answer
    assert (answer.content, answer.malformed, len(answer.calls)) == (thoughts, "", 1)
    check(answer)
    cut = sampler(max_tokens=5)
    answer = client.generate("x", constraint=constraint, sampler=cut, reasoning_end=reasoning_end("</t>")).wait()
    assert (answer.tool_answer.content, answer.tool_answer.malformed) == ("<tool", "")


def test_the_finish_says_whether_the_schema_is_satisfied(client):
    grammar = json_schema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, policy="approximate")
    for text, satisfied in (("[1,2]", True), ("[1,1]", False)):
        constraint = all_of(grammar, token_sequence(ids(text)))
        finish = client.generate("x", constraint=constraint, sampler=sampler()).wait().finish
        assert (finish.schema_satisfied, bool(finish.schema_violation)) == (satisfied, not satisfied)


def run_cli(runner, *arguments):
    command = [sys.executable, "-m", "constraintd_runner.cli", "generate", "--runner", runner, "--prompt", "x"]
    return subprocess.run([*command, "--seed", "1", *arguments], capture_output=True, text=True, timeout=120)


def test_the_command_line_prints_calls_as_json_lines(runner, tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    arguments = ["--tools", str(tools), "--tool-choice", "now", "--tool-format", "mistral_args", "--max-tokens", "300"]
    shown = run_cli(runner, *arguments)
    assert shown.returncode == 0
    assert shown.stdout.startswith("[TOOL_CALLS]now")
    assert json.loads(shown.stderr)["name"] == "now"
    only = run_cli(runner, *arguments, "--calls-only")
    call = json.loads(only.stdout)
    assert (call["name"], json.loads(call["arguments"]), only.stderr) == ("now", {}, "")
    cut = run_cli(runner, *arguments[:-1], "5", "--calls-only")
    assert (cut.returncode, cut.stdout) == (3, "")
    assert "a tool call was cut off" in cut.stderr


def test_the_command_line_takes_gbnf_and_structural_tags(runner, tmp_path):
    grammar = tmp_path / "g.gbnf"
    grammar.write_text('root ::= "yes" [!?]')
    assert run_cli(runner, "--gbnf", str(grammar)).stdout in ("yes!\n", "yes?\n")
    tag = tmp_path / "tag.json"
    content = {"type": "const_string", "value": "yes"}
    tag.write_text(json.dumps({"type": "structural_tag", "format": content}))
    assert run_cli(runner, "--structural-tag", str(tag)).stdout == "yes\n"
