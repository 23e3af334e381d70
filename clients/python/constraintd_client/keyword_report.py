"""What the daemon makes of each keyword of a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from constraintd.v1 import grammar_pb2


@dataclass(frozen=True, slots=True)
class KeywordReport:
    """One keyword at one place."""

    pointer: str
    """JSON pointer of the keyword."""
    keyword: str
    verdict: str
    """ "ENFORCED", "NARROWED" (some valid spelling is not produced), "APPROXIMATED" (the output may violate it) or
    "ANNOTATION" (it asserts nothing)."""
    detail: str
    """Why, in one sentence; empty where there is nothing to say."""


def report_of(messages: Iterable[grammar_pb2.KeywordReport]) -> tuple[KeywordReport, ...]:
    """Translates a report; a verdict newer than these stubs is given as its number."""
    return tuple(
        KeywordReport(message.pointer, message.keyword, _verdict(message.verdict), message.detail)
        for message in messages
    )


def _verdict(value: grammar_pb2.KeywordVerdict.ValueType) -> str:
    if value not in grammar_pb2.KeywordVerdict.values():
        return str(value)
    return grammar_pb2.KeywordVerdict.Name(value).removeprefix("KEYWORD_VERDICT_")
