"""What a model folder says about itself, and what is said when it lacks something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from constraintd_runner.model.errors import FolderError
from constraintd_runner.model.folder import ModelFolder

from tests.tiny_decoder import CHAT_TEMPLATE, write_genai_folder, write_optimum_folder


@pytest.fixture
def genai(tmp_path: Path) -> Path:
    return write_genai_folder(tmp_path / "genai")


@pytest.fixture
def optimum(tmp_path: Path) -> Path:
    return write_optimum_folder(tmp_path / "optimum", position_ids=True)


def edit(path: Path, **changes: Any) -> None:
    document = json.loads(path.read_text())
    document.update(changes)
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))


def test_a_genai_folder_is_understood(genai: Path) -> None:
    folder = ModelFolder.open(genai)
    assert folder.kind == "genai"
    assert folder.graph == genai / "model.onnx"
    assert (folder.layers, folder.kv_heads, folder.head_dim) == (2, 2, 16)
    assert (folder.context_length, folder.logits_width) == (2048, 284)
    assert (folder.bos_token_id, folder.eos_token_ids) == (0, (1,))
    assert folder.tokenizer == genai / "tokenizer.json"
    assert folder.chat_template == CHAT_TEMPLATE
    assert folder.shares_buffer


def test_an_optimum_folder_is_understood(optimum: Path) -> None:
    folder = ModelFolder.open(optimum)
    assert folder.kind == "optimum"
    assert folder.graph == optimum / "onnx/model.onnx"
    assert (folder.layers, folder.kv_heads, folder.head_dim) == (2, 2, 16)
    assert (folder.context_length, folder.logits_width) == (2048, 284)
    assert not folder.shares_buffer


def test_a_graph_beside_the_configuration_is_found(tmp_path: Path) -> None:
    path = write_optimum_folder(tmp_path, position_ids=False, graph="model.onnx")
    assert ModelFolder.open(path).graph == tmp_path / "model.onnx"


def test_a_quantised_export_is_found_and_can_be_chosen(tmp_path: Path) -> None:
    write_optimum_folder(tmp_path, position_ids=True, graph="onnx/model_q4.onnx")
    assert ModelFolder.open(tmp_path).graph == tmp_path / "onnx/model_q4.onnx"
    (tmp_path / "onnx/model.onnx").write_bytes(b"")
    assert ModelFolder.open(tmp_path).graph == tmp_path / "onnx/model.onnx"
    assert ModelFolder.open(tmp_path, graph="onnx/model_q4.onnx").graph == tmp_path / "onnx/model_q4.onnx"


def test_several_end_ids_of_generation_config_win_over_one(genai: Path) -> None:
    edit(genai / "generation_config.json", eos_token_id=[1, 2])
    assert ModelFolder.open(genai).eos_token_ids == (1, 2)


def test_end_ids_fall_back_to_the_token_named_in_tokenizer_config(optimum: Path) -> None:
    (optimum / "generation_config.json").unlink()
    assert ModelFolder.open(optimum).eos_token_ids == (1,)
    edit(optimum / "tokenizer_config.json", eos_token={"content": "<|tool|>"})
    assert ModelFolder.open(optimum).eos_token_ids == (2,)


def test_a_jinja_file_wins_over_the_template_in_tokenizer_config(optimum: Path) -> None:
    (optimum / "chat_template.jinja").write_text("{{ messages }}")
    assert ModelFolder.open(optimum).chat_template == "{{ messages }}"


def test_of_several_named_templates_default_is_taken(optimum: Path) -> None:
    templates = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    edit(optimum / "tokenizer_config.json", chat_template=templates)
    assert ModelFolder.open(optimum).chat_template == "d"


def test_a_folder_without_a_template_has_none(optimum: Path) -> None:
    (optimum / "tokenizer_config.json").unlink()
    assert ModelFolder.open(optimum).chat_template is None


def test_a_sentencepiece_file_stands_in_for_tokenizer_json(optimum: Path) -> None:
    (optimum / "tokenizer.json").rename(optimum / "tokenizer.model")
    assert ModelFolder.open(optimum).tokenizer == optimum / "tokenizer.model"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"neither genai_config\.json .* nor config\.json"):
        ModelFolder.open(tmp_path)
    with pytest.raises(FolderError, match="is not a folder"):
        ModelFolder.open(tmp_path / "absent")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("tokenizer.json", r"neither tokenizer\.json nor tokenizer\.model"),
        ("model.onnx", r"model\.onnx: is missing"),
    ],
)
def test_a_missing_file_is_named(genai: Path, file: str, message: str) -> None:
    (genai / file).unlink()
    with pytest.raises(FolderError, match=message):
        ModelFolder.open(genai)


def test_a_missing_graph_of_an_export_is_named(optimum: Path) -> None:
    (optimum / "onnx/model.onnx").unlink()
    with pytest.raises(FolderError, match=r"has no model\*\.onnx"):
        ModelFolder.open(optimum)


def test_a_missing_value_is_named_with_its_file(optimum: Path) -> None:
    edit(optimum / "config.json", num_hidden_layers=None)
    with pytest.raises(FolderError, match=r"config\.json: 'num_hidden_layers' or 'n_layer' is missing"):
        ModelFolder.open(optimum)


def test_a_value_of_the_wrong_type_is_named_with_its_file(optimum: Path) -> None:
    edit(optimum / "config.json", num_hidden_layers="two")
    with pytest.raises(FolderError, match=r"config\.json: 'num_hidden_layers' is 'two', an integer"):
        ModelFolder.open(optimum)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_configuration_that_is_no_json_object_is_named(genai: Path, text: str) -> None:
    (genai / "genai_config.json").write_text(text)
    with pytest.raises(FolderError, match=r"genai_config\.json: (cannot be read as|must hold a) JSON"):
        ModelFolder.open(genai)
