"""The vocabulary as token engines take it: a dense list of bytes and the ids that are special.

What llguidance does with such a list, seen by running it (1.9.1), and what follows from it:

- It puts a 0xFF byte before the bytes of every special id, so text never matches a special token.
  A text token that itself begins with 0xFF would pass as special, and `\\xff[26` was let through where
  `<[260]>` was due. No text that is UTF-8 has a 0xFF, so such tokens get no bytes here.
- A special id is matched by `[id]` behind that 0xFF. A special token whose spelling is a prefix of that
  (`""`, `[26`, `[260]`) is let through as well, so such spellings are replaced.
- An id without bytes never gets into a mask by text, and two ids with the same bytes both do.
- An id without bytes still gets into a mask by number (`<[258]>`, `<[*]>`): whoever takes such grammars
  has to AND the mask with `Vocabulary.real_ids`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from constraintd.vocabulary.vocabulary import Vocabulary

_SPECIAL_MARKER = b"\xff"
_LOOKS_LIKE_AN_ID = re.compile(r"(\[\d*\]?)?")


@dataclass(frozen=True, slots=True)
class EngineTable:
    """Exactly `logits_width` ids; ids of the tokenizer past the width are left out."""

    tokens: list[bytes]
    """Index = id: bytes of text tokens, the spelling of special ones, `b""` for everything else."""

    special_ids: list[int]
    """Ids of `tokens` that are special, ascending."""


def engine_table(vocabulary: Vocabulary) -> EngineTable:
    """Tokens and special ids for an engine that walks a trie of token bytes."""
    width = vocabulary.logits_width
    tokens = [b"" if token.startswith(_SPECIAL_MARKER) else token for token in vocabulary.token_bytes[:width]]
    tokens += [b""] * (width - len(tokens))
    special_ids = [token_id for token_id in vocabulary.special if token_id < width]
    for token_id in special_ids:
        tokens[token_id] = _engine_spelling(token_id, vocabulary.special[token_id])
    return EngineTable(tokens, special_ids)


def _engine_spelling(token_id: int, spelling: str) -> bytes:
    if _LOOKS_LIKE_AN_ID.fullmatch(spelling):
        return b"<special id %d>" % token_id
    return spelling.encode("utf-8", "replace")
