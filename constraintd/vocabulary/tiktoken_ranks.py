"""Files of tiktoken ranks: `base64 rank` on each line (GPT, Qwen, and Llama 3's `tokenizer.model`).

The file has neither special tokens nor the pattern that splits text before merging: both are in the code of whoever
made the model, so the caller gives them. Without a pattern there is no encoder. A rank is the token's id; gaps
are holes in the id space (p50k has one at 50,256, where its end-of-text token goes).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping

from constraintd.errors import VocabularyError
from constraintd.vocabulary.json_source import refuse_lfs_pointer
from constraintd.vocabulary.tiktoken_encoder import TiktokenEncoder
from constraintd.vocabulary.tokenizer_contents import TokenizerContents
from constraintd.vocabulary.vocabulary import MAX_IDS

FILE = "tiktoken ranks"


def read_tiktoken_ranks(data: bytes, special: Mapping[int, str], pattern: str | None) -> TokenizerContents:
    """Read a ranks file; `special` gives its special ids with their spellings, `pattern` how it splits text.

    Raises VocabularyError: a line that is not base64 and a number (with its number), a repeated rank or token, a rank
    over MAX_IDS, a special id or spelling that is taken; with a pattern, a single byte without a token, or a pattern
    that the tiktoken package refuses.
    """
    refuse_lfs_pointer(data, FILE)
    ranks = _read_lines(data)
    if not ranks:
        raise VocabularyError("the file has no lines", location=FILE, remedy="pass the whole file")
    token_bytes = [b""] * (1 + max(ranks.values()))
    for token, rank in ranks.items():
        token_bytes[rank] = token
    return TokenizerContents(
        token_bytes=tuple(token_bytes),
        special=special,
        id_of_spelling=_checked_special(special, token_bytes),
        bos_id=None,
        eos_id=None,
        encoder=None if pattern is None else _encoder(data, ranks, pattern),
    )


def refuse_missing_bytes(ranks: Mapping[bytes, int], where: str) -> None:
    """Raise VocabularyError unless every single byte is a token: merging starts from single bytes."""
    missing = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if missing:
        raise VocabularyError(
            f"{len(missing)} single bytes have no token, first {missing[0]:#04x}",
            location=where,
            remedy="pass the whole file, or no pattern (then only token ids are taken)",
        )


def _read_lines(data: bytes) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    line_of: dict[int, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        token, rank = _read_line(line, number)
        other = line_of.setdefault(rank, number)
        if other != number or token in ranks:
            what = f"rank {rank} stands on line {other} too" if other != number else "the token stands twice"
            raise VocabularyError(what, location=f"{FILE}, line {number}", remedy="check that the file is unchanged")
        ranks[token] = rank
    return ranks


def _read_line(line: bytes, number: int) -> tuple[bytes, int]:
    parts = line.split()
    try:
        # Digits are counted first: Python refuses to convert thousands of them.
        if len(parts) == 2 and parts[1].isdigit() and len(parts[1]) < 10:
            token, rank = base64.b64decode(parts[0], validate=True), int(parts[1])
            if token and rank < MAX_IDS:
                return token, rank
    except binascii.Error:
        pass
    raise VocabularyError(
        f"expected base64 of a token, a space and a rank under {MAX_IDS}; found {line[:80]!r}",
        location=f"{FILE}, line {number}",
        remedy="pass the bytes of a tiktoken file, or name the format that this is",
    )


def _checked_special(special: Mapping[int, str], token_bytes: list[bytes]) -> dict[str, int]:
    id_of_spelling: dict[str, int] = {}
    for token_id, spelling in special.items():
        taken = 0 <= token_id < len(token_bytes) and bool(token_bytes[token_id])
        if taken or not spelling or id_of_spelling.setdefault(spelling, token_id) != token_id:
            raise VocabularyError(
                f"special id {token_id} ({spelling[:80]!r}) is a rank of the file, or its spelling is empty or given "
                "to another id",
                location="special",
                remedy="give each special token an id outside of the file's ranks, and a spelling of its own",
            )
    return id_of_spelling


def _encoder(data: bytes, ranks: Mapping[bytes, int], pattern: str) -> TiktokenEncoder:
    refuse_missing_bytes(ranks, FILE)
    digest = hashlib.sha256(len(data).to_bytes(8, "little") + data + pattern.encode("utf-8", "surrogatepass"))
    return TiktokenEncoder(ranks, pattern, first_id=0, source_digest=digest.hexdigest())
