"""Writes a GGUF as a folder of ONNX files that onnxruntime-genai and this runner load."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import onnx

from .errors import ConversionError
from .external_data import ExternalData
from .gguf_tokenizer import end_of_generation_ids, special_ids, tokenizer_config, tokenizer_json
from .gguf_weights import GgufModel
from .graph import build_llama
from .llama import LlamaShape

Bits = Literal[4, 8, 32]
Progress = Callable[[int, int], None]
"""Called with (weights written, weights in all), from the thread that converts."""

CONVERSION_FILE = "conversion.json"
CONVERSION_FORMAT = 1
"""Raised whenever the files written here change, so that an older folder in a cache is made anew."""


def convert_gguf(
    gguf_path: str | Path,
    target: str | Path,
    *,
    bits: Bits = 8,
    all_logits: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Converts the file into the folder `target`, which appears whole or not at all.

    A folder that an earlier conversion wrote is replaced. `bits` and `all_logits` are explained at
    `graph.build_llama`. Raises GgufError for what cannot be read and ConversionError if the target is
    something else than such a folder; the target is then as it was.
    """
    if bits not in (4, 8, 32):
        raise ConversionError(f"bits is {bits}; it must be 4, 8 or 32")
    target = Path(target)
    if target.exists() and any(target.iterdir()) and not (target / CONVERSION_FILE).exists():
        raise ConversionError(f"{target}: exists and was not written by a conversion; name another folder")
    model = GgufModel.open(gguf_path)
    documents = _documents(model, bits, all_logits)  # before the long part, so that bad metadata is found at once
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        _write_graph(model, partial, bits, all_logits, progress or (lambda *_: None))
        for name, document in documents.items():
            text = json.dumps(document, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
            (partial / name).write_text(text, encoding="utf-8")
        partial.chmod(0o755)  # mkdtemp makes it private; a model folder is not
        _put_in_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def conversion_of(folder: Path) -> dict[str, Any] | None:
    """What `conversion.json` in the folder says (`format`, `bits`, `all_logits`), None without one."""
    try:
        found = json.loads((folder / CONVERSION_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write_graph(model: GgufModel, folder: Path, bits: int, all_logits: bool, progress: Progress) -> None:
    done, total = 0, model.shape.parameters

    def count(weights: int) -> None:
        nonlocal done
        done += weights
        progress(done, total)

    with ExternalData(folder / "model.onnx.data") as data:
        graph = build_llama(
            model.shape,
            model.weight,
            data,
            bits=bits,
            all_logits=all_logits,
            rope_factors=model.rope_factors(),
            progress=count,
        )
    onnx.save_model(graph, folder / "model.onnx")
    progress(total, total)


def _put_in_place(partial: Path, target: Path) -> None:
    """Renames; a previous folder is moved aside first, as a rename replaces only an empty one."""
    aside = partial.with_name(partial.name + ".old")
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(partial, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _documents(model: GgufModel, bits: int, all_logits: bool) -> dict[str, dict[str, Any]]:
    shape, ids, stops = model.shape, special_ids(model), end_of_generation_ids(model)
    return {
        "tokenizer.json": tokenizer_json(model),
        "tokenizer_config.json": tokenizer_config(model),
        "config.json": _config(shape, ids, stops),
        "generation_config.json": {f"{name}_token_id": ids[name] for name in ("bos", "pad") if name in ids}
        | {"eos_token_id": stops},
        "genai_config.json": genai_config(shape, bos=ids.get("bos"), eos=stops, pad=ids.get("pad")),
        CONVERSION_FILE: {
            "format": CONVERSION_FORMAT,
            "source": model.path.name,
            "bits": bits,
            "all_logits": all_logits,
        },
    }


def _config(shape: LlamaShape, ids: dict[str, int], stops: list[int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": shape.context_length,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_theta": shape.rope_base,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocab,
        "bos_token_id": ids.get("bos"),
        "eos_token_id": stops[0] if len(stops) == 1 else stops,
    }


def genai_config(shape: LlamaShape, *, bos: int | None, eos: list[int], pad: int | None) -> dict[str, Any]:
    """The content of `genai_config.json`, as onnxruntime-genai 0.18 reads it."""
    return {
        "model": {
            "type": "llama",
            "bos_token_id": eos[0] if bos is None else bos,
            "eos_token_id": eos,
            "pad_token_id": eos[0] if pad is None else pad,
            "context_length": shape.context_length,
            "vocab_size": shape.vocab,
            "decoder": {
                "filename": "model.onnx",
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "hidden_size": shape.hidden,
                "head_size": shape.head_dim,
                "num_attention_heads": shape.heads,
                "num_key_value_heads": shape.kv_heads,
                "num_hidden_layers": shape.layers,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {
            "do_sample": False,
            "max_length": shape.context_length,
            "past_present_share_buffer": True,
        },
    }
