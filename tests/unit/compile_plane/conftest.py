"""A vocabulary, a registry that has it, and a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from constraintd.grammar.sandbox import HelperSandbox
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.registry import VocabularyRegistry
from constraintd.vocabulary.vocabulary import Vocabulary
from tests.daemon_process import BYTE_TABLE, EOG, SECOND_EOG, WIDTH
from tests.unit.compile_plane.breaking_engine import PROGRAM


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """The byte vocabulary."""
    return load_vocabulary(VocabularyFormat.TOKEN_TABLE, BYTE_TABLE, logits_width=WIDTH, eog_ids=[EOG, SECOND_EOG])


@pytest.fixture
def registry(vocabulary: Vocabulary) -> VocabularyRegistry:
    """A registry that has it."""
    registry = VocabularyRegistry(4)
    registry.add(vocabulary)
    return registry


@pytest.fixture
def sandbox() -> Iterator[HelperSandbox]:
    """The sandbox as it is deployed."""
    sandbox = HelperSandbox()
    yield sandbox
    sandbox.close()


@pytest.fixture
def breaking() -> Iterator[HelperSandbox]:
    """A sandbox whose regexes are orders to break."""
    sandbox = HelperSandbox(PROGRAM)
    yield sandbox
    sandbox.close()
