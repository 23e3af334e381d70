"""Finds triggers in text: words by search, patterns by RE2, whose time is linear whatever the pattern."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.errors import InvalidField
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Found:
    """A trigger in the text, in bytes from its beginning."""

    start: int
    end: int
    feed_from: int
    """Where the grammar's text begins."""


@dataclass(frozen=True, slots=True)
class _Word:
    word: bytes
    trigger: Trigger


@dataclass(frozen=True, slots=True)
class _Pattern:
    compiled: Any
    trigger: Trigger


class TriggerSearch:
    """The word and pattern triggers of one lazy grammar over one vocabulary. Immutable; shared by all its sessions."""

    def __init__(self, triggers: Sequence[Trigger], vocabulary: Vocabulary) -> None:
        """Raises InvalidField for an empty word and for a pattern that RE2 refuses (look-around, back-references)."""
        self._words = [_Word(_word_of(i, t), t) for i, t in enumerate(triggers) if t.kind is TriggerKind.WORD]
        self._patterns = [_pattern_of(i, t) for i, t in enumerate(triggers) if t.kind is not TriggerKind.WORD]
        self._prefixes = frozenset(w.word[:n] for w in self._words for n in range(1, len(w.word)))
        self.reach = max((len(w.word) - 1 for w in self._words), default=0)
        """Bytes of text before the next token that a word may have begun in."""
        self._index = _TokenIndex(vocabulary) if self._words else None
        self._whole = frozenset(
            token for w in self._words for token, text in enumerate(vocabulary.token_bytes) if w.word in text
        )

    def find(self, text: bytes, begin: int, *, from_start: bool) -> Found | None:
        """The first trigger that the bytes from `begin` on complete: earliest start, then longest.

        `from_start` tells whether `text` begins at offset 0, where alone `at_start` triggers count.
        """
        found: list[Found] = []
        for word in self._words:
            at = text.find(word.word, max(0, begin - len(word.word) + 1))
            if at >= 0 and not (word.trigger.at_start and (at > 0 or not from_start)):
                end = at + len(word.word)
                found.append(Found(at, end, end if word.trigger.exclusive else at))
        for pattern in self._patterns:
            match = None if pattern.trigger.at_start and not from_start else _match(pattern, text)
            if match is not None:
                found.append(match)
        return min(found, key=lambda f: (f.start, -f.end), default=None)

    def begun(self, pending: bytes) -> int:
        """Length of the longest end of the text that a word begins with."""
        return next((n for n in range(len(pending), 0, -1) if pending[-n:] in self._prefixes), 0)

    def completing(self, pending: bytes) -> Iterable[int]:
        """Tokens that complete some word behind a text that ends with `pending`."""
        tokens = set(self._whole)
        if self._index is not None:
            for word in self._words:
                for n in range(1, min(len(pending), len(word.word) - 1) + 1):
                    if pending.endswith(word.word[:n]):
                        tokens.update(self._index.beginning_with(word.word[n:]))
        return tokens


class _TokenIndex:
    """Text tokens in byte order."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        known = vocabulary.token_bytes[: vocabulary.logits_width]
        self._sorted = sorted((text, token) for token, text in enumerate(known) if text)

    def beginning_with(self, prefix: bytes) -> list[int]:
        first = bisect_left(self._sorted, (prefix, -1))
        tokens = []
        for text, token in self._sorted[first:]:
            if not text.startswith(prefix):
                break
            tokens.append(token)
        return tokens


def _word_of(index: int, trigger: Trigger) -> bytes:
    if not trigger.text:
        raise InvalidField(f"triggers[{index}].word", "an empty word is everywhere; leave the grammar eager instead")
    return trigger.text.encode()


def _pattern_of(index: int, trigger: Trigger) -> _Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        return _Pattern(re2.compile(trigger.text, options), trigger)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InvalidField(
            f"triggers[{index}].{trigger.kind.value}",
            f"{reason}; triggers take RE2 syntax, which has neither look-around nor back-references",
        ) from None


def _match(pattern: _Pattern, text: bytes) -> Found | None:
    """Where the pattern matches, in bytes. Bytes that are no UTF-8 are one unknown character each."""
    escaped = text.decode("utf-8", "surrogateescape")
    plain = escaped if escaped.isascii() else "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in escaped)
    full = pattern.trigger.kind is TriggerKind.PATTERN_FULL
    match = pattern.compiled.fullmatch(plain) if full else pattern.compiled.search(plain)
    if match is None or (pattern.trigger.at_start and match.start() > 0):
        return None

    def offset(characters: int) -> int:
        return len(escaped[:characters].encode("utf-8", "surrogateescape"))

    feed = match.start()
    for group in range(1, pattern.compiled.groups + 1):
        if match.group(group):
            feed = match.start(group)
            break
    if pattern.trigger.exclusive:
        feed = match.end()
    return Found(offset(match.start()), offset(match.end()), offset(feed))
