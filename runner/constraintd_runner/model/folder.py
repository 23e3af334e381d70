"""Model folders as people have them: onnxruntime-genai's, and the exports of Optimum and onnx-community."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .errors import FolderError

_GRAPHS = (
    "model.onnx",
    "onnx/model.onnx",
    "onnx/decoder_model_merged.onnx",
    "decoder_model_merged.onnx",
)


@dataclass(frozen=True, slots=True)
class CacheNames:
    """Names of the KV cache's inputs and outputs; `%d` stands for the layer."""

    past_key: str = "past_key_values.%d.key"
    past_value: str = "past_key_values.%d.value"
    present_key: str = "present.%d.key"
    present_value: str = "present.%d.value"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What the files beside a model say about it. The graph itself is not opened."""

    path: Path
    kind: Literal["genai", "optimum"]
    graph: Path
    """The .onnx file."""
    layers: int
    kv_heads: int
    head_dim: int
    context_length: int
    """Most tokens of one sequence, prompt included."""
    logits_width: int | None
    """By the configuration files; a Decoder knows the graph's own."""
    embedding_rows: int | None
    """config.json's vocab_size: token ids below it can be fed, which may be more than can come out."""
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    """Every id that ends a generation; empty where no file names one."""
    tokenizer: Path
    """tokenizer.json, or else tokenizer.model (SentencePiece)."""
    chat_template: str | None
    """Jinja text."""
    shares_buffer: bool
    """Whether past and present may lie in the same memory (genai_config's past_present_share_buffer)."""
    cache_names: CacheNames

    @classmethod
    def open(cls, path: str | Path, *, graph: str | None = None) -> ModelFolder:
        """Reads the folder. A `genai_config.json` makes it one of onnxruntime-genai's.

        `graph` names the .onnx file inside the folder (as in `onnx/model_q4.onnx`) where an export holds
        several; by default the unquantised name is preferred, then the first `model*.onnx` by name.
        Raises FolderError naming the file and what it lacks.
        """
        folder = Path(path).expanduser()
        if not folder.is_dir():
            raise FolderError(f"{folder}: is not a folder")
        if (folder / "genai_config.json").exists():
            return _open_genai(folder, graph)
        if (folder / "config.json").exists():
            return _open_optimum(folder, graph)
        raise FolderError(
            f"{folder}: has neither genai_config.json (onnxruntime-genai) nor config.json (Optimum export)"
        )


@dataclass(frozen=True, slots=True)
class _Document:
    """One JSON object and its file name, for errors that say where."""

    path: Path
    values: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, *, required: bool = False) -> _Document:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if required:
                raise FolderError(f"{path}: is missing") from None
            values = {}
        except (OSError, ValueError) as error:
            raise FolderError(f"{path}: cannot be read as JSON: {error}") from error
        if not isinstance(values, dict):
            raise FolderError(f"{path}: must hold a JSON object")
        return cls(path, values)

    def part(self, name: str) -> _Document:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise FolderError(f"{self.path}: the object {name!r} is missing")
        return _Document(self.path, value)

    def integer(self, *names: str) -> int:
        """The first of the names that is there; exporters differ in what they call things."""
        value = self.optional(*names)
        if value is None:
            raise FolderError(f"{self.path}: {' or '.join(map(repr, names))} is missing")
        return value

    def optional(self, *names: str) -> int | None:
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise FolderError(f"{self.path}: {name!r} is {value!r}, an integer was expected")
            return value
        return None

    def id_list(self, name: str) -> tuple[int, ...]:
        value = self.values.get(name)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(item, int) for item in ids):
            raise FolderError(f"{self.path}: {name!r} is {value!r}, an integer or a list of them was expected")
        return tuple(dict.fromkeys(ids))


