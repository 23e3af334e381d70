"""Texts as tokens of a vocabulary, in two ways: as its tokenizer would, and byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

from constraintd.check.case import Part
from constraintd.vocabulary.vocabulary import Vocabulary


class Speller:
    """Spells texts with one vocabulary, without specials, normaliser or added prefix."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        known = vocabulary.token_bytes[: vocabulary.logits_width]
        self._ids: dict[bytes, int] = {}
        for token, text in enumerate(known):
            if text:
                self._ids.setdefault(text, token)
        self._longest = max(map(len, self._ids), default=0)

    def tokens(self, parts: Sequence[Part]) -> list[int] | str:
        """Token ids, or why the vocabulary can't spell them."""
        found: list[int] = []
        for part in parts:
            if isinstance(part, int):
                found.append(part)
                continue
            spelled = self._encode(part)
            if isinstance(spelled, str):
                return spelled
            found += spelled
        return found

    def single_bytes(self, parts: Sequence[Part]) -> list[int] | None:
        """The same with a token for each byte, or None where the vocabulary lacks one."""
        found: list[int] = []
        for part in parts:
            if isinstance(part, int):
                found.append(part)
                continue
            for byte in part.encode("utf-8", "surrogatepass"):
                token = self._ids.get(bytes([byte]))
                if token is None:
                    return None
                found.append(token)
        return found

    def _encode(self, text: str) -> list[int] | str:
        raw = text.encode("utf-8", "surrogatepass")
        encoder = self._vocabulary.encoder
        if encoder is not None and max(text, default="") < "\ud800":
            tokens = encoder.encode(text)
            # A normaliser or an added prefix would make another text of it.
            if self._vocabulary.text_of(tokens) == raw and all(
                token < self._vocabulary.logits_width for token in tokens
            ):
                return tokens
        return self._greedy(raw)

    def _greedy(self, raw: bytes) -> list[int] | str:
        found: list[int] = []
        at = 0
        while at < len(raw):
            for size in range(min(self._longest, len(raw) - at), 0, -1):
                token = self._ids.get(raw[at : at + size])
                if token is not None:
                    found.append(token)
                    at += size
                    break
            else:
                return f"the vocabulary has no token for byte 0x{raw[at]:02x} at byte {at}"
        return found
