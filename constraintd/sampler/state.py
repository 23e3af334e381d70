"""The SamplerState: everything that a session's generation mutates, as a fold over its tokens.

On every token the stops are asked first. A terminal token is counted, but never advances the constraint (the tip
invariant): what it ends is judged as it stood before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from constraintd.constraint import Constraint, MaskView
from constraintd.sampler.config import SamplerConfig
from constraintd.sampler.stops import OutputTail, StopScanner
from constraintd.vocabulary.vocabulary import Vocabulary


class FinishReason(Enum):
    """Why a session finished; values are the protocol's names."""

    EOG = "EOG"
    STOP_STRING = "STOP_STRING"
    STOP_ID = "STOP_ID"
    GRAMMAR_EXHAUSTED = "GRAMMAR_EXHAUSTED"
    LENGTH = "LENGTH"


@dataclass(frozen=True, slots=True)
class Finish:
    """A session's end. `cut_offset` is the final text's length in bytes."""

    reason: FinishReason
    cut_offset: int
    constraint_incomplete: bool
    stop_string: bytes = b""
    stop_id: int | None = None
    schema_satisfied: bool | None = None
    """Whether the final text satisfies its JSON Schemas; None where that is not asked, or the text is incomplete."""
    schema_violation: str = ""


class SamplerState:
    """One session's state. Mutated only by `advance`; `fork` gives an independent copy."""

    __slots__ = (
        "_constraint",
        "_eog",
        "_max_tokens",
        "_min_tokens",
        "_output",
        "_scanner",
        "_stop_ids",
        "_vocabulary",
        "position",
    )

    def __init__(
        self, vocabulary: Vocabulary, config: SamplerConfig, constraint: Constraint, *, min_tokens: int, max_tokens: int
    ) -> None:
        self._vocabulary = vocabulary
        self._constraint = constraint
        self._eog = frozenset(vocabulary.eog_ids)
        self._stop_ids = frozenset(config.stop_ids)
        self._scanner = StopScanner(config.stop_strings)
        self._min_tokens = min_tokens
        self._max_tokens = max_tokens
        self._output = OutputTail()
        self.position = 0

    def advance(self, token: int) -> Finish | None:
        """Counts a legal token and moves the constraint over it; a Finish if the token is terminal.

        Raises LimitExceeded; the state is then undefined and must be folded anew.
        """
        self.position += 1
        if token in self._eog:
            return self._finish(FinishReason.EOG, complete=self._constraint.is_complete(), stop_id=token)
        stops = self.position >= self._min_tokens
        if stops and token in self._stop_ids:
            return self._finish(FinishReason.STOP_ID, complete=self._complete_at(token), stop_id=token)
        output, match = self._scanner.append(self._output, self._vocabulary.bytes_of(token))
        if stops and match is not None:
            return Finish(
                FinishReason.STOP_STRING,
                cut_offset=match.start,
                constraint_incomplete=not self._complete_at(token),
                stop_string=match.stop,
            )
        self._output = output
        self._constraint.consume(token)
        return None

    def mask(self) -> MaskView | Finish:
        """What may come at this position: a mask (perhaps a dead end), or the Finish of a session that is done."""
        view = self._constraint.mask(may_end=self.position >= self._min_tokens)
        if view.exhausted:
            return self._finish(FinishReason.GRAMMAR_EXHAUSTED, complete=True)
        if self.position >= self._max_tokens:
            return self._finish(FinishReason.LENGTH, complete=view.complete)
        return view

    def begins_at(self, name: str) -> int:
        """Where in the text a part's own text begins, in bytes."""
        return self._constraint.begins_at(name)

    @property
    def constraint_names(self) -> tuple[str, ...]:
        """The parts of its constraint, for people."""
        return self._constraint.names

    @property
    def awaiting_trigger(self) -> bool:
        """Whether some lazy grammar still sleeps."""
        return self._constraint.awaiting_trigger

    def settled_bytes(self) -> int:
        """Text bytes from position 0 that no later step can take back."""
        return self._scanner.settled(self._output)

    def fork(self) -> SamplerState:
        """The same state, to go on from independently."""
        twin = object.__new__(SamplerState)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin._constraint = self._constraint.fork()
        return twin

    def _complete_at(self, token: int) -> bool:
        return self._constraint.is_complete() or self._constraint.completes_with_terminal(token)

    def _finish(self, reason: FinishReason, *, complete: bool, stop_id: int | None = None) -> Finish:
        return Finish(reason, cut_offset=self._output.total, constraint_incomplete=not complete, stop_id=stop_id)
