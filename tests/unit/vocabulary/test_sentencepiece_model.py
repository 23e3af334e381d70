"""SentencePiece models: what each piece type becomes, and what is refused."""

from __future__ import annotations

import base64

import pytest
from sentencepiece import sentencepiece_model_pb2

from constraintd.errors import UnsupportedTokenizer, VocabularyError
from constraintd.vocabulary.sentencepiece_model import read_sentencepiece_model

ModelProto = sentencepiece_model_pb2.ModelProto
Piece = ModelProto.SentencePiece
Trainer = sentencepiece_model_pb2.TrainerSpec


def _model(*extra, kind=Trainer.BPE, bytes_too=True):
    """`<unk>` 0, `<s>` 1, `</s>` 2, bytes 3..258 (or none), then `▁`, `a`, `▁a` and `extra`."""
    model = ModelProto()
    model.trainer_spec.model_type = kind
    model.trainer_spec.byte_fallback = bytes_too
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = False
    pieces = [("<unk>", Piece.UNKNOWN), ("<s>", Piece.CONTROL), ("</s>", Piece.CONTROL)]
    if bytes_too:
        pieces += [(f"<0x{byte:02X}>", Piece.BYTE) for byte in range(256)]
    pieces += [("▁", Piece.NORMAL), ("a", Piece.NORMAL), ("▁a", Piece.NORMAL), *extra]
    for rank, (piece, piece_type) in enumerate(pieces):
        model.pieces.add(piece=piece, type=piece_type, score=-float(rank))
    return model


def _read(model):
    return read_sentencepiece_model(model.SerializeToString())


@pytest.mark.parametrize("kind", [Trainer.BPE, Trainer.UNIGRAM])
def test_pieces_are_bytes_with_real_spaces(kind):
    contents = _read(_model(("<0x41>x", Piece.NORMAL), kind=kind))
    assert contents.token_bytes[:3] == (b"", b"", b"")
    assert contents.token_bytes[3:259] == tuple(bytes([byte]) for byte in range(256))
    assert contents.token_bytes[259:] == (b" ", b"a", b" a", b"<0x41>x")
    assert dict(contents.special) == {0: "<unk>", 1: "<s>", 2: "</s>"}


def test_bos_and_eos_are_the_models_own():
    contents = _read(_model())
    assert (contents.bos_id, contents.eos_id) == (1, 2)


def test_bos_and_eos_that_are_no_control_pieces_are_none():
    model = _model(("<eos>", Piece.NORMAL))
    model.trainer_spec.eos_piece = "<eos>"
    model.trainer_spec.bos_piece = "<nowhere>"
    contents = _read(model)
    assert (contents.bos_id, contents.eos_id) == (None, None)


def test_the_same_spelling_is_special_as_control_and_text_as_user_defined():
    # mistral-common's v3 model has both: [INST] is a control piece, [REFERENCE_DOC_0] is user-defined.
    control = _read(_model(("[REF]", Piece.CONTROL)))
    user_defined = _read(_model(("[REF]", Piece.USER_DEFINED)))
    assert (control.token_bytes[262], control.special.get(262)) == (b"", "[REF]")
    assert (user_defined.token_bytes[262], user_defined.special.get(262)) == (b"[REF]", None)


def test_unused_pieces_have_no_bytes():
    contents = _read(_model(("zz", Piece.UNUSED)))
    assert contents.token_bytes[262] == b""
    assert contents.special[262] == "zz"


def test_the_encoder_puts_the_dummy_space_first_and_takes_special_spellings_as_text():
    encoder = _read(_model()).encoder
    assert encoder.encode("a a") == [261, 261]
    # The space, then "<", "s" and ">" as bytes: byte b is id 3 + b.
    assert encoder.encode("<s>") == [259, 3 + 0x3C, 3 + 0x73, 3 + 0x3E]


def test_text_with_a_lone_surrogate_is_a_typed_error_of_the_encoder():
    with pytest.raises(VocabularyError, match="text: the text can't be encoded"):
        _read(_model()).encoder.encode("\ud800")


def test_models_of_words_are_refused_by_name():
    with pytest.raises(UnsupportedTokenizer, match="models of type WORD are not supported"):
        _read(_model(kind=Trainer.WORD, bytes_too=False))


def test_a_byte_piece_that_names_no_byte_is_named_by_its_index():
    model = _model()
    model.pieces[7].piece = "<0xZZ>"
    with pytest.raises(VocabularyError, match="piece 7: a byte piece is spelled '<0xZZ>', expected <0xHH>"):
        _read(model)


def test_a_piece_that_is_not_utf8_is_named_by_its_index():
    data = _model().SerializeToString().replace("▁a".encode(), b"\xff\xff\xffa")
    with pytest.raises(VocabularyError, match="piece 261: the piece is not UTF-8"):
        read_sentencepiece_model(data)


def test_llama_3s_tiktoken_file_of_this_name_is_recognised():
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(3))
    with pytest.raises(UnsupportedTokenizer, match=r"file of tiktoken ranks .* Llama 3") as refused:
        read_sentencepiece_model(ranks)
    assert refused.value.location == "tokenizer.model, line 1"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the model has no pieces"),
        (_model().SerializeToString()[:-5], "not a SentencePiece model, or a truncated one"),
        (b"\x00\x01\x02", "not a SentencePiece model, or a truncated one"),
        (b' {"model": {}}', "this is JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
    ids=["empty", "truncated", "binary", "json", "lfs"],
)
def test_other_bytes_are_a_typed_error(data, problem):
    with pytest.raises(VocabularyError, match=problem):
        read_sentencepiece_model(data)


def test_a_model_that_the_package_refuses_is_a_typed_error():
    # Two unknown pieces: SentencePiece takes exactly one.
    with pytest.raises(VocabularyError, match="the sentencepiece package refuses the model"):
        _read(_model(("<unk2>", Piece.UNKNOWN)))
