"""What one pushdown grammar, and one step in it, may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import thread_time
from typing import Final

from constraintd.errors import LimitExceeded
from constraintd.grammar.gbnf_rules import GbnfLimits

_CLOCK_EVERY: Final = 64


@dataclass(frozen=True, slots=True)
class AutomatonLimits:
    """How far one automaton, one state in it, and one step may go."""

    states: int = 65_536
    """An automaton past half of this is replaced by a fresh one; a step that alone needs more gives up."""

    stacks: int = 1_000_000
    """Interned stacks, stack cells and expansions, each; as with `states`."""

    stacks_in_state: int = 4_096
    """Ways to read the bytes so far."""

    step_seconds: float = 2.0
    """Longest that one mask or advance may take."""


@dataclass(frozen=True, slots=True)
class PushdownLimits:
    """What one grammar may take."""

    source: GbnfLimits = field(default_factory=GbnfLimits)
    automaton: AutomatonLimits = field(default_factory=AutomatonLimits)

    positions: int = 200_000
    """Nodes of the network: places between the parts of the rules, repetitions written out."""

    mask_cache_bytes: int = 64 * 1024 * 1024
    """Finished masks of one grammar."""


class Deadline:
    """When the step that is under way has to give up. Asked often, it looks at the clock seldom.

    By the thread's own time: on a machine that is starved of it a grammar is no more ambiguous than elsewhere.
    """

    __slots__ = ("_end", "_left", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = thread_time() + seconds
        self._left = _CLOCK_EVERY

    def check(self) -> None:
        """Raises LimitExceeded past the end; looks at the clock at every 64th call."""
        self._left -= 1
        if self._left <= 0:
            self.check_now()

    def check_now(self) -> None:
        """Raises LimitExceeded past the end."""
        self._left = _CLOCK_EVERY
        if thread_time() > self._end:
            raise LimitExceeded(
                f"the grammar took over {self._seconds:g} s at one step; it is too ambiguous here",
                step_seconds=self._seconds,
            )


def too_many(what: str, limit: int) -> LimitExceeded:
    """The error of a step that made more than `limit` of something."""
    return LimitExceeded(f"one step of the grammar made over {limit} {what}; it is too ambiguous here", limit=limit)
