"""How a turn ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from constraintd.encoding import Reader, Writer


class FinishReason(Enum):
    """Why a session finished; values are the protocol's names."""

    EOG = "EOG"
    STOP_STRING = "STOP_STRING"
    STOP_ID = "STOP_ID"
    GRAMMAR_EXHAUSTED = "GRAMMAR_EXHAUSTED"
    LENGTH = "LENGTH"


TERMINAL = (FinishReason.EOG, FinishReason.STOP_STRING, FinishReason.STOP_ID)
"""Reasons that a token brought: it stays the last one until it is rolled back or a new turn begins."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A session's end. `cut_offset` is the final text's length in bytes."""

    reason: FinishReason
    cut_offset: int
    constraint_incomplete: bool
    stop_string: bytes = b""
    stop_id: int | None = None
    schema_satisfied: bool | None = None
    """Whether the final text satisfies its JSON Schemas; None where that is not asked, or the text is incomplete."""
    schema_violation: str = ""


def write_finish(writer: Writer, finish: Finish) -> None:
    """All of it, canonically."""
    writer.text(finish.reason.value)
    writer.unsigned(finish.cut_offset)
    writer.flag(finish.constraint_incomplete)
    writer.data(finish.stop_string)
    writer.flag(finish.stop_id is not None)
    if finish.stop_id is not None:
        writer.unsigned(finish.stop_id)
    writer.unsigned({None: 0, False: 1, True: 2}[finish.schema_satisfied])
    writer.text(finish.schema_violation)


def read_finish(reader: Reader) -> Finish:
    """What `write_finish` wrote. Raises InvalidEnvelope."""
    name = reader.text()
    if name not in FinishReason.__members__:
        raise reader.error(f"{name!r} is no reason to finish")
    return Finish(
        FinishReason[name],
        reader.unsigned(),
        reader.flag(),
        reader.data(),
        reader.unsigned(below=1 << 32) if reader.flag() else None,
        (None, False, True)[reader.unsigned(below=3)],
        reader.text(),
    )
