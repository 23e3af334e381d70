"""Slots: sequences that share a session do not feel each other, and cannot outgrow their room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from constraintd_runner.model import Decoder, ModelFolder, graph_session, shared_rows
from constraintd_runner.model.errors import FolderError, ProviderError, SlotError, SlotLengthError, TokenError
from constraintd_runner.model.providers import Providers
from numpy.typing import NDArray

from tests.tiny_decoder import write_genai_folder, write_optimum_folder

STYLES: dict[str, Callable[[Path], Path]] = {
    "genai": write_genai_folder,
    "genai-all-logits": lambda path: write_genai_folder(path, all_logits=True),
    "optimum": lambda path: write_optimum_folder(path, position_ids=False),
    "optimum-position-ids": lambda path: write_optimum_folder(path, position_ids=True),
    "optimum-merged": lambda path: write_optimum_folder(path, position_ids=True, cache_branch=True),
}
PROMPTS = [[0, 50, 60, 70], [0, 9], [0, 100, 101, 102, 103, 104, 105, 106], [0, 33, 44]]


@pytest.fixture(scope="module", params=STYLES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return ModelFolder.open(STYLES[request.param](tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return ModelFolder.open(write_genai_folder(tmp_path_factory.mktemp("plain")))


def opened(folder: ModelFolder, *, slots: int = 4, max_length: int | None = 64) -> Decoder:
    return Decoder.open(folder, threads=1, slots=slots, max_length=max_length)


def alone(folder: ModelFolder, prompt: list[int], tokens: list[int]) -> list[NDArray[np.float32]]:
    """Logits after the prompt and after each token, from a decoder that runs nothing else."""
    decoder = opened(folder, slots=1)
    slot = decoder.acquire()
    logits = [decoder.prefill(slot, np.array(prompt)).copy()]
    return logits + [decoder.decode([slot], [token])[0].copy() for token in tokens]


def assert_same(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert int(found.argmax()) == int(expected.argmax())


def test_both_styles_of_folder_give_the_same_logits(folder: ModelFolder, plain: ModelFolder) -> None:
    for found, expected in zip(alone(folder, PROMPTS[0], [5, 6, 7]), alone(plain, PROMPTS[0], [5, 6, 7]), strict=True):
        assert_same(found, expected)


def test_the_same_tokens_give_the_same_logits_in_every_run(folder: ModelFolder) -> None:
    first, second = alone(folder, PROMPTS[2], [5, 6]), alone(folder, PROMPTS[2], [5, 6])
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_interleaved_slots_give_what_each_gives_alone(folder: ModelFolder) -> None:
    expected = [alone(folder, prompt, [11, 12, 13]) for prompt in PROMPTS]
    decoder = opened(folder)
    a, b = decoder.acquire(), decoder.acquire()
    assert_same(decoder.prefill(a, np.array(PROMPTS[0])), expected[0][0])
    assert_same(decoder.prefill(b, np.array(PROMPTS[1])), expected[1][0])
    assert_same(decoder.decode([a], [11])[0], expected[0][1])  # b waits
    c, d = decoder.acquire(), decoder.acquire()
    assert_same(decoder.prefill(c, np.array(PROMPTS[2])), expected[2][0])
    both = decoder.decode([c, a], [11, 12])  # d is empty, b waits between them, order as asked
    assert_same(both[0], expected[2][1])
    assert_same(both[1], expected[0][2])
    assert_same(decoder.prefill(d, np.array(PROMPTS[3])), expected[3][0])
    rest = decoder.decode([a, b, c, d], [13, 11, 12, 11])
    for logits, wanted in zip(rest, (expected[0][3], expected[1][1], expected[2][2], expected[3][1]), strict=True):
        assert_same(logits, wanted)
    assert [decoder.length(slot) for slot in (a, b, c, d)] == [7, 3, 10, 4]


def test_a_release_leaves_the_others_as_they_are(folder: ModelFolder) -> None:
    expected = [alone(folder, prompt, [21, 22]) for prompt in PROMPTS]
    decoder = opened(folder)
    slots = [decoder.acquire() for _ in PROMPTS]
    for slot, prompt in zip(slots, PROMPTS, strict=True):
        decoder.prefill(slot, np.array(prompt))
    decoder.release(slots[0])  # the last sequence moves into its row
    logits = decoder.decode([slots[3], slots[1], slots[2]], [21, 21, 21])
    for found, index in zip(logits, (3, 1, 2), strict=True):
        assert_same(found, expected[index][1])
    decoder.release(slots[3])
    again = decoder.acquire()
    assert_same(decoder.prefill(again, np.array(PROMPTS[0])), expected[0][0])
    logits = decoder.decode([slots[1], again, slots[2]], [22, 21, 22])
    for found, wanted in zip(logits, (expected[1][2], expected[0][1], expected[2][2]), strict=True):
        assert_same(found, wanted)


def test_a_prompt_may_come_in_parts(folder: ModelFolder) -> None:
    expected = alone(folder, PROMPTS[2], [5])
    decoder = opened(folder)
    slot = decoder.acquire()
    decoder.prefill(slot, np.array(PROMPTS[2][:3]))
    decoder.prefill(slot, np.array(PROMPTS[2][3:4]))
    assert_same(decoder.prefill(slot, np.array(PROMPTS[2][4:])), expected[0])
    assert_same(decoder.decode([slot], [5])[0], expected[1])


def test_a_long_prompt_is_cut_into_chunks_unseen(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = [int(token) for token in np.random.default_rng(1).integers(3, 280, 900)]
    whole = opened(folder, max_length=1000)
    slot = whole.acquire()
    found = whole.prefill(slot, np.array(prompt)).copy()
    monkeypatch.setattr(shared_rows, "_CHUNK", 7)
    monkeypatch.setattr(shared_rows, "_CHUNK_ALL_LOGITS", 7)
    small = opened(folder, max_length=1000)
    slot = small.acquire()
    assert_same(small.prefill(slot, np.array(prompt)), found)


def test_a_full_slot_is_refused_and_its_neighbours_go_on(folder: ModelFolder) -> None:
    expected = alone(folder, PROMPTS[1], [31, 32])
    decoder = opened(folder, slots=3, max_length=4)
    first, full, last = (decoder.acquire() for _ in range(3))
    decoder.prefill(first, np.array(PROMPTS[1]))
    decoder.prefill(full, np.array(PROMPTS[0]))
    decoder.prefill(last, np.array(PROMPTS[1]))
    with pytest.raises(SlotLengthError, match="slot 1 holds 4 of at most 4 tokens; 1 more do not fit"):
        decoder.decode([first, full], [31, 31])
    assert [decoder.length(slot) for slot in (first, full, last)] == [2, 4, 2]
    for step, token in enumerate((31, 32), start=1):  # the full row lies between the two that run
        logits = decoder.decode([first, last], [token, token])
        assert_same(logits[0], expected[step])
        assert_same(logits[1], expected[step])


def test_a_prompt_past_the_length_is_refused_before_it_runs(folder: ModelFolder) -> None:
    decoder = opened(folder, max_length=4)
    slot = decoder.acquire()
    with pytest.raises(SlotLengthError, match="slot 0 holds 0 of at most 4 tokens; 5 more do not fit"):
        decoder.prefill(slot, np.arange(5))
    with pytest.raises(SlotLengthError, match="no tokens"):
        decoder.prefill(slot, np.array([], np.int64))
    assert decoder.length(slot) == 0


def test_slots_run_out_and_come_back(plain: ModelFolder) -> None:
    decoder = opened(plain, slots=2)
    first, second = decoder.acquire(), decoder.acquire()
    with pytest.raises(SlotError, match="all 2 slots are in use"):
        decoder.acquire()
    decoder.release(first)
    assert decoder.acquire() == first
    assert decoder.length(second) == 0


def test_a_slot_that_is_not_in_use_is_refused(plain: ModelFolder) -> None:
    decoder = opened(plain)
    slot = decoder.acquire()
    decoder.release(slot)
    for call in (
        lambda: decoder.prefill(slot, np.array([1])),
        lambda: decoder.decode([slot], [1]),
        lambda: decoder.length(slot),
        lambda: decoder.release(slot),
    ):
        with pytest.raises(SlotError, match=f"slot {slot} is not in use"):
            call()


def test_a_step_names_each_slot_once_with_a_token(plain: ModelFolder) -> None:
    decoder = opened(plain)
    slot = decoder.acquire()
    for slots, tokens in (([], []), ([slot, slot], [1, 2]), ([slot], [1, 2])):
        with pytest.raises(SlotError, match="distinct slots and a token for each"):
            decoder.decode(slots, tokens)


def test_logits_of_a_float16_graph_come_as_float32(tmp_path: Path, plain: ModelFolder) -> None:
    half = ModelFolder.open(write_optimum_folder(tmp_path, position_ids=True, float16=True))
    for found, expected in zip(alone(half, PROMPTS[0], [5, 6]), alone(plain, PROMPTS[0], [5, 6]), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.parametrize("token", [-1, 284, 2**40])
def test_a_token_outside_the_embedding_is_refused_and_changes_nothing(folder: ModelFolder, token: int) -> None:
    expected = alone(folder, PROMPTS[0], [5])
    decoder = opened(folder)
    slot, other = decoder.acquire(), decoder.acquire()
    decoder.prefill(slot, np.array(PROMPTS[0]))
    decoder.prefill(other, np.array(PROMPTS[1]))
    with pytest.raises(TokenError, match=f"token id {token} is outside the model's embedding of 284 rows"):
        decoder.prefill(slot, np.array([1, token]))
    with pytest.raises(TokenError, match=f"token id {token} is outside the model's embedding of 284 rows"):
        decoder.decode([slot, other], [5, token])
    assert decoder.length(slot) == 4
    assert_same(decoder.decode([slot], [5])[0], expected[1])


def test_an_embedding_wider_than_the_logits_takes_all_its_tokens(tmp_path: Path) -> None:
    decoder = opened(ModelFolder.open(write_genai_folder(tmp_path, logits_width=200)))
    assert decoder.prefill(decoder.acquire(), np.array([0, 250])).shape == (200,)


@pytest.mark.parametrize("width", [200, 400])
def test_the_width_of_the_logits_is_the_graphs_own(tmp_path: Path, width: int) -> None:
    decoder = opened(ModelFolder.open(write_genai_folder(tmp_path, logits_width=width)))
    assert decoder.logits_width == width
    assert decoder.prefill(decoder.acquire(), np.array([0])).shape == (width,)


def test_the_length_of_a_slot_is_at_most_the_context(plain: ModelFolder) -> None:
    assert opened(plain, max_length=None).max_length == 2048
    assert opened(plain, max_length=1_000_000).max_length == 2048


def test_a_missing_provider_is_said_before_anything_loads(plain: ModelFolder) -> None:
    with pytest.raises(ProviderError, match="onnxruntime-gpu"):
        Decoder.open(plain, ep="cuda")


@pytest.fixture
def a_gpu_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that claim to be on a GPU, as far as that goes without one."""
    claimed = Providers(("CPUExecutionProvider",), "cuda", "")
    monkeypatch.setattr(graph_session, "choose_providers", lambda _: claimed)


