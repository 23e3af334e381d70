"""A conversion writes a whole folder or nothing; and what stands in its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from constraintd_runner.model import ModelFolder, convert
from constraintd_runner.model.convert import conversion_of, convert_gguf
from constraintd_runner.model.errors import ConversionError, GgufError
from tokenizers import Tokenizer

from tests.tiny_decoder import CHAT_TEMPLATE
from tests.tiny_gguf import write_tiny_gguf


@pytest.fixture
def gguf_path(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


def test_the_folder_holds_all_that_a_runner_reads(gguf_path: Path, tmp_path: Path) -> None:
    target = convert_gguf(gguf_path, tmp_path / "out")
    assert sorted(path.name for path in target.iterdir()) == [
        "config.json",
        "conversion.json",
        "genai_config.json",
        "generation_config.json",
        "model.onnx",
        "model.onnx.data",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    folder = ModelFolder.open(target)
    assert (folder.kind, folder.shares_buffer, folder.context_length) == ("genai", True, 256)
    assert (folder.bos_token_id, folder.eos_token_ids, folder.logits_width) == (0, (1,), 284)
    assert folder.chat_template == CHAT_TEMPLATE
    assert conversion_of(target) == {"format": 1, "source": "tiny.gguf", "bits": 8, "all_logits": False}


def test_the_tokenizer_cuts_digits_apart_and_knows_its_control_tokens(gguf_path: Path, tmp_path: Path) -> None:
    target = convert_gguf(gguf_path, tmp_path / "out")
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    encoded = tokenizer.encode('<s>the 1920 {"é":true}</s>')
    assert encoded.tokens == [*("<s>", "the", "Ġ", "1", "9", "2", "0", "Ġ", '{"', "Ã", "©", '":', "true", "}", "</s>")]
    assert tokenizer.decode(encoded.ids) == 'the 1920 {"é":true}'
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    assert special == {"<s>", "</s>", "<|tool|>"}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, r"tokenizer\.ggml\.model 'llama' is not supported"),
        ({"tokenizer.ggml.pre": "qwen2"}, r"tokenizer\.ggml\.pre 'qwen2' is not supported"),
    ],
)
def test_another_tokenizer_is_refused_by_name(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", metadata=metadata)
    with pytest.raises(GgufError, match=message):
        convert_gguf(path, tmp_path / "out")


def test_progress_reaches_the_total(gguf_path: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    convert_gguf(gguf_path, tmp_path / "out", progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] > 0


def test_a_failed_conversion_leaves_nothing(gguf_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(convert.onnx, "save_model", fail)
    with pytest.raises(OSError, match="no space"):
        convert_gguf(gguf_path, tmp_path / "models/out")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failed_conversion_leaves_the_former_folder(
    gguf_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = convert_gguf(gguf_path, tmp_path / "models/out", bits=8)
    monkeypatch.setattr(convert.onnx, "save_model", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert_gguf(gguf_path, target, bits=4)
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert json.loads((target / "conversion.json").read_text())["bits"] == 8


def test_a_conversion_replaces_a_former_one(gguf_path: Path, tmp_path: Path) -> None:
    target = convert_gguf(gguf_path, tmp_path / "models/out", bits=8)
    convert_gguf(gguf_path, target, bits=4)
    assert [path.name for path in target.parent.iterdir()] == ["out"]
    assert json.loads((target / "conversion.json").read_text())["bits"] == 4


def test_a_folder_of_someone_else_is_left_alone(gguf_path: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConversionError, match="was not written by a conversion"):
        convert_gguf(gguf_path, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_other_widths_are_refused(gguf_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="bits is 16; it must be 4, 8 or 32"):
        convert_gguf(gguf_path, tmp_path / "out", bits=16)  # type: ignore[arg-type]
