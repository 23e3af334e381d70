"""The vocabularies that this daemon knows, by fingerprint."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from constraintd.errors import UnknownVocabulary, VocabularyLimitReached
from constraintd.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class VocabularyRegistryStatistics:
    """Counts at one instant, for `GetServerInfo`, metrics and debugging."""

    held: int
    """Vocabularies held now."""
    limit: int
    """Most that may be held."""
    token_bytes: int
    """Bytes of all held tokens together, without object overhead."""


class VocabularyRegistry:
    """Owns the registered vocabularies. Any thread may call any method; none of them blocks for long.

    Nothing is evicted: sessions and compiled grammars name vocabularies by fingerprint, so a silent
    eviction would break them. At the limit, registering a new one fails instead.
    """

    def __init__(self, limit: int) -> None:
        """`limit`: most vocabularies held at once, at least 1 (ValueError)."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        self._limit = limit
        self._lock = threading.Lock()
        self._by_fingerprint: dict[str, Vocabulary] = {}

    def add(self, vocabulary: Vocabulary) -> tuple[Vocabulary, bool]:
        """Register; gives the held vocabulary and whether this call made it known.

        Registering an equal vocabulary again gives the first object, so that everything built from
        one vocabulary shares one copy. Raises VocabularyLimitReached.
        """
        with self._lock:
            held = self._by_fingerprint.get(vocabulary.fingerprint)
            if held is not None:
                return held, False
            if len(self._by_fingerprint) >= self._limit:
                raise VocabularyLimitReached(
                    f"{self._limit} vocabularies are registered, which is the limit",
                    location="vocabulary registry",
                    remedy="raise the daemon's vocabulary limit, or restart it without the old ones",
                )
            self._by_fingerprint[vocabulary.fingerprint] = vocabulary
            return vocabulary, True

    def get(self, fingerprint: str) -> Vocabulary:
        """The vocabulary with this fingerprint (64 lower-case hex digits). Raises UnknownVocabulary."""
        with self._lock:
            held = self._by_fingerprint.get(fingerprint)
        if held is None:
            raise UnknownVocabulary(
                f"no vocabulary {fingerprint[:80]!r} is registered here",
                location="fingerprint",
                remedy="register the vocabulary first; registering twice is free",
            )
        return held

    def statistics(self) -> VocabularyRegistryStatistics:
        """Counts at this instant."""
        with self._lock:
            held = tuple(self._by_fingerprint.values())
        return VocabularyRegistryStatistics(
            held=len(held),
            limit=self._limit,
            token_bytes=sum(sum(map(len, vocabulary.token_bytes)) for vocabulary in held),
        )
