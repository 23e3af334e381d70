"""What can go wrong between a row of logits and a token."""

from __future__ import annotations


class SamplingError(Exception):
    """Root of the sampler's errors; no token was picked."""


class BrokenLogits(SamplingError):
    """The model's row holds NaN or +inf, or nothing but -inf: its forward pass went wrong."""


class NothingLeft(SamplingError):
    """The mask allows tokens, but the model, or what penalties make of its logits, gives every one of them -inf."""
