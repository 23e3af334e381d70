"""Lazy grammars: any engine's grammar that sleeps until a trigger wakes it.

While it sleeps every token is legal and is kept. When a trigger matches, the grammar starts, and is fed what the text
holds from the feeding point on: the trigger's first non-empty capture group, else its start, or its end where the
trigger is `exclusive`. The token across that point is cut in its bytes, those behind it are taken as they are.

Before a word or token trigger is complete, a token that would complete it with a tail that the grammar refuses is not
legal. With a pattern that can't be known beforehand: there a refused tail is a dead end.

Source: llama.cpp's lazy grammars. Our decisions: the earliest start wins, then the longest match; a word that is
exactly one special token is that token; re-arming is an option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from constraintd.engine.matcher import ByteMatcher
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.engine.trigger_search import Found, TriggerSearch
from constraintd.errors import InvalidField
from constraintd.mask.packed import Words, empty, has, of_ids
from constraintd.vocabulary.vocabulary import Vocabulary

_MAX_CACHED_MASKS = 64
# Stands for bytes that came without a token of their own: the end of one that woke the grammar around this one.
_NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class LazyOptions:
    """How a lazy grammar sleeps. `eog_legal`: whether the text may end before it wakes."""

    eog_legal: bool = True
    rearm: bool = False


class LazyGrammar:
    """A grammar with its triggers, shared by the sessions and forks that use it. Safe to use from many threads."""

    def __init__(
        self,
        start: Callable[[], ByteMatcher],
        triggers: Sequence[Trigger],
        vocabulary: Vocabulary,
        options: LazyOptions | None = None,
    ) -> None:
        """Raises InvalidField for no triggers, an unknown token id, and a pattern that can't be used."""
        if not triggers:
            raise InvalidField("triggers", "a lazy grammar without triggers would never wake; name one")
        self.options = options or LazyOptions()
        self.vocabulary = vocabulary
        self.start_inner = start
        specials = {spelling: token for token, spelling in vocabulary.special.items()}
        words: list[Trigger] = []
        self.tokens: dict[int, Trigger] = {}
        for index, trigger in enumerate(triggers):
            if trigger.kind is TriggerKind.TOKEN:
                if not (0 <= trigger.token < vocabulary.logits_width and has(vocabulary.real_ids, trigger.token)):
                    raise InvalidField(f"triggers[{index}].token", f"{trigger.token} is no token of the vocabulary")
                self.tokens[trigger.token] = trigger
            elif trigger.kind is TriggerKind.WORD and trigger.text in specials:
                self.tokens[specials[trigger.text]] = trigger
            else:
                words.append(trigger)
        self.search = TriggerSearch(words, vocabulary)
        width = vocabulary.logits_width
        eog = of_ids(vocabulary.eog_ids, width)
        self.not_eog: Words = vocabulary.real_ids & ~eog
        self.sleeping: Words = vocabulary.real_ids if self.options.eog_legal else self.not_eog
        self._masks: dict[tuple[object, ...], Words] = {}

    def start(self) -> LazyMatcher:
        """Asleep, before the first token."""
        return LazyMatcher(self)

    def mask_before(self, matcher: LazyMatcher) -> Words:
        """The mask of a sleeping matcher: every token but those that would wake the grammar and then be refused."""
        key = matcher.place_key()
        found = self._masks.get(key)
        if found is None:
            found = self.sleeping.copy()
            for token in {*self.tokens, *self.search.completing(matcher.pending_text())}:
                ahead = matcher.fork()
                ahead.consume(token)
                if ahead.is_refused:
                    found[token >> 5] &= ~(1 << (token & 31)) & 0xFFFFFFFF
            if len(self._masks) >= _MAX_CACHED_MASKS:
                self._masks.clear()
            self._masks[key] = found
        return found


