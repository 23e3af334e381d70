"""Unigram models in `tokenizer.json`: pieces by their place, spaces by Metaspace, bytes by fallback or not at all."""

from __future__ import annotations

import json

import pytest

from constraintd.errors import UnsupportedTokenizer, VocabularyError
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.tokenizer_json import read_tokenizer_json

METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def unigram_json(added, edit=None):
    """T5's layout: `<pad>` 0, `</s>` 1, `<unk>` 2, `▁` 3, `a` 4, `b` 5, `▁ab` 6, and the added `<extra>` 7."""
    pieces = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.0], ["a", -3.0], ["b", -3.0], ["▁ab", -1.0]]
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            *(added(token_id, pieces[token_id][0], special=True) for token_id in range(3)),
            added(7, "<extra>", special=False),
        ],
        "normalizer": None,
        "pre_tokenizer": METASPACE,
        "post_processor": None,
        "decoder": METASPACE,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False},
    }
    if edit is not None:
        edit(document)
    return json.dumps(document).encode()


def test_a_pieces_place_is_its_id_and_its_mark_a_space(added):
    vocabulary = load_vocabulary(VocabularyFormat.TOKENIZER_JSON, unigram_json(added), eog_ids=[1])
    assert vocabulary.token_bytes == (b"", b"", b"", b" ", b"a", b"b", b" ab", b"<extra>")
    assert dict(vocabulary.special) == {0: "<pad>", 1: "</s>", 2: "<unk>"}


def test_its_encoder_takes_the_likeliest_pieces_and_puts_a_space_in_front(added):
    encoder = read_tokenizer_json(unigram_json(added)).encoder
    assert encoder.encode("ab ba") == [6, 3, 5, 4]
    assert encoder.encode("c") == [3, 2]


def test_with_byte_fallback_a_byte_piece_is_its_byte(added):
    def edit(document):
        document["model"]["vocab"] += [["<0xC3>", -9.0], ["<0xA9>", -9.0]]
        document["model"]["byte_fallback"] = True
        document["added_tokens"].pop()

    contents = read_tokenizer_json(unigram_json(added, edit))
    assert contents.token_bytes[7:] == (b"\xc3", b"\xa9")
    assert contents.encoder.encode("é") == [3, 7, 8]


def test_without_byte_fallback_a_byte_piece_is_its_spelling(added):
    def edit(document):
        document["model"]["vocab"].append(["<0xC3>", -9.0])
        document["added_tokens"].pop()

    assert read_tokenizer_json(unigram_json(added, edit)).token_bytes[7] == b"<0xC3>"


def test_a_model_may_have_no_unknown_token(added):
    def edit(document):
        document["model"]["unk_id"] = None
        document["added_tokens"].pop(2)

    contents = read_tokenizer_json(unigram_json(added, edit))
    assert contents.token_bytes[2] == b"<unk>"


def test_an_added_token_behind_a_gap_is_refused(added):
    with pytest.raises(UnsupportedTokenizer, match="added token of a Unigram model has another id"):
        read_tokenizer_json(unigram_json(added, lambda d: d["added_tokens"][3].update(id=9)))


@pytest.mark.parametrize(
    ("change", "location", "problem"),
    [
        ({"vocab": {}}, "#/model/vocab", "expected an array, found an object"),
        ({"vocab": [["a", -1.0], "b"]}, "#/model/vocab/1", "expected a piece and its score"),
        ({"vocab": [["a", -1.0], ["a", -2.0]]}, "#/model/vocab/1", "the piece 'a' is id 0 too"),
        ({"unk_id": 7}, "#/model/unk_id", "the unknown token's id 7 is not in the vocabulary"),
        ({"unk_id": "2"}, "#/model/unk_id", "expected an integer"),
    ],
)
def test_a_broken_model_is_refused_with_a_pointer(added, change, location, problem):
    def edit(document):
        document["model"].update(change)
        document["added_tokens"] = []

    with pytest.raises(VocabularyError, match=problem) as refusal:
        read_tokenizer_json(unigram_json(added, edit))
    assert refusal.value.location == f"tokenizer.json{location}"
