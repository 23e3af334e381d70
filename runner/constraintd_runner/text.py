"""Accepted tokens become text that is never taken back and never splits a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class SettledText:
    """One generation's text as its caller sees it. Owned by the thread that answers the call.

    Bytes come from the daemon's own token table, so that both sides count the same offsets; how many of them may be
    shown is the daemon's word.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """`token_bytes`: index = id, empty for special tokens and holes; an id past its end has no bytes either."""
        self._token_bytes = token_bytes
        self._pending = bytearray()
        self._shown = 0  # bytes, from position 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def accept(self, token: int) -> None:
        """Appends a token's bytes, to be shown when they are settled."""
        if token < len(self._token_bytes):
            self._pending += self._token_bytes[token]

    def settle(self, settled_bytes: int) -> str:
        """The text from where the last one ended up to this offset, whole characters only; often empty.

        Bytes that are not UTF-8 give U+FFFD. Raises ValueError for an offset that goes back, or past the tokens.
        """
        return self._decoder.decode(self._take(settled_bytes))

    def finish(self, cut_offset: int) -> str:
        """The rest of the text, which ends at this offset; a character cut off there gives U+FFFD."""
        return self._decoder.decode(self._take(cut_offset), final=True)

    def _take(self, offset: int) -> bytes:
        count = offset - self._shown
        if not 0 <= count <= len(self._pending):
            raise ValueError(
                f"text up to byte {offset} is not there: {self._shown} bytes were shown, {len(self._pending)} wait; "
                "runner and daemon must have different vocabularies"
            )
        taken = bytes(self._pending[:count])
        del self._pending[:count]
        self._shown = offset
        return taken
