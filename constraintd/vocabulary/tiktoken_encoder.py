"""Text -> ids by the `tiktoken` package, for vocabularies of ranks: tiktoken files and Mistral's tekken."""

from __future__ import annotations

from collections.abc import Mapping

from tiktoken import Encoding

from constraintd.errors import VocabularyError


class TiktokenEncoder:
    """A TextEncoder that owns one tiktoken `Encoding`. Any thread may call it."""

    def __init__(self, ranks: Mapping[bytes, int], pattern: str, *, first_id: int, source_digest: str) -> None:
        """`ranks`: token -> its merge rank, all 256 single bytes among them; a token's id is `first_id` + rank.

        `pattern` splits text before merging. `source_digest`: hex sha256 over what this is built from. Raises
        VocabularyError for a pattern that the package refuses.
        """
        try:
            self._encoding = Encoding("ranks", pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={})
        except ValueError as error:
            raise VocabularyError(
                f"the tiktoken package refuses the pattern ({str(error)[:200]})",
                location="pattern",
                remedy="pass the pattern that the model's tokenizer splits text with",
            ) from None
        self._bytes_of = {rank: token for token, rank in ranks.items()}
        self._first_id = first_id
        self._source_digest = source_digest

    @property
    def source_digest(self) -> str:
        """Hex sha256 over ranks file and pattern."""
        return self._source_digest

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; text that spells a special token stays text.

        Raises VocabularyError for text with a lone surrogate, and where the pattern doesn't split the text without
        loss.
        """
        try:
            expected = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise VocabularyError(
                f"the text can't be encoded ({error.reason})",
                location="text",
                remedy="send token ids, or text that is valid Unicode",
            ) from None
        ranks = self._ranks(text)
        # The package drops whatever the pattern doesn't match, without a word.
        if ranks is None or b"".join(map(self._bytes_of.__getitem__, ranks)) != expected:
            raise VocabularyError(
                "the pattern doesn't split the text without loss",
                location="pattern",
                remedy="pass the pattern of the model's own tokenizer, or send token ids",
            )
        return [self._first_id + rank for rank in ranks]

    def _ranks(self, text: str) -> list[int] | None:
        try:
            return self._encoding.encode_ordinary(text)
        except BaseException as error:
            # A pattern that matches nothing at some place makes the package panic. The panic's class can't be
            # imported, and is no Exception.
            if isinstance(error, ValueError) or type(error).__name__ == "PanicException":
                return None
            raise
