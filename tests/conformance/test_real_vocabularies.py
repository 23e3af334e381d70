"""Vocabularies of real models: SentencePiece models and a tekken of mistral-common, and SmolLM2's tokenizer.json.

Counts come from reading the files apart from this project.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from constraintd.vocabulary.engine_table import engine_table
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.vocabulary import Vocabulary

TEXTS = [
    "",
    "hello",
    " two  spaces\n\n\tand a tab ",
    '{"name": "Zoë", "tags": ["日本語", "😀"], "n": -1.5e10}',
    "العربية हिन्दी עברית ไทย",
    "\x00\x01\x1f\x7f",
    "\U00040000\U0010ffff",
    "<s>[INST] text that spells specials [/INST]</s><unk><|im_start|><|endoftext|>",
    "<0x41><0xFF>",
    "def f(x):\n    return x ** 2  # ½ ﬁ Å",
    "x" * 500,
]

# SmolLM2 has no token for these bytes, and its tokenizer drops what it can't spell.
SMOLLM2_LACKS = bytes.fromhex("04 06 13 14 16 1d c0 c1 f1 f2 f5 f6 f7 f8 f9 fa fb fc fd fe ff")


def _mistral(name: str) -> Vocabulary:
    data = files("mistral_common").joinpath("data", name).read_bytes()
    return load_vocabulary(VocabularyFormat.SENTENCEPIECE, data)


@pytest.fixture(scope="module")
def mistral_v1() -> Vocabulary:
    return _mistral("tokenizer.model.v1")


@pytest.fixture(scope="module")
def mistral_v2() -> Vocabulary:
    return _mistral("mistral_instruct_tokenizer_240216.model.v2")


@pytest.fixture(scope="module")
def mistral_v3() -> Vocabulary:
    return _mistral("mistral_instruct_tokenizer_240323.model.v3")


@pytest.fixture(scope="module")
def tekken() -> Vocabulary:
    data = files("mistral_common").joinpath("data", "tekken_240911.json").read_bytes()
    return load_vocabulary(VocabularyFormat.TEKKEN, data)


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> Vocabulary:
    return load_vocabulary(
        VocabularyFormat.TOKENIZER_JSON,
        (smollm2_folder / "tokenizer.json").read_bytes(),
        generation_config=(smollm2_folder / "generation_config.json").read_bytes(),
        tokenizer_config=(smollm2_folder / "tokenizer_config.json").read_bytes(),
    )


def _spelled(vocabulary: Vocabulary, text: str) -> bytes:
    assert vocabulary.encoder is not None
    return b"".join(map(vocabulary.bytes_of, vocabulary.encoder.encode(text)))


def _single_bytes(vocabulary: Vocabulary) -> set[int]:
    return {token[0] for token in vocabulary.token_bytes if len(token) == 1}


def test_mistral_v1_counts(mistral_v1):
    assert len(mistral_v1.token_bytes) == mistral_v1.logits_width == 32_000
    assert dict(mistral_v1.special) == {0: "<unk>", 1: "<s>", 2: "</s>"}
    assert (mistral_v1.bos_id, mistral_v1.eog_ids) == (1, (2,))
    assert sum(map(bool, mistral_v1.token_bytes)) == 256 + 31_741


def test_mistral_v3_counts(mistral_v3):
    assert len(mistral_v3.token_bytes) == mistral_v3.logits_width == 32_768
    assert len(mistral_v3.special) == 1 + 750
    assert sum(map(bool, mistral_v3.token_bytes)) == 256 + 31_741 + 20
    assert (mistral_v3.bos_id, mistral_v3.eog_ids) == (1, (2,))


def test_user_defined_pieces_of_mistral_v3_are_text_where_v2_has_control_pieces(mistral_v2, mistral_v3):
    assert mistral_v2.special[770] == "[control_768]"
    assert mistral_v2.token_bytes[770] == b""
    assert 770 not in mistral_v3.special
    assert mistral_v3.token_bytes[770] == b"[REFERENCE_DOC_0]"
    assert mistral_v3.encoder.encode("[REFERENCE_DOC_0]")[-1] == 770


def test_tool_calls_is_a_control_token_that_no_text_spells(mistral_v2, mistral_v3):
    for vocabulary in (mistral_v2, mistral_v3):
        assert vocabulary.special[5] == "[TOOL_CALLS]"
        assert 5 not in vocabulary.encoder.encode("[TOOL_CALLS]")


@pytest.mark.parametrize("text", TEXTS)
def test_mistral_tokens_spell_the_text_behind_the_dummy_space(mistral_v1, mistral_v3, text):
    # Both models have add_dummy_prefix: SentencePiece encodes " " + text, unless the text is empty.
    expected = (" " + text).encode() if text else b""
    assert _spelled(mistral_v1, text) == expected
    assert _spelled(mistral_v3, text) == expected


def test_every_byte_has_a_token_in_mistral(mistral_v1, mistral_v3):
    assert _single_bytes(mistral_v1) == set(range(256))
    assert _single_bytes(mistral_v3) == set(range(256))


def test_tekken_counts(tekken):
    # The file lists 150,000 ranks.
    assert len(tekken.token_bytes) == tekken.logits_width == 131_072
    assert list(tekken.special) == list(range(1000))
    assert sum(map(bool, tekken.token_bytes)) == 130_072
    assert (tekken.bos_id, tekken.eog_ids) == (1, (2,))
    assert (tekken.special[9], tekken.special[20]) == ("[TOOL_CALLS]", "<SPECIAL_20>")
    assert (tekken.token_bytes[1000], tekken.token_bytes[1255]) == (b"\x00", b"\xff")


def test_tekken_spells_text_as_mistral_common_does(tekken):
    # Ids by mistral-common's Tekkenizer.
    assert tekken.encoder.encode('{"a": "é😀"}') == [19227, 1097, 2811, 1429, 1337, 1240, 1159, 1152, 1128, 46005]


@pytest.mark.parametrize("text", TEXTS)
def test_tekken_tokens_spell_the_text(tekken, text):
    assert _spelled(tekken, text) == text.encode()


def test_every_byte_has_a_token_in_tekken(tekken):
    assert _single_bytes(tekken) == set(range(256))


def test_smollm2_counts(smollm2):
    assert len(smollm2.token_bytes) == smollm2.logits_width == 49_152
    assert len(smollm2.special) == 17
    assert sum(map(bool, smollm2.token_bytes)) == 49_135
    assert (smollm2.special[1], smollm2.special[2]) == ("<|im_start|>", "<|im_end|>")
    assert (smollm2.bos_id, smollm2.eog_ids) == (1, (2,))


def test_smollm2_lacks_21_bytes(smollm2):
    assert set(range(256)) - _single_bytes(smollm2) == set(SMOLLM2_LACKS)


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_tokens_spell_the_text_without_the_bytes_that_it_lacks(smollm2, text):
    assert _spelled(smollm2, text) == text.encode().translate(None, SMOLLM2_LACKS)


@pytest.mark.parametrize("name", ["mistral_v1", "mistral_v3", "smollm2", "tekken"])
def test_text_never_becomes_a_special_id(name, request):
    vocabulary = request.getfixturevalue(name)
    ids = {token_id for text in TEXTS for token_id in vocabulary.encoder.encode(text)}
    assert ids.isdisjoint(vocabulary.special)


@pytest.mark.parametrize("name", ["mistral_v1", "mistral_v3", "smollm2", "tekken"])
def test_every_id_is_real_and_reaches_the_engine(name, request):
    vocabulary = request.getfixturevalue(name)
    # All widths are whole words.
    assert set(vocabulary.real_ids.tolist()) == {0xFFFFFFFF}
    table = engine_table(vocabulary)
    without_bytes = [token_id for token_id, token in enumerate(table.tokens) if not token]
    # Only the lone byte FF, which engines would take for their special marker, is kept from them.
    assert [vocabulary.token_bytes[token_id] for token_id in without_bytes] in ([], [b"\xff"])
