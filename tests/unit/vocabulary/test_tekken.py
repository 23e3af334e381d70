"""Mistral's tekken.json, by small ones: all 256 bytes and three merges, of which the last does not count."""

from __future__ import annotations

import base64
import json

import pytest

from constraintd.errors import VocabularyError
from constraintd.vocabulary.load import VocabularyFormat, load_vocabulary
from constraintd.vocabulary.tekken import read_tekken


def tekken_json(edit=None):
    tokens = [*(bytes([byte]) for byte in range(256)), b"ab", b" ab", b"over the size"]
    document = {
        "config": {
            "pattern": r"\s?\w+|\W+",
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": 12 + 258,
            "default_num_special_tokens": 12,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(tokens)
        ],
    }
    if edit is not None:
        edit(document)
    return json.dumps(document).encode()


def test_special_tokens_come_first_and_shift_the_ranks():
    vocabulary = load_vocabulary(VocabularyFormat.TEKKEN, tekken_json())
    assert len(vocabulary.token_bytes) == vocabulary.logits_width == 270
    assert [vocabulary.bytes_of(token_id) for token_id in (0, 11, 12, 12 + 97, 12 + 256, 12 + 257)] == [
        b"",
        b"",
        b"\x00",
        b"a",
        b"ab",
        b" ab",
    ]
    assert vocabulary.encoder.encode("ab ab") == [268, 269]


def test_a_file_without_a_list_has_the_special_tokens_of_the_first_versions():
    vocabulary = load_vocabulary(VocabularyFormat.TEKKEN, tekken_json())
    assert (vocabulary.bos_id, vocabulary.eog_ids) == (1, (2,))
    assert (vocabulary.special[0], vocabulary.special[9], vocabulary.special[11]) == ("<unk>", "[TOOL_CALLS]", "<pad>")


def test_a_listed_special_token_has_its_rank_and_the_rest_are_fillers():
    listed = [
        {"rank": 2, "token_str": "</s>", "is_control": True},
        {"rank": 1, "token_str": "<s>", "is_control": True},
        {"rank": 4, "token_str": "[THINK]", "is_control": True},
    ]
    contents = read_tekken(tekken_json(lambda d: d.update(special_tokens=listed)))
    assert [contents.special[token_id] for token_id in range(6)] == [
        "<SPECIAL_0>",
        "<s>",
        "</s>",
        "<SPECIAL_3>",
        "[THINK]",
        "<SPECIAL_5>",
    ]
    assert (contents.bos_id, contents.eos_id) == (1, 2)


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
        (_set("config", []), "#/config", "expected an object"),
        (_set("config", "pattern", None), "#/config/pattern", "expected a string"),
        (_set("config", "default_vocab_size", 2**40), "#/config/default_vocab_size", "is not in 0..2097152"),
        (_set("config", "default_num_special_tokens", 270), "#/config", "leave none of 270 ids for text"),
        (_set("config", "default_vocab_size", 272), "#/vocab", "259 tokens are listed, the configuration counts 260"),
        (_set("vocab", 3, "rank", 4), "#/vocab/3", "expected an object with rank 3"),
        (_set("vocab", 3, "token_bytes", "?"), "#/vocab/3", "expected an object with rank 3 and base64"),
        (_set("vocab", 3, "token_bytes", "é"), "#/vocab/3", "expected an object with rank 3 and base64"),
        (_set("vocab", 256, "token_bytes", "YQ=="), "#/vocab/256/token_bytes", "stands twice or is empty"),
        (_set("vocab", 3, "token_bytes", "YWI="), "#/vocab/256/token_bytes", "stands twice"),
        (_set("vocab", 3, "token_bytes", "YWJh"), "#/vocab", "1 single bytes have no token, first 0x03"),
        (_set("special_tokens", [{"rank": 12, "token_str": "x"}]), "#/special_tokens/0/rank", "not in 0..11"),
        (_set("special_tokens", [{"rank": 1}]), "#/special_tokens/0/token_str", "expected a string"),
    ],
)
def test_a_broken_file_is_refused_with_a_pointer(edit, location, problem):
    with pytest.raises(VocabularyError, match=problem) as refusal:
        read_tekken(tekken_json(edit))
    assert refusal.value.location == f"tekken.json{location}"
