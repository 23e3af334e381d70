"""A Directive's message becomes a value, or is refused: nothing that can't be used ever samples a token."""

from __future__ import annotations

import math
import struct

import pytest
from constraintd_client import MalformedAnswer, SessionHandle
from constraintd_client.directive import directive_of
from constraintd_client.session_handle import handle_of
from constraintd_client.step_batch import step_message

from constraintd.v1 import mask_pb2, sampler_pb2, session_pb2

MASK = mask_pb2.Mask(dense=b"\x07\0\0\0")


def adjustments(*entries: tuple[int, float, float]) -> session_pb2.LogitAdjustments:
    """Of (id, scale, offset), in the bytes that the protocol names."""
    return session_pb2.LogitAdjustments(
        ids=b"".join(struct.pack("<I", token) for token, _, _ in entries),
        scales=b"".join(struct.pack("<d", scale) for _, scale, _ in entries),
        offsets=b"".join(struct.pack("<d", offset) for _, _, offset in entries),
    )


def test_a_directive_has_all_that_the_message_says() -> None:
    message = session_pb2.Directive(
        position=3,
        mask=MASK,
        draw=0.25,
        settled_bytes=9,
        adjustments=adjustments((1, 1.5, -0.25), (70_000, 1.0, 2.0)),
        mu=5.5,
        awaiting_trigger=True,
        allows_eog=True,
        complete=True,
        exhausted=True,
    )
    directive = directive_of(message, 77)
    assert directive.mask is not None
    assert directive.mask.tolist() == [7]
    assert (directive.position, directive.draw, directive.settled_bytes, directive.wire_bytes) == (3, 0.25, 9, 77)
    assert directive.mu == 5.5
    assert (directive.awaiting_trigger, directive.allows_eog, directive.complete, directive.exhausted) == (True,) * 4
    changes = directive.adjustments
    assert changes is not None
    assert (changes.ids.dtype, changes.scales.dtype, changes.offsets.dtype) == ("uint32", "float64", "float64")
    assert (changes.ids.tolist(), changes.scales.tolist()) == ([1, 70_000], [1.5, 1.0])
    assert changes.offsets.tolist() == [-0.25, 2.0]


def test_what_the_message_leaves_out_is_none_or_false() -> None:
    directive = directive_of(session_pb2.Directive(mask=MASK), 0)
    assert (directive.adjustments, directive.mu) == (None, None)
    assert (directive.awaiting_trigger, directive.allows_eog, directive.complete, directive.exhausted) == (False,) * 4


def test_a_mu_of_0_is_not_a_mu_that_is_missing() -> None:
    assert directive_of(session_pb2.Directive(mask=MASK, mu=0.0), 0).mu == 0.0


def test_no_adjustments_at_all_are_none() -> None:
    message = session_pb2.Directive(mask=MASK, adjustments=session_pb2.LogitAdjustments())
    assert directive_of(message, 0).adjustments is None


@pytest.mark.parametrize(
    "broken",
    [
        session_pb2.LogitAdjustments(ids=bytes(3)),
        session_pb2.LogitAdjustments(ids=bytes(4)),
        session_pb2.LogitAdjustments(ids=bytes(4), scales=struct.pack("<d", 1.0), offsets=bytes(4)),
        session_pb2.LogitAdjustments(scales=bytes(8), offsets=bytes(8)),
        adjustments((1, 0.0, 0.0)),
        adjustments((1, -1.0, 0.0)),
        adjustments((1, math.nan, 0.0)),
        adjustments((1, math.inf, 0.0)),
        adjustments((1, 1.0, math.nan)),
        adjustments((1, 1.0, -math.inf)),
    ],
)
def test_adjustments_that_cannot_be_used_are_malformed(broken: session_pb2.LogitAdjustments) -> None:
    with pytest.raises(MalformedAnswer, match="adjustments at position 4"):
        directive_of(session_pb2.Directive(position=4, mask=MASK, adjustments=broken), 0)


@pytest.mark.parametrize("mu", [math.nan, math.inf])
def test_a_mu_that_is_not_finite_is_malformed(mu: float) -> None:
    with pytest.raises(MalformedAnswer, match="mu is"):
        directive_of(session_pb2.Directive(mask=MASK, mu=mu), 0)


def test_a_handle_has_the_config_in_force_where_the_daemon_tells_it() -> None:
    directive = session_pb2.Directive(mask=MASK)
    told = session_pb2.OpenSessionResponse(directive=directive, sampler=sampler_pb2.SamplerConfig(max_tokens=3))
    assert handle_of(b"s", told).sampler == sampler_pb2.SamplerConfig(max_tokens=3)
    assert handle_of(b"s", session_pb2.OpenSessionResponse(directive=directive)).sampler is None


def test_a_step_carries_its_passes_where_they_are_given() -> None:
    session = SessionHandle(b"s" * 16, 1, 7, directive_of(session_pb2.Directive(mask=MASK), 0))
    assert list(step_message(session, [5], [0.5], [100, 20]).passes) == [100, 20]
    assert list(step_message(session, [5], [0.5]).passes) == []
