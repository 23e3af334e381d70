"""How often the converted SmolLM2 has the same top-1 token as an independent NumPy forward pass.

The weights are those of the GGUF, dequantised to float32; the text is English prose that ships with
Python (four topics of the language reference in `pydoc_data`), 250 tokens of each: 1,000 positions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import onnxruntime
from constraintd_runner.model.convert import Bits, convert_gguf
from constraintd_runner.model.fetch import download_smollm2
from numpy.typing import NDArray
from tokenizers import Tokenizer

from benchmarks.form import Progress, Result
from tests.conformance.llama_in_numpy import LlamaInNumpy

NAME = "converter-agreement"
SUMMARY = "top-1 agreement of the converted SmolLM2 (float32, 8 and 4 bits) with NumPy, over 1,000 positions"

_TOPICS = ("objects", "exceptions", "context-managers", "import")
_WINDOW = 250
_FIGURES: dict[Bits, str] = {
    32: "float32_top1_agreement",
    8: "int8_top1_agreement",
    4: "int4_top1_agreement",
}


def run(progress: Progress) -> Result:
    """Agreements as fractions of positions: figures over all, samples for each window of 250."""
    total = (1 + len(_FIGURES)) * len(_TOPICS)
    done = 0

    def advance(what: str) -> None:
        nonlocal done
        done += 1
        progress(what, done, total)

    progress("downloading", 0, total)
    figures: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="constraintd-agreement-") as scratch:
        gguf_path = download_smollm2(Path(scratch))
        reference = LlamaInNumpy(gguf_path)
        windows: list[list[int]] = []
        expected: list[NDArray[np.int64]] = []
        for bits, figure in _FIGURES.items():
            folder = convert_gguf(gguf_path, Path(scratch) / f"{bits}", bits=bits, all_logits=True)
            if not windows:
                windows = list(_windows(folder / "tokenizer.json"))
                for window in windows:
                    expected.append(reference.logits(window).argmax(axis=-1))  # [250]
                    advance("NumPy forward pass")
            session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
            agreements = []
            for window, tops in zip(windows, expected, strict=True):
                agreements.append(float(np.mean(_top1(session, window) == tops)))
                advance(f"{bits}-bit forward pass")
            figures[figure] = float(np.mean(agreements))
            samples[f"{figure}_by_window"] = agreements
    return Result(figures, samples)


def _windows(tokenizer: Path) -> Iterator[list[int]]:
    encoder = Tokenizer.from_file(str(tokenizer))
    for topic in _TOPICS:
        ids: list[int] = encoder.encode(topics[topic]).ids[:_WINDOW]
        if len(ids) < _WINDOW:
            raise ValueError(f"the topic {topic!r} of this Python has only {len(ids)} tokens")
        yield ids


def _top1(session: onnxruntime.InferenceSession, window: list[int]) -> NDArray[np.int64]:
    """The likeliest next token after each token of the window, int64 [len(window)]."""
    ids = np.array([window], np.int64)  # [1, s]
    feeds: dict[str, NDArray[Any]] = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    for value in session.get_inputs():
        if value.name.startswith("past_key_values."):
            feeds[value.name] = np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32)
    logits = session.run(["logits"], feeds)[0]  # [1, s, vocab]
    tops: NDArray[np.int64] = logits[0].argmax(axis=-1)
    return tops
