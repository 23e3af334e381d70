"""A tokenizer file on disk as a vocabulary, with what its neighbours say of EOG ids and width."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from constraintd.errors import VocabularyError
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary


def open_vocabulary(path: Path, *, eog_ids: Sequence[int] = (), width: int | None = None) -> Vocabulary:
    """Reads `path`. EOG ids: given, else generation_config.json's, else tokenizer_config.json's. Width: given, else
    config.json's vocab_size, else the highest id + 1.

    Raises VocabularyError, OSError.
    """
    return load_vocabulary(
        _format_of(path),
        path.read_bytes(),
        logits_width=_width_beside(path) if width is None else width,
        eog_ids=eog_ids,
        generation_config=_beside(path, "generation_config.json"),
        tokenizer_config=_beside(path, "tokenizer_config.json"),
    )


def _format_of(path: Path) -> VocabularyFormat:
    if path.suffix == ".model":
        return VocabularyFormat.SENTENCEPIECE
    if path.suffix == ".tiktoken":
        return VocabularyFormat.TIKTOKEN
    if path.suffix == ".json":
        return VocabularyFormat.TEKKEN if "tekken" in path.name else VocabularyFormat.TOKENIZER_JSON
    with path.open("rb") as file:
        if file.read(7) == b"CDTABLE":
            return VocabularyFormat.TOKEN_TABLE
    raise VocabularyError(
        "not a kind of tokenizer file that is known by its name",
        location=path.name,
        remedy="give tokenizer.json, *.model, *.tiktoken, tekken*.json or a token table",
    )


def _beside(path: Path, name: str) -> bytes | None:
    neighbour = path.parent / name
    return neighbour.read_bytes() if neighbour.is_file() else None


def _width_beside(path: Path) -> int | None:
    config = _beside(path, "config.json")
    if config is None:
        return None
    try:
        width = json.loads(config).get("vocab_size")
    except (ValueError, AttributeError):
        return None
    return width if isinstance(width, int) else None
