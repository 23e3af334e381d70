"""Which ids end a generation, and which one begins a sequence, by the model's configuration files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from constraintd.errors import VocabularyError
from constraintd.vocabulary.json_source import array_at, integer_at, parse_json_object, string_at

GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def resolve_eog_ids(
    caller: Sequence[int],
    *,
    generation_config: bytes | None,
    tokenizer_config: bytes | None,
    id_of_spelling: Mapping[str, int],
) -> tuple[int, ...]:
    """EOG ids, ascending: the caller's if any, else generation_config's, else tokenizer_config's, else none.

    generation_config.json gives `eos_token_id`, an id or a list of ids; tokenizer_config.json gives
    `eos_token`, a spelling or an object with the spelling under `content`, looked up in
    `id_of_spelling`. Null or absent keys give way to the next source. Ranges are checked later, by
    `build_vocabulary`. A file is read only if it decides.

    Raises VocabularyError for a broken file, a value of the wrong type, an unknown spelling.
    """
    if caller:
        return tuple(sorted({integer_at(token_id, "eog_ids") for token_id in caller}))
    if generation_config is not None:
        value = parse_json_object(generation_config, GENERATION_CONFIG).get("eos_token_id")
        where = f"{GENERATION_CONFIG}#/eos_token_id"
        if isinstance(value, list):
            ids = {integer_at(item, f"{where}/{index}") for index, item in enumerate(array_at(value, where))}
            if ids:
                return tuple(sorted(ids))
        elif value is not None:
            return (integer_at(value, where),)
    if tokenizer_config is not None:
        named = _named_token(tokenizer_config, "eos_token", id_of_spelling)
        if named is not None:
            return (named,)
    return ()


def resolve_bos_id(
    *,
    generation_config: bytes | None,
    tokenizer_config: bytes | None,
    id_of_spelling: Mapping[str, int],
) -> int | None:
    """The BOS id by tokenizer_config's `bos_token`, else by generation_config's `bos_token_id`, else None.

    The order differs from EOG's: whether a text begins with BOS is the tokenizer's matter.
    Raises VocabularyError as `resolve_eog_ids` does.
    """
    if tokenizer_config is not None:
        named = _named_token(tokenizer_config, "bos_token", id_of_spelling)
        if named is not None:
            return named
    if generation_config is not None:
        value = parse_json_object(generation_config, GENERATION_CONFIG).get("bos_token_id")
        if value is not None:
            return integer_at(value, f"{GENERATION_CONFIG}#/bos_token_id")
    return None


def _named_token(tokenizer_config: bytes, key: str, id_of_spelling: Mapping[str, int]) -> int | None:
    value = parse_json_object(tokenizer_config, TOKENIZER_CONFIG).get(key)
    where = f"{TOKENIZER_CONFIG}#/{key}"
    if isinstance(value, dict):
        value, where = value.get("content"), f"{where}/content"
    if value is None:
        return None
    spelling = string_at(value, where)
    if spelling not in id_of_spelling:
        raise VocabularyError(
            f"the vocabulary has no token {spelling[:80]!r}",
            location=where,
            remedy="pass the configuration of the same model, or pass eog_ids and leave this file out",
        )
    return id_of_spelling[spelling]
