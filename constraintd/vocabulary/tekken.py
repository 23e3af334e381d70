"""Mistral's `tekken.json`: byte-level ranks as JSON, special tokens in front.

The model's ids are the special tokens first (`default_num_special_tokens`, 1,000 so far), then the ranks in order,
`default_vocab_size` ids in all: files list more ranks (150,000) than the model has (130,072), and the rest counts for
nothing. Newer files list their special tokens; older ones leave them to the code (`mistral-common`, `Tekkenizer`).
Special ids that nobody names are `<SPECIAL_n>`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final

from constraintd.errors import VocabularyError
from constraintd.vocabulary.json_source import array_at, integer_at, object_at, parse_json_object, string_at
from constraintd.vocabulary.tiktoken_encoder import TiktokenEncoder
from constraintd.vocabulary.tiktoken_ranks import refuse_missing_bytes
from constraintd.vocabulary.tokenizer_contents import TokenizerContents
from constraintd.vocabulary.vocabulary import MAX_IDS

FILE = "tekken.json"

# What a file without `special_tokens` (version v3 to v7) means, by id.
_UNLISTED: Final = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
_BOS, _EOS = "<s>", "</s>"


def read_tekken(data: bytes) -> TokenizerContents:
    """Read a `tekken.json`. BOS and EOS are its special tokens `<s>` and `</s>`.

    Raises VocabularyError with a JSON pointer: wrong types, sizes that don't fit together, ranks out of order, a token
    that is not base64 or stands twice, a special token out of range or twice, a missing single byte, a pattern
    that the tiktoken package refuses.
    """
    root = parse_json_object(data, FILE)
    config = object_at(root.get("config"), f"{FILE}#/config")
    size = _count(config, "default_vocab_size")
    special_count = _count(config, "default_num_special_tokens")
    pattern = string_at(config.get("pattern"), f"{FILE}#/config/pattern")
    if special_count >= size:
        raise VocabularyError(
            f"{special_count} special tokens leave none of {size} ids for text",
            location=f"{FILE}#/config",
            remedy="check that the file is unchanged",
        )
    special = _read_special(root, special_count)
    ranks = _read_ranks(array_at(root.get("vocab"), f"{FILE}#/vocab"), size - special_count)
    refuse_missing_bytes(ranks, f"{FILE}#/vocab")
    id_of_spelling = {spelling: token_id for token_id, spelling in special.items()}
    return TokenizerContents(
        token_bytes=(*[b""] * special_count, *ranks),
        special=special,
        id_of_spelling=id_of_spelling,
        bos_id=id_of_spelling.get(_BOS),
        eos_id=id_of_spelling.get(_EOS),
        encoder=TiktokenEncoder(ranks, pattern, first_id=special_count, source_digest=hashlib.sha256(data).hexdigest()),
    )


def _count(config: Mapping[str, object], key: str) -> int:
    where = f"{FILE}#/config/{key}"
    value = integer_at(config.get(key), where)
    if not 0 <= value <= MAX_IDS:
        raise VocabularyError(
            f"{value} is not in 0..{MAX_IDS}", location=where, remedy="check that the file is unchanged"
        )
    return value


def _read_ranks(listed: list[object], count: int) -> dict[bytes, int]:
    if len(listed) < count:
        raise VocabularyError(
            f"{len(listed)} tokens are listed, the configuration counts {count}",
            location=f"{FILE}#/vocab",
            remedy="pass the whole file",
        )
    ranks: dict[bytes, int] = {}
    for index, value in enumerate(listed[:count]):
        token = _token(value, index)
        if not token or token in ranks:
            raise VocabularyError(
                "the token stands twice or is empty",
                location=f"{FILE}#/vocab/{index}/token_bytes",
                remedy="check that the file is unchanged",
            )
        ranks[token] = index
    return ranks


def _token(value: object, index: int) -> bytes:
    # Locations are put together only where one is wrong: this runs once a token.
    if isinstance(value, dict) and value.get("rank") == index and isinstance(value.get("token_bytes"), str):
        try:
            return base64.b64decode(value["token_bytes"], validate=True)
        except (binascii.Error, ValueError):  # ValueError: not ASCII
            pass
    raise VocabularyError(
        f"expected an object with rank {index} and base64 in token_bytes",
        location=f"{FILE}#/vocab/{index}",
        remedy="check that the file is unchanged: tokens stand in the order of their ranks",
    )


def _read_special(root: Mapping[str, object], count: int) -> dict[int, str]:
    where = f"{FILE}#/special_tokens"
    listed = root.get("special_tokens")
    special: dict[int, str] = {}
    if listed is None:
        special = dict(enumerate(_UNLISTED[:count]))
    else:
        for index, value in enumerate(array_at(listed, where)):
            entry = object_at(value, f"{where}/{index}")
            token_id = integer_at(entry.get("rank"), f"{where}/{index}/rank")
            if not 0 <= token_id < count or token_id in special:
                raise VocabularyError(
                    f"id {token_id} stands twice or is not in 0..{count - 1}",
                    location=f"{where}/{index}/rank",
                    remedy="check that the file is unchanged",
                )
            special[token_id] = string_at(entry.get("token_str"), f"{where}/{index}/token_str")
    return {token_id: special.get(token_id, f"<SPECIAL_{token_id}>") for token_id in range(count)}
