"""A finished generation token by token: which bytes each adds to the final text, and which tokens are special.

Special tokens have no bytes. Where text is parsed they stand in it by their spelling, between two marks that no decoded
text has, so that a special token is never mistaken for text that spells the same, nor the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from constraintd_client import Finish, TokenTable

from constraintd_runner.special import SpecialTokens

# Lone surrogates: decoding UTF-8 never makes them.
_OPEN: Final = "\ud800"
_CLOSE: Final = "\udfff"


@dataclass(frozen=True, slots=True)
class Piece:
    """One token's part of the final text."""

    token: int
    data: bytes
    """Its bytes, as far as they belong to the text; none for a special token."""
    spelling: str = ""
    """Of a special token; otherwise empty."""


def final_pieces(tokens: Sequence[int], finish: Finish, table: TokenTable) -> list[Piece]:
    """The accepted tokens as the finish leaves them: without the terminal token, and without what a stop cut off."""
    kept = tokens if finish.stop_id is None else tokens[:-1]
    pieces: list[Piece] = []
    at = 0
    for token in kept:
        if at > finish.cut_offset:
            break  # a special token in the midst of a stop string
        data = table.tokens[token] if token < len(table.tokens) else b""
        pieces.append(Piece(token, data[: finish.cut_offset - at], table.special.get(token, "")))
        at += len(data)
    return pieces


def marked_text(pieces: Iterable[Piece]) -> str:
    """The text, special tokens by their marked spelling. Bytes that are not UTF-8 give U+FFFD."""
    texts: list[str] = []
    run = bytearray()
    for piece in pieces:
        run += piece.data
        if piece.spelling:
            texts += [run.decode(errors="replace"), _OPEN, piece.spelling, _CLOSE]
            run.clear()
    texts.append(run.decode(errors="replace"))
    return "".join(texts)


def mark(text: str, special: SpecialTokens) -> str:
    """A marker as it stands in a marked text, the special tokens that it spells marked."""
    return special.pattern.sub(lambda found: f"{_OPEN}{found[0]}{_CLOSE}", text)


def unmark(text: str) -> str:
    """The text with special tokens by their spelling alone."""
    return text.replace(_OPEN, "").replace(_CLOSE, "")