class LazyMatcher:
    """One session's place in a lazy grammar. A Matcher; `is_awaiting` tells whether it still sleeps."""

    __slots__ = ("_grammar", "_inner", "_starts", "_text", "_tokens", "_woken", "fed_from", "is_refused")

    def __init__(self, grammar: LazyGrammar) -> None:
        self._grammar = grammar
        self._inner: ByteMatcher | None = None
        self._woken = False  # ever: then what it keeps does not begin at offset 0
        self._text = b""  # since it fell asleep
        self.fed_from = 0  # where in _text the grammar began, in bytes; meaningful while it is awake
        self._tokens: list[int] = []
        self._starts: list[int] = []  # where each token's bytes begin in _text
        self.is_refused = False  # woken by a text that the grammar refuses: a dead end

    @property
    def is_awaiting(self) -> bool:
        """Whether no trigger has matched yet. It never means that logits are not needed."""
        if isinstance(self._inner, LazyMatcher):
            return self._inner.is_awaiting
        return self._inner is None and not self.is_refused

    def pending_text(self) -> bytes:
        """The end of the sleeping text that a word trigger may have begun in."""
        return self._text[max(0, len(self._text) - self._grammar.search.reach) :]

    def place_key(self) -> tuple[object, ...]:
        """What the sleeping mask depends on: a begun word, the tokens it lies in, whether the text begins there."""
        begun = self._grammar.search.begun(self.pending_text())
        first = len(self._text) - begun
        across: list[int] = []
        cut = 0
        for index in range(len(self._tokens) - 1, -1, -1):
            if self._starts[index] + self._length(index) <= first:
                break
            across.append(self._tokens[index])
            cut = first - self._starts[index]
        return (self._woken, first == 0, not self._tokens, begun, cut, *across)

    def fill_mask(self, words: Words) -> None:
        """See Matcher."""
        if self.is_refused:
            words[:] = 0
        elif self._inner is None:
            words[:] = self._grammar.mask_before(self)
        else:
            self._inner.fill_mask(words)

    def consume(self, token: int) -> None:
        """See Matcher. While asleep it looks for triggers: tokens first, then the text."""
        if self._inner is not None:
            self._inner.consume(token)
            self._sleep_if_exhausted()
            return
        trigger = self._grammar.tokens.get(token)
        if trigger is not None and not (trigger.at_start and (self._tokens or self._woken)):
            self._wake_by_token(token, trigger)
            return
        self._keep(token, self._grammar.vocabulary.bytes_of(token))

    def consume_bytes(self, data: bytes) -> bool:
        """See ByteMatcher; for a lazy grammar that is itself woken in the middle of a token."""
        if self._inner is not None:
            taken = self._inner.consume_bytes(data)
            self._sleep_if_exhausted()
            return taken
        before = (self._text, self._tokens.copy(), self._starts.copy())
        self._keep(_NO_TOKEN, data)
        if self.is_refused:
            self.is_refused = False
            self._text, self._tokens, self._starts = before
            return False
        return True

    def _keep(self, token: int, piece: bytes) -> None:
        begin = len(self._text)
        self._tokens.append(token)
        self._starts.append(begin)
        self._text += piece
        found = self._grammar.search.find(self._text, begin, from_start=not self._woken)
        if found is not None:
            self._wake_by_text(found)

    def is_accepting(self) -> bool:
        """See Matcher. Asleep: whether the text may end here."""
        if self._inner is None:
            return self._grammar.options.eog_legal and not self.is_refused
        return self._inner.is_accepting()

    def fork(self) -> LazyMatcher:
        """See Matcher."""
        twin = LazyMatcher(self._grammar)
        twin._inner = None if self._inner is None else self._inner.fork()
        twin._woken, twin.fed_from = self._woken, self.fed_from
        twin._text = self._text
        twin._tokens = self._tokens.copy()
        twin._starts = self._starts.copy()
        twin.is_refused = self.is_refused
        return twin

    def _length(self, index: int) -> int:
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._text)
        return end - self._starts[index]

    def _wake_by_token(self, token: int, trigger: Trigger) -> None:
        inner = self._grammar.start_inner()
        if not trigger.exclusive and not _take(inner, token, self._grammar.vocabulary):
            self._refuse()
            return
        size = len(self._grammar.vocabulary.bytes_of(token))
        self._wake(inner, len(self._text) + (size if trigger.exclusive else 0))

    def _wake_by_text(self, found: Found) -> None:
        """Feeds what follows the feeding point: a cut token's bytes, then tokens as they are."""
        inner = self._grammar.start_inner()
        for index, token in enumerate(self._tokens):
            end = self._starts[index] + self._length(index)
            if end <= found.feed_from:
                continue
            begin = max(self._starts[index], found.feed_from)
            if begin > self._starts[index] or token == _NO_TOKEN:
                refused = not inner.consume_bytes(self._text[begin:end])
            else:
                refused = not _take(inner, token, self._grammar.vocabulary)
            if refused:
                self._refuse()
                return
        self._wake(inner, found.feed_from)

    def _wake(self, inner: ByteMatcher, fed_from: int) -> None:
        self._inner = inner
        self._woken = True
        self.fed_from = fed_from
        self._text, self._tokens, self._starts = b"", [], []
        self._sleep_if_exhausted()

    def _refuse(self) -> None:
        self.is_refused = True
        self._text, self._tokens, self._starts = b"", [], []

    def _sleep_if_exhausted(self) -> None:
        if self._grammar.options.rearm and self._inner is not None and self._inner.is_accepting():
            words = empty(self._grammar.vocabulary.logits_width)
            self._inner.fill_mask(words)
            if not (words & self._grammar.not_eog).any():
                self._inner = None


def _take(inner: ByteMatcher, token: int, vocabulary: Vocabulary) -> bool:
    """Advances over a token if its bit is set; False otherwise."""
    words = empty(vocabulary.logits_width)
    inner.fill_mask(words)
    if not has(words, token):
        return False
    inner.consume(token)
    return True
