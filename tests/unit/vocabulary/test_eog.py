"""EOG and BOS ids by caller and configuration files."""

from __future__ import annotations

import pytest

from constraintd.errors import VocabularyError
from constraintd.vocabulary.eog import resolve_bos_id, resolve_eog_ids

SPELLINGS = {"<s>": 1, "</s>": 2, "<|im_end|>": 7}


def _eog(caller=(), generation=None, tokenizer=None):
    return resolve_eog_ids(caller, generation_config=generation, tokenizer_config=tokenizer, id_of_spelling=SPELLINGS)


def _bos(generation=None, tokenizer=None):
    return resolve_bos_id(generation_config=generation, tokenizer_config=tokenizer, id_of_spelling=SPELLINGS)


def test_the_caller_wins_over_files_that_are_not_even_json():
    assert _eog([7, 2, 7], generation=b"not json", tokenizer=b"not json") == (2, 7)


def test_generation_config_wins_over_tokenizer_config():
    assert _eog(generation=b'{"eos_token_id": 5}', tokenizer=b'{"eos_token": "</s>"}') == (5,)


def test_generation_config_may_name_several():
    assert _eog(generation=b'{"eos_token_id": [128009, 128001, 128008]}') == (128001, 128008, 128009)


@pytest.mark.parametrize("generation", [None, b"{}", b'{"eos_token_id": null}', b'{"eos_token_id": []}'])
def test_tokenizer_config_speaks_where_generation_config_is_silent(generation):
    assert _eog(generation=generation, tokenizer=b'{"eos_token": "<|im_end|>"}') == (7,)


def test_tokenizer_config_may_name_the_token_as_an_object():
    assert _eog(tokenizer=b'{"eos_token": {"__type": "AddedToken", "content": "</s>"}}') == (2,)


@pytest.mark.parametrize("tokenizer", [None, b"{}", b'{"eos_token": null}'])
def test_nobody_naming_one_gives_none(tokenizer):
    assert _eog(tokenizer=tokenizer) == ()


@pytest.mark.parametrize(
    ("generation", "tokenizer", "location", "problem"),
    [
        (b"[]", None, "generation_config.json", "expected an object, found an array"),
        (b"{", None, "generation_config.json, line 1 column 2", "not JSON"),
        (b'{"eos_token_id": "2"}', None, "generation_config.json#/eos_token_id", "expected an integer"),
        (b'{"eos_token_id": true}', None, "generation_config.json#/eos_token_id", "found a boolean"),
        (b'{"eos_token_id": [1, 2.0]}', None, "generation_config.json#/eos_token_id/1", "found a number"),
        (None, b'{"eos_token": 2}', "tokenizer_config.json#/eos_token", "expected a string"),
        (None, b'{"eos_token": {"content": []}}', "tokenizer_config.json#/eos_token/content", "found an array"),
        (None, b'{"eos_token": "<eos>"}', "tokenizer_config.json#/eos_token", "has no token '<eos>'"),
    ],
)
def test_a_broken_configuration_is_named_by_its_json_pointer(generation, tokenizer, location, problem):
    with pytest.raises(VocabularyError) as refused:
        _eog(generation=generation, tokenizer=tokenizer)
    assert refused.value.location == location
    assert problem in refused.value.problem


def test_a_caller_that_passes_no_integer_is_told():
    with pytest.raises(VocabularyError, match="eog_ids: expected an integer, found a string"):
        _eog(["2"])


def test_bos_goes_by_tokenizer_config_first():
    assert _bos(generation=b'{"bos_token_id": 9}', tokenizer=b'{"bos_token": "<s>"}') == 1


def test_bos_falls_back_to_generation_config():
    assert _bos(generation=b'{"bos_token_id": 9}', tokenizer=b'{"bos_token": null}') == 9


def test_a_model_may_have_no_bos():
    assert _bos(generation=b"{}") is None
