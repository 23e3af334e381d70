"""A runner of a few lines: real daemon, real chain, and a model that is any function of the tokens before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from constraintd_client import ConstraintClient, SessionHandle
from constraintd_runner.pickers import MaskedPicker
from constraintd_runner.sampler_config import chain_of
from numpy.typing import NDArray

from tests.daemon_process import WIDTH

Logits = Callable[[Sequence[int]], NDArray[np.float32]]


def made_up_logits(tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits that depend on every token before, and on nothing else."""
    digest = hashlib.sha256(np.array(tokens, dtype="<u4").tobytes()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    return (generator.standard_normal(WIDTH) * 3).astype(np.float32)


def generate(
    client: ConstraintClient, session: SessionHandle, before: Sequence[int], count: int, logits: Logits = made_up_logits
) -> list[int]:
    """At most `count` tokens more, behind the model's input `before`; fewer where the session finishes."""
    assert session.sampler is not None
    picker = MaskedPicker(chain_of(session.sampler))
    taken: list[int] = []
    while len(taken) < count and session.directive.mask is not None:
        choice = picker.pick(logits([*before, *taken]), session.directive)
        taken.append(choice.token)
        client.step(session, [choice.token], [choice.surprisal])
    return taken
