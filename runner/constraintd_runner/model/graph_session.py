"""Opens a decoder graph in ONNX Runtime and finds out what it takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

from .errors import FolderError, ProviderError
from .folder import CacheNames, ModelFolder
from .providers import CPU, Providers, choose_providers

_FLOAT_TYPES: dict[str, type[np.floating[Any]]] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True, slots=True)
class GraphSession:
    """A session and the facts about its graph that the loops need."""

    session: onnxruntime.InferenceSession
    device: str
    """Where the KV cache lives: "cpu" or "cuda"."""
    layers: int
    kv_heads: int
    head_dim: int
    cache_names: CacheNames
    cache_dtype: type[np.floating[Any]]
    logits_dtype: type[np.floating[Any]]
    logits_width: int
    last_logits_only: bool
    """Whether the graph gives logits of a prompt's last position only: [batch, 1, width]."""
    takes_position_ids: bool
    takes_cache_branch: bool
    """Whether it is a merged export with the boolean input `use_cache_branch`."""

    def cache_pairs(self) -> list[tuple[str, str]]:
        """(past input, present output) names, keys and values of each layer in turn."""
        names = self.cache_names
        return [
            (past % layer, present % layer)
            for layer in range(self.layers)
            for past, present in (
                (names.past_key, names.present_key),
                (names.past_value, names.present_value),
            )
        ]


def open_graph(folder: ModelFolder, ep: str, *, threads: int, spinning: bool) -> tuple[GraphSession, Providers]:
    """Loads the graph on what `ep` ("cpu", "cuda" or "auto") selects; also gives what that was.

    Raises FolderError, and ProviderError where "cuda" is asked for and missing or cannot run this graph.
    """
    providers = choose_providers(ep)
    try:
        graph = open_session(folder, providers, threads=threads, spinning=spinning)
        if graph.device == "cuda" and folder.shares_buffer and graph.cache_dtype == np.float32:
            # Such nodes would run on the CPU without a word, the cache copied to it and back at every step.
            raise ProviderError(
                f"{folder.graph} has a float32 cache, and GroupQueryAttention on CUDA takes float16 only; "
                "use a float16 folder, or --ep cpu"
            )
    except ProviderError as error:
        if ep != "auto":
            raise
        fallback = Providers((CPU,), "cpu", f"auto: the CPU is used, because {error}")
        return open_session(folder, fallback, threads=threads, spinning=spinning), fallback
    return graph, providers


def open_session(folder: ModelFolder, providers: Providers, *, threads: int, spinning: bool) -> GraphSession:
    """Loads the graph.

    Raises FolderError if it is none, or lacks an input or output that it needs, and ProviderError if
    onnxruntime has a provider but cannot start it.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1  # a decoder is one chain of nodes
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    # Between two runs the core belongs to the daemon, even where threads spin within one.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = onnxruntime.InferenceSession(str(folder.graph), options, providers=list(providers.names))
    except Exception as error:  # onnxruntime's exceptions share no other base
        raise FolderError(f"{folder.graph}: ONNX Runtime cannot load it: {error}") from error
    for name in providers.names:
        if name not in session.get_providers():  # onnxruntime only warns, and goes on without it
            raise ProviderError(
                f"onnxruntime could not start {name}; check the GPU's driver and that the CUDA and cuDNN "
                "libraries of its version are installed (pip install 'onnxruntime-gpu[cuda,cudnn]')"
            )
    inputs = {value.name: value for value in session.get_inputs()}
    outputs = {value.name: value for value in session.get_outputs()}
    names = folder.cache_names
    last = folder.layers - 1
    _need(folder, inputs, "input", ("input_ids", "attention_mask", names.past_key % last, names.past_value % last))
    _need(folder, outputs, "output", ("logits", names.present_key % last, names.present_value % last))
    known = {"input_ids", "attention_mask", "position_ids", "use_cache_branch"}
    known |= {past % layer for layer in range(folder.layers) for past in (names.past_key, names.past_value)}
    for name in sorted(inputs.keys() - known):
        raise FolderError(f"{folder.graph}: has an input {name!r} that is not understood")
    past = inputs[names.past_key % 0]
    for size, said, what in (
        (past.shape[1], folder.kv_heads, "key-value heads"),
        (past.shape[3], folder.head_dim, "values a head"),
    ):
        if isinstance(size, int) and size != said:
            raise FolderError(f"{folder.graph}: has {size} {what}, but the configuration says {said}")
    logits = outputs["logits"]
    width = logits.shape[-1] if isinstance(logits.shape[-1], int) else folder.logits_width
    if width is None:
        raise FolderError(f"{folder.path}: neither the graph nor a configuration file says the logits' width")
    return GraphSession(
        session=session,
        device=providers.device,
        layers=folder.layers,
        kv_heads=folder.kv_heads,
        head_dim=folder.head_dim,
        cache_names=names,
        cache_dtype=_float_type(folder, past),
        logits_dtype=_float_type(folder, logits),
        logits_width=width,
        last_logits_only=logits.shape[1] == 1,
        takes_position_ids="position_ids" in inputs,
        takes_cache_branch="use_cache_branch" in inputs,
    )


def _need(folder: ModelFolder, there: dict[str, Any], what: str, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in there:
            raise FolderError(f"{folder.graph}: lacks the {what} {name!r}; it has {', '.join(sorted(there)[:8])}, ...")


def _float_type(folder: ModelFolder, value: Any) -> type[np.floating[Any]]:
    if value.type not in _FLOAT_TYPES:
        raise FolderError(f"{folder.graph}: {value.name!r} is {value.type}; float and float16 are supported")
    return _FLOAT_TYPES[value.type]
