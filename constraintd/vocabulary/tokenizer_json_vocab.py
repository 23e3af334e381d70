"""The base vocabulary of a `tokenizer.json`: an object for BPE, a list of pieces with their scores for Unigram."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from constraintd.errors import VocabularyError
from constraintd.vocabulary.json_source import array_at, integer_at, object_at, pointer, string_at
from constraintd.vocabulary.vocabulary import MAX_IDS


def read_bpe_vocab(model: Mapping[str, object], where: str) -> dict[str, int]:
    """Token -> id of a BPE model's `vocab`, which stands at `where`.

    Raises VocabularyError for wrong types, an id that two tokens have or that is out of range.
    """
    vocab: dict[str, int] = {}
    token_of: dict[int, str] = {}
    for token, value in object_at(model.get("vocab"), where).items():
        token_id = token_id_at(value, where, token)
        other = token_of.setdefault(token_id, token)
        if other is not token:
            raise VocabularyError(
                f"id {token_id} belongs to {other[:80]!r} and to {token[:80]!r}",
                location=f"{where}{pointer(token)}",
                remedy="give each token an id of its own",
            )
        vocab[token] = token_id
    return vocab


def read_unigram_vocab(model: Mapping[str, object], where: str) -> dict[str, int]:
    """Piece -> id of a Unigram model's `vocab`, a list of [piece, score]; ids are places in it.

    Raises VocabularyError for wrong types, too many pieces, and a piece that stands twice.
    """
    listed = array_at(model.get("vocab"), where)
    if len(listed) > MAX_IDS:
        raise VocabularyError(
            f"{len(listed)} pieces, the limit is {MAX_IDS}", location=where, remedy="pass a model's file"
        )
    vocab: dict[str, int] = {}
    for index, value in enumerate(listed):
        # In line for the same reason as the check of ids: locations cost more than the reading.
        if not (isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)):
            raise VocabularyError(
                "expected a piece and its score",
                location=f"{where}/{index}",
                remedy="check that the file is complete and unchanged",
            )
        if vocab.setdefault(value[0], index) != index:
            raise VocabularyError(
                f"the piece {value[0][:80]!r} is id {vocab[value[0]]} too",
                location=f"{where}/{index}",
                remedy="give each piece one id",
            )
    return vocab


def unknown_token(
    model: Mapping[str, object], vocab: Mapping[str, int], added: Collection[str], where: str
) -> tuple[int, str] | None:
    """Id and spelling of the model's unknown token, if it has one in the base vocabulary; the model stands at `where`.

    BPE names it by `unk_token`, Unigram by `unk_id`. `added`: contents of the added tokens, where BPE's may stand
    instead. Raises VocabularyError for a name or id that is nowhere.
    """
    spelling, token_id = model.get("unk_token"), model.get("unk_id")
    if model.get("type") == "Unigram":
        if token_id is None:
            return None
        place = integer_at(token_id, f"{where}/unk_id")
        if not 0 <= place < len(vocab):
            raise VocabularyError(
                f"the unknown token's id {place} is not in the vocabulary",
                location=f"{where}/unk_id",
                remedy="check that the file is complete and unchanged",
            )
        return place, list(vocab)[place]
    if spelling is None:
        return None
    unknown = string_at(spelling, f"{where}/unk_token")
    if unknown in vocab:
        return vocab[unknown], unknown
    if unknown not in added:
        raise VocabularyError(
            f"the unknown token {unknown[:80]!r} is not in the vocabulary",
            location=f"{where}/unk_token",
            remedy="check that the file is complete and unchanged",
        )
    return None


def token_id_at(value: object, parent: str, key: str) -> int:
    """`value` as a token id, or VocabularyError at `key` under `parent`."""
    # The checks are in line: this runs once a token, and building a location for each is what costs.
    if type(value) is int and 0 <= value < MAX_IDS:
        return value
    where = f"{parent}{pointer(key)}"
    raise VocabularyError(
        f"token id {integer_at(value, where)} is not in 0..{MAX_IDS - 1}",
        location=where,
        remedy="check that the file is complete and unchanged",
    )
