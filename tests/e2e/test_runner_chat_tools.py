"""Tools in the chats that a runner's model is given: a tiny random decoder, a real daemon, templates of our own."""

from __future__ import annotations

import json

import pytest
from constraintd_client import GenerationClient, InvalidField, sampler_config, temperature, tool_calls
from tokenizers import Tokenizer

from tests.daemon_process import daemon_process
from tests.runner_process import runner_process
from tests.tiny_decoder import tokenizer_document, write_genai_folder

# Tools before the chat, and the calls and results of the chat as the special token and marks have it.
TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}<s>{{ tool | tojson }}</s>{% endfor %}"
    "{% for message in messages %}<s>{{ message.role }}: {{ message.content }}"
    "{% for call in message.tool_calls or [] %}<|tool|>{{ call.function | tojson }}{% endfor %}"
    "{% if message.role == 'tool' %} of {{ message.name }} {{ message.tool_call_id }}{% endif %}</s>{% endfor %}"
    "<s>assistant: "
)


@pytest.fixture(scope="module")
def daemon_address():
    with daemon_process() as address:
        yield address


@pytest.fixture(scope="module")
def told_client(daemon_address, tmp_path_factory):
    """A client of a runner whose chat template tells the model of its tools."""
    folder = write_genai_folder(tmp_path_factory.mktemp("told"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TOOL_TEMPLATE}))
    with runner_process(folder, daemon_address) as address, GenerationClient(address) as client:
        yield client


@pytest.fixture(scope="module")
def client(daemon_address, tmp_path_factory):
    """A client of a runner whose chat template knows no tools."""
    with runner_process(write_genai_folder(tmp_path_factory.mktemp("plain")), daemon_address) as address:
        with GenerationClient(address) as client:
            yield client


ASKED = [{"role": "user", "content": "Go"}]
NOW = {"type": "function", "function": {"name": "now"}}
REQUIRED = tool_calls([NOW], choice="required", template=("<|tool|>", "!"), single=True, whitespace="compact")
# Free text, so that the answer depends on every token of the prompt.
AUTO = tool_calls([NOW], template=("<|tool|>", "!"))
FREE = sampler_config(temperature(1.0), seed=1, min_tokens=30, max_tokens=30)


def as_rendered(text):
    """Token ids of what a template wrote."""
    return Tokenizer.from_str(json.dumps(tokenizer_document())).encode(text, add_special_tokens=False).ids


def same(client, messages, text, **options):
    """Whether a chat is to the model what the rendered text is."""
    chat = client.generate(messages, constraint=AUTO, sampler=FREE, **options).wait()
    plain = client.generate(as_rendered(text), constraint=AUTO, sampler=FREE).wait()
    return (chat.usage.prompt_tokens, chat.token_ids) == (plain.usage.prompt_tokens, plain.token_ids)


def test_a_constraint_s_tools_reach_the_chat_template(told_client):
    tool = '<s>{"type": "function", "function": {"name": "now"}}</s>'
    assert same(told_client, ASKED, tool + "<s>user: Go</s><s>assistant: ")


def test_a_chat_s_own_tools_stand_in_for_the_constraint_s_and_an_empty_list_keeps_them_out(told_client):
    own = [{"type": "function", "function": {"name": "<s>"}}]
    before, after = '<s>{"type": "function", "function": {"name": "', '"}}</s><s>user: Go</s><s>assistant: '
    # What a tool spells is text, be it a special token's.
    tokens = [*as_rendered(before), *as_rendered("<"), *as_rendered("s"), *as_rendered(">"), *as_rendered(after)]
    told = told_client.generate(ASKED, constraint=None, sampler=FREE, tools=own).wait()
    assert told.usage.prompt_tokens == len(tokens)
    assert told.token_ids == told_client.generate(tokens, constraint=None, sampler=FREE).wait().token_ids
    assert same(told_client, ASKED, "<s>user: Go</s><s>assistant: ", tools=[])


def test_an_answer_s_calls_and_their_results_make_the_next_prompt(told_client):
    answer = told_client.generate(ASKED, constraint=REQUIRED).wait().tool_answer
    (call,) = answer.calls
    result = {"role": "tool", "content": "12:00", "tool_call_id": call.id, "name": call.name}
    messages = [*ASKED, {"role": "assistant", "content": answer.content, "tool_calls": answer.calls}, result]
    text = (
        '<s>user: Go</s><s>assistant: <|tool|>{"name": "now", "arguments": {}}</s>'
        f"<s>tool: 12:00 of now {call.id}</s><s>assistant: "
    )
    assert same(told_client, messages, text, tools=[])


def test_a_template_without_tools_writes_the_chat_alone(client):
    assert same(client, ASKED, "<s>user\nGo</s>\n<s>assistant\n")
    assert same(client, ASKED, "<s>user\nGo</s>\n<s>assistant\n", tools=[NOW])


def test_a_member_that_is_not_json_reaches_the_caller_by_its_field(client):
    called = [*ASKED, {"role": "assistant", "tool_calls": "[{]"}]
    for messages, tools, field in ((ASKED, "[{]", "chat.tools"), (called, None, "chat.messages[1].tool_calls")):
        with pytest.raises(InvalidField) as refused:
            client.generate(messages, constraint=None, tools=tools).wait()
        assert refused.value.metadata == {"field": field}
