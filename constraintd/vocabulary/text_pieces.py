"""Pieces of SentencePiece vocabularies, in its own format and as Hugging Face copies them."""

from __future__ import annotations

import re
from collections.abc import Iterable

SPACE_MARK = "\u2581"
"""LOWER ONE EIGHTH BLOCK: SentencePiece writes a space so."""

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def bytes_of_piece(piece: str, replacements: Iterable[tuple[str, str]], *, byte_fallback: bool) -> bytes:
    """UTF-8 of `piece` after `replacements` (old, new) in order; with `byte_fallback`, `<0xHH>` is byte HH.

    Raises UnicodeEncodeError for a lone surrogate.
    """
    if byte_fallback and piece.startswith("<0x"):
        byte = byte_of_piece(piece)
        if byte is not None:
            return byte
    for old, new in replacements:
        piece = piece.replace(old, new)
    return piece.encode("utf-8")


def byte_of_piece(piece: str) -> bytes | None:
    """The one byte that `<0xHH>` names, or None for any other piece."""
    match = _BYTE_PIECE.fullmatch(piece)
    return None if match is None else bytes([int(match[1], 16)])
