"""Text -> ids by the `tokenizers` package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from tokenizers import Tokenizer

from constraintd.errors import UnsupportedTokenizer, VocabularyError
from constraintd.vocabulary.json_source import object_at


class HuggingFaceEncoder:
    """A TextEncoder that owns one `tokenizers.Tokenizer`. Any thread may call it."""

    def __init__(self, tokenizer: Tokenizer, source_digest: str) -> None:
        self._tokenizer = tokenizer
        self._source_digest = source_digest

    @classmethod
    def from_json(
        cls,
        data: bytes,
        document: Mapping[str, object],
        vocab: Mapping[str, int],
        added_text: Mapping[str, int],
        *,
        location: str,
    ) -> HuggingFaceEncoder:
        """Build it from a `tokenizer.json`, given as its bytes and parsed.

        `vocab` is the model's base vocabulary, `added_text` the content -> id of its added tokens that
        are not special. Raises VocabularyError if the package refuses the file, UnsupportedTokenizer for added
        tokens of a Unigram model whose ids leave a gap.
        """
        tokenizer = _tokenizer(data.decode("utf-8"), location)
        # The package ignores the file's ids of added tokens and counts on from the size of the base
        # vocabulary. Where the id space has holes that gives other ids than the file's, or even those of
        # base tokens. An added token that the base vocabulary lists keeps its id, so list them there.
        if any(tokenizer.token_to_id(content) != token_id for content, token_id in added_text.items()):
            model = object_at(document["model"], f"{location}#/model")
            if not isinstance(model["vocab"], dict):
                raise UnsupportedTokenizer(
                    "an added token of a Unigram model has another id than the one that follows the pieces",
                    location=f"{location}#/added_tokens",
                    remedy="register a SentencePiece model if there is one, else a table of token bytes",
                )
            extended = {**document, "model": {**model, "vocab": {**vocab, **added_text}}}
            tokenizer = _tokenizer(json.dumps(extended), location)
        # A file may ask to cut or pad what it encodes to a training length.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Text that spells a special token is text.
        tokenizer.encode_special_tokens = True
        return cls(tokenizer, hashlib.sha256(data).hexdigest())

    @property
    def source_digest(self) -> str:
        """Hex sha256 of the `tokenizer.json`."""
        return self._source_digest

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without BOS and without special tokens from the text.

        As the file says, text may be normalised or get a space put before it, and characters that the
        vocabulary can't spell become its unknown token or, where it has none, vanish.

        Raises VocabularyError for text with a lone surrogate, and where the unknown token is needed but
        stands outside of the base vocabulary.
        """
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        except Exception as error:  # bare Exception for what it can't encode, TypeError for surrogates
            raise VocabularyError(
                f"the text can't be encoded ({str(error)[:200]})",
                location="text",
                remedy="send token ids, or text that is valid Unicode and in reach of this vocabulary",
            ) from None
        return ids


def _tokenizer(text: str, location: str) -> Tokenizer:
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the package raises bare Exception, for whatever it dislikes
        raise VocabularyError(
            f"the tokenizers package refuses the file ({str(error)[:200]})",
            location=location,
            remedy="check that the file is complete, and not newer than this daemon's tokenizers package",
        ) from None
