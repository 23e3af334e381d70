"""Text to token ids, by the model's own tokenizer file.

Text never becomes a special token by spelling one: `encode` treats "<|im_end|>" as the ten characters that it is. Only
`encode_rendered` parses special tokens, for what a chat template wrote (see `chat.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from constraintd_runner.model.errors import FolderError
from constraintd_runner.special import SpecialTokens


class TextTokenizer(Protocol):
    """A model's tokenizer, as the runner needs it. Safe to use from several threads."""

    @property
    def special(self) -> SpecialTokens:
        """Its special tokens."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: no BOS, no special tokens."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a whole prompt: as `encode`, after the BOS where the tokenizer asks for one."""
        ...

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of text in which spelled special tokens are meant as such; no BOS but what the text spells."""
        ...


def open_tokenizer(path: Path) -> TextTokenizer:
    """The tokenizer in `path`: a tokenizer.json, or a SentencePiece model. Reads tokenizer_config.json beside it.

    Raises FolderError, naming the file, if it can't be read.
    """
    config = read_tokenizer_config(path.parent)
    try:
        if path.suffix == ".json":
            return _JsonTokenizer(path, config)
        return _SentencePieceTokenizer(path, config)
    except Exception as error:
        # The libraries raise plain Exception, RuntimeError and OSError, by version.
        raise FolderError(f"{path}: can't be read as a tokenizer: {error}") from error


def read_tokenizer_config(folder: Path) -> Mapping[str, Any]:
    """The folder's tokenizer_config.json; empty if there is none. Raises FolderError if it is no JSON object."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{path}: can't be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise FolderError(f"{path}: is not a JSON object")
    return config


def spelling(named: Any) -> str | None:
    """What a config's `bos_token` or the like spells: a text, or an object with its `content`."""
    content = named.get("content") if isinstance(named, dict) else named
    return content if isinstance(content, str) else None


class _JsonTokenizer:
    """A Hugging Face tokenizer.json, through the `tokenizers` package."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        from tokenizers import Tokenizer

        source = path.read_text(encoding="utf-8")
        self._parsing = Tokenizer.from_str(source)
        self._plain = Tokenizer.from_str(source)
        # The package's name for "special tokens in the text are text".
        self._plain.encode_special_tokens = True
        for tokenizer in (self._parsing, self._plain):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        self.special = SpecialTokens.of(
            {
                token.content: token_id
                for token_id, token in self._parsing.get_added_tokens_decoder().items()
                if token.special
            }
        )
        self._add_bos: bool | None = config.get("add_bos_token")
        bos = spelling(config.get("bos_token"))
        self._bos = None if bos is None else self._parsing.token_to_id(bos)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        encoding = self._plain.encode(text, add_special_tokens=True)
        ids, added = list(encoding.ids), list(encoding.special_tokens_mask)
        # A post-processor made for training may close the text; a prompt stays open.
        while added and added[-1]:
            ids.pop()
            added.pop()
        begins = bool(added) and added[0] == 1
        # tokenizer_config.json has the last word where it has one.
        if self._add_bos is True and not begins and self._bos is not None:
            return [self._bos, *ids]
        if self._add_bos is False and begins and ids[0] == self._bos:
            return ids[1:]
        return ids

    def encode_rendered(self, text: str) -> list[int]:
        ids: list[int] = self._parsing.encode(text, add_special_tokens=False).ids
        return ids


class _SentencePieceTokenizer:
    """A SentencePiece model. Its control tokens never match text, so `encode_rendered` splits the text at them."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        from sentencepiece import SentencePieceProcessor

        self._pieces = SentencePieceProcessor(model_file=str(path))
        special = {
            self._pieces.id_to_piece(token_id): token_id
            for token_id in range(self._pieces.get_piece_size())
            if self._pieces.is_control(token_id)
        }
        for token_id, token in config.get("added_tokens_decoder", {}).items():
            if token.get("special") and not self._pieces.is_unknown(int(token_id)):
                special[token["content"]] = int(token_id)
        self.special = SpecialTokens.of(special)
        bos = self._pieces.bos_id()
        self._bos = bos if bos >= 0 and config.get("add_bos_token", True) else None

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._pieces.encode(text)
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        ids = self.encode(text)
        return ids if self._bos is None else [self._bos, *ids]

    def encode_rendered(self, text: str) -> list[int]:
        return self.special.encode_around(text, self.encode)
