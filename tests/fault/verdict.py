"""What the histories of a run come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fault.explain import Violation, explain
from tests.fault.history import Answer, Operation, read_histories, read_marks
from tests.fault.model import Text
from tests.fault.sessions import kind_of, session_id_of

_UNDOES = ("rollback", "close", "open")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts over all sessions of a run. All but the first three must be 0."""

    sessions: int
    outcomes: int
    doubtful: int
    """Calls whose outcome nobody knows."""
    lost: int
    """Accepted tokens that were not there when somebody looked."""
    doubled: int
    """Sessions in which somebody saw a token that does not belong there, or twice."""
    stuck: int
    """Sessions that were begun and did not end."""
    violations: tuple[Violation, ...]
    faults: tuple[str, ...]
    """Refusals that no client should ever get, with how often."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.doubled or self.stuck or self.violations or self.faults)

    def table(self) -> str:
        """For people."""
        rows = [
            *(("sessions", self.sessions), ("outcomes checked", self.outcomes), ("outcomes unknown", self.doubtful)),
            *(("accepted tokens lost", self.lost), ("sessions with doubled tokens", self.doubled)),
            *(("sessions stuck", self.stuck), ("histories that no order explains", len(self.violations))),
        ]
        lines = [f"{name:<34}{count:>8}" for name, count in rows]
        return "\n".join([*lines, *self.faults, *map(str, self.violations[:5])])


_FAULTS = ("INTERNAL", "REPLAY_DIVERGED", "INVALID_ENVELOPE", "MalformedAnswer", "TOKEN_NOT_ALLOWED", "INVALID_FIELD")


def verdict_of(folder: Path, run: str, texts: Mapping[str, Text]) -> Verdict:
    """Reads all histories in the folder. `texts` by the kind's name."""
    files = sorted(folder.glob("*.jsonl"))
    histories = read_histories(files)
    begun, ended = read_marks(files)
    kinds = {session_id_of(run, number).hex(): kind_of(number).name for number in begun}
    violations: list[Violation] = []
    faults: Counter[str] = Counter()
    lost = doubled = 0
    for session, history in histories.items():
        text = texts[kinds[session]]
        violation = explain(history, text)
        if violation is not None:
            violations.append(violation)
        lost += _lost(history)
        doubled += _doubled(history, text)
        faults.update(
            operation.outcome.reason
            for operation in history
            if operation.outcome is not None
            and not isinstance(operation.outcome, Answer)
            and operation.outcome.reason in _FAULTS
        )
    every = [operation for history in histories.values() for operation in history]
    known = sum(operation.outcome is not None for operation in every)
    return Verdict(
        len(histories),
        known,
        len(every) - known,
        lost,
        doubled,
        len(begun - ended),
        tuple(violations),
        tuple(f"{reason:<34}{count:>8}" for reason, count in faults.items()),
    )


def _lost(history: Sequence[Operation]) -> int:
    """Tokens that a look didn't show although they had been answered before it, and nothing undid them."""
    lost = 0
    for look in history:
        if not (isinstance(look.outcome, Answer) and look.outcome.tokens is not None):
            continue
        undone = max(
            (op.invoked for op in history if op.call.kind in _UNDOES and op.invoked < look.returned), default=0
        )
        accepted = [
            op.outcome.position or 0
            for op in history
            if isinstance(op.outcome, Answer) and op.invoked > undone and op.returned < look.invoked
        ]
        lost += max(0, max(accepted, default=0) - len(look.outcome.tokens))
    return lost


def _doubled(history: Sequence[Operation], text: Text) -> bool:
    return any(
        operation.outcome.tokens != text.tokens[: len(operation.outcome.tokens)]
        for operation in history
        if isinstance(operation.outcome, Answer) and operation.outcome.tokens is not None
    )
