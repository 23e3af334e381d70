"""What a tokenizer file says, before the model's configuration adds EOG ids and a logits width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constraintd.vocabulary.vocabulary import TextEncoder


@dataclass(frozen=True, slots=True)
class TokenizerContents:
    """The reading of one tokenizer file; each loader gives one, `load_vocabulary` completes it."""

    token_bytes: tuple[bytes, ...]
    """Index = id; `b""` for special ids and holes."""

    special: Mapping[int, str]
    """Special id -> its spelling."""

    id_of_spelling: Mapping[str, int]
    """Ids that a configuration file may name by spelling: special, added and base tokens (of a table,
    special ones alone)."""

    bos_id: int | None
    """BOS, where the file itself says so."""

    eos_id: int | None
    """End of sequence, where the file itself says so. Used only if nobody names EOG ids."""

    encoder: TextEncoder | None
