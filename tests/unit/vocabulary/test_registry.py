"""The registry: idempotent, bounded, typed when it does not know."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from constraintd.errors import UnknownVocabulary, VocabularyLimitReached
from constraintd.vocabulary.registry import VocabularyRegistry, VocabularyRegistryStatistics
from constraintd.vocabulary.vocabulary import build_vocabulary


def _vocabulary(text: bytes = b"ab"):
    return build_vocabulary([text], {1: "</s>"}, eog_ids=[1])


def test_registering_twice_gives_the_first_object():
    registry = VocabularyRegistry(limit=1)
    first, again = _vocabulary(), _vocabulary()
    assert registry.add(first) == (first, True)
    held, created = registry.add(again)
    assert held is first
    assert not created


def test_a_registered_vocabulary_is_found_by_fingerprint():
    registry = VocabularyRegistry(limit=2)
    vocabulary, _ = registry.add(_vocabulary())
    registry.add(_vocabulary(b"other"))
    assert registry.get(vocabulary.fingerprint) is vocabulary


def test_an_unknown_fingerprint_says_to_register_first():
    with pytest.raises(UnknownVocabulary, match="'feed' is registered here; register the vocabulary first"):
        VocabularyRegistry(limit=1).get("feed")


def test_over_the_limit_a_new_one_is_refused_and_the_old_ones_stay():
    registry = VocabularyRegistry(limit=1)
    held, _ = registry.add(_vocabulary())
    with pytest.raises(VocabularyLimitReached, match="1 vocabularies are registered"):
        registry.add(_vocabulary(b"other"))
    assert registry.get(held.fingerprint) is held
    assert registry.add(_vocabulary()) == (held, False)


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        VocabularyRegistry(limit=0)


def test_threads_that_register_the_same_at_once_create_it_once():
    registry = VocabularyRegistry(limit=1)
    with ThreadPoolExecutor(8) as pool:
        created = [new for _, new in pool.map(lambda _: registry.add(_vocabulary()), range(64))]
    assert created.count(True) == 1


def test_statistics_count_vocabularies_and_their_bytes():
    registry = VocabularyRegistry(limit=3)
    registry.add(_vocabulary(b"ab"))
    registry.add(_vocabulary(b"xyz"))
    assert registry.statistics() == VocabularyRegistryStatistics(held=2, limit=3, token_bytes=5)
