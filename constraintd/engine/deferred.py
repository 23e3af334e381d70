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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from constraintd.encoding import Reader, Writer
from constraintd.engine.matcher import ByteMatcher, MatcherSource
from constraintd.engine.sleeping_text import NO_TOKEN, SleepingText
from constraintd.engine.trigger import Trigger, TriggerKind
from constraintd.engine.trigger_search import Found, TriggerSearch
from constraintd.errors import InvalidField
from constraintd.mask.packed import Words, empty, has, of_ids
from constraintd.vocabulary.vocabulary import Vocabulary

_MAX_CACHED_MASKS = 64
# How a place begins.
_ASLEEP, _AWAKE, _REFUSED = range(3)


@dataclass(frozen=True, slots=True)
class LazyOptions:
    """How a lazy grammar sleeps. `eog_legal`: whether the text may end before it wakes."""

    eog_legal: bool = True
    rearm: bool = False


class LazyGrammar:
    """A grammar with its triggers, shared by the sessions and forks that use it. Safe to use from many threads."""

    def __init__(
        self,
        inner: MatcherSource,
        triggers: Sequence[Trigger],
        vocabulary: Vocabulary,
        options: LazyOptions | None = None,
    ) -> None:
        """`inner` is what wakes: a CompiledGrammar, or another LazyGrammar.

        Raises InvalidField for no triggers, an unknown token id, and a pattern that can't be used.
        """
        if not triggers:
            raise InvalidField("triggers", "a lazy grammar without triggers would never wake; name one")
        self.options = options or LazyOptions()
        self.vocabulary = vocabulary
        self.inner = inner
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
        self.has_patterns = any(trigger.kind is not TriggerKind.WORD for trigger in words)
        width = vocabulary.logits_width
        eog = of_ids(vocabulary.eog_ids, width)
        self.not_eog: Words = vocabulary.real_ids & ~eog
        self.sleeping: Words = vocabulary.real_ids if self.options.eog_legal else self.not_eog
        self._masks: dict[tuple[object, ...], Words] = {}

    def start(self) -> LazyMatcher:
        """Asleep, before the first token."""
        return LazyMatcher(self)

    def at(self, place: bytes) -> LazyMatcher:
        """See MatcherSource."""
        return LazyMatcher.read(self, place)

    def mask_before(self, matcher: LazyMatcher) -> Words:
        """The mask of a sleeping matcher: every token but those that would wake the grammar and then be refused."""
        text = matcher.sleeping
        key = text.key()
        found = self._masks.get(key)
        if found is None:
            found = self.sleeping.copy()
            for token in {*self.tokens, *self.search.completing(text.pending)}:
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

    __slots__ = ("_grammar", "_inner", "fed_from", "is_refused", "sleeping")

    def __init__(self, grammar: LazyGrammar) -> None:
        self._grammar = grammar
        self._inner: ByteMatcher | None = None
        self.sleeping = SleepingText(grammar.search, keeps_all=grammar.has_patterns, woken=False)
        """What it keeps while it sleeps."""
        self.fed_from = 0
        """Where the grammar began, in bytes since it fell asleep; 0 while it sleeps."""
        self.is_refused = False
        """Whether it was woken by a text that the grammar refuses: a dead end."""

    @property
    def is_awaiting(self) -> bool:
        """Whether no trigger has matched yet. It never means that logits are not needed."""
        if isinstance(self._inner, LazyMatcher):
            return self._inner.is_awaiting
        return self._inner is None and not self.is_refused

    @property
    def inner(self) -> ByteMatcher | None:
        """The matcher that is awake; None while it sleeps, and where its text was refused."""
        return self._inner

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
        if trigger is not None and not (trigger.at_start and (self.sleeping.woken or not self.sleeping.is_first)):
            self._wake_by_token(token, trigger)
        else:
            self._keep(token, self._grammar.vocabulary.bytes_of(token))

    def consume_bytes(self, data: bytes) -> bool:
        """See ByteMatcher; for a lazy grammar that is itself woken in the middle of a token."""
        if self._inner is not None:
            taken = self._inner.consume_bytes(data)
            self._sleep_if_exhausted()
            return taken
        before = self.sleeping.copy()
        self._keep(NO_TOKEN, data)
        if self.is_refused:
            self.is_refused = False
            self.sleeping = before
            return False
        return True

    def legal_bytes(self) -> NDArray[np.bool_]:
        """See ByteMatcher. Asleep: all of them, though one that completes a trigger may turn out to be refused."""
        if self._inner is not None:
            return self._inner.legal_bytes()
        return np.full(256, not self.is_refused)

    def is_accepting(self) -> bool:
        """See Matcher. Asleep: whether the text may end here."""
        if self._inner is None:
            return self._grammar.options.eog_legal and not self.is_refused
        return self._inner.is_accepting()

    def fork(self) -> LazyMatcher:
        """See Matcher."""
        twin = LazyMatcher(self._grammar)
        twin._inner = None if self._inner is None else self._inner.fork()
        twin.sleeping = self.sleeping.copy()
        twin.fed_from = self.fed_from
        twin.is_refused = self.is_refused
        return twin

    def place(self) -> bytes:
        """See Matcher: what is kept of the text while it sleeps, and the inner place when it is awake."""
        writer = Writer()
        if self.is_refused:
            writer.unsigned(_REFUSED)
        elif self._inner is not None:
            writer.unsigned(_AWAKE)
            writer.unsigned(self.fed_from)
            writer.data(self._inner.place())
        else:
            writer.unsigned(_ASLEEP)
            self.sleeping.write(writer)
        return writer.getvalue()

    @classmethod
    def read(cls, grammar: LazyGrammar, place: bytes) -> LazyMatcher:
        """The matcher at a place: see MatcherSource.at."""
        matcher = cls(grammar)
        reader = Reader(place, "place in a lazy grammar")
        state = reader.unsigned(below=3)
        if state == _ASLEEP:
            matcher.sleeping = SleepingText.read(
                reader, grammar.search, grammar.vocabulary, keeps_all=grammar.has_patterns
            )
            reader.end()
        elif state == _AWAKE:
            fed_from = reader.unsigned()
            inner = reader.data()
            reader.end()
            matcher._wake(grammar.inner.at(inner), fed_from)
            if matcher._inner is None:
                raise reader.error("a grammar that is armed again sleeps where its text has ended")
        else:
            reader.end()
            matcher._refuse()
        return matcher

    def _keep(self, token: int, piece: bytes) -> None:
        found = self.sleeping.append(token, piece)
        if found is not None:
            self._wake_by_text(found)

    def _wake_by_token(self, token: int, trigger: Trigger) -> None:
        inner = self._grammar.inner.start()
        if not trigger.exclusive and not _take(inner, token, self._grammar.vocabulary):
            self._refuse()
            return
        size = len(self._grammar.vocabulary.bytes_of(token))
        self._wake(inner, self.sleeping.size + (size if trigger.exclusive else 0))

    def _wake_by_text(self, found: Found) -> None:
        """Feeds what follows the feeding point: a cut token's bytes, then tokens as they are."""
        inner = self._grammar.inner.start()
        for token, piece in self.sleeping.pieces(found):
            taken = inner.consume_bytes(piece) if token == NO_TOKEN else _take(inner, token, self._grammar.vocabulary)
            if not taken:
                self._refuse()
                return
        self._wake(inner, self.sleeping.offset(found))

    def _wake(self, inner: ByteMatcher, fed_from: int) -> None:
        self._inner = inner
        self.fed_from = fed_from
        self._forget(woken=True)
        self._sleep_if_exhausted()

    def _refuse(self) -> None:
        self.is_refused = True
        self._forget(woken=self.sleeping.woken)

    def _forget(self, *, woken: bool) -> None:
        self.sleeping = SleepingText(self._grammar.search, keeps_all=self._grammar.has_patterns, woken=woken)

    def _sleep_if_exhausted(self) -> None:
        if self._grammar.options.rearm and self._inner is not None and self._inner.is_accepting():
            words = empty(self._grammar.vocabulary.logits_width)
            self._inner.fill_mask(words)
            if not (words & self._grammar.not_eog).any():
                self._inner = None
                self.fed_from = 0


def _take(inner: ByteMatcher, token: int, vocabulary: Vocabulary) -> bool:
    """Advances over a token if its bit is set; False otherwise."""
    words = empty(vocabulary.logits_width)
    inner.fill_mask(words)
    if not has(words, token):
        return False
    inner.consume(token)
    return True
