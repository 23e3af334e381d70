"""Repeating the passes gives the same logits, bit for bit; feeding everything at once need not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from constraintd_runner.generation import Generation
from constraintd_runner.line import Line
from constraintd_runner.model import Decoder, ModelFolder
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.prefill import prefill
from constraintd_runner.sampling import Chain, Greedy
from numpy.typing import NDArray

from tests.tiny_decoder import write_genai_folder, write_optimum_folder
from tests.unit.runner.scripted import ScriptedSource, until

PROMPT = np.arange(40, 70, dtype=np.int64)


@pytest.fixture(scope="module", params=["genai", "optimum"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    return write_genai_folder(path) if request.param == "genai" else write_optimum_folder(path, position_ids=True)


def open_decoder(folder: Path) -> Decoder:
    return Decoder.open(ModelFolder.open(folder), threads=2, slots=4, max_length=256)


def uninterrupted(decoder: Decoder, count: int) -> tuple[list[int], list[NDArray[np.float32]]]:
    """Greedy tokens, and a copy of the logits that each was picked from."""
    slot = decoder.acquire()
    rows = [decoder.prefill(slot, PROMPT).copy()]
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(int(rows[-1].argmax()))
        rows.append(decoder.decode([slot], tokens[-1:])[0].copy())
    decoder.release(slot)
    return tokens, rows


def prefilled(decoder: Decoder, tokens: Sequence[int], passes: Sequence[int]) -> NDArray[np.float32]:
    slot = decoder.acquire()
    prompt = np.concatenate([PROMPT, np.array(tokens, dtype=np.int64)])
    session = ScriptedSource().open(until(1))
    wanted = Generation(session, prompt, MaskedPicker(Chain.of([Greedy()])), token_limit=1, passes=passes)
    row, ran = prefill(decoder, slot, wanted, Line())
    assert sum(ran) == len(prompt)
    copy = row.copy()
    decoder.release(slot)
    return copy


def test_the_logits_after_repeated_passes_are_the_same_bits(folder: Path) -> None:
    tokens, rows = uninterrupted(open_decoder(folder), 24)
    other = open_decoder(folder)
    # The other decoder has had other sequences in its slots before.
    uninterrupted(other, 40)
    for count in (0, 1, 9, 24):
        again = prefilled(other, tokens[:count], (len(PROMPT), *[1] * count))
        assert again.tobytes() == rows[count].tobytes()


def test_everything_at_once_is_close(folder: Path) -> None:
    tokens, rows = uninterrupted(open_decoder(folder), 24)
    again = prefilled(open_decoder(folder), tokens, ())
    np.testing.assert_allclose(again, rows[24], rtol=0, atol=1e-3)
