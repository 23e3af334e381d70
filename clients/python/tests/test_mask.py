"""Masks on arrays do what a loop over the bits would do."""

from __future__ import annotations

import numpy as np
import pytest
from constraintd_client import MaskShapeError, allowed_ids, apply_mask
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def masks(draw: st.DrawFn) -> tuple[int, bytes]:
    width = draw(st.integers(1, 400))
    words = (width + 31) // 32
    filled = draw(
        st.lists(
            st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\x80"]) | st.binary(min_size=4, max_size=4),
            min_size=words,
            max_size=words,
        )
    )
    return width, b"".join(filled)


def bit(data: bytes, token: int) -> bool:
    return bool(data[token // 8] >> token % 8 & 1)


@given(masks(), st.integers(0, 2**32 - 1))
def test_forbidden_logits_become_minus_infinity_and_others_stay(mask: tuple[int, bytes], seed: int) -> None:
    width, data = mask
    logits = np.random.default_rng(seed).normal(size=width).astype(np.float32)
    logits[seed % width] = -np.inf
    expected = [logits[i] if bit(data, i) else -np.inf for i in range(width)]
    apply_mask(logits, np.frombuffer(data, "<u4"))
    assert logits.tolist() == expected


@given(masks())
def test_allowed_ids_are_the_set_bits_in_order(mask: tuple[int, bytes]) -> None:
    _, data = mask
    ids = allowed_ids(np.frombuffer(data, "<u4"))
    assert ids.dtype == np.int64
    assert ids.tolist() == [i for i in range(len(data) * 8) if bit(data, i)]


def test_a_sparse_wide_mask_gives_its_few_ids() -> None:
    words = np.zeros(4096, "<u4")
    words[0], words[4095] = 1, 1 << 31
    assert allowed_ids(words).tolist() == [0, 131071]


def test_an_empty_mask_gives_no_ids() -> None:
    assert allowed_ids(np.zeros(3, "<u4")).tolist() == []


def test_not_a_number_is_forbidden_like_any_other() -> None:
    logits = np.array([np.nan, 1.0], np.float32)
    apply_mask(logits, np.array([2], "<u4"))
    assert logits.tolist() == [-np.inf, 1.0]


@pytest.mark.parametrize(("shape", "words"), [((33,), 1), ((32,), 2), ((0,), 1), ((2, 32), 1)])
def test_a_mask_of_another_width_is_refused(shape: tuple[int, ...], words: int) -> None:
    logits = np.ones(shape, np.float32)
    with pytest.raises(MaskShapeError):
        apply_mask(logits, np.zeros(words, "<u4"))
    assert (logits == 1).all()


def test_logits_of_another_type_are_refused() -> None:
    with pytest.raises(MaskShapeError, match="float64"):
        apply_mask(np.ones(32), np.zeros(1, "<u4"))  # type: ignore[arg-type]


def test_a_row_of_a_strided_batch_is_masked_in_place() -> None:
    rows = np.ones((2, 40, 2), np.float32)
    apply_mask(rows[1, :, 0], np.array([1, 0], "<u4"))
    assert rows[1, :, 0].tolist() == [1.0] + [-np.inf] * 39
    assert (rows[0] == 1).all()
    assert (rows[1, :, 1] == 1).all()
