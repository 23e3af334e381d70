"""A generation that has a slot, as the decode loop keeps it."""

from __future__ import annotations

import time

import numpy as np
from constraintd_client.backoff import Backoff
from numpy.typing import NDArray

from constraintd_runner.directives import StepReport
from constraintd_runner.generation import Generation, GenerationStatistics
from constraintd_runner.sampling import PositionLogprobs


class Live:
    """A generation that has a slot. Its `token` was picked and not fed yet; its `row` was fed and not picked from."""

    __slots__ = (
        "answered",
        "asked_at",
        "backoff",
        "directive",
        "generation",
        "late",
        "logprobs",
        "may_be_mistaken",
        "over",
        "passes",
        "picked",
        "prefill_s",
        "prefilled_at",
        "report",
        "resend_at",
        "row",
        "slot",
        "surprisal",
        "token",
        "waited_s",
        "waits_us",
        "wire_bytes",
    )

    def __init__(self, generation: Generation, slot: int) -> None:
        self.generation = generation
        self.slot = slot
        self.directive = generation.session.directive
        self.token: int | None = None
        self.picked = 0  # the last token picked, fed or not
        self.surprisal = 0.0
        self.logprobs: PositionLogprobs | None = None
        self.passes: list[int] = []  # lengths of the forward passes since the last Step
        self.row: NDArray[np.float32] | None = None
        self.asked_at: float | None = None  # when its last Step was sent first, until that is answered
        self.report: StepReport | None = None  # that Step
        self.resend_at: float | None = None  # it was refused for now, and is to be sent again then
        self.backoff = Backoff()
        # A STALE_EPOCH may answer the Step of an earlier owner at this same runner, which was still on its way.
        self.may_be_mistaken = generation.resumed
        self.answered = 0  # its Steps that were answered
        self.late = False  # the others have gone on without it
        self.over = False
        self.prefill_s = 0.0
        self.prefilled_at = 0.0
        self.waited_s = 0.0
        self.waits_us: list[float] = []
        self.wire_bytes = self.directive.wire_bytes

    @property
    def may_be_fed(self) -> bool:
        """Whether its token is worth a forward pass before its Step is answered: not where an end is to be expected."""
        if self.asked_at is None:
            return True
        generation = self.generation
        last = generation.session.position + 1 >= generation.token_limit
        return not (last or self.picked in generation.terminal_ids)

    def statistics(self) -> GenerationStatistics:
        """What it took until now."""
        return GenerationStatistics(
            prompt_tokens=len(self.generation.prompt) - self.generation.accepted,
            completion_tokens=self.directive.position,
            prefill_us=round(self.prefill_s * 1e6),
            decode_us=round((time.perf_counter() - self.prefilled_at) * 1e6),
            mask_waits_us=tuple(self.waits_us),
            wire_bytes=self.wire_bytes,
        )
