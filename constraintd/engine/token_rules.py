"""Constraints on token ids alone: no text, no engine. Tiny, exact, NumPy.

Each rule is a Matcher (`constraintd.engine.matcher`). They differ from grammars in one thing: a rule that says nothing
about where a text may end leaves every EOG id legal. `content` is all that a rule demands, as bytes: rules of the same
content over one vocabulary are the same rule, and `at` takes a place that any of them wrote.

Source of the behaviour: the token constraints of oxibonsai (allow-list, token sequence, length, fixed set), with this
project's decisions: ids outside the vocabulary are refused, never dropped, and EOG is legal exactly at completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from constraintd.encoding import Reader, Writer
from constraintd.engine.matcher import Matcher
from constraintd.errors import InvalidField
from constraintd.mask.packed import Words, of_ids, to_bytes
from constraintd.vocabulary.vocabulary import Vocabulary


class TokenRule(Matcher, Protocol):
    """A Matcher over token ids alone."""

    @property
    def content(self) -> bytes:
        """What the rule demands, whatever its place."""

    def at(self, place: bytes) -> TokenRule:
        """The same rule at a place that `place` wrote. Raises InvalidEnvelope."""


def check_ids(field: str, ids: Iterable[int], vocabulary: Vocabulary) -> tuple[int, ...]:
    """The ids as they are. Raises InvalidField for one that no token of the vocabulary has."""
    checked = tuple(ids)
    for index, token in enumerate(checked):
        exists = 0 <= token < vocabulary.logits_width and int(vocabulary.real_ids[token >> 5]) >> (token & 31) & 1
        if not exists:
            raise InvalidField(f"{field}[{index}]", f"{token} is no token of the vocabulary; leave it out")
    return checked


class FixedMask:
    """The same tokens at every position: an allowed set, or everything but deny ranges or banned specials.

    Stateless, so forks share it. EOG is as legal as the mask says.
    """

    __slots__ = ("_mask",)

    def __init__(self, mask: Words) -> None:
        self._mask = mask

    @classmethod
    def allowed(cls, ids: Iterable[int], vocabulary: Vocabulary) -> FixedMask:
        """Only these tokens, and the end. Raises InvalidField for none, and for unknown ids."""
        checked = check_ids("allowed_ids", ids, vocabulary)
        if not checked:
            raise InvalidField("allowed_ids", "an empty set allows nothing; name at least one token")
        return cls(of_ids({*checked, *vocabulary.eog_ids}, vocabulary.logits_width))

    @classmethod
    def without_ranges(cls, ranges: Iterable[tuple[int, int]], vocabulary: Vocabulary) -> FixedMask:
        """Every token but those in the ranges [first, past the last). EOG ids may be among them.

        Raises InvalidField for a range that is empty, inverted or outside of the logits width.
        """
        mask = vocabulary.real_ids.copy()
        width = vocabulary.logits_width
        for index, (begin, end) in enumerate(ranges):
            if not 0 <= begin < end <= width:
                raise InvalidField(
                    f"deny_ranges[{index}]", f"[{begin}, {end}) must be a range of ids below the logits width {width}"
                )
            mask &= ~of_ids(range(begin, end), width)
        return cls(mask)

    @classmethod
    def without_specials(cls, banned: Iterable[int], vocabulary: Vocabulary) -> FixedMask:
        """Every token but these special ones. Raises InvalidField for an id that is not special, or is EOG."""
        checked = check_ids("banned_specials", banned, vocabulary)
        for index, token in enumerate(checked):
            if token not in vocabulary.special:
                raise InvalidField(f"banned_specials[{index}]", f"{token} is not special; use deny_ranges")
            if token in vocabulary.eog_ids:
                raise InvalidField(
                    f"banned_specials[{index}]", f"{token} ends the text; use min_tokens to put that off"
                )
        return cls(vocabulary.real_ids & ~of_ids(checked, vocabulary.logits_width))

    def fill_mask(self, words: Words) -> None:
        """See Matcher."""
        words[:] = self._mask

    def consume(self, token: int) -> None:
        """See Matcher."""

    def is_accepting(self) -> bool:
        """Always: a set of tokens says nothing about where a text may end."""
        return True

    def fork(self) -> FixedMask:
        """See Matcher."""
        return self

    @property
    def content(self) -> bytes:
        """See TokenRule."""
        return b"fixed mask\n" + to_bytes(self._mask)

    def place(self) -> bytes:
        """Empty: it is everywhere at the same place."""
        return b""

    def at(self, place: bytes) -> FixedMask:
        """See TokenRule."""
        Reader(place, "place of a fixed mask").end()
        return self


@dataclass(frozen=True, slots=True)
class _Candidates:
    """An allow-list's texts, checked, without their trailing EOG."""

    sequences: tuple[tuple[int, ...], ...]
    logits_width: int
    eog: Words


