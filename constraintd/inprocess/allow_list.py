"""AllowListConstraint: the text is one of a list of token sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from constraintd.engine.token_rules import AllowList
from constraintd.inprocess.errors import VocabMismatch
from constraintd.inprocess.rows import LegalRow, unpacked
from constraintd.mask.packed import empty
from constraintd.vocabulary.vocabulary import Vocabulary


class AllowListConstraint:
    """One text's place in an allow-list, moved by `advance`. Owns its rule; one caller at a time.

    For a ConstrainedSampler, which asks by text and not by place, `MatcherConstraint.of_rule` takes the same AllowList.

    Source: AllowListConstraint of oxibonsai. Our decisions: ids outside of the vocabulary and empty lists are refused,
    and an EOG is legal exactly where the text is complete.
    """

    __slots__ = ("_eog", "_rule", "_start", "_width")

    def __init__(self, candidates: Iterable[Sequence[int]], vocabulary: Vocabulary) -> None:
        """A trailing EOG in a candidate says nothing new and is dropped; an empty candidate is the empty text.

        Raises InvalidField for an empty list, ids that no token of the vocabulary has, and an EOG before the end.
        """
        self._start = AllowList.start(candidates, vocabulary)
        self._rule = self._start.fork()
        self._eog = frozenset(vocabulary.eog_ids)
        self._width = vocabulary.logits_width

    @property
    def active_count(self) -> int:
        """Candidates that agree with everything advanced over, duplicates counted each."""
        return self._rule.active_count

    @property
    def position(self) -> int:
        """Tokens advanced over, mismatches included."""
        return self._rule.position

    @property
    def is_complete(self) -> bool:
        """Whether what was advanced over is one of the candidates; it may also go on to a longer one."""
        return self._rule.is_accepting()

    @property
    def name(self) -> str:
        """For people and logs."""
        return "allow-list"

    def allowed_tokens(self, generated: Sequence[int], vocab_size: int) -> LegalRow:  # noqa: ARG002
        """[vocab_size] bool: the next tokens of all active candidates, and EOG where the text is complete.

        Always a mask, never "unconstrained". `generated` counts for nothing: the place is what was advanced over.
        Raises VocabMismatch for another size than the vocabulary's logits width.
        """
        if vocab_size != self._width:
            raise VocabMismatch(f"a mask of {vocab_size} ids was asked for, the vocabulary's rows have {self._width}")
        words = empty(self._width)
        self._rule.fill_mask(words)
        return unpacked(words, self._width)

    def advance(self, token: int) -> bool:
        """Takes `token` at this position; whether some candidate still agrees.

        A candidate that has another token here, or has ended, becomes inactive. An EOG where the text is complete
        changes nothing.
        """
        if token in self._eog and self.is_complete:
            return True
        self._rule.consume(token)
        return self._rule.active_count > 0

    def reset(self) -> None:
        """Back to the first position, all candidates active."""
        self._rule = self._start.fork()
