"""GrammarSampler: a grammar applied to one generation, over one vocabulary."""

from __future__ import annotations

from enum import Enum

import numpy as np

from constraintd.constraint import is_asleep
from constraintd.engine.deferred import LazyGrammar
from constraintd.engine.matcher import CompiledGrammar, Matcher
from constraintd.inprocess.errors import EarlyEnd, ForbiddenToken, VocabMismatch
from constraintd.inprocess.rows import LegalRow, Row, check_row, unpacked
from constraintd.mask.packed import empty
from constraintd.vocabulary.vocabulary import Vocabulary


class MaskOutcome(Enum):
    """What `mask_logits` left to sample. After the last two nothing is: don't sample."""

    APPLIED = "applied"
    """The grammar is awake, and at least one token is left."""
    AWAITING_TRIGGER = "awaiting trigger"
    """A lazy grammar sleeps: only what no text can hold, or would wake it and then be refused, was masked."""
    COMPLETE = "complete"
    """Nothing is left, and the text is complete: stop, it is a success."""
    NO_ALLOWED_TOKEN = "no allowed token"
    """Nothing is left, and the text is not complete: a dead end."""


class GrammarSampler:
    """One generation's place in a grammar. Owns its matcher; one caller at a time.

    A token is accepted iff the mask before it had it, EOG included, which is legal exactly where the text is complete.
    A grammar that is lazy is a LazyGrammar: while it sleeps it says nothing about where the text may end.

    Source: GrammarSampler of ferrox-models, a port of llama.cpp's llama_grammar_apply and _accept.
    """

    __slots__ = ("_eog", "_legal", "_matcher", "_width")

    def __init__(self, grammar: CompiledGrammar | LazyGrammar, vocabulary: Vocabulary) -> None:
        """Raises VocabMismatch for a grammar that was compiled for another vocabulary."""
        made_for = grammar.vocabulary.fingerprint if isinstance(grammar, LazyGrammar) else grammar.vocabulary_id
        if made_for != vocabulary.fingerprint:
            raise VocabMismatch("the grammar was compiled for another vocabulary; compile it for this one")
        self._matcher: Matcher = grammar.start()
        self._eog = frozenset(vocabulary.eog_ids)
        self._width = vocabulary.logits_width
        self._legal: LegalRow | None = None  # at this place, once asked for

    @property
    def vocab_size(self) -> int:
        """Columns that a logits row must have."""
        return self._width

    @property
    def grammar(self) -> Matcher:
        """The live matcher, to ask; who wants to move it forks it."""
        return self._matcher

    @property
    def allows_eog(self) -> bool:
        """Whether the text may end here. Yes while a lazy grammar sleeps, unless it has to come (`eog_legal` False)."""
        return self._matcher.is_accepting()

    @property
    def is_awaiting_trigger(self) -> bool:
        """Whether this is a lazy grammar that sleeps. It never means "unconstrained", or that logits are not needed."""
        return is_asleep(self._matcher)

    def mask_logits(self, logits: Row) -> MaskOutcome:
        """Sets every logit that the grammar forbids to -inf, in place; what is -inf already stays so.

        `logits`: [vocab_size] float32 or float64. Raises VocabMismatch for another length, a sleeping grammar's too;
        ValueError for anything but one row; LimitExceeded. The row is then unchanged.
        """
        check_row(logits)
        if len(logits) != self._width:
            raise VocabMismatch(f"the row has {len(logits)} logits, the grammar's vocabulary {self._width} ids")
        legal = self._legal_here()
        logits[~legal] = -np.inf
        if np.isneginf(logits).all():
            return MaskOutcome.COMPLETE if self.allows_eog else MaskOutcome.NO_ALLOWED_TOKEN
        return MaskOutcome.AWAITING_TRIGGER if self.is_awaiting_trigger else MaskOutcome.APPLIED

    def accept(self, token: int) -> None:
        """Moves over a sampled token. A sleeping grammar keeps it, an EOG too; to any other an EOG only says that the
        text has ended, and moves nothing.

        Raises ForbiddenToken for a token that the mask has not (EarlyEnd for an EOG), the place unchanged;
        LimitExceeded, the place then undefined.
        """
        is_legal = 0 <= token < self._width and bool(self._legal_here()[token])
        if not is_legal and token in self._eog:
            raise EarlyEnd(f"token {token} ends the text, which is not complete; sample under the mask", token=token)
        if not is_legal:
            raise ForbiddenToken(f"token {token} is not legal here; sample under the mask", token=token)
        # The trigger's turn comes first: a sleeping grammar has no text yet that an EOG could end.
        if is_asleep(self._matcher) or token not in self._eog:
            self._legal = None
            self._matcher.consume(token)

    def _legal_here(self) -> LegalRow:
        if self._legal is None:
            words = empty(self._width)
            self._matcher.fill_mask(words)
            self._legal = unpacked(words, self._width)
        return self._legal
