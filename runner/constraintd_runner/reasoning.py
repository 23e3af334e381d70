"""Where a model's reasoning ends, by the daemon's rules: its constraints begin behind that place, and so do calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from constraintd_client import TokenTable

from constraintd.v1 import session_pb2
from constraintd_runner.final_text import Piece


def reasons_after(prompt: Sequence[int], end: session_pb2.ReasoningEnd, table: TokenTable) -> bool:
    """Whether the reasoning is still to end behind this prompt. Its text has special tokens by their spelling, since
    templates write both forms.
    """
    text = bytearray()
    last_end = -1
    for token in prompt:
        if token in end.tokens:
            last_end = len(text)
        text += table.special[token].encode() if token in table.special else _bytes_of(token, table)
    last_end = max([last_end, *(text.rfind(word) for word in end.texts)])
    if not end.begin:
        return last_end < 0
    return text.rfind(end.begin) > last_end


def split_reasoning(
    pieces: Sequence[Piece], end: session_pb2.ReasoningEnd, table: TokenTable
) -> tuple[Sequence[Piece], Sequence[Piece]]:
    """The text up to and including the first end of the reasoning, and what follows; all of it and nothing, if it
    never ends. A text that spells a special token is that token.
    """
    specials = {spelling.encode(): token for token, spelling in table.special.items()}
    tokens = {*end.tokens, *(specials[word] for word in end.texts if word in specials)}
    words = [word for word in end.texts if word not in specials]
    text = bytearray()
    for index, piece in enumerate(pieces):
        if piece.token in tokens:
            return pieces[: index + 1], pieces[index + 1 :]
        begin = len(text)
        text += piece.data
        starts = [(text.find(word, max(0, begin - len(word) + 1)), word) for word in words]
        found = [(start, -len(word)) for start, word in starts if start >= 0]
        if found:
            start, minus_length = min(found)
            cut = start - minus_length - begin
            before, after = replace(piece, data=piece.data[:cut]), replace(piece, data=piece.data[cut:])
            return [*pieces[:index], before], [after, *pieces[index + 1 :]]
    return pieces, []


def _bytes_of(token: int, table: TokenTable) -> bytes:
    return table.tokens[token] if token < len(table.tokens) else b""