class AllowList:
    """The text is one of a list of token sequences.

    A candidate is active while it agrees with everything taken so far; duplicates count each. Of `[1]` and `[1, 2]`,
    after 1 the text is complete and 2 is still legal; taking it deactivates `[1]`. An empty candidate is complete at
    position 0.
    """

    __slots__ = ("_active", "_list", "position")

    def __init__(self, candidates: _Candidates, active: tuple[int, ...], position: int) -> None:
        self._list = candidates
        self._active = active
        self.position = position

    @classmethod
    def start(cls, candidates: Iterable[Sequence[int]], vocabulary: Vocabulary) -> AllowList:
        """Raises InvalidField for an empty list, unknown ids, and an EOG id before a candidate's end."""
        checked: list[tuple[int, ...]] = []
        for index, candidate in enumerate(candidates):
            field = f"allow_list[{index}]"
            sequence = check_ids(field, candidate, vocabulary)
            if sequence and sequence[-1] in vocabulary.eog_ids:
                sequence = sequence[:-1]
            for place, token in enumerate(sequence):
                if token in vocabulary.eog_ids:
                    raise InvalidField(f"{field}[{place}]", f"{token} ends the text; nothing can follow it")
            checked.append(sequence)
        if not checked:
            raise InvalidField("allow_list", "an empty list allows nothing; give at least one sequence")
        width = vocabulary.logits_width
        eog = of_ids(vocabulary.eog_ids, width)
        return cls(_Candidates(tuple(checked), width, eog), tuple(range(len(checked))), 0)

    @property
    def active_count(self) -> int:
        """Candidates that agree with everything taken so far, duplicates counted each."""
        return len(self._active)

    def fill_mask(self, words: Words) -> None:
        """See Matcher."""
        here = self.position
        sequences = self._list.sequences
        ways = {sequences[i][here] for i in self._active if here < len(sequences[i])}
        words[:] = of_ids(ways, self._list.logits_width)
        if self.is_accepting():
            words |= self._list.eog

    def consume(self, token: int) -> None:
        """See Matcher. A token that no candidate has here deactivates all, and still counts its position."""
        here = self.position
        sequences = self._list.sequences
        self._active = tuple(i for i in self._active if here < len(sequences[i]) and sequences[i][here] == token)
        self.position += 1

    def is_accepting(self) -> bool:
        """Whether everything taken so far is one of the sequences."""
        return any(len(self._list.sequences[i]) == self.position for i in self._active)

    def fork(self) -> AllowList:
        """See Matcher."""
        return AllowList(self._list, self._active, self.position)

    @property
    def content(self) -> bytes:
        """See TokenRule."""
        writer = Writer()
        writer.unsigned(len(self._list.sequences))
        for sequence in self._list.sequences:
            writer.numbers(sequence)
        return b"allow-list\n" + writer.getvalue()

    def place(self) -> bytes:
        """The position, and which candidates are active."""
        writer = Writer()
        writer.unsigned(self.position)
        writer.numbers(self._active)
        return writer.getvalue()

    def at(self, place: bytes) -> AllowList:
        """See TokenRule."""
        sequences = self._list.sequences
        reader = Reader(place, "place of an allow-list")
        position = reader.unsigned()
        active = reader.numbers(below=len(sequences))
        reader.end()
        if active:
            taken = sequences[active[0]][:position]
            agree = tuple(i for i, s in enumerate(sequences) if len(taken) == position and s[:position] == taken)
            if active != agree:
                raise reader.error("no text leaves these candidates active")
        elif position == 0:
            raise reader.error("every candidate is active before the first token")
        return AllowList(self._list, active, position)