@pytest.mark.usefixtures("a_gpu_by_name")
def test_a_float32_shared_cache_is_refused_on_cuda(plain: ModelFolder) -> None:
    with pytest.raises(ProviderError, match=r"model\.onnx has a float32 cache"):
        Decoder.open(plain, ep="cuda")


@pytest.mark.usefixtures("a_gpu_by_name")
def test_auto_takes_such_a_folder_to_the_cpu_and_says_so(plain: ModelFolder) -> None:
    providers = Decoder.open(plain, ep="auto").providers
    assert providers.device == "cpu"
    assert providers.note.startswith("auto: the CPU is used, because ")
    assert "has a float32 cache" in providers.note


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_start_is_said(plain: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Providers(("CUDAExecutionProvider", "CPUExecutionProvider"), "cuda", "")
    monkeypatch.setattr(graph_session, "choose_providers", lambda _: dead)
    with pytest.raises(ProviderError, match="could not start CUDAExecutionProvider; check the GPU's driver"):
        Decoder.open(plain, ep="cuda")
    assert Decoder.open(plain, ep="auto").providers.device == "cpu"


def test_a_file_that_is_no_graph_is_named(tmp_path: Path) -> None:
    path = write_genai_folder(tmp_path)
    (path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(FolderError, match=r"model\.onnx: ONNX Runtime cannot load it"):
        opened(ModelFolder.open(path))


def test_a_configuration_that_contradicts_the_graph_is_refused(tmp_path: Path) -> None:
    path = write_genai_folder(tmp_path)
    config = path / "genai_config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(FolderError, match=r"lacks the input 'past_key_values\.2\.key'"):
        opened(ModelFolder.open(path))
