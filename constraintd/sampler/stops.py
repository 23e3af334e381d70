"""Where the text stops, and how much of it is settled.

The text is a stream of bytes. What can still become a stop string, or the rest of a character, is held back.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string found in the text: it begins `start` bytes from position 0."""

    stop: bytes
    start: int


@dataclass(frozen=True, slots=True)
class OutputTail:
    """The end of the text: its length in bytes, and as many of its last bytes as a stop or a character can span."""

    total: int = 0
    tail: bytes = b""


class StopScanner:
    """Looks for a session's stop strings. Immutable after construction; shared by all forks of a session."""

    __slots__ = ("_keep", "_prefixes", "_stops")

    def __init__(self, stops: tuple[bytes, ...]) -> None:
        self._stops = stops
        # Every proper beginning of a stop: a text that ends in one may become the stop.
        self._prefixes = frozenset(stop[:n] for stop in stops for n in range(1, len(stop)))
        self._keep = max([3, *(len(stop) - 1 for stop in stops)])  # 3: the longest unfinished UTF-8 character

    def append(self, output: OutputTail, piece: bytes) -> tuple[OutputTail, StopMatch | None]:
        """The text with `piece` behind it, and the stop that completes: the earliest start, then the longest."""
        if not piece:
            return output, None
        window = output.tail + piece
        base = output.total - len(output.tail)
        match: StopMatch | None = None
        for stop in self._stops:
            # What begins before this point lies wholly in the old text and would have been found there.
            found = window.find(stop, max(0, len(output.tail) - len(stop) + 1))
            if found >= 0 and (match is None or (base + found, -len(stop)) < (match.start, -len(match.stop))):
                match = StopMatch(stop, base + found)
        return OutputTail(base + len(window), window[-self._keep :]), match

    def settled(self, output: OutputTail) -> int:
        """Bytes from position 0 that no later piece can take back, ending at a whole character."""
        tail = output.tail
        held = next((n for n in range(len(tail), 0, -1) if tail[-n:] in self._prefixes), 0) if self._prefixes else 0
        return output.total - held - _unfinished(tail[: len(tail) - held])


def _unfinished(text: bytes) -> int:
    """Length of the unfinished UTF-8 character at the end; 0 if there is none, or it can't become one."""
    for back in range(1, min(3, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 2 if 0xC2 <= byte <= 0xDF else 3 if 0xE0 <= byte <= 0xEF else 4 if 0xF0 <= byte <= 0xF4 else 0
        if need <= back:
            return 0
        try:
            text[-back:].decode("utf-8")
        except UnicodeDecodeError as error:
            return back if error.reason == "unexpected end of data" else 0
        return 0
    return 0
