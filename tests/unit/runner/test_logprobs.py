"""Log probabilities: after the mask, before adjustments and stages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from constraintd_client import Directive
from constraintd_client.directive import LogitAdjustments
from constraintd_client.errors import MalformedAnswer
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampling import Chain, LogitBias, MirostatV2, TopK, position_logprobs

# Logits whose softmax is 1/2, 1/4, 1/8, 1/8.
HALVES = np.array([3.0 * math.log(2), 2.0 * math.log(2), math.log(2), math.log(2)], dtype=np.float32)
ALL = np.array([0b1111], dtype="<u4")
LOG_2 = math.log(2)


def directive(mask: int = 0b1111, **more: object) -> Directive:
    return Directive(0, np.array([mask], "<u4"), None, None, 0.999, 0, 100, **more)  # type: ignore[arg-type]


def test_the_taken_token_and_the_most_probable_ones_come_in_order_with_ties_by_the_lowest_id() -> None:
    found = position_logprobs(HALVES, ALL, taken=3, count=3)
    assert found.taken.token == 3
    assert found.taken.logprob == pytest.approx(-3 * LOG_2, abs=1e-6)
    assert [each.token for each in found.top] == [0, 1, 2]
    assert [each.logprob for each in found.top] == pytest.approx([-LOG_2, -2 * LOG_2, -3 * LOG_2], abs=1e-6)


def test_only_allowed_tokens_count() -> None:
    found = position_logprobs(HALVES, np.array([0b1110], dtype="<u4"), taken=1, count=2)
    assert found.taken.logprob == pytest.approx(-LOG_2, abs=1e-6)
    assert [each.token for each in found.top] == [1, 2]


def test_fewer_come_where_fewer_are_possible() -> None:
    logits = np.array([-np.inf, 4.0, -np.inf], dtype=np.float32)
    found = position_logprobs(logits, np.array([0b111], dtype="<u4"), taken=1, count=20)
    assert (found.taken.logprob, [each.token for each in found.top]) == (0.0, [1])


def test_none_of_the_most_probable_may_be_asked_for() -> None:
    assert position_logprobs(HALVES, ALL, taken=0, count=0).top == ()


def test_they_are_the_models_own_whatever_penalties_and_stages_do() -> None:
    chain = Chain.of([TopK(2), LogitBias((1,), (100.0,))])
    penalties = LogitAdjustments(np.array([0], "<u4"), np.array([2.0]), np.array([-1.0]))
    choice = MaskedPicker(chain, logprobs=1).pick(HALVES, directive(adjustments=penalties))
    assert (choice.token, choice.surprisal) == (1, 0.0)
    assert choice.logprobs is not None
    assert choice.logprobs.taken.logprob == pytest.approx(-2 * LOG_2, abs=1e-6)
    assert [each.token for each in choice.logprobs.top] == [0]


def test_who_does_not_ask_gets_none() -> None:
    assert MaskedPicker(Chain.of([])).pick(HALVES, directive()).logprobs is None


# --- the rest of what a picker takes from a directive ---


def test_adjustments_of_the_directive_are_applied() -> None:
    penalties = LogitAdjustments(np.array([0, 1, 2], "<u4"), np.ones(3), np.full(3, -900.0))
    assert MaskedPicker(Chain.of([])).pick(HALVES, directive(adjustments=penalties)).token == 3


def test_mu_of_the_directive_is_what_mirostat_cuts_at() -> None:
    picker = MaskedPicker(Chain.of([MirostatV2()]))
    assert [picker.pick(HALVES, directive(mu=mu)).token for mu in (1.5, 2.5, 3.5)] == [0, 1, 3]


def test_a_directive_without_the_mu_that_the_chain_takes_is_malformed() -> None:
    with pytest.raises(MalformedAnswer, match="no mu at position 0"):
        MaskedPicker(Chain.of([MirostatV2()])).pick(HALVES, directive())
