"""A request's prompt becomes token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraintd.runner.v1 import generation_service_pb2 as pb
from constraintd_runner.chat import ChatTemplate, ChatTemplateError
from constraintd_runner.chat_request import chat_tools, turns_of, utf8_text
from constraintd_runner.errors import InvalidRequest
from constraintd_runner.model import ModelFolder
from constraintd_runner.tokenizer import TextTokenizer, open_tokenizer, read_tokenizer_config, spelling

_TEMPLATE_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class PromptEncoder:
    """Turns text, chats and given ids into a model's prompt. Safe to use from several threads."""

    def __init__(
        self, tokenizer: TextTokenizer, template: ChatTemplate | None, *, bos_id: int | None, logits_width: int
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._bos_id = bos_id
        self._width = logits_width

    @classmethod
    def open(cls, folder: ModelFolder, *, bos_id: int | None, logits_width: int) -> PromptEncoder:
        """The folder's tokenizer and chat template. `bos_id`: the vocabulary's, if it has one.

        Raises FolderError for a tokenizer, ChatTemplateError for a template that can't be used.
        """
        tokenizer = open_tokenizer(folder.tokenizer)
        template = None
        if folder.chat_template is not None:
            template = ChatTemplate(folder.chat_template, _variables(folder, tokenizer))
        return cls(tokenizer, template, bos_id=bos_id, logits_width=logits_width)

    def encode(self, request: pb.GenerateRequest) -> NDArray[np.int64]:
        """The prompt's ids [n >= 1]. Raises InvalidRequest naming the field."""
        kind = request.WhichOneof("prompt")
        if kind == "text":
            ids = self._tokenizer.encode_prompt(utf8_text(request.text, "text"))
        elif kind == "chat":
            ids = self._encode_chat(request)
        elif kind == "tokens":
            ids = list(request.tokens.ids)
            for index, token in enumerate(ids):
                if token >= self._width:
                    raise InvalidRequest(
                        f"token {token} is past the model's {self._width} ids", field=f"tokens.ids[{index}]"
                    )
        else:
            raise InvalidRequest("the request has no prompt; set text, chat or tokens", field="prompt")
        if not ids and self._bos_id is not None:
            ids = [self._bos_id]
        if not ids:
            raise InvalidRequest(
                "the prompt is empty, and the model has no BOS token to begin from; give some text", field=kind
            )
        return np.array(ids, dtype=np.int64)

    def _encode_chat(self, request: pb.GenerateRequest) -> list[int]:
        if self._template is None:
            raise InvalidRequest("the model has no chat template; send the prompt as text", field="chat")
        turns, tools = turns_of(request.chat), chat_tools(request)
        try:
            return self._template.encode(turns, self._tokenizer, tools)
        except ChatTemplateError as error:
            raise InvalidRequest(str(error), field="chat") from error


def _variables(folder: ModelFolder, tokenizer: TextTokenizer) -> Mapping[str, str]:
    """Spellings that templates ask for by name: the config's, else those of the folder's ids, else empty."""
    config: Mapping[str, Any] = read_tokenizer_config(folder.path)
    by_id = {token_id: text for text, token_id in tokenizer.special.ids.items()}
    fallback = {
        "bos_token": by_id.get(-1 if folder.bos_token_id is None else folder.bos_token_id),
        "eos_token": by_id.get(folder.eos_token_ids[0]) if folder.eos_token_ids else None,
    }
    return {name: spelling(config.get(name)) or fallback.get(name) or "" for name in _TEMPLATE_TOKENS}
