"""Lengths of the forward passes that made a session's tokens, as its runners reported them.

A runner that repeats the same passes gets the same KV cache, bit for bit. A report covers the last tokens before a
Step: those that were fed since the last one, or everything anew after a takeover. It replaces what stood there.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from constraintd.errors import InvalidField


class Passes:
    """The record of one session. `fed`: how many tokens of the model's input it covers, from the beginning."""

    __slots__ = ("fed", "lengths")

    def __init__(self, lengths: Sequence[int] = ()) -> None:
        self.lengths = array("I", lengths)
        self.fed = sum(lengths)

    def checked(self, report: Sequence[int], due: int) -> None:
        """Raises InvalidField unless the report can end at `due` tokens, all that precede a Step."""
        if not report:
            return
        covered = sum(report)
        if 0 in report:
            raise InvalidField("step.passes", "a forward pass has at least one token; leave empty ones out")
        if covered > due or due - covered > self.fed:
            raise InvalidField(
                "step.passes",
                f"they come to {covered} tokens; {due - self.fed} were fed since the last report, {due} in all: "
                "report every pass since the last Step, or the whole prefill after a takeover",
            )

    def report(self, report: Sequence[int], due: int) -> None:
        """Takes a checked report. None breaks the record off until a whole one comes."""
        if not report:
            self.cut(0)
            return
        self.cut(due - sum(report))
        self.lengths.extend(report)
        self.fed = due

    def cut(self, fed: int) -> None:
        """Forgets what lies past the first `fed` tokens; a pass across that point is cut in two."""
        while self.fed > fed:
            last = self.lengths.pop()
            self.fed -= last
            if self.fed < fed:
                self.lengths.append(fed - self.fed)
                self.fed = fed

    def copy(self) -> Passes:
        """The same record, to go on independently."""
        twin = Passes()
        twin.lengths = self.lengths[:]
        twin.fed = self.fed
        return twin