def _open_genai(folder: Path, graph: str | None) -> ModelFolder:
    config = _Document.read(folder / "genai_config.json", required=True)
    model = config.part("model")
    decoder = model.part("decoder")
    search = config.values.get("search", {})
    file_name = graph or decoder.values.get("filename")
    if not isinstance(file_name, str):
        raise FolderError(f"{config.path}: 'model.decoder.filename' is missing")
    names = {**decoder.values.get("inputs", {}), **decoder.values.get("outputs", {})}
    default = CacheNames()
    heads = decoder.integer("num_attention_heads")
    return ModelFolder(
        path=folder,
        kind="genai",
        graph=_existing(folder / file_name),
        layers=decoder.integer("num_hidden_layers"),
        kv_heads=decoder.optional("num_key_value_heads") or heads,
        head_dim=decoder.optional("head_size") or decoder.integer("hidden_size") // heads,
        context_length=model.integer("context_length"),
        logits_width=model.optional("vocab_size"),
        embedding_rows=_Document.read(folder / "config.json").optional("vocab_size"),
        bos_token_id=_bos(folder, model),
        eos_token_ids=_eos(folder, model),
        tokenizer=_tokenizer(folder),
        chat_template=_chat_template(folder),
        shares_buffer=bool(search.get("past_present_share_buffer", False)),
        cache_names=CacheNames(
            names.get("past_key_names", default.past_key),
            names.get("past_value_names", default.past_value),
            names.get("present_key_names", default.present_key),
            names.get("present_value_names", default.present_value),
        ),
    )


def _open_optimum(folder: Path, graph: str | None) -> ModelFolder:
    config = _Document.read(folder / "config.json", required=True)
    heads = config.integer("num_attention_heads", "n_head")
    head_dim = config.optional("head_dim") or config.integer("hidden_size", "n_embd") // heads
    return ModelFolder(
        path=folder,
        kind="optimum",
        graph=_existing(folder / graph) if graph else _find_graph(folder),
        layers=config.integer("num_hidden_layers", "n_layer"),
        kv_heads=config.optional("num_key_value_heads") or heads,
        head_dim=head_dim,
        context_length=config.integer("max_position_embeddings", "n_positions", "n_ctx"),
        logits_width=config.optional("vocab_size"),
        embedding_rows=config.optional("vocab_size"),
        bos_token_id=_bos(folder, config),
        eos_token_ids=_eos(folder, config),
        tokenizer=_tokenizer(folder),
        chat_template=_chat_template(folder),
        shares_buffer=False,
        cache_names=CacheNames(),
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FolderError(f"{path}: is missing")
    return path


def _find_graph(folder: Path) -> Path:
    for name in _GRAPHS:
        if (folder / name).is_file():
            return folder / name
    for found in sorted([*folder.glob("model*.onnx"), *folder.glob("onnx/model*.onnx")]):
        return found
    raise FolderError(f"{folder}: has no model*.onnx, neither in it nor in its folder onnx/")


def _tokenizer(folder: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer.model"):
        if (folder / name).is_file():
            return folder / name
    raise FolderError(f"{folder}: has neither tokenizer.json nor tokenizer.model")


def _bos(folder: Path, model: _Document) -> int | None:
    generation = _Document.read(folder / "generation_config.json")
    for document in (generation, model):
        if ids := document.id_list("bos_token_id"):
            return ids[0]
    return _named_token(folder, "bos_token")


def _eos(folder: Path, model: _Document) -> tuple[int, ...]:
    """generation_config.json first: it alone lists every end token of chat models."""
    generation = _Document.read(folder / "generation_config.json")
    for document in (generation, model):
        if ids := document.id_list("eos_token_id"):
            return ids
    token_id = _named_token(folder, "eos_token")
    return () if token_id is None else (token_id,)


def _named_token(folder: Path, name: str) -> int | None:
    """The id of a token that tokenizer_config.json names by its text."""
    config = _Document.read(folder / "tokenizer_config.json").values
    named = config.get(name)
    text = named.get("content") if isinstance(named, dict) else named
    if not isinstance(text, str):
        return None
    for token_id, token in config.get("added_tokens_decoder", {}).items():
        if token.get("content") == text:
            return int(token_id)
    for token in _Document.read(folder / "tokenizer.json").values.get("added_tokens", []):
        if token.get("content") == text:
            return int(token["id"])
    return None


def _chat_template(folder: Path) -> str | None:
    """chat_template.jinja wins over tokenizer_config.json; of several named templates `default` is taken."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    document = _Document.read(folder / "tokenizer_config.json")
    template = document.values.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    if template is not None and not isinstance(template, str):
        raise FolderError(f"{document.path}: 'chat_template' must be text or a list with a 'default' entry")
    return template
