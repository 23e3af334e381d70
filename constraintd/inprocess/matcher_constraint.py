"""Any compiled grammar, token rule or composition of them as a TokenConstraint: a pure function of the tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from constraintd.constraint import Constraint, PartKind, PartSpec
from constraintd.engine.matcher import CompiledGrammar
from constraintd.engine.token_rules import TokenRule
from constraintd.inprocess.errors import EarlyEnd, ForbiddenToken, VocabMismatch
from constraintd.inprocess.rows import LegalRow, unpacked
from constraintd.part_identity import grammar_identity, rule_identity
from constraintd.vocabulary.vocabulary import Vocabulary


class MatcherConstraint:
    """The service's Constraint, asked by text instead of by place.

    It keeps the place behind the text that it was asked about last: asked about a longer one it moves on (one mask a
    token), asked about any other it starts anew. So answers depend on the tokens alone. One caller at a time.
    """

    __slots__ = ("_eog", "_here", "_legal", "_start", "_taken", "_width")

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary) -> None:
        """`constraint` stands where texts begin; it is forked and never moved."""
        self._start = constraint
        self._eog = frozenset(vocabulary.eog_ids)
        self._width = vocabulary.logits_width
        self._here = constraint.fork()
        self._taken: list[int] = []
        self._legal: LegalRow | None = None  # at _here, once asked for

    @classmethod
    def of_parts(cls, parts: Sequence[PartSpec], vocabulary: Vocabulary) -> MatcherConstraint:
        """The AND of these; of none of them, every token of the vocabulary is legal everywhere."""
        return cls(Constraint.start(parts, vocabulary), vocabulary)

    @classmethod
    def of_grammar(cls, grammar: CompiledGrammar, vocabulary: Vocabulary) -> MatcherConstraint:
        """One grammar from the first token on. Raises VocabMismatch for one of another vocabulary."""
        if grammar.vocabulary_id != vocabulary.fingerprint:
            raise VocabMismatch("the grammar was compiled for another vocabulary; compile it for this one")
        identity = grammar_identity(grammar.grammar_id, vocabulary)
        part = PartSpec(f"grammar {grammar.grammar_id[:12]}", PartKind.GRAMMAR, identity, grammar.start, grammar.at)
        return cls.of_parts([part], vocabulary)

    @classmethod
    def of_rule(cls, rule: TokenRule, vocabulary: Vocabulary) -> MatcherConstraint:
        """One token rule, from its present place on."""
        part = PartSpec("token rule", PartKind.RULE, rule_identity(rule, vocabulary), rule.fork, rule.at)
        return cls.of_parts([part], vocabulary)

    def allowed(self, generated: Sequence[int]) -> LegalRow:
        """[logits_width] bool, not to be written to: what is legal behind `generated`. Behind an EOG nothing is.

        Raises ForbiddenToken for tokens that could not have been generated under it (EarlyEnd for an EOG), with the
        index of the first; LimitExceeded.
        """
        tokens = list(generated)
        if tokens[: len(self._taken)] != self._taken:
            self._begin_anew()
        try:
            for index in range(len(self._taken), len(tokens)):
                self._take(tokens[index], index)
            return self._here_legal()
        except Exception:
            self._begin_anew()  # an engine's place is undefined behind an error
            raise

    def _take(self, token: int, index: int) -> None:
        legal = self._here_legal()
        if not (0 <= token < self._width and legal[token]):
            kind = EarlyEnd if token in self._eog and not self._is_over() else ForbiddenToken
            raise kind(
                f"token {token} at index {index} is not legal there, so nothing is known of what follows; "
                "give only tokens that were sampled under this constraint",
                token=token,
                index=index,
            )
        if token in self._eog:
            self._legal = np.zeros(self._width, dtype=np.bool_)
        else:
            self._here.consume(token)
            self._legal = None
        self._taken.append(token)

    def _is_over(self) -> bool:
        return bool(self._taken) and self._taken[-1] in self._eog

    def _here_legal(self) -> LegalRow:
        if self._legal is None:
            words = np.frombuffer(self._here.mask().dense, dtype="<u4")
            self._legal = unpacked(words, self._width)
            self._legal.flags.writeable = False
        return self._legal

    def _begin_anew(self) -> None:
        self._here = self._start.fork()
        self._taken = []
        self._legal = None
