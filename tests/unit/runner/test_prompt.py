"""Requests to prompts."""

from __future__ import annotations

import pytest
from constraintd_runner.chat import ChatTemplate
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.prompt import PromptEncoder
from constraintd_runner.special import SpecialTokens

from constraintd.runner.v1 import generation_service_pb2 as pb


class LetterTokenizer:
    """Each letter is its code point; no BOS."""

    special = SpecialTokens.of({})

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    encode_prompt = encode
    encode_rendered = encode


def encoder(bos_id: int | None = None, template: str | None = "{{ messages[0].content }}!") -> PromptEncoder:
    compiled = None if template is None else ChatTemplate(template, {})
    return PromptEncoder(LetterTokenizer(), compiled, bos_id=bos_id, logits_width=256)


def chat(*messages: tuple[bytes, bytes]) -> pb.GenerateRequest:
    turns = [pb.ChatMessage(role=role, content=content) for role, content in messages]
    return pb.GenerateRequest(chat=pb.ChatPrompt(messages=turns))


def test_text_chat_and_tokens_become_ids() -> None:
    assert encoder().encode(pb.GenerateRequest(text=b"ab")).tolist() == [97, 98]
    assert encoder().encode(chat((b"user", b"a"))).tolist() == [97, 33]
    assert encoder().encode(pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[5, 6]))).tolist() == [5, 6]


def test_a_chat_s_tools_reach_its_template() -> None:
    request = chat((b"user", b"a"))
    request.chat.tools = b'[{"f":1}]'
    ids = encoder(template="{{ (tools or []) | tojson }}{{ messages[0].content }}").encode(request)
    assert bytes(ids.tolist()) == b'[{"f": 1}]a'


def test_an_empty_prompt_begins_from_the_bos_where_there_is_one() -> None:
    assert encoder(bos_id=3).encode(pb.GenerateRequest(text=b"")).tolist() == [3]
    assert encoder(bos_id=3).encode(pb.GenerateRequest(tokens=pb.TokenPrompt())).tolist() == [3]


@pytest.mark.parametrize(
    ("request_", "field", "template"),
    [
        (pb.GenerateRequest(), "prompt", None),
        (pb.GenerateRequest(text=b""), "text", None),
        (pb.GenerateRequest(tokens=pb.TokenPrompt()), "tokens", None),
        (pb.GenerateRequest(text=b"a\xff"), "text", None),
        (pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[1, 256])), "tokens.ids[1]", None),
        (chat(), "chat.messages", "x"),
        (chat((b"user", b"a"), (b"\xff", b"a")), "chat.messages[1].role", "x"),
        (chat((b"user", b"\xff")), "chat.messages[0].content", "x"),
        (pb.GenerateRequest(chat=pb.ChatPrompt(messages=[pb.ChatMessage()], tools=b"?")), "chat.tools", "x"),
        (chat((b"user", b"a")), "chat", None),
        (chat((b"user", b"a")), "chat", "{{ raise_exception('no') }}"),
    ],
)
def test_what_cannot_be_a_prompt_is_refused_by_field(
    request_: pb.GenerateRequest, field: str, template: str | None
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encoder(template=template).encode(request_)
    assert caught.value.metadata == {"field": field}
