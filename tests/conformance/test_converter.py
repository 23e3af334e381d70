"""The converted graph against an independent NumPy forward pass, and against onnxruntime-genai."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime_genai
import pytest
from constraintd_runner.model import Decoder, ModelFolder
from constraintd_runner.model.convert import Bits, convert_gguf
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tests.conformance.llama_in_numpy import LlamaInNumpy
from tests.tiny_gguf import write_tiny_gguf

TOKENS = [0, *np.random.default_rng(7).integers(3, 284, 60).tolist()]


@pytest.fixture(scope="module", params=[False, True], ids=["own output matrix", "tied"])
def gguf_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that holds every tensor type that is read."""
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", tied=request.param)


def token_by_token(folder: Path) -> NDArray[np.float32]:
    """Logits [len(TOKENS), width] after each token: a prompt of 20, then one token a step."""
    decoder = Decoder.open(ModelFolder.open(folder), threads=1, slots=1)
    slot = decoder.acquire()
    rows = [decoder.prefill(slot, np.array(TOKENS[:20])).copy()]
    rows += [decoder.decode([slot], [token])[0].copy() for token in TOKENS[20:]]
    return np.stack(rows)


def test_the_float32_graph_is_the_llama_architecture(gguf_path: Path, tmp_path: Path) -> None:
    expected = LlamaInNumpy(gguf_path).logits(TOKENS)[19:]  # [41, 284]
    found = token_by_token(convert_gguf(gguf_path, tmp_path / "out", bits=32))
    np.testing.assert_allclose(found, expected, atol=2e-3, rtol=1e-3)
    assert (found.argmax(axis=-1) == expected.argmax(axis=-1)).all()


@pytest.mark.parametrize(("bits", "most_error"), [(8, 0.1), (4, 0.7)])
def test_quantised_graphs_stay_near_it(gguf_path: Path, tmp_path: Path, bits: Bits, most_error: float) -> None:
    expected = LlamaInNumpy(gguf_path).logits(TOKENS)[19:]
    found = token_by_token(convert_gguf(gguf_path, tmp_path / "out", bits=bits))
    error = np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
    assert error < most_error


@pytest.mark.parametrize("bits", [8, 32])
def test_genai_loads_the_folder_and_picks_the_same_tokens(gguf_path: Path, tmp_path: Path, bits: Bits) -> None:
    folder = convert_gguf(gguf_path, tmp_path / "out", bits=bits)
    model = onnxruntime_genai.Model(str(folder))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=60, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(TOKENS[:20])
    while not generator.is_done() and len(generator.get_sequence(0)) < 50:
        generator.generate_next_token()
    theirs = [int(token) for token in generator.get_sequence(0)[20:]]

    decoder = Decoder.open(ModelFolder.open(folder), threads=1, slots=1)
    slot = decoder.acquire()
    ours = [int(decoder.prefill(slot, np.array(TOKENS[:20])).argmax())]
    while len(ours) < len(theirs):
        ours.append(int(decoder.decode([slot], ours[-1:])[0].argmax()))
    assert len(theirs) >= 3
    assert ours == theirs


def test_genai_reads_the_tokenizer(gguf_path: Path, tmp_path: Path) -> None:
    folder = convert_gguf(gguf_path, tmp_path / "out")
    tokenizer = onnxruntime_genai.Tokenizer(onnxruntime_genai.Model(str(folder)))
    text = '<s>the {"a": true} and é</s>'
    ids = [int(token) for token in tokenizer.encode(text)]
    assert ids == Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
