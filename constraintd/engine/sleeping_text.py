"""What a lazy grammar keeps of the text while it sleeps: the tokens that its triggers, or its feeding, may still need.

A word trigger needs no more than its own length, so whole tokens before that are forgotten; a pattern may begin
anywhere, so it needs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from constraintd.encoding import Reader, Writer
from constraintd.engine.trigger_search import Found, TriggerSearch
from constraintd.mask.packed import has
from constraintd.vocabulary.vocabulary import Vocabulary

NO_TOKEN = -1
"""Stands for bytes that came without a token of their own: the end of one that woke the grammar around this one."""


class SleepingText:
    """The text since a lazy grammar fell asleep. Owned by one matcher."""

    __slots__ = ("_keeps_all", "_search", "_skipped", "_starts", "_text", "_tokens", "is_first", "woken")

    def __init__(self, search: TriggerSearch, *, keeps_all: bool, woken: bool) -> None:
        """`keeps_all`: whether there are patterns. `woken`: whether the grammar was awake before; then this text does
        not begin at offset 0.
        """
        self._search = search
        self._keeps_all = keeps_all
        self.woken = woken
        self.is_first = True
        """Whether no token has come yet."""
        self._skipped = 0  # bytes that were forgotten
        self._text = b""  # the others
        self._tokens: list[int] = []
        self._starts: list[int] = []  # where each token's bytes begin in _text

    @property
    def size(self) -> int:
        """How many bytes have come since it fell asleep."""
        return self._skipped + len(self._text)

    @property
    def pending(self) -> bytes:
        """The end that a word trigger may have begun in."""
        return self._text[max(0, len(self._text) - self._search.reach) :]

    def append(self, token: int, piece: bytes) -> Found | None:
        """Keeps a token, or NO_TOKEN, with its bytes. The trigger that they complete, in bytes of what is kept."""
        begin = len(self._text)
        self.is_first = False
        self._tokens.append(token)
        self._starts.append(begin)
        self._text += piece
        found = self._search.find(self._text, begin, from_start=self._from_start)
        if found is None:
            self._forget()
        return found

    def offset(self, found: Found) -> int:
        """Where the grammar's text begins, in bytes since it fell asleep."""
        return self._skipped + found.feed_from

    def pieces(self, found: Found) -> Iterator[tuple[int, bytes]]:
        """What to feed: (token, its bytes), or (NO_TOKEN, bytes) for a token that is cut or never was one."""
        for index, token in enumerate(self._tokens):
            start = self._starts[index]
            end = self._end(index)
            if end > found.feed_from:
                begin = max(start, found.feed_from)
                yield NO_TOKEN if begin > start else token, self._text[begin:end]

    def key(self) -> tuple[object, ...]:
        """What the sleeping mask depends on: a begun word, the tokens it lies in, whether the text begins there."""
        begun = self._search.begun(self.pending)
        first = len(self._text) - begun
        across: list[int] = []
        cut = 0
        for index in range(len(self._tokens) - 1, -1, -1):
            if self._end(index) <= first:
                break
            across.append(self._tokens[index])
            cut = first - self._starts[index]
        return (self.woken, self._skipped + first == 0, self.is_first, begun, cut, *across)

    def copy(self) -> SleepingText:
        """The same text, to go on from independently."""
        twin = SleepingText(self._search, keeps_all=self._keeps_all, woken=self.woken)
        twin.is_first, twin._skipped, twin._text = self.is_first, self._skipped, self._text
        twin._tokens, twin._starts = self._tokens.copy(), self._starts.copy()
        return twin

    def write(self, writer: Writer) -> None:
        """Writes what is kept."""
        writer.flag(self.woken)
        writer.flag(self.is_first)
        writer.unsigned(self._skipped)
        writer.unsigned(len(self._tokens))
        for index, token in enumerate(self._tokens):
            writer.unsigned(token + 1)
            if token == NO_TOKEN:
                writer.data(self._text[self._starts[index] : self._end(index)])

    @classmethod
    def read(cls, reader: Reader, search: TriggerSearch, vocabulary: Vocabulary, *, keeps_all: bool) -> SleepingText:
        """What `write` has written. Raises InvalidEnvelope, for what no sleeping grammar keeps too."""
        text = cls(search, keeps_all=keeps_all, woken=reader.flag())
        text.is_first = reader.flag()
        text._skipped = reader.unsigned()
        pieces: list[bytes] = []
        size = 0
        for _ in range(reader.count()):
            token = reader.unsigned(below=vocabulary.logits_width + 1) - 1
            if token != NO_TOKEN and not has(vocabulary.real_ids, token):
                raise reader.error(f"{token} is no token of the vocabulary")
            pieces.append(reader.data() if token == NO_TOKEN else vocabulary.bytes_of(token))
            text._tokens.append(token)
            text._starts.append(size)
            size += len(pieces[-1])
        text._text = b"".join(pieces)
        kept = len(text._tokens)
        text._forget()
        if len(text._tokens) != kept or (text._skipped and keeps_all):
            raise reader.error("a sleeping grammar keeps what its triggers need, no more and no less")
        if text.is_first and (kept or text._skipped):
            raise reader.error("there are tokens before the first one")
        if search.find(text._text, 0, from_start=text._from_start) is not None:
            raise reader.error("a trigger is in this text, so it can't be asleep")
        return text

    @property
    def _from_start(self) -> bool:
        return not self.woken and self._skipped == 0

    def _end(self, index: int) -> int:
        return self._starts[index + 1] if index + 1 < len(self._starts) else len(self._text)

    def _forget(self) -> None:
        if self._keeps_all:
            return
        needed = len(self._text) - self._search.reach
        gone = 0
        while gone < len(self._tokens) and self._end(gone) <= needed:
            gone += 1
        if gone:
            size = self._end(gone - 1)
            self._text = self._text[size:]
            self._tokens = self._tokens[gone:]
            self._starts = [start - size for start in self._starts[gone:]]
            self._skipped += size