class TokenSequence:
    """The text begins with these tokens; what follows is free, and may be nothing."""

    __slots__ = ("_position", "_real", "_target")

    def __init__(self, target: tuple[int, ...], real: Words, position: int = 0) -> None:
        self._target = target
        self._real = real
        self._position = position

    @classmethod
    def start(cls, target: Iterable[int], vocabulary: Vocabulary) -> TokenSequence:
        """Raises InvalidField for an empty target, unknown ids, and EOG ids."""
        checked = check_ids("sequence", target, vocabulary)
        if not checked:
            raise InvalidField("sequence", "an empty sequence asks for nothing; leave it out")
        for index, token in enumerate(checked):
            if token in vocabulary.eog_ids:
                raise InvalidField(f"sequence[{index}]", f"{token} ends the text; nothing can follow it")
        return cls(checked, vocabulary.real_ids)

    def fill_mask(self, words: Words) -> None:
        """See Matcher."""
        if self._position >= len(self._target):
            words[:] = self._real
        else:
            words[:] = 0
            token = self._target[self._position]
            words[token >> 5] = 1 << (token & 31)

    def consume(self, token: int) -> None:  # noqa: ARG002 - its bit was the only one, or all are free
        """See Matcher."""
        self._position += 1

    def is_accepting(self) -> bool:
        """Whether the sequence is complete."""
        return self._position >= len(self._target)

    def fork(self) -> TokenSequence:
        """See Matcher."""
        return TokenSequence(self._target, self._real, self._position)

    @property
    def content(self) -> bytes:
        """See TokenRule."""
        writer = Writer()
        writer.numbers(self._target)
        return b"token sequence\n" + writer.getvalue()

    def place(self) -> bytes:
        """How much of the sequence is there. Behind its end all places are the same."""
        return _position_place(min(self._position, len(self._target)))

    def at(self, place: bytes) -> TokenSequence:
        """See TokenRule."""
        position = _position_at(place, "place of a token sequence", most=len(self._target))
        return TokenSequence(self._target, self._real, position)


class MinLength:
    """No end before `minimum` tokens."""

    __slots__ = ("_minimum", "_not_eog", "_position", "_real")

    def __init__(self, minimum: int, vocabulary: Vocabulary) -> None:
        self._minimum = minimum
        self._position = 0
        self._real = vocabulary.real_ids
        self._not_eog: Words = self._real & ~of_ids(vocabulary.eog_ids, vocabulary.logits_width)

    def fill_mask(self, words: Words) -> None:
        """See Matcher."""
        words[:] = self._real if self._position >= self._minimum else self._not_eog

    def consume(self, token: int) -> None:  # noqa: ARG002 - only their number counts
        """See Matcher."""
        self._position += 1

    def is_accepting(self) -> bool:
        """Whether it is long enough."""
        return self._position >= self._minimum

    def fork(self) -> MinLength:
        """See Matcher."""
        twin = object.__new__(MinLength)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    @property
    def content(self) -> bytes:
        """See TokenRule."""
        return b"min length\n" + _position_place(self._minimum)

    def place(self) -> bytes:
        """How many of the tokens are there. Behind the last all places are the same."""
        return _position_place(min(self._position, self._minimum))

    def at(self, place: bytes) -> MinLength:
        """See TokenRule."""
        twin = self.fork()
        twin._position = _position_at(place, "place of a min length", most=self._minimum)
        return twin


def _position_place(position: int) -> bytes:
    writer = Writer()
    writer.unsigned(position)
    return writer.getvalue()


def _position_at(place: bytes, name: str, *, most: int) -> int:
    reader = Reader(place, name)
    position = reader.unsigned(below=most + 1)
    reader.end()
    return position
