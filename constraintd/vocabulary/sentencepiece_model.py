"""SentencePiece `.model` files (a protobuf `ModelProto`), of the types BPE and Unigram."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from constraintd.errors import UnsupportedTokenizer, VocabularyError
from constraintd.vocabulary.json_source import refuse_lfs_pointer
from constraintd.vocabulary.text_pieces import SPACE_MARK, byte_of_piece, bytes_of_piece
from constraintd.vocabulary.tokenizer_contents import TokenizerContents
from constraintd.vocabulary.vocabulary import MAX_IDS

FILE = "tokenizer.model"

# The generated module makes its classes at import, so no type checker sees them.
_PROTO: Any = sentencepiece_model_pb2
_PIECE = _PROTO.ModelProto.SentencePiece
_TRAINER = _PROTO.TrainerSpec
_TIKTOKEN_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")
_SPACES = ((SPACE_MARK, " "),)


class SentencePieceEncoder:
    """A TextEncoder that owns one SentencePieceProcessor. Any thread may call it."""

    def __init__(self, processor: SentencePieceProcessor, source_digest: str) -> None:
        self._processor = processor
        self._source_digest = source_digest

    @property
    def source_digest(self) -> str:
        """Hex sha256 of the `.model` file."""
        return self._source_digest

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without BOS; text that spells a control piece stays text.

        Most models put one space before the text (`add_dummy_prefix`), so the ids' bytes are those of
        `" " + text`; some also normalise it. Without byte fallback, unknown characters become the
        unknown id.

        Raises VocabularyError for text with a lone surrogate.
        """
        try:
            ids: list[int] = self._processor.encode(text, add_bos=False, add_eos=False)
        except (RuntimeError, UnicodeEncodeError) as error:
            raise VocabularyError(
                f"the text can't be encoded ({str(error)[:200]})",
                location="text",
                remedy="send token ids, or text that is valid Unicode",
            ) from None
        return ids


def read_sentencepiece_model(data: bytes) -> TokenizerContents:
    """Read a SentencePiece model.

    Control, unknown and unused pieces are special; byte pieces are their byte; all others, also the
    user-defined, are their text with U+2581 as a space. BOS and EOS are the control pieces that the
    model's own trainer spec names.

    Raises UnsupportedTokenizer for the types Word and Char and for a tiktoken file under this name,
    VocabularyError (with the piece's index) for everything else that is wrong.
    """
    _refuse_other_files(data)
    model = _PROTO.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise VocabularyError(
            f"not a SentencePiece model, or a truncated one ({str(error)[:200]})",
            location=FILE,
            remedy="pass the whole file, or name the format that it has",
        ) from None
    _check_model(model)

    token_bytes: list[bytes] = []
    special: dict[int, str] = {}
    id_of_spelling: dict[str, int] = {}
    for index, piece in enumerate(model.pieces):
        spelling = _text(piece.piece, index)
        id_of_spelling[spelling] = index
        if piece.type in (_PIECE.NORMAL, _PIECE.USER_DEFINED):
            token_bytes.append(bytes_of_piece(spelling, _SPACES, byte_fallback=False))
        elif piece.type == _PIECE.BYTE:
            token_bytes.append(_byte(spelling, index))
        else:
            token_bytes.append(b"")
            special[index] = spelling

    return TokenizerContents(
        token_bytes=tuple(token_bytes),
        special=special,
        id_of_spelling=id_of_spelling,
        bos_id=_control_id(model.trainer_spec.bos_piece, special, id_of_spelling),
        eos_id=_control_id(model.trainer_spec.eos_piece, special, id_of_spelling),
        encoder=SentencePieceEncoder(_processor(data), hashlib.sha256(data).hexdigest()),
    )


def _refuse_other_files(data: bytes) -> None:
    refuse_lfs_pointer(data, FILE)
    if _TIKTOKEN_LINE.match(data):
        raise UnsupportedTokenizer(
            "this is a file of tiktoken ranks (base64 and a rank on each line, as Llama 3 ships it under "
            "this name), not a SentencePiece model",
            location=f"{FILE}, line 1",
            remedy="name the format tiktoken and give its special tokens, or register the model's tokenizer.json",
        )
    if data.lstrip()[:1] == b"{":
        raise VocabularyError(
            "this is JSON, not a SentencePiece model",
            location=f"{FILE}, byte 0",
            remedy="name the format tokenizer_json if it is a tokenizer.json",
        )


def _check_model(model: Any) -> None:
    if not model.pieces:
        raise VocabularyError("the model has no pieces", location=FILE, remedy="pass the whole file")
    if len(model.pieces) > MAX_IDS:
        raise VocabularyError(
            f"{len(model.pieces)} pieces, the limit is {MAX_IDS}", location=FILE, remedy="pass a model's file"
        )
    kind = model.trainer_spec.model_type
    if kind not in (_TRAINER.BPE, _TRAINER.UNIGRAM):
        raise UnsupportedTokenizer(
            f"SentencePiece models of type {_TRAINER.ModelType.Name(kind)} are not supported",
            location=f"{FILE}, trainer_spec.model_type",
            remedy="register a table of token bytes",
        )


def _text(spelling: str | bytes, index: int) -> str:
    # protobuf gives a string field that is not UTF-8 as bytes.
    if isinstance(spelling, str):
        return spelling
    raise VocabularyError(
        f"the piece is not UTF-8 ({spelling[:40]!r})",
        location=f"{FILE}, piece {index}",
        remedy="check that the file is unchanged",
    )


def _byte(spelling: str, index: int) -> bytes:
    byte = byte_of_piece(spelling)
    if byte is None:
        raise VocabularyError(
            f"a byte piece is spelled {spelling[:80]!r}, expected <0xHH>",
            location=f"{FILE}, piece {index}",
            remedy="check that the file is unchanged",
        )
    return byte


def _control_id(spelling: str, special: dict[int, str], id_of_spelling: dict[str, int]) -> int | None:
    index = id_of_spelling.get(spelling)
    return index if index in special else None


def _processor(data: bytes) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor(model_proto=data)
    except (RuntimeError, ValueError, OSError) as error:
        raise VocabularyError(
            f"the sentencepiece package refuses the model ({str(error)[:200]})",
            location=FILE,
            remedy="check that the file is complete and unchanged",
        ) from None
