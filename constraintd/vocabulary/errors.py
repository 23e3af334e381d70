"""What can be wrong with a vocabulary, each error with the place in the input and the way out."""

from __future__ import annotations

from typing import ClassVar

from constraintd.errors import ConstraintdError


class VocabularyError(ConstraintdError):
    """A vocabulary, or the file that it is read from, can't be used.

    `location` names the place: a JSON pointer (`tokenizer.json#/model/vocab`), a piece index, a byte
    offset or a parameter name. The message is `location: problem; remedy`.
    """

    code: ClassVar[str] = "INVALID_ARGUMENT"
    reason: ClassVar[str] = "INVALID_VOCABULARY"

    def __init__(self, problem: str, *, location: str, remedy: str) -> None:
        super().__init__(f"{location}: {problem}; {remedy}", location=location)
        self.location = location
        self.problem = problem
        self.remedy = remedy


class UnsupportedTokenizer(VocabularyError):
    """The file is well-formed but of a kind that has no loader here (WordPiece, a decoder of its own, ...)."""


class EogMissing(VocabularyError):
    """Neither the caller nor the configuration files name an end-of-generation id."""


class UnknownVocabulary(VocabularyError):
    """No vocabulary is registered under this fingerprint."""

    code = "NOT_FOUND"
    reason = "UNKNOWN_VOCABULARY"


class VocabularyLimitReached(VocabularyError):
    """The registry already holds as many vocabularies as it may."""

    code = "RESOURCE_EXHAUSTED"
    reason = "LIMIT_REACHED"
