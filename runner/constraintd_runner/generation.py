"""One generation on its way through the decode loop: what goes in, what comes out, and what it took."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from constraintd_client import Directive, Finish, SessionHandle
from numpy.typing import NDArray

from constraintd_runner.sampling import PositionLogprobs


@dataclass(frozen=True, slots=True)
class Choice:
    """A generation's next token."""

    token: int
    surprisal: float
    """-log2 of its probability after all stages, in bits."""
    logprobs: PositionLogprobs | None = None
    """What the model had to say at its position, for callers who asked."""


class Picker(Protocol):
    """Chooses a generation's next token. Called on the decode loop's thread."""

    def pick(self, logits: NDArray[np.float32], directive: Directive) -> Choice:
        """A token from a row [logits_width], which is overwritten later and must not be kept."""
        ...


@dataclass(frozen=True, slots=True)
class GenerationStatistics:
    """What one generation took. Times in microseconds."""

    prompt_tokens: int
    completion_tokens: int
    """Tokens accepted, the terminal one included."""
    prefill_us: int
    """From the start of its prefill until the prompt was in."""
    decode_us: int
    """From then until its end was known."""
    mask_waits_us: tuple[float, ...]
    """For each answer, how long the loop stood still for it with nothing else to do."""
    wire_bytes: int
    """Its Steps and Directives, as serialized messages."""

    @property
    def mask_wait_us(self) -> int:
        """The sum of all waits."""
        return round(sum(self.mask_waits_us))

    def mask_wait_percentile(self, percent: float) -> float:
        """A percentile of the waits, in microseconds; 0 if there were none."""
        return float(np.percentile(self.mask_waits_us, percent)) if self.mask_waits_us else 0.0


@dataclass(frozen=True, slots=True)
class PromptIn:
    """The prompt is in the model."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The daemon took a token; text up to `settled_bytes`, counted from position 0, may be shown."""

    token: int
    settled_bytes: int
    logprobs: PositionLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The generation is over and did not fail."""

    finish: Finish
    statistics: GenerationStatistics


@dataclass(frozen=True, slots=True)
class Failed:
    """The generation is over; what came before is a fragment."""

    error: Exception


Event: TypeAlias = PromptIn | Accepted | Ended | Failed
"""PromptIn, any number of Accepted, then Ended; or Failed at any point."""


class Generation:
    """A prompt under an open session, from its submission to its end.

    The submitting thread reads `events` and may `cancel`; everything else belongs to the decode loop from
    `DecodeLoop.submit` on.
    """

    __slots__ = (
        "_events",
        "accepted",
        "cancelled",
        "passes",
        "picker",
        "prompt",
        "resumable",
        "resumed",
        "session",
        "terminal_ids",
        "token_limit",
    )

    def __init__(
        self,
        session: SessionHandle,
        prompt: NDArray[np.int64],
        picker: Picker,
        *,
        token_limit: int,
        terminal_ids: frozenset[int] = frozenset(),
        resumable: bool = False,
        resumed: bool = False,
        accepted: int = 0,
        passes: Sequence[int] = (),
    ) -> None:
        """`prompt`: [n >= 1] token ids, to be prefilled; of a `resumed` one its last `accepted` ones were generated.

        `token_limit` and `terminal_ids` say where an end is to be expected: after such a token the loop waits for the
        daemon's word before it spends a forward pass. They decide nothing; the daemon does.

        `resumable`: the session stays open at the daemon when this is over. `passes`: the lengths of the forward passes
        that the prefill is made of, summing up to n; with them the generation runs alone. Empty: all at once, beside
        others.
        """
        self.session = session
        self.prompt = prompt
        self.picker = picker
        self.token_limit = token_limit
        self.terminal_ids = terminal_ids
        self.resumable = resumable
        self.resumed = resumed
        self.accepted = accepted
        self.passes = passes
        self.cancelled = False
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    @property
    def alone(self) -> bool:
        """Whether nobody may be in the batch beside it."""
        return bool(self.passes)

    def cancel(self) -> None:
        """Frees its place at the loop's next turn. From any thread, at any time, any number of times."""
        self.cancelled = True

    def put(self, event: Event) -> None:
        """For the decode loop alone."""
        self._events.put(event)

    def events(self) -> Iterator[PromptIn | Accepted | Ended]:
        """What happens, as it happens; the last is Ended. Raises the error of a generation that failed."""
        while True:
            event = self._events.get()
            if isinstance(event, Failed):
                raise event.error
            yield event
            if isinstance(event, Ended):
                return
